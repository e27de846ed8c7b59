package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
)

// TestOperatorsMounts: the seal unmounts what kubelet and the runtimes mounted, and they do so
// again. What somebody else mounted below their directories stays; where a rule would take the
// directory, the seal is refused.
func TestOperatorsMounts(t *testing.T) {
	for point, theirs := range map[string]bool{
		"/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s": true, "/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount": true,
		"/var/lib/docker/overlay2/x/merged": true, "/var/lib/docker/containers/x/mounts/shm": true, "/var/lib/containerd/tmpmounts/x": true,
		"/var/lib/docker/volumes": false, "/var/lib/docker/volumes/x/_data": false, "/var/lib/kubelet/pods": false, "/var/lib/kubelet": false,
		"/var/lib/containerd/io.containerd.content.v1.content": false, "/var/lib/kubelet/device-plugins": false,
	} {
		t.Run(point, func(t *testing.T) {
			if host.Below(point, unmounted) != theirs {
				t.Errorf("%s: kubelet's or a runtime's: %v", point, !theirs)
			}
		})
	}
	needImages(t, "ext4")
	img, dir := image(t, "ext4"), filepath.Join(scratch(t), "root")
	mountImage(t, img, dir, "ext4")
	donorTree(t, dir)
	plantFile(t, dir, "var/lib/kubelet/device-plugins/under", "x\n")
	mountImage(t, image(t, "ext4"), filepath.Join(dir, "var/lib/kubelet/device-plugins/data"), "ext4")
	plantFile(t, dir, "var/lib/kubelet/device-plugins/data/x", "x\n")
	d, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := Permit(d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "is mounted at /var/lib/kubelet/device-plugins/data") {
		t.Errorf("before anything is stopped: %v", err)
	}
}

// TestLinkIntoSoftware: a secret that a rule takes by one name is found by its other, in software
// that is not scanned.
func TestLinkIntoSoftware(t *testing.T) {
	d := small(t, map[string]string{"etc/ssh/ssh_host_ed25519_key": secret, "usr/lib/app/app": "program\n"})
	before := read(t, d)
	if err := os.Link(filepath.Join(d.Dir(), "etc/ssh/ssh_host_ed25519_key"), filepath.Join(d.Dir(), "usr/lib/app/data")); err != nil {
		t.Fatal(err)
	}
	var found *Found
	if _, err := Seal(t.Context(), d, planted(nil)); !errors.As(err, &found) || !strings.Contains(err.Error(), "private-key: usr/lib/app/data") {
		t.Errorf("sealed: %v", err)
	}
	if err := os.Remove(filepath.Join(d.Dir(), "usr/lib/app/data")); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestBackupsStay: of /var/backups only what Debian's own jobs put there goes. The rest is not the
// seal's to delete, and refuses it.
func TestBackupsStay(t *testing.T) {
	d := small(t, map[string]string{"var/backups/postgres/app.sql": "CREATE TABLE customer\n", "var/backups/dpkg.status.1.gz": "x\n"})
	var found *Found
	if _, err := Seal(t.Context(), d, planted(nil)); !errors.As(err, &found) || !strings.Contains(err.Error(), "var/backups/postgres/app.sql") || strings.Contains(err.Error(), "dpkg") {
		t.Errorf("sealed: %v", err)
	}
	if !d.Exists("var/backups/postgres/app.sql") {
		t.Error("the dump is gone")
	}
}

// TestOddNames: files of any name can be allowed by the list that the agent writes, and none forges
// a line of the one that travels.
func TestOddNames(t *testing.T) {
	forged := strings.Repeat("0", 64) + "  /etc/evil"
	one := map[string]string{"srv/caf\xe9": "1\n", "srv/caf\xe9\xe8": "2\n", "srv/tab\tnewline\n": "3\n", "srv/a[b]*?\\c": "4\n", "srv/x\n" + forged: "5\n", "srv/\u2028": "6\n"}
	many := map[string]string{"srv/\xe9/empty": ""}
	for i := range 60 {
		many[fmt.Sprintf("srv/\xe9/%d", i)] = "7\n"
		many[fmt.Sprintf("srv/[1]/%d", i)] = "8\n"
	}
	for _, odd := range []map[string]string{one, many} {
		d := small(t, odd)
		r, err := Inventory(t.Context(), d, planted(nil))
		if err != nil {
			t.Fatal(err)
		}
		c, list := allowing(t, r)
		if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.Config = c })); err != nil {
			t.Fatalf("refused by its own list: %v in %s", err, list)
		}
		lines := strings.Split(d.Text(UnknownListPath), "\n")
		if slices.Contains(lines, forged) || len(lines) < len(odd) {
			t.Errorf("%d lines, or one is forged", len(lines))
		}
		if got := Since(d, r); !strings.Contains(got, "nothing became unknown") {
			t.Error(got)
		}
	}
}

// TestDeep: a directory as deep as a pod may make it takes no minutes.
func TestDeep(t *testing.T) {
	d := small(t, map[string]string{"tmp/x": "x\n"})
	fd, err := syscall.Open(filepath.Join(d.Dir(), "tmp"), syscall.O_DIRECTORY, 0)
	for range 300 {
		var next int
		if err == nil {
			err = syscall.Mkdirat(fd, "d", 0o755)
		}
		if err == nil {
			next, err = syscall.Openat(fd, "d", syscall.O_DIRECTORY, 0)
		}
		_ = syscall.Close(fd) // opened to read
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(fd) // opened to read
	start := time.Now()
	if err := Permit(d, planted(nil)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Minute { // it takes 0.3 s
		t.Errorf("it took %v", took)
	}
}
