package runtimes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// InStore reports whether a file lies where an image store of containerd's or docker's keeps blobs,
// layers or records. The name is that below the usual root (roots.Roots.Usual).
func InStore(name string) bool {
	for _, dir := range []string{containerdDir, dockerImages, dockerLayers} {
		if name != dir && disk.Under(name, dir) {
			return true
		}
	}
	return false
}

// BlobDigest is the SHA-256 in hex that a content store says a file has: its name. Empty: it is in
// none. The name is that below the usual root.
func BlobDigest(name string) string {
	dir, base := path.Split(name)
	switch strings.TrimSuffix(dir, "/") {
	case containerdBlobs, dockerImages + "/imagedb/content/sha256":
		return base
	}
	return ""
}

// Layers are the directories of committed layers of the images that containerd and docker know.
// Reading them again is the caller's to avoid.
type Layers map[string]bool

// ReadLayers reads them. An error says of which store there are none, or not all.
func ReadLayers(d *disk.Disk) (Layers, error) {
	out, all := Layers{}, roots.Of(d)
	var err error
	for _, root := range all.Containerd {
		err = errors.Join(err, out.containerd(d, root))
	}
	for _, root := range all.Docker {
		err = errors.Join(err, out.docker(d, root))
	}
	return out, err
}

// Holds reports whether name lies in one of them.
func (l Layers) Holds(name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if l[name[:i]] {
			return true
		}
	}
	return false
}

func (l Layers) containerd(d *disk.Disk, root string) error {
	all, err := snapshots(d, root+"/"+overlayName+"/metadata.db")
	if err != nil || len(all) == 0 {
		return err
	}
	chains, err := imageChains(d, root)
	for _, s := range all {
		if s.kind == kindCommitted && chains[s.chain()] {
			l[s.dir] = true
		}
	}
	return err
}

// docker adds the layers of docker's images: a configuration, whose name is its digest, names the
// layers, and layerdb says by their chain IDs where they are.
func (l Layers) docker(d *disk.Disk, root string) error {
	images, layers := root+"/"+imagesName, root+"/"+layersName
	configs, err := d.Glob(images + "/imagedb/content/sha256/*")
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
			dir := images + "/layerdb/sha256/" + hex
			if id := d.Text(dir + "/cache-id"); id != "" && path.Base(id) == id && path.Base(hex) == hex {
				l[layers+"/"+id] = true
			}
		}
	}
	return nil
}

// imageChains are the chain IDs of all layers of all images that containerd knows, in any
// namespace: v1/NAMESPACE/images/NAME/target has the digest of an index or a manifest.
func imageChains(d *disk.Disk, root string) (map[string]bool, error) {
	targets, err := view(d, root+"/"+metaName, func(root *bucket) (all []string, err error) {
		v1, err := root.in("v1")
		err = errors.Join(err, v1.buckets(func(_ string, ns *bucket) error {
			images, err := ns.in("images")
			return errors.Join(err, images.buckets(func(_ string, image *bucket) error {
				target, err := image.in("target")
				values, verr := target.values()
				all = append(all, string(values["digest"]))
				return errors.Join(err, verr)
			}))
		}))
		return all, err
	})
	f := follower{d, root + "/" + blobsName, map[string]int{}, map[string]bool{}}
	for _, t := range targets {
		f.follow(t, 0)
	}
	return f.chains, err
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

// follower finds the chain IDs of the layers of images.
type follower struct {
	d     *disk.Disk
	blobs string
	// met are the blobs that were read, with how deep they stood. Whoever makes an image may name a blob any number of
	// times, and in it another: without this the agent would read for days.
	met    map[string]int
	chains map[string]bool
}

// follow adds the chain IDs of an image's layers. What is not there, such as manifests of other
// architectures, has none.
func (f follower) follow(digest string, depth int) {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if at, met := f.met[hex]; !ok || path.Base(hex) != hex || depth > 3 || met && at <= depth {
		return
	}
	data, err := f.d.ReadFile(f.blobs+"/"+hex, disk.Small)
	if err != nil || hexSum(data) != hex {
		return
	}
	f.met[hex] = depth
	var doc document
	if json.Unmarshal(data, &doc) != nil {
		return
	}
	for _, m := range doc.Manifests {
		f.follow(m.Digest, depth+1)
	}
	var config struct{ Digest string }
	if json.Unmarshal(doc.Config, &config) == nil && config.Digest != "" {
		f.follow(config.Digest, depth+1)
	}
	maps.Copy(f.chains, doc.chains())
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

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
