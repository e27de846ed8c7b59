package crash

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"kamino.dev/kamino/lab/controlplane"
)

var station *Station

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	ctx := context.Background()
	binary := os.Getenv("KAMINO_LAB")
	if binary == "" {
		var err error
		if binary, err = controlplane.Build(ctx); err != nil {
			return 0, err
		}
	}
	dir, err := os.MkdirTemp("", "kamino-crash-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if station, err = NewStation(ctx, dir, binary); err != nil {
		return 0, err
	}
	defer station.Close()
	return m.Run(), nil
}

func TestGolden(t *testing.T) {
	g, err := runGolden(t.Context(), station, Shape{Name: "first day", NewNodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range g.Calls {
		t.Logf("%3d %-4s %-10s %s %d %s %v", c.N, g.Rows[i], c.Step, c, c.Status, c.Act, g.at[i])
	}
	for _, l := range g.Digest {
		t.Log(l[:min(len(l), 300)])
	}
}

func TestDevelop(t *testing.T) {
	pattern := os.Getenv("CRASH_CASE")
	if pattern == "" {
		t.Skip("no CRASH_CASE")
	}
	goldens, err := Goldens(t.Context(), station)
	if err != nil {
		t.Fatal(err)
	}
	re := regexp.MustCompile(pattern)
	bad := 0
	every := 1
	fmt.Sscan(os.Getenv("CRASH_EVERY"), &every)
	n := 0
	for _, c := range Enumerate(goldens) {
		if !re.MatchString(c.Name) {
			continue
		}
		if n++; n%every != 0 {
			continue
		}
		fmt.Fprintln(os.Stderr, time.Now().Format("15:04:05"), c.Name)
		o, err := c.Try(t.Context(), station, os.Getenv("CRASH_VERBOSE") != "")
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Violations) > 0 || !o.Hit || o.FirstErr != nil || os.Getenv("CRASH_VERBOSE") != "" {
			fmt.Printf("%s hit=%v %v err=%v\n", c.Name, o.Hit, o.Took.Round(time.Millisecond), o.FirstErr)
		}
		for _, v := range o.Violations {
			fmt.Println("   !!", v[:min(len(v), 600)])
		}
		if len(o.Violations) > 0 || !o.Hit || os.Getenv("CRASH_VERBOSE") != "" {
			bad++
			os.WriteFile(fmt.Sprintf("/tmp/crash-%d.log", bad), []byte(c.Name+"\n"+tail(o.History, 100000)), 0o644)
		}
	}
	fmt.Println(n, "cases,", bad, "bad")
}
