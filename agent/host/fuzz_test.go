package host

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzStrays: a process may call itself anything, and so may whoever makes a control group: what is ended is never
// the agent, its parents or process 1.
func FuzzStrays(f *testing.F) {
	proc := f.TempDir()
	for _, pid := range []string{"1", "7", "8"} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte("7 (a) b) S 1 0 0 0 0 0"), []byte("0::/system.slice/ssh.service\n"), []byte("sh\x00"), []byte("8 (agent) S 1 8 8 0 -1 4194560"))
	f.Add([]byte("7 )( S"), []byte("1:name=systemd:/a/b.scope/c\n::\n"), []byte("@"), []byte("8 (x) S 8 0 0 0 0 0 0"))
	f.Fuzz(func(t *testing.T, stat, cgroup, cmdline, own []byte) {
		for name, data := range map[string][]byte{"7/stat": stat, "7/cgroup": cgroup, "7/cmdline": cmdline, "8/stat": own, "1/stat": stat} {
			if err := os.WriteFile(filepath.Join(proc, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		all, err := strays(proc, 8, func(string) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.PID != 7 {
				t.Errorf("%d would be ended, by %q and %q", p.PID, stat, own)
			}
		}
	})
}
