package seal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/sweep"
)

var errCut = errors.New("the power is cut")

// TestPowerCut: the power goes before any one of the steps that a seal takes on the disk. What the
// disk has then, which is what the file system has written out and not what is in memory, comes up
// as the donor with every file as it was, or, behind the receipt, without anything that was taken
// away; what is mounted from elsewhere is as it was in both.
func TestPowerCut(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			needImages(t, "ext4", kind)
			c := newCuts(t, kind)
			steps := c.count(t)
			t.Logf("kinds of steps: %s", tally(steps))
			ends := map[string]int{}
			for n := range sweep.Cases(t, len(steps), 20*time.Second, func(i int) string { return steps[i].kind }) {
				t.Run(fmt.Sprintf("%d %s %s", n, steps[n].kind, strings.ReplaceAll(steps[n].name, "/", ".")), func(t *testing.T) { ends[c.cut(t, n)]++ })
			}
			t.Logf("came up: %v", ends)
			if ends["donor"] == 0 || ends["sealed"] == 0 {
				t.Errorf("came up: %v, want some of each", ends)
			}
		})
	}
}

type cutStep struct{ kind, name string }

func tally(steps []cutStep) string {
	kinds := map[string]int{}
	for _, s := range steps {
		kinds[s.kind]++
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, fmt.Sprintf("%s %d", k, kinds[k]))
	}
	return strings.Join(out, ", ")
}

type cuts struct {
	kind, pristine, share, before string
}

func newCuts(t *testing.T, kind string) *cuts {
	c := &cuts{kind: kind, pristine: image(t, kind), share: image(t, "ext4")}
	dir := filepath.Join(scratch(t), "made")
	off := mountImage(t, c.pristine, dir, kind)
	donorTree(t, dir)
	for name, text := range map[string]string{"home/u/.ssh/id_rsa": marked("under"), "srv/app/secret.txt": marked("secret"), "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 " + donorHost + "\n",
		"root/.ssh/authorized_keys": "ssh-ed25519 AAAA\n", "var/log/syslog": marked("log"), "etc/shadow": "u:$6$salt$" + strings.Repeat("a", 86) + ":1::::::\n",
		"var/lib/dbus/machine-id": donorMachine + "\n", "var/lib/dhcp/x": "lease\n", "etc/waagent.conf": "Provisioning.Agent=auto\n"} {
		plantFile(t, dir, name, text)
	}
	if err := os.Link(filepath.Join(dir, "var/log/syslog"), filepath.Join(dir, "var/log/syslog.1")); err != nil {
		t.Fatal(err)
	}
	c.before = c.donors(t, dir)
	off()
	off = mountImage(t, c.share, dir, "ext4")
	plantFile(t, dir, "u/.ssh/id_rsa", "the share's\n")
	theirs(t, filepath.Join(dir, "u"))
	off()
	return c
}

// donors is a digest of everything of the donor's; the agent's own directory may stay, empty.
func (c *cuts) donors(t testing.TB, dir string) string {
	var all []string
	for _, name := range []string{"etc", "home", "root", "srv", "tmp", "usr", "var/log", "var/lib/dbus", "var/lib/dhcp", "data"} {
		all = append(all, digest(t, filepath.Join(dir, name)))
	}
	return strings.Join(all, " ")
}

// world mounts a copy of the donor's disk with the share at its /home.
func (c *cuts) world(t testing.TB, img string, undo *[]func()) (root string) {
	root = filepath.Join(scratch(t), "root")
	*undo = append(*undo, mountImage(t, img, root, c.kind))
	*undo = append(*undo, mountImage(t, c.share, filepath.Join(root, "home"), "ext4"))
	return root
}

func (c *cuts) seal(t testing.TB, root string, hook func(kind, name string) error) error {
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.BeforeWrite(hook)
	if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
		return err
	}
	_, err = FreeSpace(t.Context(), d, FreeZero)
	return err
}

func (c *cuts) count(t testing.TB) (steps []cutStep) {
	w := &foreignWorld{}
	defer w.end()
	img := filepath.Join(scratch(t), "disk.img")
	copyImage(t, c.pristine, img)
	err := c.seal(t, c.world(t, img, &w.undos), func(kind, name string) error {
		steps = append(steps, cutStep{kind, name})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func (c *cuts) cut(t *testing.T, n int) (as string) {
	w := &foreignWorld{}
	defer w.end()
	dir := scratch(t)
	img, left := filepath.Join(dir, "disk.img"), filepath.Join(dir, "left.img")
	copyImage(t, c.pristine, img)
	root := c.world(t, img, &w.undos)
	share, taken := digest(t, filepath.Join(root, "home")), 0
	err := c.seal(t, root, func(_, _ string) error {
		if taken++; taken > n {
			return errCut
		}
		return nil
	})
	if !errors.Is(err, errCut) {
		t.Fatalf("not cut: %v", err)
	}
	copyImage(t, img, left)
	if after := digest(t, filepath.Join(root, "home")); after != share {
		t.Errorf("the share was %s and is %s", share, after)
	}
	w.end()
	boot := filepath.Join(dir, "boot")
	w.undo(mountImage(t, left, boot, c.kind))
	if n%2 == 0 { // a first boot may come before what is remote is mounted, or after it
		w.undo(mountImage(t, c.share, filepath.Join(boot, "home"), "ext4"))
	}
	as = c.boot(t, boot)
	if n%2 == 0 {
		if after := digest(t, filepath.Join(boot, "home")); after != share {
			t.Errorf("the first boot made the share %s, it was %s", after, share)
		}
	}
	w.end()
	w.undo(mountImage(t, left, boot, c.kind))
	if as == "donor" {
		if after := c.donors(t, boot); after != c.before {
			t.Errorf("the donor is not as it was: %s, was %s", after, c.before)
		}
		return as
	}
	for _, gone := range []string{"home/u/.ssh", "srv/app/secret.txt", "srv/app/cache", "root/.ssh", "var/log/syslog", "tmp/left", asideDir, journalPath, ".kamino-zero"} {
		if _, err := os.Lstat(filepath.Join(boot, gone)); err == nil {
			t.Errorf("sealed, and /%s is there", gone)
		}
	}
	w.end()
	for _, what := range []string{"under", "secret", "log"} {
		if m := marks(t, left, what); m > 0 {
			t.Errorf("%d lines of %s are in the image", m, what)
		}
	}
	return as
}

// boot does what the agent's first unit does, and says as whom the disk came up.
func (c *cuts) boot(t testing.TB, root string) (as string) {
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if Interrupted(d) {
		if _, err := Unseal(d); err != nil {
			t.Fatal(err)
		}
	}
	_, sealed, err := ReadReceipt(d)
	if err != nil {
		t.Fatal(err)
	}
	if !sealed {
		return "donor"
	}
	if left, err := Mend(d); err != nil || len(left) > 0 {
		t.Fatalf("%v, %v", left, err)
	}
	return "sealed"
}
