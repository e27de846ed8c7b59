package agent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/internal/hostile"
)

const plantedKey = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAwJ3m1pQ2rXk0t0QYx0m6m4Zq0m8w3b1x\n-----END RSA PRIVATE KEY-----\n"

// TestHostileNames: whoever may make files gives them names with what a terminal obeys, and with
// lines of their own. Nothing that the agent prints has either.
func TestHostileNames(t *testing.T) {
	root := t.TempDir()
	name := strings.ReplaceAll(hostile.Text, "/", "")
	for _, dir := range []string{"opt/x", "opt/" + name, "home/u"} {
		at := filepath.Join(root, dir)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, name), []byte(plantedKey), 0o600),
			os.WriteFile(filepath.Join(at, name+".gz"), []byte("\x1f\x8b\x08\x00 broken"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"verify"}, {"verify", "--inventory"}, {"verify", "-o", "json"}, {"verify", "--inventory", "-o", "json"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out, log bytes.Buffer
			agent.Main(t.Context(), append(args, "--root", root, "--imds", "http://127.0.0.1:1"), &out, &log)
			if !strings.Contains(out.String()+log.String(), "EVIL") {
				t.Errorf("the names did not arrive: %q %q", out.String(), log.String())
			}
			for what, text := range map[string]string{"stdout": out.String(), "stderr": log.String()} {
				if bad := hostile.InOutput(text); bad != "" {
					t.Errorf("%s has %.300s", what, bad)
				}
			}
		})
	}
}

// TestPipesForDirectories: a pipe at each place where a rule, or the inventory, looks for a
// directory. Nobody will ever write into it, and the agent must still end.
func TestPipesForDirectories(t *testing.T) {
	dirs := map[string]bool{}
	add := func(pattern string) {
		for dir := filepath.Dir(strings.Trim(pattern, "/")); dir != "."; dir = filepath.Dir(dir) {
			dirs[strings.NewReplacer("*", "x", "?", "x", "[", "", "]", "").Replace(dir)] = true
		}
	}
	for _, rule := range seal.Table() {
		for _, p := range rule.Paths {
			add(p)
			add(p + "/x")
		}
	}
	for _, p := range inventory.Places() {
		add(p)
	}
	if len(dirs) < 50 {
		t.Fatalf("%d directories of rules", len(dirs))
	}
	// A tree for each depth: none of its pipes stands in the way of another.
	for depth := range 12 {
		root, pipes := t.TempDir(), 0
		for dir := range dirs {
			if strings.Count(dir, "/") != depth {
				continue
			}
			at := filepath.Join(root, dir)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), syscall.Mkfifo(at, 0o600)); err != nil {
				t.Fatal(err)
			}
			pipes++
		}
		for _, args := range [][]string{{"verify"}, {"verify", "--inventory"}, {"seal", "--dry-run", "--run", "r1", "--donor", "n1", "--addresses", "10.9.9.9"}, {"packages"}} {
			if pipes == 0 {
				break
			}
			ended := make(chan int, 1)
			go func() {
				var out bytes.Buffer
				ended <- agent.Main(t.Context(), append(args, "--root", root, "--imds", "http://127.0.0.1:1"), &out, &out)
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Fatalf("%s hangs with %d pipes %d directories down", strings.Join(args, " "), pipes, depth)
			}
		}
	}
}

// TestTakes: what a signal must not end at once is what changes the disk or the node.
func TestTakes(t *testing.T) {
	for line, want := range map[string]bool{"seal --run r1": true, "seal --dry-run --run r1": false, "seal -dry-run": false, "patch": true, "unseal": true, "boot": true, "watch": true,
		"inventory": false, "packages": false, "verify": false, "verify --inventory": false, "userdata": false, "userdata --run x": true, "capture": false, "rules": false, "": false} {
		if agent.Takes(strings.Fields(line)) != want {
			t.Errorf("%q takes something: %v", line, !want)
		}
	}
}
