package runtimes

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"kamino.dev/kamino/agent/disk/disktest"
)

// snapshotter fills a snapshotter's database: the snapshots' numbers count from 1.
func snapshotter(kinds ...byte) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		v1, err := tx.CreateBucketIfNotExists([]byte("v1"))
		if err != nil {
			return err
		}
		all, err := v1.CreateBucketIfNotExists([]byte("snapshots"))
		for i, kind := range kinds {
			if err != nil {
				return err
			}
			var s *bolt.Bucket
			if s, err = all.CreateBucketIfNotExists([]byte{'k', '8', 's', '/', byte('1' + i), '/', 'x'}); err == nil {
				err = errors.Join(s.Put([]byte("id"), binary.AppendUvarint(nil, uint64(i+1))), s.Put([]byte("kind"), []byte{kind}))
			}
		}
		return err
	}
}

// TestRoots: containers are found of every runtime, wherever it keeps its state, while it runs;
// views and images are none.
func TestRoots(t *testing.T) {
	const k3s = "var/lib/rancher/k3s/agent/containerd/io.containerd.snapshotter.v1.native"
	d := disktest.New(t, map[string]string{
		"var/lib/docker/image/overlay2/layerdb/mounts/0a1b/mount-id":    "5e6f",
		"var/lib/docker/image/overlay2/layerdb/mounts/0a1b/init-id":     "5e6f-init",
		"var/lib/docker/image/overlay2/layerdb/mounts/evil/mount-id":    "../../..",
		"var/lib/containers/storage/overlay-containers/containers.json": `[{"id":"77aa","layer":"99"},{"id":"","layer":"../.."}]`,
	})
	opened(t, d, k3s+"/metadata.db", snapshotter(1, kindActive, kindCommitted))
	left, err := Containers(d)
	got := Writable(left)
	slices.Sort(got)
	want := []string{"var/lib/containers/storage/overlay-containers/77aa", "var/lib/containers/storage/overlay/99",
		"var/lib/docker/image/overlay2/layerdb/mounts/0a1b", "var/lib/docker/image/overlay2/layerdb/mounts/evil",
		"var/lib/docker/overlay2/5e6f", "var/lib/docker/overlay2/5e6f-init", k3s + "/snapshots/2"}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) || len(left) != 5 {
		t.Errorf("%v\nwant %v, %v", got, want, err)
	}
	if err := Stopped(d); err == nil || !strings.Contains(err.Error(), k3s) {
		t.Errorf("a database that is open: %v", err)
	}
}

// TestUnreadable: one runtime's records that cannot be read are an error, and hide no other's.
func TestUnreadable(t *testing.T) {
	d := disktest.New(t, map[string]string{"var/lib/containerd/" + metaName: "torn", overlayDir + "/metadata.db": "torn",
		"var/lib/docker/image/overlay2/layerdb/mounts/0a1b/mount-id": "5e6f"})
	left, err := Containers(d)
	if err == nil || !strings.Contains(err.Error(), "meta.db") || !strings.Contains(err.Error(), "metadata.db") || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := ReadLayers(d); err == nil {
		t.Error("layers of a database that cannot be read")
	}
	if err := Stopped(d); err != nil {
		t.Errorf("nobody has them open: %v", err)
	}
}

// TestPipes: a pipe in a database's place, which a user may make, is an error. Whoever opens one
// waits for a writer.
func TestPipes(t *testing.T) {
	for _, name := range []string{metaName, "io.containerd.snapshotter.v1.native/metadata.db"} {
		d := disktest.New(t, nil)
		at := "home/u/.local/share/containerd/" + name
		err := errors.Join(os.MkdirAll(d.Host(path.Dir(at)), 0o755), syscall.Mkfifo(d.Host(at), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		for what, read := range map[string]func() error{
			"Containers": func() error { _, err := Containers(d); return err },
			"Stopped":    func() error { return Stopped(d) },
		} {
			done := make(chan error, 1)
			go func() { done <- read() }()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), at) {
					t.Errorf("%s, %s: %v", what, name, err)
				}
			case <-ctx.Done():
				t.Errorf("%s waits for a writer of %s", what, name)
			}
			cancel()
		}
	}
}
