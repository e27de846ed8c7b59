package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

const testKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHcHbQpzGKV9PBbBqkrHvVdLe1t7jfDBRYzOw9rYzj2x\n-----END PRIVATE KEY-----\n"

// TestOptionsOfFewWords: a misspelt word is no default of the seal's.
func TestOptionsOfFewWords(t *testing.T) {
	root := t.TempDir()
	for _, line := range []string{"verify -o xml", "verify -o JSON", "seal --dry-run -o yaml", "seal --run r1 --free-space zeros", "seal --run r1 --join kept", "inventory --run r1 --join maybe"} {
		if out, code := agentRun(t, append(strings.Fields(line), "--root", root)...); code != 2 || !strings.Contains(out, "not one of") {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
	}
}

// TestDryRunAndSeal: a dry run exits as the seal does, and says the same.
func TestDryRunAndSeal(t *testing.T) {
	top := inMemory(t)
	fresh := func(name string) string {
		root := filepath.Join(top, name)
		unpackBase(t, "debian12-kubeadm", root)
		return root
	}
	policy := filepath.Join(top, "policy.yaml")
	list := fresh("list")
	writeFile(t, filepath.Join(list, "opt/newagent/registration"), "c0ffee\n")
	if out, code := agentRun(t, "verify", "--inventory", "--root", list, "--write-allow", policy); code != 0 {
		t.Fatal(out)
	}
	for name, c := range map[string]struct {
		files map[string]string
		args  []string
		code  int
		text  string
	}{
		"nothing in the way":             {code: 0},
		"an unknown file":                {files: map[string]string{"opt/newagent/registration": "c0ffee\n"}, code: 3, text: "/opt/newagent/registration"},
		"an unknown file in the policy":  {files: map[string]string{"opt/newagent/registration": "c0ffee\n"}, args: []string{"--policy", policy}, code: 0},
		"a key":                          {files: map[string]string{"srv/app/tls.key": testKey}, code: 3, text: "/srv/app/tls.key"},
		"a key among software":           {files: map[string]string{"usr/lib/app/tls.key": testKey}, code: 3, text: "/usr/lib/app/tls.key"},
		"a key that a rule takes":        {files: map[string]string{"root/.ssh/id": testKey}, code: 0},
		"a container":                    {files: map[string]string{"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"77aa"}]`}, code: 1, text: "77aa"},
		"what a rule refuses":            {files: map[string]string{"etc/credstore.encrypted/db.cred": "x"}, code: 1, text: "refused by rule"},
		"an administrator's credentials": {args: []string{"--join", "keep"}, code: 1, text: "join: keep"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range [][]string{{"seal", "--dry-run"}, {"seal", "--run", "r1", "--no-install", "--free-space", "none"}} {
				root := fresh(strings.ReplaceAll(name, " ", "-") + verb[1])
				for file, text := range c.files {
					writeFile(t, filepath.Join(root, file), text)
				}
				out, code := agentRun(t, append(append(verb, "--root", root, "--imds", "http://127.0.0.1:1"), c.args...)...)
				if code != c.code || !strings.Contains(out, c.text) {
					t.Errorf("%q: exit code %d, want %d and %q\n%s", verb, code, c.code, c.text, out)
				}
			}
		})
	}
}

// TestVerifyBesideContainerd: what containers wrote is looked at also while containerd runs and
// holds its databases.
func TestVerifyBesideContainerd(t *testing.T) {
	root := filepath.Join(inMemory(t), "root")
	unpackBase(t, "debian12-kubeadm", root)
	const overlay = "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
	writeFile(t, filepath.Join(root, overlay, "snapshots/8/fs/root/key.pem"), testKey)
	name := filepath.Join(root, overlay, "metadata.db")
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	db, err := bolt.Open(name, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("v1"))
		for _, name := range []string{"snapshots", "k8s.io/8/c1"} {
			if err == nil {
				b, err = b.CreateBucket([]byte(name))
			}
		}
		if err != nil {
			return err
		}
		return errors.Join(b.Put([]byte("id"), []byte{8}), b.Put([]byte("kind"), []byte{2}))
	})
	if err != nil {
		t.Fatal(err)
	}
	out, code := agentRun(t, "verify", "-o", "json", "--root", root)
	if code != 3 || !strings.Contains(out, overlay+"/snapshots/8/fs/root/key.pem") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
