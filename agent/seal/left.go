package seal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"kamino.dev/kamino/agent/disk"
)

// container is what a runtime's own records on the disk know of one container.
type container struct {
	about  string   // for people
	layers []string // directories of what it wrote; none where the record is of its specification only
}

// containers are all that the runtimes on the disk still know, by their records: the runtimes themselves are stopped, or
// are on another machine. A record that cannot be read is an error, because nobody knows what it holds.
func containers(d *disk.Disk) ([]container, error) {
	var all []container
	for _, find := range []func(*disk.Disk) ([]container, error){containerdContainers, containerdLayers, dockerContainers, storageContainers} {
		found, err := find(d)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// noContainers refuses a disk on which a runtime still knows a container or a writable layer.
func noContainers(d *disk.Disk) error {
	left, err := containers(d)
	if err != nil || len(left) == 0 {
		return err
	}
	const most = 10
	var lines []string
	for _, c := range left[:min(len(left), most)] {
		lines = append(lines, "  "+c.about)
	}
	if n := len(left) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", n))
	}
	return fmt.Errorf("seal refused: %d containers or their writable layers are left on this disk:\n%s\nRemove them with their runtime; what they were given and wrote would be in the image.",
		len(left), strings.Join(lines, "\n"))
}

// WritableLayers are the directories that hold what containers wrote. After a seal there is none; records that cannot be
// read name none.
func WritableLayers(d *disk.Disk) (layers []string) {
	left, _ := containers(d) // as said
	for _, c := range left {
		layers = append(layers, c.layers...)
	}
	return layers
}

// containerdRoots are where containerd keeps its state: its default, Docker's own, a user's (rootless), K3s', RKE2's and
// MicroK8s'.
var containerdRoots = []string{"var/lib/containerd", "var/lib/docker/containerd/daemon", "home/*/.local/share/containerd",
	"var/lib/rancher/k3s/agent/containerd", "var/lib/rancher/rke2/agent/containerd", "var/snap/microk8s/common/var/lib/containerd"}

// globs are the files that match one of the patterns below one of the roots.
func globs(d *disk.Disk, roots []string, pattern string) (all []string, err error) {
	for _, root := range roots {
		found, err := d.Glob(root + "/" + pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// containerdContainers reads containerd's metadata: v1/NAMESPACE/containers/ID (containerd's core/metadata/buckets.go).
func containerdContainers(d *disk.Disk) (all []container, err error) {
	files, err := globs(d, containerdRoots, "io.containerd.metadata.v1.bolt/meta.db")
	for _, file := range files {
		err = errors.Join(err, readBolt(d, file, func(tx *bolt.Tx) error {
			return buckets(tx.Bucket([]byte("v1")), func(namespace string, ns *bolt.Bucket) error {
				return buckets(ns.Bucket([]byte("containers")), func(id string, c *bolt.Bucket) error {
					all = append(all, container{about: fmt.Sprintf("containerd, namespace %s: container %s of image %s (/%s)", namespace, id, c.Get([]byte("image")), file)})
					return nil
				})
			})
		}))
	}
	return all, err
}

// kindActive is a snapshot that is written to; views are read-only and committed ones are images' layers
// (containerd's core/snapshots, Kind).
const kindActive = 2

// containerdLayers reads the snapshotters' databases: v1/snapshots/KEY with kind and id (containerd's
// core/snapshots/storage/bolt.go). The overlay snapshotter keeps what is written in snapshots/ID/fs, the native one in
// snapshots/ID.
func containerdLayers(d *disk.Disk) (all []container, err error) {
	files, err := globs(d, containerdRoots, "io.containerd.snapshotter.v1.*/metadata.db")
	for _, file := range files {
		err = errors.Join(err, readBolt(d, file, func(tx *bolt.Tx) error {
			v1 := tx.Bucket([]byte("v1"))
			if v1 == nil {
				return nil
			}
			return buckets(v1.Bucket([]byte("snapshots")), func(key string, s *bolt.Bucket) error {
				if kind := s.Get([]byte("kind")); len(kind) != 1 || kind[0] != kindActive {
					return nil
				}
				id, _ := binary.Uvarint(s.Get([]byte("id")))
				at := fmt.Sprintf("%s/snapshots/%d", path.Dir(file), id)
				if d.Exists(at + "/fs") {
					at += "/fs"
				}
				all = append(all, container{about: fmt.Sprintf("containerd: active snapshot %s (/%s)", key, at), layers: []string{at}})
				return nil
			})
		}))
	}
	return all, err
}

func buckets(b *bolt.Bucket, visit func(name string, b *bolt.Bucket) error) error {
	if b == nil {
		return nil
	}
	return b.ForEachBucket(func(name []byte) error { return visit(string(name), b.Bucket(name)) })
}

func readBolt(d *disk.Disk, name string, read func(*bolt.Tx) error) error {
	// The library opens by name: a link would lead it out of the root.
	if info, err := d.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("open /%s: not a regular file", name)
	}
	db, err := bolt.Open(d.Host(name), 0o600, &bolt.Options{ReadOnly: true, Timeout: 2 * time.Second})
	if err != nil {
		return fmt.Errorf("open /%s (does containerd still run?): %w", name, err)
	}
	return errors.Join(db.View(read), db.Close())
}

// dockerContainers reads Docker's layer store: image/DRIVER/layerdb/mounts/CONTAINER/mount-id names the layer in
// DRIVER/ID/diff (moby's layer/filestore.go and daemon/graphdriver/overlay2). The containers' own directories are the
// rules' matter.
func dockerContainers(d *disk.Disk) (all []container, err error) {
	mounts, err := d.Glob("var/lib/docker/image/*/layerdb/mounts/*")
	for _, m := range mounts {
		driver := strings.Split(m, "/")[4]
		id := d.Text(m + "/mount-id")
		all = append(all, container{about: "docker: container " + path.Base(m) + " (/" + m + ")", layers: []string{"var/lib/docker/" + driver + "/" + id + "/diff"}})
	}
	return all, err
}

// storageContainers reads what CRI-O, podman and buildah share: storage/DRIVER-containers/containers.json and
// volatile-containers.json, lists of id, names and layer; the layer is in DRIVER/LAYER/diff (containers/storage,
// containers.go).
func storageContainers(d *disk.Disk) (all []container, err error) {
	files, err := globs(d, []string{"var/lib/containers/storage", "home/*/.local/share/containers/storage", "root/.local/share/containers/storage"}, "*-containers/*containers.json")
	for _, file := range files {
		data, rerr := d.ReadFile(file, metadataMost)
		var list []struct {
			ID    string   `json:"id"`
			Names []string `json:"names"`
			Layer string   `json:"layer"`
		}
		if rerr == nil && len(data) > 0 {
			rerr = json.Unmarshal(data, &list)
		}
		if rerr != nil {
			err = errors.Join(err, fmt.Errorf("read the containers of CRI-O or podman, /%s: %w", file, rerr))
			continue
		}
		driver := strings.TrimSuffix(path.Dir(file), "-containers")
		for _, c := range list {
			all = append(all, container{about: fmt.Sprintf("CRI-O or podman: container %s %s (/%s)", c.ID, strings.Join(c.Names, " "), file),
				layers: []string{driver + "/" + c.Layer + "/diff"}})
		}
	}
	return all, err
}
