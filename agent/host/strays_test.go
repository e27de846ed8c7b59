package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStrays reads a table of processes as proc(5) shows it.
func TestStrays(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ stat, cgroup, line string }{
		"1":   {"1 (systemd) S 0 1 1 0 -1 4194560", "0::/init.scope", "/sbin/init"},
		"2":   {"2 (kthreadd) S 0 0 0 0 -1 2129984", "0::/", ""},
		"30":  {"30 (kworker/0:1) I 2 0 0 0 -1 69238880", "0::/", ""},
		"100": {"100 (sshd) S 1 1 1 0 -1 4194560", "0::/system.slice/ssh.service", "sshd: /usr/sbin/sshd"},
		"101": {"101 (bash) S 100 1 1 0 -1 4194560", "0::/user.slice/user-0.slice/session-1.scope", "-bash"},
		"102": {"102 (a (b) c) S 1 1 1 0 -1 4194560", "12:cpu:/x\n1:name=systemd:/system.slice/cron.service\n0::/", "cron"},
		"103": {"103 (pause) S 1 1 1 0 -1 4194560", "0::/kubepods.slice/kubepods-besteffort.slice/cri-containerd-0a.scope", "/pause"},
		"104": {"104 (udev-worker) S 1 1 1 0 -1 4194560", "0::/system.slice/systemd-udevd.service/udev", "(udev-worker)"},
		"105": {"105 (mdmon) S 1 1 1 0 -1 4194560", "0::/x", "@usr/sbin/mdmon"},
		"106": {"106 (done) Z 1 1 1 0 -1 4194560", "0::/system.slice/cron.service", ""},
		"107": {"107 (lost) S 1 1 1 0 -1 4194560", "0::/", "lost"},
		"200": {"200 (kamino-agent) S 199 1 1 0 -1 4194560", "0::/system.slice/mine.service", "kamino-agent"},
		"199": {"199 (sh) S 1 1 1 0 -1 4194560", "0::/system.slice/parent.service", "sh"},
	} {
		t.Run(pid, func(t *testing.T) {
			for name, text := range map[string]string{"stat": p.stat, "cgroup": p.cgroup + "\n", "cmdline": p.line + "\x00"} {
				t.Run(name, func(t *testing.T) {
					at := filepath.Join(proc, pid, name)
					if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				})
			}
		})
	}
	all, err := strays(proc, 200, func(unit string) bool { return unit == "systemd-udevd.service" })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range all {
		got = append(got, p.String())
	}
	slices.Sort(got)
	want := "a (b) c (process 102, cron.service)\nbash (process 101, session-1.scope)\nlost (process 107, no unit)\n" +
		"pause (process 103, cri-containerd-0a.scope)\nsshd (process 100, ssh.service)"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// TestEndOthers: a process that ignores SIGTERM is killed, and one that ends is reaped. It runs in
// a process namespace of its own, where there is nobody else.
func TestEndOthers(t *testing.T) {
	if os.Getenv("KAMINO_TEST_END_OTHERS") == "" {
		cmd := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run", "^TestEndOthers$", "-test.v")
		cmd.Env = append(os.Environ(), "KAMINO_TEST_END_OTHERS=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestEndOthers") {
			t.Fatalf("%v:\n%s", err, out)
		}
		return
	}
	stubborn, meek := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"), exec.Command("sleep", "600")
	ready, err := stubborn.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{stubborn, meek} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.Wait() }() // killed
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ended, err := EndOthers(t.Context(), 300*time.Millisecond, func(string) bool { return false })
	if err != nil || len(ended) < 2 {
		t.Errorf("ended %v: %v", ended, err)
	}
	if left, err := strays("/proc", os.Getpid(), func(string) bool { return false }); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
