package kamino_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestArchitectureTable: the table of steps in docs/architecture.md is the
// pipeline's. UPDATE=1 writes it.
func TestArchitectureTable(t *testing.T) {
	const path = "docs/architecture.md"
	const head = "| step | original | does | gives back |\n| --- | --- | --- | --- |\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s has no table of steps", path)
	}
	_, after, _ := strings.Cut(rest, "\n\n")
	var rows strings.Builder
	for _, s := range kamino.Pipeline() {
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", s.Name, dash(s.Seed), s.Does, dash(s.Back))
	}
	want := before + head + rows.String() + "\n" + after
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("the table of steps in %s is not the pipeline's; write it with: UPDATE=1 go test -run TestArchitectureTable .", path)
	}
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
