package machines

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/controlplane"
)

// needVM skips what takes minutes and QEMU.
func needVM(t *testing.T) {
	t.Helper()
	if os.Getenv("KAMINO_VM") == "" {
		t.Skip("boots virtual machines, which takes minutes; set KAMINO_VM=1, or run make test-vm")
	}
	if err := Preflight(); err != nil {
		t.Fatal(err)
	}
}

// startLab is a lab of real machines in a directory that a failed test keeps
// the consoles of: $KAMINO_VM_DIR, or a temporary one.
func startLab(t *testing.T, change func(*Options)) *Lab {
	t.Helper()
	needVM(t)
	ctx := t.Context()
	binary, err := controlplane.Build(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at, err := FindLab()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: os.Getenv("KAMINO_VM_DIR"), Binary: binary, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "lab")
	}
	if o.Binaries, err = BuildBinaries(ctx, at); err != nil {
		t.Fatal(err)
	}
	if o.Cache, err = DefaultCache(); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	l, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, i := range l.Cloud.Instances() {
				if m, err := l.Factory.find(i); err == nil {
					t.Logf("console of %s:\n%s", i.Name, tail(m.Console, 40))
				}
			}
		}
		l.Stop()
	})
	return l
}

// A machine that never becomes Ready is named, with its console; and nothing of the lab stays.
func TestMachineThatIsNeverReady(t *testing.T) {
	// It stops for somebody at the console before its disk is mounted.
	l := startLab(t, func(o *Options) {
		o.Arguments = func(emulator.Instance) string { return "break=mount" }
	})
	i := l.Cloud.Instances()[0]
	m, err := l.awaitMachine(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stage{Lab: l, Out: os.Stderr}
	if err := s.await(t.Context(), "the kernel's last words", func() (bool, error) {
		return strings.Contains(l.Console(i, 40), "(initramfs)"), nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err = l.AwaitReady(t.Context(), i, time.Second)
	var never *NeverReadyError
	if !errors.As(err, &never) || !strings.Contains(err.Error(), i.Name) || !strings.Contains(err.Error(), "(initramfs)") {
		t.Errorf("%v", err)
	}
	m.mu.Lock()
	pid := m.guest.cmd.Process.Pid
	m.mu.Unlock()
	l.Stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("QEMU %d outlives its lab: %v", pid, err)
	}
	for _, left := range []string{m.Dir, l.Factory.sockets, filepath.Join(l.Dir, "artifacts"), filepath.Join(l.Dir, "ssh_config")} {
		if exists(left) {
			t.Errorf("%s is left", left)
		}
	}
}
