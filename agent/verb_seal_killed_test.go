package agent_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKilled: the real program is killed while it seals, somewhere behind so many journal lines.
// Without a receipt the disk comes back wholly; with one, its first boot finishes the work.
func TestKilled(t *testing.T) {
	for _, lines := range []int{1, 5, 20, 40, 60, 80, 90, 95, 99} {
		w := newWorld(t, readCase(t, "boot-clone-token"))
		before := listTree(t, w.root)
		cmd := exec.Command(binary, "seal", "--root", w.root, "--run", "r1", "--donor", benchHost, "--no-install", "--free-space", "none")
		cmd.Env = w.env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // however it ends
			close(ended)
		}()
		journal := filepath.Join(w.root, "var/lib/kamino/seal.journal")
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
				if data, err := os.ReadFile(journal); err == nil && bytes.Count(data, []byte("\n")) >= lines {
					_ = cmd.Process.Kill() // it may have ended
					<-ended
					running = false
				}
			}
		}
		if _, err := os.Stat(filepath.Join(w.root, "var/lib/kamino/receipt.json")); err == nil {
			w.step(step{Machine: "5e1f0a2b-3c4d-4e6f-8a9b-0c1d2e3f4a5b"})
			w.run("boot", 0)
			t.Logf("killed behind %d lines: sealed, and came up as another machine", lines)
			continue
		}
		w.run("unseal", 0)
		after := listTree(t, w.root)
		diff := strings.ReplaceAll(diffTrees(before, after), "var/lib/kamino + dir 0700\n", "")
		if diff != "" {
			t.Errorf("killed behind %d lines, the disk is not as it was:\n%s", lines, diff)
		}
		t.Logf("killed behind %d lines: taken back", lines)
	}
}
