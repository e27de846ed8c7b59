package agent_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInventoryOfBases goes an operator's way on each tree: the unknown reads in five minutes, the list written for review
// lets the disk be sealed, and one file more does not.
func TestInventoryOfBases(t *testing.T) {
	bases, err := os.ReadDir("testdata/bases")
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range bases {
		t.Run(base.Name(), func(t *testing.T) {
			t.Parallel()
			top := inMemory(t)
			policy := filepath.Join(top, "policy.yaml")
			fresh := func(name string) string {
				root := filepath.Join(top, name)
				copyTree(t, filepath.Join("testdata/bases", base.Name()), root)
				return root
			}
			out, code := agentRun(t, "verify", "--inventory", "--root", fresh("a"), "--write-allow", policy)
			if lines := strings.Count(out, "\n/"); code != 0 || lines == 0 || lines > 60 {
				t.Fatalf("code %d, %d lines:\n%s", code, lines, out)
			}
			if out, code := agentRun(t, "seal", "--root", fresh("b"), "--run", "r1", "--policy", policy, "--free-space", "none", "--no-install"); code != 0 {
				t.Fatalf("the tree of the list is not sealed, code %d:\n%s", code, out)
			}
			root := fresh("c")
			writeFile(t, filepath.Join(root, "opt/newagent/registration"), "c0ffee\n")
			out, code = agentRun(t, "seal", "--root", root, "--run", "r1", "--policy", policy, "--free-space", "none", "--no-install")
			if code != 3 || !strings.Contains(out, "/opt/newagent/registration") {
				t.Errorf("code %d:\n%s", code, out)
			}
		})
	}
}

func agentRun(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), agentEnv+"=1", logEnv+"="+filepath.Join(t.TempDir(), "commands"))
	var out bytes.Buffer
	out.WriteByte('\n')
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}
