package inventory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
)

// transactions makes a database as dnf has it, the last changes in the write-ahead log only, of the
// given ends.
const transactions = `
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode=WAL"); db.execute("PRAGMA wal_autocheckpoint=0")
db.execute("CREATE TABLE trans (id INTEGER PRIMARY KEY AUTOINCREMENT, dt_begin INTEGER NOT NULL, dt_end INTEGER, releasever TEXT NOT NULL)")
for end in sys.argv[2:]:
    db.execute("INSERT INTO trans VALUES (NULL, 1700000000, " + end + ", '2023')")
os._exit(0)
`

// TestHistory: dnf's record of a transaction that it did not finish is of one that runs, or was
// interrupted. A later one that it finished took up the rest.
func TestHistory(t *testing.T) {
	if err := exec.Command("python3", "-c", "import sqlite3").Run(); err != nil {
		t.Skip("python3 with sqlite3 is not installed")
	}
	for _, name := range dnfHistories {
		for ends, half := range map[string]bool{"": false, "1700000009": false, "1700000009 0": true, "1700000009 NULL": true, "0 1700000009": false} {
			t.Run(name+" "+ends, func(t *testing.T) {
				d := disktest.New(t, map[string]string{filepath.Dir(name) + "/x": "x"})
				runTool(t, "python3", append([]string{"-c", transactions, d.Host(name)}, strings.Fields(ends)...)...)
				what, err := Unfinished(d)
				if err != nil || half != (len(what) == 1) || half && (!strings.Contains(what[0].What, "dnf") || !strings.Contains(what[0].Todo, "dnf history")) {
					t.Errorf("%q, %v", what, err)
				}
			})
		}
		t.Run(name+" unreadable", func(t *testing.T) {
			if what, err := Unfinished(disktest.New(t, map[string]string{name: "SQLite format 3\x00 cut short"})); err != nil || len(what) != 1 || !strings.Contains(what[0].What, "read /"+name) {
				t.Errorf("%q, %v", what, err)
			}
		})
	}
}

// TestRPMJournal: a rollback journal beside rpm's database is a change of it that did not end.
func TestRPMJournal(t *testing.T) {
	for _, name := range rpmPaths {
		d := disktest.New(t, map[string]string{name: "SQLite format 3\x00 whatever", name + "-journal": "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"})
		if what, err := Unfinished(d); err != nil || len(what) != 1 || !strings.Contains(what[0].What, "/"+name) {
			t.Errorf("%q, %v", what, err)
		}
	}
}

// TestKilledDNF: dnf itself, killed in the scriptlet of a package that it upgrades.
func TestKilledDNF(t *testing.T) {
	if _, err := exec.LookPath("dnf"); err != nil {
		t.Skip("dnf is not installed: apt-get install dnf")
	}
	d := rpmTree(t, 1)
	top, root := t.TempDir(), d.Dir()
	dnf := func(file string) *exec.Cmd {
		return exec.Command("dnf", "-y", "--installroot", root, "--releasever", "1", "--disablerepo", "*", "--setopt=reposdir=/nonexistent", "--nogpgcheck", "install", file)
	}
	for version, post := range []string{"", "%post -p <lua>\nio.open(\"/running\", \"w\"):close()\nlocal t = os.time() + 600\nwhile os.time() < t do end\n"} {
		spec := fmt.Sprintf("Name: slow\nVersion: %d\nRelease: 1\nSummary: x\nLicense: none\nBuildArch: noarch\n%%description\nx\n%s%%files\n", version+1, post)
		at := filepath.Join(top, fmt.Sprintf("slow-%d.spec", version+1))
		if err := os.WriteFile(at, []byte(spec), 0o644); err != nil {
			t.Fatal(err)
		}
		runTool(t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+filepath.Join(top, "build"), at)
	}
	if out, err := dnf(filepath.Join(top, "build/RPMS/noarch/slow-1-1.noarch.rpm")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if what, err := Unfinished(d); err != nil || len(what) > 0 {
		t.Fatalf("%q, %v", what, err)
	}
	cmd := dnf(filepath.Join(top, "build/RPMS/noarch/slow-2-1.noarch.rpm"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for !d.Exists("running") {
		select {
		case err := <-ended:
			t.Fatalf("dnf ended by itself: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	if err := <-ended; err == nil {
		t.Error("dnf ended by itself")
	}
	what, err := Unfinished(d)
	if err != nil || !strings.Contains(what.What(), "dnf's last transaction") {
		t.Errorf("%q, %v", what, err)
	}
}

// TestUnpackedLater: of a file that rpm did not finish each look tells the same, also one that goes on from
// an earlier look.
func TestUnpackedLater(t *testing.T) {
	d := tree(t, map[string]string{"usr/bin/tool": "program\n", "usr/bin/tool;65f1a2b3": "prog", "var/lib/dpkg/status": "Package: tool\n", "var/lib/dpkg/info/tool.list": "/usr/bin/tool\n"})
	await(t, d)
	r := looked(t, d, Options{})
	for range 2 {
		if len(r.Torn) != 1 || !strings.HasPrefix(r.Torn[0], "/usr/bin/tool;65f1a2b3 ") {
			t.Errorf("%q", r.Torn)
		}
		r = looked(t, d, Options{Earlier: r.Index})
	}
}

// TestUnpackedNew: rpm wrote files of a package that it did not install: nothing says that they are
// a package's.
func TestUnpackedNew(t *testing.T) {
	d := rpmTree(t, 1)
	put(t, d.Dir(), "usr/share/new/file;65f1a2b3", "text\n")
	put(t, d.Dir(), "srv/own;65f1a2b3", "text\n")
	if r := looked(t, d, Options{}); len(r.Torn) != 1 || !strings.HasPrefix(r.Torn[0], "/usr/share/new/file;65f1a2b3 ") {
		t.Errorf("%q", r.Torn)
	}
}
