package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// linked is a small donor with links, by name and target.
func linked(t *testing.T, files, links map[string]string) *disk.Disk {
	t.Helper()
	d := small(t, files)
	for name, target := range links {
		at := filepath.Join(d.Dir(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, at)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestLinkAstray: a link on the way leads no rule to what its path does not name: refused by rule,
// link and file, with nothing changed.
func TestLinkAstray(t *testing.T) {
	for name, c := range map[string]struct{ link, target, taken string }{
		"software, relative":     {"var/log/azure", "../../usr/bin", "usr/bin/kubelet"},
		"software, of a pattern": {"var/log/pcp/a", "/usr", "usr/bin/kubelet"},
		"the root":               {"var/log/pcp/a", "/", "usr/bin/kubelet"},
		"data":                   {"var/log/azure", "/srv/customers", "srv/customers/db"},
		"data, of a pattern":     {"var/log/pcp/a", "/srv", "srv/customers/db"},
		"configuration":          {"tmp", "etc/app", "etc/app/conf"},
		"the agent":              {"var/crash", "lib/kamino", "var/lib/kamino/old"},
		"by a second link":       {"var/log/azure", "/var/lib/dpkg/alias", "srv/customers/db"},
	} {
		t.Run(name, func(t *testing.T) {
			d := linked(t, map[string]string{c.taken: "x\n", "var/log/x": "x\n", "usr/lib/systemd/systemd": "pid 1\n", "usr/bin/kubelet": "program\n", "srv/customers/db": "x\n"},
				map[string]string{c.link: c.target, "var/lib/dpkg/alias": "/srv/customers"})
			before := read(t, d)
			for _, err := range []error{Permit(d, planted(nil)), func() error { _, err := Seal(t.Context(), d, planted(nil)); return err }()} {
				if err == nil || !strings.Contains(err.Error(), "the link /"+c.link+" leads") || !strings.Contains(err.Error(), "nothing was changed") {
					t.Errorf("not refused by the name of the link: %v", err)
				}
			}
			sameAs(t, before, read(t, d))
			o := planted(func(o *Options) {
				for _, rule := range []string{"logs", "recorded-activity", "temporary", "crashes"} {
					o.Config.Exceptions = append(o.Config.Exceptions, Exception{Rule: rule, Paths: []string{"/" + c.link}, Why: "test"})
				}
			})
			if _, err := Seal(t.Context(), d, o); err != nil || !d.Exists(c.taken) {
				t.Errorf("with an exception for the link: %v; there: %v", err, d.Exists(c.taken))
			}
		})
	}
}

// TestUsualLink: links of distributions, and those of administrators for whole subtrees, are
// followed.
func TestUsualLink(t *testing.T) {
	for name, c := range map[string]struct{ link, target, taken string }{
		"Debian's mail":          {"var/spool/mail", "../mail", "var/mail/u"},
		"homes elsewhere":        {"home", "var/home", "var/home/u/.bash_history"},
		"root's home":            {"root", "var/roothome", "var/roothome/.bash_history"},
		"docker elsewhere":       {"var/lib/docker", "/srv/docker", "srv/docker/engine-id"},
		"a user's configuration": {"home/u/.config", "dotfiles", "home/u/dotfiles/gh"},
		"of one configuration":   {"etc/opt/microsoft/omsagent/conf", "w1", "etc/opt/microsoft/omsagent/w1/certs/c"},
	} {
		t.Run(name, func(t *testing.T) {
			d := linked(t, map[string]string{c.taken: "x\n"}, map[string]string{c.link: c.target})
			if _, err := Seal(t.Context(), d, planted(nil)); err != nil || d.Text(c.taken) != "" {
				t.Errorf("%v; there: %v", err, d.Exists(c.taken))
			}
		})
	}
}

// TestOwnFiles: no rule of the operator's takes what the agent works with, whether it is there
// already or not.
func TestOwnFiles(t *testing.T) {
	for _, pattern := range []string{"/var/lib/*/*.journal", "/var/lib/kamino/*", "/var/*", "/opt/*", "/opt/kamino/bin/kamino-agent", "/etc/kamino/agent.y*", "/etc/systemd/system/*",
		"/etc/systemd/system/*/00-*", "/etc/netplan/*", "/etc/systemd/system/*.wants/*"} {
		d := small(t, map[string]string{"opt/app/state": "x\n", "etc/kubernetes/kubelet.conf": "x\n"})
		before := read(t, d)
		seal := func(keep ...string) error {
			_, err := Seal(t.Context(), d, planted(func(o *Options) {
				o.Binary = "/proc/self/exe"
				o.Config.Rules = []ExtraRule{{ID: "ours", Paths: []string{pattern}, Keep: keep, Action: Remove, Why: "test"}}
			}))
			return err
		}
		if err := seal(); err == nil || !strings.Contains(err.Error(), "which the agent itself needs; nothing was changed (add keep: [/") {
			t.Errorf("%s: %v", pattern, err)
		}
		sameAs(t, before, read(t, d))
		_, err := ParseConfig([]byte("apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nrules:\n- {id: ours, paths: [\"" + pattern + "\"], action: remove, why: test}\n"))
		if err == nil || !strings.Contains(err.Error(), "rules[0].paths") {
			t.Errorf("%s in a configuration: %v", pattern, err)
		}
	}
	d := small(t, map[string]string{"opt/app/state": "x\n"})
	_, err := Seal(t.Context(), d, planted(func(o *Options) {
		o.Binary = "/proc/self/exe"
		o.Config.Rules = []ExtraRule{{ID: "ours", Paths: []string{"/opt/*"}, Keep: []string{"/opt/kamino"}, Action: Remove, Why: "test"}}
	}))
	if err != nil || d.Exists("opt/app") || !d.Exists(BinaryPath) {
		t.Errorf("with keep: %v; the program is there: %v", err, d.Exists(BinaryPath))
	}
}

// TestJournalGone: without its journal a seal can not be taken back, so the donor's services must
// not start again.
func TestJournalGone(t *testing.T) {
	d := small(t, nil)
	d.BeforeWrite(func(kind, name string) error {
		if kind == "append" && name == journalPath && d.Exists(asideDir+"/000000") {
			return os.Remove(filepath.Join(d.Dir(), journalPath))
		}
		return nil
	})
	o := planted(func(o *Options) { o.Omit = "swap" })
	plantFile(t, d.Dir(), "root/.bash_history", "x\n")
	plantFile(t, d.Dir(), "root/.kube/config", "x\n")
	_, err := Seal(t.Context(), d, o)
	var boot *NeedsBoot
	if !errors.As(err, &boot) {
		t.Errorf("the journal is gone: %v", err)
	}
}

// TestLoopByAnotherName: the file of a loop device is known by what it is. Its name in sysfs is
// that by which it was opened, here in a bind mount.
func TestLoopByAnotherName(t *testing.T) {
	needImages(t, "ext4")
	img, dir := image(t, "ext4"), filepath.Join(scratch(t), "root")
	defer mountImage(t, img, dir, "ext4")()
	donorTree(t, dir)
	file := filepath.Join(dir, "srv/app/cache/data.img")
	copyImage(t, image(t, "ext4"), file)
	other := filepath.Join(scratch(t), "other")
	if err := errors.Join(os.Mkdir(other, 0o755), syscall.Mount(filepath.Dir(file), other, "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	device, detach := attach(t, filepath.Join(other, "data.img"))
	defer detach()
	if err := syscall.Unmount(other, syscall.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(scratch(t), "users")
	defer mount(t, device, users, "ext4", 0)()
	plantFile(t, users, "customer", "data\n")
	run(t, "sync", "-f", users)
	before := digest(t, file)
	defer running(t, dir)()
	d, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err = Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "/srv/app/cache/data.img is in use as "+device) {
		t.Errorf("sealed: %v", err)
	}
	if digest(t, file) != before {
		t.Error("the disk in the file was changed")
	}
}

// TestManyMatches: the work for a rule's matches grows with their number, not with its square.
func TestManyMatches(t *testing.T) {
	var all []Match
	const n = 300_000 // the square of which would be an hour: the test would not end
	for i := range n {
		all = append(all, Match{Path: fmt.Sprintf("tmp/%d/x", i)}, Match{Path: fmt.Sprintf("tmp/%d", i)}, Match{Path: fmt.Sprintf("tmp/%d", i)})
	}
	if got := distinct(all); len(got) != n || got[0].Path != "tmp/0" || got[n-1].Path != "tmp/299999" {
		t.Errorf("%d matches, the first %v", len(got), got[0])
	}
}
