package inventory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
)

const (
	containerdDir   = "var/lib/containerd"
	containerdBlobs = containerdDir + "/io.containerd.content.v1.content/blobs/sha256"
	containerdMeta  = containerdDir + "/io.containerd.metadata.v1.bolt/meta.db"
	overlayDir      = containerdDir + "/io.containerd.snapshotter.v1.overlayfs"
)

// containerd is a disk with one image of two layers, unpacked, a container's writable layer, and a
// committed layer of no image. Both databases are held open, and so locked, as by a running
// containerd.
func containerd(t *testing.T) *disk.Disk {
	t.Helper()
	d := tree(t, nil)
	blob := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		name := hex.EncodeToString(sum[:])
		put(t, d.Dir(), containerdBlobs+"/"+name, text)
		return "sha256:" + name
	}
	chain := func(parts ...string) string {
		sum := sha256.Sum256([]byte(strings.Join(parts, " ")))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	const one, two = "sha256:1111", "sha256:2222"
	config := blob(`{"config":{"Env":["A=1"]},"rootfs":{"type":"layers","diff_ids":["` + one + `","` + two + `"]}}`)
	manifest := blob(`{"config":{"digest":"` + config + `"},"layers":[]}`)
	index := blob(`{"manifests":[{"digest":"` + manifest + `"},{"digest":"sha256:` + strings.Repeat("0", 64) + `"}]}`)
	database(t, d, containerdMeta, map[string]string{"v1/k8s.io/images/pause/target:digest": index})
	keys := map[string]string{}
	for id, s := range []struct {
		name string
		kind byte
	}{{one, 3}, {chain(one, two), 3}, {"container-1", 2}, {"sha256:3333", 3}} {
		at := fmt.Sprintf("v1/snapshots/k8s.io\\%d\\%s:", id, s.name)
		keys[at+"id"], keys[at+"kind"] = string(binary.AppendUvarint(nil, uint64(id+1))), string([]byte{s.kind})
		put(t, d.Dir(), fmt.Sprintf("%s/snapshots/%d/fs/etc/file", overlayDir, id+1), "content\n")
	}
	database(t, d, overlayDir+"/metadata.db", keys)
	return d
}

// database makes a Bolt database of "BUCKET/BUCKET:KEY" (a backslash for a slash in a name) and
// keeps it open.
func database(t *testing.T, d *disk.Disk, name string, keys map[string]string) {
	t.Helper()
	at := filepath.Join(d.Dir(), name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(at, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *bolt.Tx) error {
		for where, value := range keys {
			i := strings.LastIndexByte(where, ':')
			names := strings.Split(where[:i], "/")
			b, err := tx.CreateBucketIfNotExists([]byte(names[0]))
			for _, n := range names[1:] {
				if err == nil {
					b, err = b.CreateBucketIfNotExists([]byte(strings.ReplaceAll(n, `\`, "/")))
				}
			}
			if err = errors.Join(err); err != nil {
				return err
			}
			if err := b.Put([]byte(where[i+1:]), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestContainerd: layers of known images are known while containerd runs; a container's layer and
// one of no image are not.
func TestContainerd(t *testing.T) {
	d := containerd(t)
	r := looked(t, d, Options{})
	want := []string{overlayDir + "/snapshots/3/fs/etc/file", overlayDir + "/snapshots/4/fs/etc/file"}
	if !slices.Equal(names(r.Unknown), want) || r.Counts[Layer].Files != 5 || len(r.Notes) > 0 {
		t.Errorf("unknown %v, %s, notes %q", names(r.Unknown), r.Summary(), r.Notes)
	}
	left, err := runtimes.Containers(d)
	writable := runtimes.Writable(left)
	if err != nil || !slices.Equal(writable, []string{overlayDir + "/snapshots/3"}) {
		t.Fatalf("writable: %v, %v", writable, err)
	}
	// A blob whose content is not what its name says, and a file beside the blobs.
	put(t, d.Dir(), containerdBlobs+"/"+strings.Repeat("a", 64), "secret\n")
	put(t, d.Dir(), containerdDir+"/notes", "secret\n")
	r = looked(t, d, Options{Gone: map[string]bool{writable[0]: true}})
	want = []string{containerdBlobs + "/" + strings.Repeat("a", 64), overlayDir + "/snapshots/4/fs/etc/file", containerdDir + "/notes"}
	if !slices.Equal(names(r.Unknown), want) {
		t.Errorf("unknown %v, want %v", names(r.Unknown), want)
	}
}

// TestContainerdUnreadable: without a database no layer is known, and the notes say why.
func TestContainerdUnreadable(t *testing.T) {
	d := tree(t, map[string]string{overlayDir + "/metadata.db": strings.Repeat("no database\n", 2000), overlayDir + "/snapshots/1/fs/x": "x"})
	if r := looked(t, d, Options{}); !strings.Contains(strings.Join(r.Notes, " "), "metadata.db") || !slices.Contains(names(r.Unknown), overlayDir+"/snapshots/1/fs/x") {
		t.Errorf("unknown %v, notes %q", names(r.Unknown), r.Notes)
	}
}
