// Package runtimes reads what container runtimes keep on a disk: which containers and writable
// layers they still know, and which directories are layers of images. It reads records only, and
// changes nothing: the runtimes may be running, be stopped, or be on another machine.
//
// Layouts: containerd's docs/content-flow.md, core/metadata/buckets.go and
// core/snapshots/storage/bolt.go; Docker's (moby) layer/filestore.go, image/fs.go and
// daemon/graphdriver/overlay2; containers.go of containers/storage for CRI-O, podman and buildah.
package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// Container is what a runtime's records know of one container, or of one writable layer.
type Container struct {
	About string // for people
	// Dirs hold what it wrote, relative to the root, and go when the runtime removes it; none where
	// the record is of its specification only.
	Dirs []string
}

// recordsMost bounds a list of containers in JSON.
const recordsMost = 256 << 20

// Containers are all that the runtimes on a disk know. A record that cannot be read is an error,
// because nobody knows what it holds; what the others say is returned beside it.
func Containers(d *disk.Disk) (all []Container, err error) {
	for _, find := range []func(*disk.Disk) ([]Container, error){containerdContainers, containerdLayers,
		dockerContainers, storageContainers} {
		found, ferr := find(d)
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	return all, err
}

// Writable are the directories of all containers.
func Writable(all []Container) (dirs []string) {
	for _, c := range all {
		dirs = append(dirs, c.Dirs...)
	}
	return dirs
}

// globs are the files that match a pattern below one of the roots.
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

// dockerContainers reads Docker's layer store: image/DRIVER/layerdb/mounts/CONTAINER/mount-id names
// the layer in DRIVER/ID, and init-id the one beneath it with the container's own /etc/hosts. The
// containers' own directories are the rules' matter.
func dockerContainers(d *disk.Disk) (all []Container, err error) {
	mounts, err := globs(d, roots.Of(d).Docker, "image/*/layerdb/mounts/*")
	for _, m := range mounts {
		c := Container{About: "docker: container " + path.Base(m) + " (/" + m + ")", Dirs: []string{m}}
		image := path.Dir(path.Dir(path.Dir(m))) // ROOT/image/DRIVER
		for _, name := range []string{"mount-id", "init-id"} {
			if id := d.Text(m + "/" + name); id != "" && path.Base(id) == id {
				c.Dirs = append(c.Dirs, path.Join(path.Dir(path.Dir(image)), path.Base(image), id))
			}
		}
		all = append(all, c)
	}
	return all, err
}

// storageContainers reads what CRI-O, podman and buildah share:
// storage/DRIVER-containers/containers.json and volatile-containers.json, lists of id, names and
// layer; the layer is in DRIVER/LAYER.
func storageContainers(d *disk.Disk) (all []Container, err error) {
	files, err := globs(d, append(roots.Of(d).Storage, "home/*/.local/share/containers/storage", "root/.local/share/containers/storage"),
		"*-containers/*containers.json")
	for _, file := range files {
		found, ferr := storageList(d, file)
		all, err = append(all, found...), errors.Join(err, ferr)
	}
	return all, err
}

func storageList(d *disk.Disk, file string) (all []Container, err error) {
	data, err := d.ReadFile(file, recordsMost)
	var list []struct {
		ID    string   `json:"id"`
		Names []string `json:"names"`
		Layer string   `json:"layer"`
	}
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("read the containers of CRI-O or podman, /%s: %w", file, err)
	}
	driver := strings.TrimSuffix(path.Dir(file), "-containers")
	for _, c := range list {
		var dirs []string
		for top, name := range map[string]string{path.Dir(file): c.ID, driver: c.Layer} {
			if name != "" && path.Base(name) == name {
				dirs = append(dirs, top+"/"+name)
			}
		}
		all = append(all, Container{About: fmt.Sprintf("CRI-O or podman: container %s %s (/%s)", c.ID, strings.Join(c.Names, " "), file),
			Dirs: dirs})
	}
	return all, nil
}
