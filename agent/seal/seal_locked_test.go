package seal

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// lock sets inode flags as chattr(1) does, until the test ends.
func lock(t *testing.T, d *disk.Disk, flags, name string) {
	t.Helper()
	at := d.Host(name)
	if out, err := exec.Command("chattr", "+"+flags, at).CombinedOutput(); err != nil {
		t.Fatalf("chattr +%s: %v: %s", flags, err, out)
	}
	t.Cleanup(func() { unlock(t, d, flags, name) })
}

func unlock(t *testing.T, d *disk.Disk, flags, name string) {
	t.Helper()
	// What the test removed needs no flag taken from it.
	_ = exec.Command("chattr", "-R", "-"+flags, d.Host(name)).Run()
}

// TestLocked: what cannot be overwritten or removed after the receipt is refused before it, by name
// and with what to type, and the disk is as it was. Hardening guides have people make
// /root/.ssh/authorized_keys immutable.
func TestLocked(t *testing.T) {
	for name, c := range map[string]struct{ flags, at, hint string }{
		"immutable file below what moves":   {"i", "root/.ssh/authorized_keys", "chattr -i /root/.ssh/authorized_keys"},
		"append-only file below what moves": {"a", "var/log/audit/locked/audit.log", "chattr -a /var/log/audit/locked/audit.log"},
		"immutable directory":               {"i", "tmp/work/inner", "chattr -i /tmp/work/inner"},
		"what moves itself":                 {"i", "tmp/work", "chattr -i /tmp/work"},
		"append-only directory around":      {"a", "var/crash", "chattr -a /var/crash"},
	} {
		t.Run(name, func(t *testing.T) {
			d := plant(t)
			for _, file := range []string{"root/.ssh/authorized_keys", "var/log/audit/locked/audit.log", "tmp/work/inner/f", "var/crash/core"} {
				if err := d.WriteFile(file, []byte("x\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := read(t, d)
			lock(t, d, c.flags, c.at)
			for what, try := range map[string]func() error{
				"before services are stopped": func() error { return Permit(d, planted(nil)) },
				"by the seal":                 func() error { _, err := Seal(t.Context(), d, planted(nil)); return err },
			} {
				err := try()
				if err == nil || !strings.Contains(err.Error(), c.hint) {
					t.Errorf("not refused %s with %q: %v", what, c.hint, err)
				}
				var boot *NeedsBoot
				if errors.As(err, &boot) || d.Exists(ReceiptPath) {
					t.Errorf("refused %s only behind the point of no return", what)
				}
			}
			unlock(t, d, c.flags, c.at)
			sameAs(t, before, read(t, d))
		})
	}
}

// TestLockedMeanwhile: a flag that is set while the rules are applied is seen before the receipt is
// written.
func TestLockedMeanwhile(t *testing.T) {
	d := plant(t)
	if err := d.WriteFile("root/.ssh/authorized_keys", []byte("x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := read(t, d)
	clock := planted(nil)
	now := clock.Now
	asked := 0
	clock.Now = func() (at time.Time) {
		if asked++; asked == 1 { // for the receipt, when the disk has been permitted
			lock(t, d, "i", "root/.ssh/authorized_keys")
		}
		return now()
	}
	_, err := Seal(t.Context(), d, clock)
	if err == nil || !strings.Contains(err.Error(), "chattr -i /root/.ssh/authorized_keys") || d.Exists(ReceiptPath) {
		t.Errorf("not refused: %v", err)
	}
	unlock(t, d, "i", "root/.ssh/authorized_keys")
	sameAs(t, before, read(t, d))
}

// TestRunning: a program that runs cannot be overwritten (ETXTBSY), so it is refused as well.
func TestRunning(t *testing.T) {
	d := plant(t)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteFile("tmp/program", program, 0o755); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(d.Host("tmp/program"), "600")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill(); _ = running.Wait() })
	if err := Permit(d, planted(nil)); err != nil {
		t.Errorf("refused before services were stopped, which may stop it: %v", err)
	}
	_, err = Seal(t.Context(), d, planted(nil))
	if err == nil || !strings.Contains(err.Error(), "/tmp/program") || d.Exists(ReceiptPath) {
		t.Errorf("not refused: %v", err)
	}
}

// TestMend: what locks itself behind the receipt neither keeps a boot from mending the disk nor
// stays on it.
func TestMend(t *testing.T) {
	d := plant(t)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "receipt" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	for _, name := range []string{"aside/x/authorized_keys", "aside/y/f"} {
		if err := d.WriteFile(StateDir+"/"+name, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lock(t, d, "i", StateDir+"/aside/x/authorized_keys")
	lock(t, d, "i", StateDir+"/aside/y")
	if left, err := Mend(d); err != nil || len(left) > 0 {
		t.Errorf("left %v: %v", left, err)
	}
	if d.Exists(asideDir) || d.Exists(journalPath) {
		t.Error("what was set aside is still there")
	}
}
