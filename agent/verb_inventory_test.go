package agent_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent"
)

// TestInventoryOfBases goes an operator's way on each tree: the unknown reads in five minutes, the
// list written for review lets the disk be sealed, and one file more does not.
func TestInventoryOfBases(t *testing.T) {
	for _, base := range archives(t, "testdata/bases") {
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			top := inMemory(t)
			policy := filepath.Join(top, "policy.yaml")
			fresh := func(name string) string {
				root := filepath.Join(top, name)
				unpackBase(t, base, root)
				return root
			}
			join := joinOf(fresh("as it is"))
			run := func(root string, args ...string) (string, int) {
				return agentRun(t, append(append(args, "--root", root), join...)...)
			}
			if out, code := run(fresh("unchanged"), "verify", "--inventory"); code != 0 || strings.Contains(out, "\n/") {
				t.Fatalf("an unchanged node: code %d:\n%s", code, out)
			}
			seal := []string{"seal", "--run", "r1", "--free-space", "none", "--no-install"}
			if out, code := run(fresh("sealed"), seal...); code != 0 {
				t.Fatalf("an unchanged node, code %d:\n%s", code, out)
			}
			root := fresh("one more")
			writeFile(t, filepath.Join(root, "opt/newagent/registration"), "c0ffee\n")
			for _, args := range [][]string{{"verify", "--inventory"}, seal} {
				if out, code := run(root, args...); code != 3 || !strings.Contains(out, "/opt/newagent") {
					t.Errorf("%q with a file more, code %d:\n%s", args, code, out)
				}
			}
			if out, code := run(root, "verify", "--inventory", "--write-allow", policy); code != 0 {
				t.Fatalf("code %d:\n%s", code, out)
			}
			if out, code := run(root, append(seal, "--policy", policy)...); code != 0 {
				t.Errorf("with the policy, code %d:\n%s", code, out)
			}
		})
	}
}

// TestLookBeforeDrain: the seal takes the look that was made for its own run in this boot, and sees
// what came since; it takes no other.
func TestLookBeforeDrain(t *testing.T) {
	const madeBefore = "checked before the drain"
	top := inMemory(t)
	policy := filepath.Join(top, "policy.yaml")
	fresh := func(name string) string {
		root := filepath.Join(top, name)
		unpackBase(t, "debian12-kubeadm", root)
		unpack(t, readCase(t, "boot-file-source").tree.Below("root"), root)            // a NodeConfig, without which no clone could join
		if err := os.Remove(filepath.Join(root, "etc/kamino/seal.yaml")); err != nil { // the policy counts
			t.Fatal(err)
		}
		run := filepath.Join(root, "run")
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", run, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err) // needs root, as the seal itself
		}
		t.Cleanup(func() { _ = syscall.Unmount(run, syscall.MNT_DETACH) })
		return root
	}
	if out, code := agentRun(t, "verify", "--inventory", "--root", fresh("list"), "--write-allow", policy); code != 0 {
		t.Fatal(out)
	}
	replaceIn(t, policy, "kind: SealConfig\n", "kind: SealConfig\nsources: [file:///etc/kamino/nodeconfig.yaml]\n")
	order := func(verb, root, nonce string) []string {
		args := []string{verb, "--root", root, "--run", "r1", "--nonce", nonce, "--policy", policy, "--imds", "http://127.0.0.1:1", "--join", "fresh"}
		if verb == "seal" {
			args = append(args, "--free-space", "none", "--no-install")
		}
		return args
	}
	const unknown = "opt/newagent/registration"
	index := "run/kamino/inventory"
	for name, tt := range map[string]struct {
		between func(root string)
		nonce   string
		taken   bool
		code    int
	}{
		"of this run":      {nil, "n1", true, 0},
		"of another run":   {nil, "n2", false, 0},
		"of another boot":  {func(root string) { replaceIn(t, filepath.Join(root, index), `"boot":"`, `"boot":"x`) }, "n1", false, 0},
		"of another agent": {func(root string) { replaceIn(t, filepath.Join(root, index), `"agent":"`, `"agent":"x`) }, "n1", false, 0},
		"none":             {func(root string) { _ = os.Remove(filepath.Join(root, index)) }, "n1", false, 0},
		"file since":       {func(root string) { writeFile(t, filepath.Join(root, unknown), "c0ffee\n") }, "n1", true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			root := fresh(strings.ReplaceAll(name, " ", "-"))
			if out, code := agentRun(t, order("inventory", root, "n1")...); code != 0 {
				t.Fatalf("code %d:\n%s", code, out)
			}
			if tt.between != nil {
				tt.between(root)
			}
			out, code := agentRun(t, order("seal", root, tt.nonce)...)
			if code != tt.code || strings.Contains(out, madeBefore) != tt.taken || (code == 3) != strings.Contains(out, unknown) {
				t.Errorf("code %d:\n%s", code, out)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		root := fresh("refused")
		writeFile(t, filepath.Join(root, unknown), "c0ffee\n")
		before := listTree(t, root)
		out, code := agentRun(t, order("inventory", root, "n1")...)
		if code != 3 || !strings.Contains(out, unknown) {
			t.Fatalf("code %d:\n%s", code, out)
		}
		after := listTree(t, root)
		delete(after, index)
		delete(after, "run/kamino")
		if diff := diffTrees(before, after); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
		// What was refused is nobody's look: the seal refuses before it stops anything.
		if out, code := agentRun(t, order("seal", root, "n1")...); code != 3 || strings.Contains(out, madeBefore) {
			t.Errorf("code %d:\n%s", code, out)
		}
	})
}

func replaceIn(t *testing.T, name, old, with string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil && !bytes.Contains(data, []byte(old)) {
		err = fmt.Errorf("%s has no %s", name, old)
	}
	if err == nil {
		err = os.WriteFile(name, bytes.Replace(data, []byte(old), []byte(with), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
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

// TestUnwritableAllow: a place where no policy can be written is told before minutes of looking,
// and nothing is made by the trial.
func TestUnwritableAllow(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	var out strings.Builder
	if code := agent.Main(t.Context(), []string{"verify", "--inventory", "--root", root + "/nowhere", "--write-allow", dir + "/no/policy.yaml"}, &out, &out); code != 1 || !strings.Contains(out.String(), "no/policy.yaml") {
		t.Errorf("exit code %d: %s", code, &out)
	}
	out.Reset()
	if code := agent.Main(t.Context(), []string{"verify", "--inventory", "--root", root + "/nowhere", "--write-allow", dir + "/policy.yaml"}, &out, &out); code == 0 {
		t.Errorf("exit code %d: %s", code, &out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
