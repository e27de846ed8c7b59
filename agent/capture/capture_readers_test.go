package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kamino.dev/kamino/agent/capture/internal/fakesystemd"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// fixturesEnv names a folder into which TestRealTools writes what the real tools printed;
// boot/read/testdata/real was made so.
const fixturesEnv = "KAMINO_WRITE_FIXTURES"

// TestRealTools has the real systemctl, the real systemd-analyze plot and our own live capture look
// at a served boot, and compares what is read of their output with the boot.
func TestRealTools(t *testing.T) {
	requireNamespace(t)
	if _, err := exec.LookPath("systemctl"); err != nil {
		t.Skip("systemctl is not installed")
	}
	if out, err := inNamespace(oracleReaders); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func readersChild(s *fakesystemd.Server) int {
	failed := 0
	check := func(name string, err error) {
		if err != nil {
			failed++
			fmt.Printf("%s: %v\n", name, err)
		}
	}
	for seed := range uint64(12) {
		c := randomBoot(seed)
		if c.Manager.Finish == 0 || len(c.Units) == 0 {
			continue
		}
		s.Set(c)
		check(fmt.Sprintf("seed %d: systemctl show", seed), readShown(c))
		check(fmt.Sprintf("seed %d: live", seed), readLive(c))
		check(fmt.Sprintf("seed %d: plot", seed), readPlot(c))
	}
	if dir := os.Getenv(fixturesEnv); dir != "" {
		check("write fixtures", writeFixtures(dir, s))
	}
	return min(failed, 1)
}

func real(args ...string) ([]byte, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%v: %w: %s", args, err, stderr.String())
	}
	return out, nil
}

// sameBoot compares what every reader of a running system has to see.
func sameBoot(want, got *boot.Capture) error {
	diff := cmp.Diff(want, got, cmpopts.EquateEmpty(),
		cmpopts.IgnoreFields(boot.Capture{}, "Schema", "Sources", "TakenAt", "Host", "Marks", "Spans", "CloudInit", "Notes"),
		cmpopts.IgnoreFields(boot.Unit{}, "ActiveState"))
	if diff != "" {
		return errors.New(diff)
	}
	return nil
}

func readShown(c *boot.Capture) error {
	manager, err := real("systemctl", "show")
	if err != nil {
		return err
	}
	units, err := real("systemctl", "show", "--all", "*")
	if err != nil {
		return err
	}
	got, err := read.Bytes(append(append(manager, '\n'), units...))
	if err != nil {
		return err
	}
	return sameBoot(c, got)
}

func readLive(c *boot.Capture) error {
	got, err := Live(context.Background(), Options{})
	if err != nil {
		return err
	}
	return sameBoot(c, got)
}

// readPlot compares the stamps that the picture has: those up to the end of startup, to 10 µs.
func readPlot(c *boot.Capture) error {
	if c.Manager.SecurityStart == 0 || c.Manager.Finish > 3600e6 {
		return nil // systemd draws ten lines a second: a picture of days is hundreds of megabytes
	}
	svg, err := real("systemd-analyze", "plot")
	if err != nil {
		return err
	}
	got, err := read.Bytes(svg)
	if err != nil {
		return err
	}
	near := func(a, b boot.Micros) bool { return a-b <= 10 && b-a <= 10 }
	for _, u := range c.Units {
		if u.Activating == 0 || u.Activating > c.Manager.Finish || u.Activated < u.Activating || u.Activated > c.Manager.Finish {
			continue
		}
		g := got.Unit(u.ID)
		if g == nil {
			return fmt.Errorf("%s is not in the picture", u.ID)
		}
		if !near(g.Activating, u.Activating) || !near(g.Activated, u.Activated) {
			return fmt.Errorf("%s: read %v, want %v", u.ID, g.Stamps, u.Stamps)
		}
	}
	if m, g := c.Manager, got.Manager; !near(m.Userspace, g.Userspace) || !near(m.Finish, g.Finish) || !near(m.Firmware, g.Firmware) || !near(m.Loader, g.Loader) {
		return fmt.Errorf("manager: read %+v, want %+v", g, m)
	}
	return nil
}

// chainLines is how long the critical chain is.
func chainLines(c *boot.Capture) int {
	var b bytes.Buffer
	if _, err := boot.CompatChain(&b, c, 0); err != nil {
		return 0
	}
	return bytes.Count(b.Bytes(), []byte("\n"))
}

// writeFixtures asks the real tools about one random boot, for the tests of package boot.
func writeFixtures(dir string, s *fakesystemd.Server) error {
	var c *boot.Capture
	for seed := uint64(0); ; seed++ {
		c = randomBoot(seed)
		if m := c.Manager; len(c.Units) > 30 && len(c.Units) < 45 && m.Firmware > 0 && m.InitRD > 0 && m.Finish-m.Userspace > 20e6 && m.Finish < 60e6 && c.Unit("default.target") != nil && chainLines(c) > 10 {
			break
		}
	}
	s.Set(c)
	for name, args := range map[string][]string{
		"manager.txt": {"systemctl", "show"}, "units.txt": {"systemctl", "show", "--all", "*"}, "plot.svg": {"systemd-analyze", "plot"},
		"time.txt": {"systemd-analyze", "time"}, "blame.txt": {"systemd-analyze", "blame"}, "chain.txt": {"systemd-analyze", "critical-chain"},
	} {
		out, err := real(args...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}
