package inventory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/disk"
)

// Where containerd and docker keep images. containerd's layout: docs/content-flow.md, core/metadata/buckets.go and
// core/snapshots/storage/bolt.go of github.com/containerd/containerd; docker's: layer/filestore.go of github.com/moby/moby.
const (
	containerdDir   = "var/lib/containerd"
	containerdBlobs = containerdDir + "/io.containerd.content.v1.content/blobs/sha256"
	containerdMeta  = containerdDir + "/io.containerd.metadata.v1.bolt/meta.db"
	overlayDir      = containerdDir + "/io.containerd.snapshotter.v1.overlayfs"
	dockerImages    = "var/lib/docker/image/overlay2"
	dockerLayers    = "var/lib/docker/overlay2"
)

// databaseMost bounds a Bolt database that is read; a busy node's has a few megabytes.
const databaseMost = 256 << 20

func inImageStore(name string) bool {
	return within(name, containerdDir) || within(name, dockerImages) || within(name, dockerLayers)
}

// blobDigest is the digest that a content store says a file has: its name.
func blobDigest(name string) string {
	dir, base := path.Split(name)
	switch strings.TrimSuffix(dir, "/") {
	case containerdBlobs, dockerImages + "/imagedb/content/sha256":
		return base
	}
	return ""
}

// images are the layers that image stores know.
type images struct {
	dirs  map[string]bool // directories of committed layers of known images
	notes []string
}

func readImages(d *disk.Disk) *images {
	m := &images{dirs: map[string]bool{}}
	snapshots, err := readSnapshots(d)
	if err != nil {
		m.notes = append(m.notes, err.Error())
	}
	if len(snapshots) > 0 {
		chains, err := imageChains(d)
		if err != nil {
			m.notes = append(m.notes, err.Error())
		}
		for _, s := range snapshots {
			if s.committed && chains[s.chain] {
				m.dirs[s.dir()] = true
			}
		}
	}
	if err := m.docker(d); err != nil {
		m.notes = append(m.notes, err.Error())
	}
	return m
}

// docker adds the layers of docker's images: a configuration, whose name is its digest, names the layers, and layerdb says
// by their chain IDs where they are (layer/filestore.go, image/fs.go).
func (m *images) docker(d *disk.Disk) error {
	configs, err := d.Glob(dockerImages + "/imagedb/content/sha256/*")
	if err != nil {
		return err
	}
	for _, c := range configs {
		data, err := d.ReadFile(c, disk.Small)
		var doc document
		if err != nil || hexSum(data) != path.Base(c) || json.Unmarshal(data, &doc) != nil {
			continue // its layers remain unexplained
		}
		for chain := range doc.chains() {
			hex := strings.TrimPrefix(chain, "sha256:")
			dir := dockerImages + "/layerdb/sha256/" + hex
			if id := d.Text(dir + "/cache-id"); id != "" && path.Base(id) == id && path.Base(hex) == hex {
				m.dirs[dockerLayers+"/"+id] = true
			}
		}
	}
	return nil
}

// layer reports whether name lies in a committed layer of a known image.
func (m *images) layer(name string) bool {
	for _, top := range []string{overlayDir + "/snapshots/", dockerLayers + "/"} {
		if rest, ok := strings.CutPrefix(name, top); ok {
			id, _, _ := strings.Cut(rest, "/")
			return m.dirs[top+id]
		}
	}
	return false
}

// Writable lists the directories, relative to the root, of what containers write to: they go when the seal removes the
// containers, and until then a running node has them. Layers that no image store can explain are not among them.
func Writable(d *disk.Disk) ([]string, error) {
	snapshots, err := readSnapshots(d)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range snapshots {
		if !s.committed {
			out = append(out, s.dir())
		}
	}
	mounts, err := d.Glob(dockerImages + "/layerdb/mounts/*")
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		out = append(out, m)
		for _, name := range []string{"mount-id", "init-id"} {
			if id := d.Text(m + "/" + name); id != "" && path.Base(id) == id {
				out = append(out, dockerLayers+"/"+id)
			}
		}
	}
	return out, nil
}

// snapshot is one directory of containerd's overlayfs snapshotter.
type snapshot struct {
	id        uint64
	committed bool
	chain     string // the image layer's chain ID, of a committed one
}

func (s snapshot) dir() string { return overlayDir + "/snapshots/" + strconv.FormatUint(s.id, 10) }

// readSnapshots reads the snapshotter's database. Keys are "NAMESPACE/NUMBER/NAME", where the name of a layer is its
// chain ID; kind 3 is committed (core/snapshots.Kind).
func readSnapshots(d *disk.Disk) (out []snapshot, err error) {
	const committed = 3
	err = viewBolt(d, overlayDir+"/metadata.db", func(tx *bolt.Tx) error {
		all := bucket(tx, "v1", "snapshots")
		if all == nil {
			return nil
		}
		return all.ForEachBucket(func(k []byte) error {
			b := all.Bucket(k)
			id, n := uvarint(b.Get([]byte("id")))
			kind := b.Get([]byte("kind"))
			if n <= 0 || len(kind) != 1 {
				return fmt.Errorf("snapshot %q has no id or kind", k)
			}
			parts := strings.SplitN(string(k), "/", 3)
			out = append(out, snapshot{id, kind[0] == committed, parts[len(parts)-1]})
			return nil
		})
	})
	return out, err
}

