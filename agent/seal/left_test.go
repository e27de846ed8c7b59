package seal

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
	"kamino.dev/kamino/agent/scan"
)

// database puts a database of testdata/containerd on the disk.
func database(t *testing.T, d *disk.Disk, from, to string) {
	t.Helper()
	f, err := os.Open("testdata/containerd/" + from + ".db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err = errors.Join(err, d.WriteFile(to, data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

const (
	containerdMeta      = "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
	containerdSnapshots = "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db"
)

// TestContainersLeft: a container or a writable layer that a runtime's database still knows refuses
// the seal, by its name. Its specification holds what it was given (passwords in its environment),
// its layer what it wrote.
func TestContainersLeft(t *testing.T) {
	write := func(name, text string) func(*testing.T, *disk.Disk) {
		return func(t *testing.T, d *disk.Disk) {
			if err := d.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		plant func(*testing.T, *disk.Disk)
		want  []string // none: it passes
	}{
		"containerd: container in another namespace": {func(t *testing.T, d *disk.Disk) { database(t, d, "left-meta", containerdMeta) }, []string{"container c9", "namespace other"}},
		"containerd: active snapshots":               {func(t *testing.T, d *disk.Disk) { database(t, d, "left-snapshots", containerdSnapshots) }, []string{"other/5/orphan", "other/6/c9"}},
		"containerd: removed": {func(t *testing.T, d *disk.Disk) {
			database(t, d, "removed-meta", containerdMeta)
			database(t, d, "removed-snapshots", containerdSnapshots)
		}, nil},
		"docker":               {write("var/lib/docker/image/overlay2/layerdb/mounts/0a1b/mount-id", "5e6f"), []string{"docker", "0a1b"}},
		"CRI-O or podman":      {write("var/lib/containers/storage/overlay-containers/containers.json", `[{"id":"77aa","names":["k8s_web"],"layer":"99"}]`), []string{"77aa", "k8s_web"}},
		"podman of a user":     {write("home/u/.local/share/containers/storage/overlay-containers/containers.json", `[{"id":"77aa","layer":"99"}]`), []string{"77aa"}},
		"podman, none":         {write("var/lib/containers/storage/overlay-containers/containers.json", `[]`), nil},
		"unreadable":           {write(containerdSnapshots, "torn"), []string{containerdSnapshots}},
		"unreadable, podman's": {write("var/lib/containers/storage/overlay-containers/containers.json", `{`), []string{"containers.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := plant(t)
			c.plant(t, d)
			before := read(t, d)
			_, err := Seal(t.Context(), d, planted(nil))
			if c.want == nil {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q: %v", want, err)
				}
			}
			sameAs(t, before, read(t, d))
		})
	}
}

// TestWritableLayersAreScanned: what a container wrote is looked at, though the layers of images
// beside it are not.
func TestWritableLayersAreScanned(t *testing.T) {
	d := plant(t)
	if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
		t.Fatal(err)
	}
	database(t, d, "left-snapshots", containerdSnapshots) // orphan is 7, c9 is 8, the image's layers are 1 and 2
	const snapshots = "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/"
	written := []string{snapshots + "7/fs/root/key.pem", snapshots + "8/fs/root/key.pem", "var/lib/docker/overlay2/5e6f/diff/root/key.pem", "var/lib/containers/storage/overlay/99/diff/root/key.pem"}
	for name, text := range map[string]string{
		snapshots + "1/fs/usr/share/test.pem":                           secret,
		"var/lib/docker/overlay2/l0/diff/usr/share/test.pem":            secret,
		"var/lib/docker/image/overlay2/layerdb/mounts/0a1b/mount-id":    "5e6f",
		"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"77aa","layer":"99"}]`,
		written[0]: secret, written[1]: secret, written[2]: secret, written[3]: secret,
	} {
		t.Run(name, func(t *testing.T) {
			if err := d.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	o := planted(nil).Scan(d)
	left, err := runtimes.Containers(d)
	if err != nil {
		t.Fatal(err)
	}
	o.Also = runtimes.Writable(left)
	r, err := scan.Files(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range r.Findings {
		found[f.Path] = true
	}
	for _, name := range written {
		if !found[name] {
			t.Errorf("not found: %s", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("found in an image's layer: %s", name)
	}
}

// TestDatabaseByALink: a user's link in a database's place makes no copy of root's database, whose
// containers' environments everybody could then read; nor does any other link. Nothing is changed.
func TestDatabaseByALink(t *testing.T) {
	const up = "../../../../../../"
	const users = "home/u/.local/share/containerd/io.containerd.metadata.v1.bolt/meta.db"
	for name, c := range map[string]struct {
		link, target string
		refused      bool
	}{
		"a user's": {users, up + "var/lib/private/meta.db", false},
		"docker's": {"var/lib/docker/containerd/daemon/io.containerd.metadata.v1.bolt/meta.db", up + "var/lib/private/meta.db", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := linked(t, nil, map[string]string{c.link: c.target})
			database(t, d, "removed-meta", "var/lib/private/meta.db")
			before := read(t, d)
			err := Permit(d, planted(nil))
			if refused := err != nil && strings.Contains(err.Error(), c.link); refused != c.refused {
				t.Errorf("permitted: %v", err)
			}
			_, err = Seal(t.Context(), d, planted(nil))
			if refused := err != nil && strings.Contains(err.Error(), c.link); refused != c.refused {
				t.Errorf("sealed: %v", err)
			}
			if target, err := d.Readlink(c.link); err != nil || target != c.target {
				t.Errorf("the link leads to %q, %v", target, err)
			}
			if c.refused {
				sameAs(t, before, read(t, d))
			}
		})
	}
}
