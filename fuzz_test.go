package kamino

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzGate: make fuzz fails where a target finds something, and where a target hardly runs.
func TestFuzzGate(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library for fuzzing")
	}
	script, err := os.ReadFile(".ci/fuzz")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, body, least, want string }{
		{"fine", "", "10", ""},
		{"finds something", `if len(in) > 0 { t.Fatal("planted") }`, "0", "planted"},
		{"hardly runs", "", "1000000000", "fewer than 1000000000 executions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				".ci/fuzz": string(script), "go.mod": "module planted\n\ngo 1.24\n",
				"a_test.go": "package a\n\nimport \"testing\"\n\nfunc FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, in string) {" + tt.body + "}) }\n",
			} {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			c := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, ".ci/fuzz"))
			c.Env = append(os.Environ(), "FUZZTIME=1000x", "FUZZLEAST="+tt.least, "FUZZONLY=", "FUZZCACHE="+filepath.Join(dir, "cache"))
			out, err := c.CombinedOutput()
			if failed := err != nil; failed != (tt.want != "") || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v: want %q in\n%s", err, tt.want, out)
			}
		})
	}
}
