package main

import (
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino/internal/golden"
	"kamino.dev/kamino/internal/wording"
)

// TestTexts: what an operator can see of this program stands in one file, to be read in one
// sitting, and has none of the words that CONTRIBUTING says not to write.
func TestTexts(t *testing.T) {
	all, err := wording.Of("../..", "testdata/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/texts.txt", all)
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	avoided := wording.Avoided(string(page))
	if len(avoided) < 10 {
		t.Fatalf("words to avoid: %q", avoided)
	}
	for _, words := range avoided {
		for line := range strings.Lines(all) {
			if strings.Contains(strings.ToLower(line), words) {
				t.Errorf("%q is not written: %s", words, line)
			}
		}
	}
}
