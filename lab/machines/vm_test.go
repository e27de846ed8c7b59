package machines

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

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

func TestGenericMachineJoins(t *testing.T) {
	l := startLab(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	i := l.Cloud.Instances()[0]
	took, err := l.AwaitReady(ctx, i, 20*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is Ready %s after power on", i.Name, took.Round(time.Second))
	out, _, err := l.Run(ctx, i, "systemd-analyze; cloud-init status --long; cat /run/cloud-init/result.json; ctr -n k8s.io image ls -q; systemctl --failed --no-legend")
	t.Log(out, err)
}
