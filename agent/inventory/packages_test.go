package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

func digestOf(list []string) string {
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(list, "\n") + "\n"))
	return hex.EncodeToString(sum[:])
}

// TestPackageDigest: it is of what is installed, in whatever order it stands.
func TestPackageDigest(t *testing.T) {
	const bash = "Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2-1\nDescription: a shell\n Version: none of this one's\n"
	const libc = "Package: libc6\nStatus: hold ok installed\nArchitecture: i386\nVersion: 1:2.36\n"
	const gone = "Package: old\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
	want := digestOf([]string{"bash 5.2-1 amd64", "libc6 1:2.36 i386"})
	for _, status := range []string{bash + "\n" + libc + "\n" + gone, gone + "\n" + libc + "\n" + bash + "\n\n"} {
		if got, err := PackageDigest(tree(t, map[string]string{dpkgStatus: status})); got != want || err != nil {
			t.Errorf("of\n%s\n%s, %v, want %s", status, got, err, want)
		}
	}
	patched := strings.Replace(bash, "5.2-1", "5.2-2", 1)
	if got, err := PackageDigest(tree(t, map[string]string{dpkgStatus: patched + "\n" + libc})); got == want || err != nil {
		t.Errorf("after a patch still %s, %v", got, err)
	}
	if got, err := PackageDigest(tree(t, map[string]string{"etc/os-release": "ID=flatcar\n"})); got != "" || err != nil {
		t.Errorf("without a package manager: %q, %v", got, err)
	}
}

// TestPackageDigestRPM compares with what rpm itself says.
func TestPackageDigestRPM(t *testing.T) {
	d := rpmTree(t, 4)
	listed := runTool(t, "rpm", "--root", d.Dir(), "--dbpath", "/var/lib/rpm", "-qa", "--queryformat", "%{NAME} %|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE} %{ARCH}\n")
	want := digestOf(strings.Split(strings.TrimSpace(listed), "\n"))
	if got, err := PackageDigest(d); got != want || err != nil {
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
	if got, err := PackageDigest(d); got != digestOf(list) || err != nil {
		t.Errorf("%s, %v, want %s", got, err, digestOf(list))
	}
}
