package mutants

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlay: every patch applies to the engine as it is, and what comes of it compiles.
func TestOverlay(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := Overlay(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "./engine", "./aws", "./internal/sim/mutants")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestStale: a patch whose place in the source has changed is told by its name, with all others
// that no longer apply, and nothing is built.
func TestStale(t *testing.T) {
	const engine = "../../../engine"
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "engine"), os.DirFS(engine)); err != nil {
		t.Fatal(err)
	}
	const file = "image_prune.go"
	text, err := os.ReadFile(filepath.Join(engine, file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "engine", file), bytes.ReplaceAll(text, []byte("Prunable("), []byte("Dispensable(")), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := Overlay(root, t.TempDir())
	if overlay != "" || err == nil || !strings.Contains(err.Error(), "mutant prune-forgets-way-back: it no longer applies") {
		t.Errorf("%q, %v", overlay, err)
	}
}

// TestOnlyFunctions: what a patch does besides changing the bodies of functions would be there for
// all mutants, and is refused.
func TestOnlyFunctions(t *testing.T) {
	const was = "package kamino\n\nvar x = 1\n\nfunc f(a int) int { return a }\n"
	_, funcs, _, err := parse("a.go", []byte(was))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a variable":  {"x = 1", "x = 2"},
		"a parameter": {"a int", "b, a int"},
		"a function":  {"func f", "func g() {}\n\nfunc f"},
	} {
		s := &source{name: "a.go", text: []byte(was), funcs: funcs, inserts: map[int][]string{}}
		if _, _, err := s.mutate("m", []byte(strings.Replace(was, change[0], change[1], 1))); err == nil {
			t.Errorf("a patch that changes %s passes", name)
		}
	}
	s := &source{name: "a.go", text: []byte(was), funcs: funcs, inserts: map[int][]string{}}
	got, _, err := s.mutate("m", []byte(strings.Replace(was, "return a", "return -a", 1)))
	if err != nil || len(got) != 1 || got[0] != "func f_m(a int) int { return -a }" || !strings.Contains(string(s.woven()), `if Mutant == "m" { return f_m(a) }`) {
		t.Errorf("%q, %v; the source becomes %s", got, err, s.woven())
	}
}

// TestSwitch: the product's own binaries have none.
func TestSwitch(t *testing.T) {
	if err := Switch("no-drain"); err == nil || Switch("") != nil {
		t.Errorf("a mutant was switched on in a binary without any: %v", err)
	}
	for _, m := range All() {
		if m.What == "" || len(m.patch) == 0 {
			t.Errorf("%s: does %q, with a patch of %d bytes", m.Name, m.What, len(m.patch))
		}
	}
}
