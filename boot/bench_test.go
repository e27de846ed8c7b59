package boot_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/internal/sample"
	"kamino.dev/kamino/boot/read"
	"kamino.dev/kamino/internal/bench"
)

// median runs f some times and returns the middle length in milliseconds.
func median(t *testing.T, times int, f func() error) float64 {
	t.Helper()
	var all []float64
	for range times {
		runtime.GC()
		began := time.Now()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// realistic gives every unit the thirty ordering edges that units have on a real machine, not the
// few of the sample.
func realistic(c *boot.Capture) *boot.Capture {
	for i := range c.Units {
		u := &c.Units[i]
		for j := 1; len(u.After) < 30 && j < len(c.Units); j++ {
			u.After = append(u.After, c.Units[(i*7+j*13)%len(c.Units)].ID)
		}
	}
	return c
}

func TestBenchAnalysis(t *testing.T) {
	bench.Need(t)
	var doc bytes.Buffer
	if err := realistic(sample.Node(sample.Options{Name: "big", Seed: 3, Units: 1000, Parked: 1000 * sec})).Write(&doc); err != nil {
		t.Fatal(err)
	}
	c, err := read.Bytes(doc.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	bench.Figure("boot_analysis_1000_units", median(t, 51, func() error { _, err := boot.Analyze(c, boot.Options{}); return err }), "ms", 20)
	bench.Figure("boot_read_1000_units", median(t, 21, func() error { _, err := read.Bytes(doc.Bytes()); return err }), "ms", 50)
}

// TestBenchPool runs the program over a folder of a thousand captures.
func TestBenchPool(t *testing.T) {
	bench.Need(t)
	dir := t.TempDir()
	for i := range 1000 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("node-%04d.json", i)))
		if err != nil {
			t.Fatal(err)
		}
		c := realistic(sample.Node(sample.Options{Name: fmt.Sprintf("node-%04d", i), Seed: uint64(i), Units: 250, Clone: i%4 == 0}))
		if err := c.Write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "kamino")
	if out, err := exec.Command("go", "build", "-o", program, "kamino.dev/kamino/cmd/kamino").CombinedOutput(); err != nil {
		t.Fatalf("build kamino: %v\n%s", err, out)
	}
	var rss, processor float64
	length := median(t, 3, func() error {
		cost, err := bench.Run(exec.Command(program, "boot", "pool", dir))
		processor, rss = cost.CPU.Seconds(), max(rss, cost.Megabytes)
		return err
	})
	bench.Figure("boot_pool_1000_captures", length/1000, "s", 5)
	bench.Figure("boot_pool_1000_captures_cpu", processor, "s", 10) // what two processors can do in that time, whoever else uses them
	bench.Figure("boot_pool_1000_captures_memory", rss, "MB", 200)
}