func uvarint(b []byte) (v uint64, n int) {
	for n < len(b) && n < 9 {
		v |= uint64(b[n]&0x7f) << (7 * n)
		n++
		if b[n-1] < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// imageChains are the chain IDs of all layers of all images that containerd knows, in any namespace.
func imageChains(d *disk.Disk) (map[string]bool, error) {
	var targets []string
	err := viewBolt(d, containerdMeta, func(tx *bolt.Tx) error {
		root := bucket(tx, "v1")
		if root == nil {
			return nil
		}
		return root.ForEachBucket(func(namespace []byte) error {
			all := root.Bucket(namespace).Bucket([]byte("images"))
			if all == nil {
				return nil
			}
			return all.ForEachBucket(func(name []byte) error {
				if target := all.Bucket(name).Bucket([]byte("target")); target != nil {
					targets = append(targets, string(target.Get([]byte("digest"))))
				}
				return nil
			})
		})
	})
	chains := map[string]bool{}
	for _, t := range targets {
		follow(d, t, 0, chains)
	}
	return chains, err
}

// document is as much of an index, a manifest and a configuration as leads to the layers
// (https://github.com/opencontainers/image-spec).
type document struct {
	Manifests []struct{ Digest string }
	Config    json.RawMessage // of a manifest a descriptor, of a configuration something else
	RootFS    struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// follow adds the chain IDs of an image's layers. What is not there, such as manifests of other architectures, has none.
func follow(d *disk.Disk, digest string, depth int, chains map[string]bool) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || path.Base(hex) != hex || depth > 3 {
		return
	}
	data, err := d.ReadFile(containerdBlobs+"/"+hex, disk.Small)
	if err != nil || "sha256:"+hexSum(data) != digest {
		return
	}
	var doc document
	if json.Unmarshal(data, &doc) != nil {
		return
	}
	for _, m := range doc.Manifests {
		follow(d, m.Digest, depth+1, chains)
	}
	var config struct{ Digest string }
	if json.Unmarshal(doc.Config, &config) == nil && config.Digest != "" {
		follow(d, config.Digest, depth+1, chains)
	}
	maps.Copy(chains, doc.chains())
}

// chains are the chain IDs of a configuration's layers
// (https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid).
func (d document) chains() map[string]bool {
	out, chain := map[string]bool{}, ""
	for _, id := range d.RootFS.DiffIDs {
		if chain == "" {
			chain = id
		} else {
			chain = "sha256:" + hexSum([]byte(chain+" "+id))
		}
		out[chain] = true
	}
	return out
}

func bucket(tx *bolt.Tx, names ...string) *bolt.Bucket {
	b := tx.Bucket([]byte(names[0]))
	for _, name := range names[1:] {
		if b == nil {
			return nil
		}
		b = b.Bucket([]byte(name))
	}
	return b
}

// viewBolt reads a Bolt database of which the owner may be running: a copy in memory, because the owner holds its lock.
// A database that does not exist is empty.
func viewBolt(d *disk.Disk, name string, view func(*bolt.Tx) error) error {
	if !d.Exists(name) {
		return nil
	}
	copied, err := copyBolt(d, name)
	if err != nil {
		return fmt.Errorf("read /%s: %w", name, err)
	}
	defer copied.Close()
	db, err := bolt.Open(fmt.Sprintf("/proc/self/fd/%d", copied.Fd()), 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open /%s: %w", name, err)
	}
	err = db.View(view)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("read /%s: %w", name, err)
	}
	return nil
}

// copyBolt copies a database that may be written meanwhile. Bolt writes no page that a committed transaction refers to;
// when its two meta pages are the same before and after, the copy is that transaction's.
// https://github.com/etcd-io/bbolt/blob/main/README.md#comparison-with-other-databases ("copy-on-write")
func copyBolt(d *disk.Disk, name string) (*os.File, error) {
	const tries = 20
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.MemfdCreate("kamino", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	to := os.NewFile(uintptr(fd), name)
	for range tries {
		var done bool
		if done, err = copyOnce(f, to); done || err != nil {
			break
		}
		err = errors.New("it is written to all the time")
	}
	if err != nil {
		_ = to.Close() // in memory
		return nil, err
	}
	return to, nil
}

func copyOnce(from, to *os.File) (done bool, err error) {
	meta := func() ([]byte, error) {
		b := make([]byte, 2*os.Getpagesize())
		n, err := from.ReadAt(b, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return b[:n], err
	}
	before, err := meta()
	if err != nil {
		return false, err
	}
	info, err := from.Stat()
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() > databaseMost {
		return false, fmt.Errorf("no regular file of at most %d bytes: %w", databaseMost, fs.ErrInvalid)
	}
	if err := to.Truncate(0); err != nil {
		return false, err
	}
	if _, err = io.Copy(io.NewOffsetWriter(to, 0), io.NewSectionReader(from, 0, info.Size())); err != nil {
		return false, err
	}
	after, err := meta()
	return bytes.Equal(before, after), err
}
