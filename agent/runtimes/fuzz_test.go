package runtimes

import (
	"errors"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzContainerd: the databases of containerd and of its snapshotter with a byte changed anywhere,
// or cut: containers, layers and images are read, or an error tells why not.
func FuzzContainerd(f *testing.F) {
	d := disktest.New(f, nil)
	root := containerdDir
	meta := root + "/" + metaName
	snapshotter := root + "/io.containerd.snapshotter.v1.overlayfs/metadata.db"
	bucketOf := func(tx *bolt.Tx, names ...string) (b *bolt.Bucket, err error) {
		b, err = tx.CreateBucketIfNotExists([]byte(names[0]))
		for _, name := range names[1:] {
			if err == nil {
				b, err = b.CreateBucketIfNotExists([]byte(name))
			}
		}
		return b, err
	}
	seeds := [2][]byte{}
	for i, file := range []struct {
		name string
		fill func(*bolt.Tx) error
	}{
		{meta, func(tx *bolt.Tx) error {
			c, err := bucketOf(tx, "v1", "k8s.io", "containers", "c1")
			im, err2 := bucketOf(tx, "v1", "k8s.io", "images", "r/a:1", "target")
			return errors.Join(err, err2, c.Put([]byte("image"), []byte("r/a:1")), im.Put([]byte("digest"), []byte("sha256:00")))
		}},
		{snapshotter, func(tx *bolt.Tx) error {
			s, err := bucketOf(tx, "v1", "snapshots", "k8s.io/1/sha256:00")
			return errors.Join(err, s.Put([]byte("id"), []byte{1}), s.Put([]byte("kind"), []byte{kindActive}))
		}},
	} {
		if err := opened(f, d, file.name, file.fill).Close(); err != nil {
			f.Fatal(err)
		}
		data, err := d.ReadFile(file.name, 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		seeds[i] = data
	}
	if all, err := containerdContainers(d); len(all) != 1 || err != nil {
		f.Fatalf("%+v, %v", all, err)
	}
	if all, err := containerdLayers(d); len(all) != 1 || err != nil {
		f.Fatalf("%+v, %v", all, err)
	}
	f.Add(0, byte(0), 0, byte(0), 0)
	f.Add(3*4096+16+8, byte(3), 4096+64, byte(0xff), 4097)
	f.Fuzz(func(t *testing.T, at int, to byte, at2 int, to2 byte, cut int) {
		for i, name := range []string{meta, snapshotter} {
			data := append([]byte{}, seeds[i]...)
			for _, change := range []struct {
				at int
				to byte
			}{{at, to}, {at2, to2}} {
				if change.at >= 0 && change.at < len(data) {
					data[change.at] = change.to
				}
			}
			if cut > 0 && cut < len(data) {
				data = data[:len(data)-cut]
			}
			if err := os.WriteFile(d.Host(name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = containerdContainers(d)
		_, _ = containerdLayers(d)
		_, _ = ReadLayers(d)
	})
}
