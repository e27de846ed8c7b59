package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallRoot is a disk with these files besides a donor's name, id and VM.
func smallRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/hostname", "n1\n")
	write("etc/machine-id", "0123456789abcdef0123456789abcdef\n")
	write("sys/class/dmi/id/product_uuid", "a1b2c3d4-e5f6-4711-8899-aabbccddeeff\n")
	for name, text := range files {
		write(name, text)
	}
	return root
}

// TestBootStuck: the boot of an interrupted donor passes over a change that cannot be taken back,
// says so, and makes up for it as soon as it can. On another machine what is left is not kept,
// because it would be forgotten.
func TestBootStuck(t *testing.T) {
	for name, other := range map[string]string{"donor": "", "another machine": "b1b2c3d4-e5f6-4711-8899-aabbccddeeff\n"} {
		t.Run(name, func(t *testing.T) {
			root := smallRoot(t, map[string]string{"srv/dir/x.key": "kept\n", "etc/kamino/seal.yaml": "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n" +
				"rules:\n- {id: ours, paths: [/srv/dir/*], action: remove, why: test}\n"})
			at := func(name string) string { return filepath.Join(root, name) }
			if out, code := agentRun(t, "seal", "--root", root, "--run", "r1", "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1", "--interrupt-after", "machine-id"); code != 9 {
				t.Fatalf("code %d: %s", code, out)
			}
			// Somebody put a file where the directory was.
			if err := errors.Join(os.RemoveAll(at("srv/dir")), os.WriteFile(at("srv/dir"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if other != "" {
				if err := os.WriteFile(at("sys/class/dmi/id/product_uuid"), []byte(other), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, code := agentRun(t, "boot", "--early", "--root", root)
			if code != 0 || !strings.Contains(out, "/srv/dir/x.key (rule ours)") {
				t.Fatalf("code %d: %s", code, out)
			}
			_, ready := os.Stat(at("run/kamino/identity-ok"))
			_, journal := os.Stat(at("var/lib/kamino/seal.journal"))
			if other != "" {
				if ready == nil || journal == nil {
					t.Errorf("another machine: identity confirmed %v, the donor's journal there %v", ready == nil, journal == nil)
				}
				return
			}
			if name, err := os.ReadFile(at("etc/hostname")); ready != nil || journal != nil || string(name) != "n1\n" {
				t.Fatalf("identity confirmed: %v; journal: %v; host name %q, %v", ready, journal, name, err)
			}
			if err := errors.Join(os.Remove(at("srv/dir")), os.Remove(at("run/kamino/identity-ok"))); err != nil {
				t.Fatal(err)
			}
			if out, code = agentRun(t, "boot", "--early", "--root", root); code != 0 {
				t.Fatalf("code %d: %s", code, out)
			}
			if text, err := os.ReadFile(at("srv/dir/x.key")); err != nil || string(text) != "kept\n" {
				t.Errorf("the next boot: %q, %v", text, err)
			}
		})
	}
}

// TestBootReachable: whatever keeps the early part from being done, sshd has keys.
func TestBootReachable(t *testing.T) {
	root := smallRoot(t, map[string]string{"etc/ssh/sshd_config": "\n", "var/lib/kamino/receipt.json": "no receipt\n"})
	if out, code := agentRun(t, "boot", "--early", "--root", root); code == 0 {
		t.Fatalf("a torn receipt: %s", out)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key")); err != nil {
		t.Error(err)
	}
}
