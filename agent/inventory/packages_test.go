package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
)

func digestOf(list []string) string {
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(list, "\n") + "\n"))
	return hex.EncodeToString(sum[:])
}

func digest(d *disk.Disk) (string, error) {
	_, f, err := Packages(d)
	return f.PackageDigest, err
}

// TestPackageDigest: it is of what is installed, in whatever order it stands.
func TestPackageDigest(t *testing.T) {
	const bash = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2-1\nDescription: a shell\n Version: none of this one's\n"
	const libc = "Package: libc6\nStatus: hold ok installed\nArchitecture: i386\nVersion: 1:2.36\n"
	const gone = "Package: old\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
	want := digestOf([]string{"bash 5.2-1 amd64", "libc6 1:2.36 i386"})
	for _, status := range []string{bash + "\n" + libc + "\n" + gone, gone + "\n" + libc + "\n" + bash + "\n\n"} {
		if got, err := digest(tree(t, map[string]string{dpkgStatus: status})); got != want || err != nil {
			t.Errorf("of\n%s\n%s, %v, want %s", status, got, err, want)
		}
	}
	patched := strings.Replace(bash, "5.2-1", "5.2-2", 1)
	if got, err := digest(tree(t, map[string]string{dpkgStatus: patched + "\n" + libc})); got == want || err != nil {
		t.Errorf("after a patch still %s, %v", got, err)
	}
	if got, err := digest(tree(t, map[string]string{"etc/os-release": "ID=flatcar\n"})); got != "" || err != nil {
		t.Errorf("without a package manager: %q, %v", got, err)
	}
}

// TestPackageDigestRPM compares with what rpm itself says.
func TestPackageDigestRPM(t *testing.T) {
	d := rpmTree(t, 4)
	listed := runTool(t, "rpm", "--root", d.Dir(), "--dbpath", "/var/lib/rpm", "-qa", "--queryformat", "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{ARCH}\n")
	want := digestOf(strings.Split(strings.TrimSpace(listed), "\n"))
	if got, err := digest(d); got != want || err != nil {
		t.Errorf("%s, %v, want %s of\n%s", got, err, want, listed)
	}
}

// TestPackageDigestHere compares with what dpkg says of this machine.
func TestPackageDigestHere(t *testing.T) {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version} ${Architecture}\n").Output()
	if err != nil {
		t.Skip("no dpkg here")
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "installed "); ok {
			list = append(list, rest)
		}
	}
	d, err := disk.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, err := digest(d); got != digestOf(list) || err != nil {
		t.Errorf("%s, %v, want %s", got, err, digestOf(list))
	}
}

// TestFacts: when the newest package was put there, and which kernel boots next.
func TestFacts(t *testing.T) {
	const status = "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\nPackage: b\nStatus: install ok installed\nArchitecture: all\nVersion: 2\n"
	d := tree(t, map[string]string{dpkgStatus: status, "var/lib/dpkg/info/a.list": "/.\n", "var/lib/dpkg/info/b.list": "/.\n", "var/lib/dpkg/info/b.md5sums": "",
		"boot/vmlinuz-6.8.0-9-generic": "", "boot/vmlinuz-6.8.0-1015-azure": "", "boot/vmlinuz-6.11.0-1015-azure": "", "boot/vmlinuz-6.11.0-1015-azure.old": "",
		"boot/vmlinuz-9-rescue-0123": "", "boot/initrd.img-7.0": ""})
	newest := time.Date(2026, 11, 20, 4, 5, 6, 0, time.UTC)
	for name, at := range map[string]time.Time{"a.list": newest.AddDate(0, -1, 0), "b.list": newest, "b.md5sums": newest.AddDate(1, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			if err := os.Chtimes(filepath.Join(d.Dir(), "var/lib/dpkg/info", name), at, at); err != nil {
				t.Fatal(err)
			}
		})
	}
	list, f, err := Packages(d)
	want := Facts{PackageDigest: digestOf([]string{"a 1 amd64", "b 2 all"}), PackageCount: 2, PatchedAt: newest, Kernel: "6.11.0-1015-azure"}
	if err != nil || f != want || !slices.Equal(list, []string{"a 1 amd64", "b 2 all"}) {
		t.Errorf("%q, %+v, %v, want %+v", list, f, err, want)
	}
	if list, f, err := Packages(tree(t, map[string]string{"etc/os-release": "ID=flatcar\n"})); list != nil || f != (Facts{}) || err != nil {
		t.Errorf("without a package manager: %q, %+v, %v", list, f, err)
	}
}

// TestLaterVersion: by number where there are numbers.
func TestLaterVersion(t *testing.T) {
	inOrder := []string{"5.4.0-10", "5.15.0-1050-azure", "5.15.0-1050-azure-fde", "6.1.0-9", "6.1.0-48-cloud-amd64", "6.8.0-9", "6.8.0-1015", "6.11.0-1"}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := laterVersion(a, b); got != (i > j) {
				t.Errorf("%s later than %s: %t", a, b, got)
			}
		}
	}
}

// TestInstalledRPM: rpm writes when it installed a package.
func TestInstalledRPM(t *testing.T) {
	before := time.Now().Truncate(time.Second)
	_, f, err := Packages(rpmTree(t, 2))
	if err != nil || f.PatchedAt.Before(before) || f.PatchedAt.After(time.Now()) || f.PackageCount != 2 {
		t.Errorf("%+v, %v, want a time after %s", f, err, before)
	}
}
