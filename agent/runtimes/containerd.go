package runtimes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// Where containerd and docker keep images, below their usual roots.
const (
	containerdDir   = "var/lib/containerd"
	containerdBlobs = containerdDir + "/" + blobsName
	overlayDir      = containerdDir + "/" + overlayName
	dockerDir       = "var/lib/docker"
	dockerImages    = dockerDir + "/" + imagesName
	dockerLayers    = dockerDir + "/" + layersName

	blobsName     = "io.containerd.content.v1.content/blobs/sha256"
	overlayName   = "io.containerd.snapshotter.v1.overlayfs"
	imagesName    = "image/overlay2"
	layersName    = "overlay2"
	metaName      = "io.containerd.metadata.v1.bolt/meta.db"
	snapshotsName = "io.containerd.snapshotter.v1.*/metadata.db"
)

// MetadataPath is where containerd keeps what containers were given, absolute, below its usual
// root.
const MetadataPath = "/" + containerdDir + "/" + metaName

// containerdRoots are where containerd keeps its state, a user's own (rootless) too.
func containerdRoots(d *disk.Disk) []string {
	return append(roots.Of(d).Containerd, "home/*/.local/share/containerd")
}

// Stopped is nil if no containerd has one of the disk's databases open.
func Stopped(d *disk.Disk) error {
	all := containerdRoots(d)
	metas, err1 := globs(d, all, metaName)
	snapshots, err2 := globs(d, all, snapshotsName)
	err := errors.Join(err1, err2)
	for _, name := range append(metas, snapshots...) {
		f, oerr := openDatabase(d, name)
		if oerr != nil {
			err = errors.Join(err, oerr)
			continue
		}
		switch lerr := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
		case errors.Is(lerr, syscall.EWOULDBLOCK):
			err = errors.Join(err, fmt.Errorf("/%s is in use: containerd still runs; stop it", name))
		case lerr != nil:
			err = errors.Join(err, fmt.Errorf("lock /%s: %w", name, lerr))
		}
		err = errors.Join(err, f.Close()) // and with it the lock
	}
	return err
}

// containerdContainers reads containerd's metadata: v1/NAMESPACE/containers/ID.
func containerdContainers(d *disk.Disk) (all []Container, err error) {
	files, err := globs(d, containerdRoots(d), metaName)
	for _, file := range files {
		found, ferr := view(d, file, func(root *bucket) (all []Container, err error) {
			v1, err := root.in("v1")
			err = errors.Join(err, v1.buckets(func(namespace string, ns *bucket) error {
				containers, err := ns.in("containers")
				return errors.Join(err, containers.buckets(func(id string, c *bucket) error {
					values, err := c.values()
					all = append(all, Container{About: fmt.Sprintf("containerd, namespace %s: container %s of image %s (/%s)", namespace,
						id, values["image"], file)})
					return err
				}))
			}))
			return all, err
		})
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	return all, err
}

// containerdLayers are the snapshots that are written to.
func containerdLayers(d *disk.Disk) (all []Container, err error) {
	files, err := globs(d, containerdRoots(d), snapshotsName)
	for _, file := range files {
		found, ferr := snapshots(d, file)
		for _, s := range found {
			if s.kind == kindActive {
				all = append(all, Container{About: fmt.Sprintf("containerd: active snapshot %s (/%s)", s.key, s.dir),
					Dirs: []string{s.dir}})
			}
		}
		err = errors.Join(err, ferr)
	}
	return all, err
}

// Kinds of snapshots (containerd's core/snapshots.Kind); views, of kind 1, are read-only.
const (
	kindActive    = 2
	kindCommitted = 3
)

// snapshot is one directory of a snapshotter of containerd's.
type snapshot struct {
	key  string // "NAMESPACE/NUMBER/NAME"
	kind byte
	dir  string
}

// chain is the chain ID of an image's layer, which is the committed snapshot's name.
func (s snapshot) chain() string {
	parts := strings.SplitN(s.key, "/", 3)
	return parts[len(parts)-1]
}

// snapshots reads a snapshotter's database: v1/snapshots/KEY with kind and id; the directory is
// snapshots/ID beside it.
func snapshots(d *disk.Disk, file string) ([]snapshot, error) {
	return view(d, file, func(root *bucket) (all []snapshot, err error) {
		b, err := root.in("v1", "snapshots")
		err = errors.Join(err, b.buckets(func(key string, s *bucket) error {
			values, err := s.values()
			id, n := binary.Uvarint(values["id"])
			if err != nil || n <= 0 || len(values["kind"]) != 1 {
				return errors.Join(err, fmt.Errorf("snapshot %q has no id or kind", key))
			}
			all = append(all, snapshot{key, values["kind"][0], fmt.Sprintf("%s/snapshots/%d", path.Dir(file), id)})
			return nil
		}))
		return all, err
	})
}
