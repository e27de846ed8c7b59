package boot_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
	"kamino.dev/kamino/boot/internal/sample"
	"kamino.dev/kamino/boot/read"
	"kamino.dev/kamino/internal/golden"
)

func published(t *testing.T, name string) *boot.Capture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "published", name+".show"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := read.Bytes(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// exampleNode is the node of the documentation: an ordinary one that the platform had parked.
func exampleNode() *boot.Capture {
	return sample.Node(sample.Options{Name: "aks-pool1-vmss000004", Seed: 2, Parked: 1000 * sec})
}

func exampleClone() *boot.Capture {
	return sample.Node(sample.Options{Name: "aks-pool1-vmss000007", Seed: 3, Clone: true})
}

func text(t *testing.T, write func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGoldenText(t *testing.T) {
	for name, c := range map[string]*boot.Capture{
		"docker": published(t, "docker"), "preprovisioned": published(t, "preprovisioned"), "cloud-final": published(t, "cloud-final"),
		"node": exampleNode(), "clone": exampleClone(),
	} {
		a := analysis(t, c)
		for verb, write := range map[string]func(io.Writer) error{"show": a.WriteText, "time": a.WriteTime, "blame": a.WriteBlame, "chain": a.WriteChain} {
			golden.Check(t, filepath.Join("testdata", "golden", name+"."+verb+".txt"), string(text(t, write)))
		}
	}
	golden.Check(t, "testdata/golden/compare.txt", string(text(t, boot.Compare(analysis(t, exampleNode()), analysis(t, exampleClone())).WriteText)))
	golden.Check(t, "testdata/golden/pool.txt", string(text(t, examplePool(t).WriteText)))
}

func examplePool(t *testing.T) *boot.PoolReport {
	var p boot.Pool
	for i := range 24 {
		o := sample.Options{Name: fmt.Sprintf("aks-pool1-vmss%06d", i), Seed: uint64(i)}
		if i%4 == 0 {
			o.Parked = boot.Micros(300+i*40) * sec
		}
		p.Add(boot.Summarize("", analysis(t, sample.Node(o))))
	}
	return p.Report()
}

// TestGoldenDocs: what the documentation shows is what the program prints and draws.
func TestGoldenDocs(t *testing.T) {
	c := exampleNode()
	golden.Check(t, "../docs/boot.svg", string(text(t, func(w io.Writer) error { return draw.SVG(w, c, analysis(t, c)) })))
	page, err := os.ReadFile("../docs/boot.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for block := range strings.SplitSeq(string(page), "<!-- testdata/") {
		name, rest, ok := strings.Cut(block, " -->\n```text\n")
		if !ok || strings.Contains(name, "\n") {
			continue
		}
		shown++
		quoted, _, _ := strings.Cut(rest, "```")
		whole, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(quoted, "[…]\n") {
			if !strings.Contains(string(whole), part) {
				t.Errorf("docs/boot.md quotes testdata/%s, which does not have:\n%s", name, part)
			}
		}
	}
	if shown < 4 {
		t.Errorf("docs/boot.md quotes %d files, want 4 or more", shown)
	}
}
