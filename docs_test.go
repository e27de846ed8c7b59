package kamino_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kamino.dev/kamino/engine"
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
	for _, s := range engine.Pipeline() {
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", s.Name, dash(s.Original), s.Does, dash(s.Back))
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

// TestMakeTargets: whatever pages, the hosted pipeline and CI make is a target that there is.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"README.md", "CONTRIBUTING.md", "AGENTS.md", ".github/workflows/release.yml", ".github/workflows/change.yml", ".ci/run"}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range append(files, pages...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range made.FindAllStringSubmatch(string(text), -1) {
			for _, target := range strings.Fields(m[1]) {
				if tried++; !strings.Contains(string(makefile), "\n"+target+": ") {
					t.Errorf("%s makes %q, which the Makefile does not have", file, target)
				}
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d targets were found", tried)
	}
}

// made finds commands of make in code, with the targets that follow.
var made = regexp.MustCompile("(?m)(?:^    |`|run: |^ +|\" |[A-Z]+=[^ ]+ )make((?: [a-z][a-z-]*)+)(?:`| [A-Z]|$| +#|\\.)")

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
