package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// rpmTree makes a root whose packages rpm itself built and installed, so that its database is a
// real one.
func rpmTree(t *testing.T, packages int) *disk.Disk {
	t.Helper()
	for _, name := range []string{"rpm", "rpmbuild"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: apt-get install rpm", name)
		}
	}
	top := t.TempDir()
	root := filepath.Join(top, "root")
	built := buildRPMs(t, top, packages)
	// Without --nodeps it would ask for a shell.
	runTool(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "-i", "--nodeps", "--nosignature", "--noplugins"}, built...)...)
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// buildRPMs builds packages with a link, a directory, a configuration file and a ghost each; the
// second has so many files that its header is larger than any page.
func buildRPMs(t *testing.T, top string, packages int) []string {
	t.Helper()
	var spec strings.Builder
	spec.WriteString("Name: tools\nVersion: 1\nRelease: 1\nSummary: tools\nLicense: none\nBuildArch: noarch\n%description\nTools.\n%install\nmkdir -p %{buildroot}/etc\n")
	for i := range packages {
		files := 3
		if i == 1 {
			files = 2000
		}
		fmt.Fprintf(&spec, "mkdir -p %%{buildroot}/usr/lib/tool%[1]d\nfor i in $(seq %[2]d); do echo \"%[1]d $i\" > %%{buildroot}/usr/lib/tool%[1]d/$i; done\n"+
			"echo setting %[1]d > %%{buildroot}/etc/tool%[1]d.conf\nln -s nowhere %%{buildroot}/usr/lib/tool%[1]d/link\ntouch %%{buildroot}/etc/tool%[1]d.state\n", i, files)
	}
	for i := range packages {
		fmt.Fprintf(&spec, "%%package -n tool%[1]d\nSummary: a tool\n%%description -n tool%[1]d\nA tool.\n%%files -n tool%[1]d\n/usr/lib/tool%[1]d\n%%config /etc/tool%[1]d.conf\n%%ghost /etc/tool%[1]d.state\n", i)
	}
	at := filepath.Join(top, "tools.spec")
	if err := os.WriteFile(at, []byte(spec.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	runTool(t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+filepath.Join(top, "build"), at)
	built, err := filepath.Glob(filepath.Join(top, "build/RPMS/noarch/*.rpm"))
	if err != nil || len(built) != packages {
		t.Fatalf("built %d packages, want %d: %v", len(built), packages, err)
	}
	return built
}

// TestRPM: every file of the packages is owned as rpm lists it, and one that was changed, or that
// rpm only expects, is not.
func TestRPM(t *testing.T) {
	d := rpmTree(t, 12)
	listed := runTool(t, "rpm", "--root", d.Dir(), "--dbpath", "/var/lib/rpm", "-qa", "--queryformat", "[%{FILENAMES} %{FILEDIGESTS} %{FILEFLAGS:fflags}\n]")
	o := &owners{}
	if err := readRPM(o, d, &resolver{disk: d, dirs: map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	have := map[owned]bool{}
	for _, f := range o.files {
		have[f] = true
	}
	want := 0
	for line := range strings.Lines(listed) {
		field := strings.Fields(line)
		if len(field) < 2 || len(field[1]) < 64 {
			continue // a directory, a link or a ghost
		}
		want++
		var one owners
		one.addHex(field[0][1:], bySHA256, len(field) > 2 && strings.Contains(field[2], "c"), field[1])
		if !have[one.files[0]] {
			t.Errorf("not owned: %s", line)
		}
	}
	if want < 2000+11*3 {
		t.Fatalf("rpm lists %d files:\n%s", want, listed)
	}
	r := looked(t, d, Options{})
	if len(r.Unknown) > 0 || r.Counts[Owned].Files < want || len(r.Notes) > 0 {
		t.Errorf("%s, unknown %v, notes %q", r.Summary(), r.Unknown, r.Notes)
	}
	put(t, d.Dir(), "usr/lib/tool3/1", "changed\n")
	put(t, d.Dir(), "etc/tool4.state", "secret\n")
	put(t, d.Dir(), "etc/own.conf", "secret\n")
	if got := strings.Join(names(looked(t, d, Options{}).Unknown), " "); got != "etc/own.conf etc/tool4.state usr/lib/tool3/1" {
		t.Errorf("unknown: %s", got)
	}
}

// TestRPMUnreadable: a database that cannot be read owns nothing, and says so.
func TestRPMUnreadable(t *testing.T) {
	for name, text := range map[string]string{"var/lib/rpm/Packages": "\x00\x05\x31\x62", "usr/lib/sysimage/rpm/Packages.db": "RpmP",
		"var/lib/rpm/rpmdb.sqlite": "SQLite format 3\x00 cut short"} {
		t.Run(name, func(t *testing.T) {
			r := looked(t, tree(t, map[string]string{name: text, "usr/bin/tool": "x\n"}), Options{})
			if !strings.Contains(strings.Join(r.Notes, " "), "the files of its packages are unknown") || !strings.Contains(strings.Join(names(r.Unknown), " "), "usr/bin/tool") {
				t.Errorf("%s: notes %q, unknown %v", name, r.Notes, r.Unknown)
			}
		})
	}
}

// FuzzHeader: a package's header is read or refused, in bounded memory.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(append([]byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 4, 0x5d, 0, 0, 0, 8, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}, "a\x00"...))
	f.Fuzz(func(t *testing.T, blob []byte) {
		h, err := parseHeader(blob)
		if err != nil {
			return
		}
		n := 0
		err = h.files(func(name string, _ kind, _ bool, _ string) {
			if n++; bytes.ContainsRune([]byte(name), 0) {
				err = errors.New("a name with a zero")
			}
		})
		if n > len(blob) {
			t.Errorf("%d files from %d bytes: %v", n, len(blob), err)
		}
	})
}

// TestRPMTwice: rpm's database between the installation of a package's new version and the removal
// of the old one, as a transaction that ended half-way leaves it. Versions of kernels, and of what
// says so, or of which dnf's configuration says so, lie beside each other.
func TestRPMTwice(t *testing.T) {
	d := rpmTree(t, 1)
	if what, err := Unfinished(d); err != nil || len(what) > 0 {
		t.Fatalf("%q, %v", what, err)
	}
	top := t.TempDir()
	for name, provides := range map[string]string{"tool9": "", "kernel6": "", "driver": "Provides: installonlypkg(kernel-module)\n",
		"agent": "", "agent-extra": "Provides: agent-like\n"} {
		for version := range 2 {
			spec := fmt.Sprintf("Name: %s\nVersion: %d\nRelease: 1\nSummary: x\nLicense: none\nBuildArch: noarch\n%s%%description\nx\n%%files\n", name, version+1, provides)
			at := filepath.Join(top, fmt.Sprintf("%s-%d.spec", name, version))
			if err := os.WriteFile(at, []byte(spec), 0o644); err != nil {
				t.Fatal(err)
			}
			runTool(t, "rpmbuild", "--quiet", "-bb", "--define", "_topdir "+filepath.Join(top, "build"), at)
		}
	}
	built, err := filepath.Glob(filepath.Join(top, "build/RPMS/noarch/*.rpm"))
	if err != nil || len(built) != 10 {
		t.Fatalf("%q, %v", built, err)
	}
	runTool(t, "rpm", append([]string{"--root", d.Dir(), "--dbpath", "/var/lib/rpm", "-i", "--force", "--nodeps", "--nosignature", "--noplugins"}, built...)...)
	if what, err := Unfinished(d); err != nil || len(what) != 3 {
		t.Errorf("%q, %v", what, err)
	}
	put(t, d.Dir(), "etc/dnf/dnf.conf", "[main]\ngpgcheck=1\ninstallonlypkgs = agent,\n  agent-like\nskip_if_unavailable=False\n")
	what, err := Unfinished(d)
	if err != nil || len(what) != 1 || !strings.Contains(what[0].What, "tool9 is installed in the versions 1-1 and 2-1") || !strings.Contains(what[0].Todo, "dnf remove --duplicates") {
		t.Errorf("%q, %v", what, err)
	}
}
