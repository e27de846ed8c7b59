package wording

import (
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino/internal/golden"
)

// Check compares the texts of the program in the test's directory, two below the module's, with
// testdata/texts.txt, and fails for words that CONTRIBUTING.md says not to write.
func Check(t *testing.T) {
	t.Helper()
	all, err := Of("../..", "testdata/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/texts.txt", all)
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	avoided := Avoided(string(page))
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
