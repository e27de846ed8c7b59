package runtimes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// TestImageThatRepeats: an image may name the same manifest many times, and an index that does so as well. Each of
// these blobs is read once, and not 16 million times.
func TestImageThatRepeats(t *testing.T) {
	const many = 4000
	d := disktest.New(t, nil)
	f := follower{d, containerdBlobs, map[string]int{}, map[string]bool{}}
	put := func(text string) (digest string) {
		sum := hexSum([]byte(text))
		if err := d.WriteFile(containerdBlobs+"/"+sum, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return "sha256:" + sum
	}
	index := func(digest string) string {
		return put(`{"manifests":[` + strings.Repeat(fmt.Sprintf(`{"digest":%q},`, digest), many-1) + fmt.Sprintf(`{"digest":%q}]}`, digest))
	}
	manifest := put(fmt.Sprintf(`{"config":{"digest":%q}}`, put(`{"rootfs":{"diff_ids":["sha256:aa"]}}`)))
	f.follow(index(index(manifest)), 0)
	if len(f.met) != 4 || !f.chains["sha256:aa"] {
		t.Errorf("%d blobs, chains %v", len(f.met), f.chains)
	}
}

// FuzzImages: whatever an image's index, manifest and configuration say, layers are found below the stores only.
func FuzzImages(f *testing.F) {
	f.Add([]byte(`{"rootfs":{"diff_ids":["sha256:aa","sha256:bb"]}}`))
	f.Add([]byte(`{"manifests":[{"digest":"sha256:../x"},{"digest":7}],"config":{"digest":"sha256:00"}}`))
	f.Add([]byte(`{"config":"x","rootfs":{"diff_ids":["../../../etc"]}}`))
	d := disktest.New(f, map[string]string{dockerImages + "/imagedb/content/sha256/x": "", containerdBlobs + "/x": ""})
	f.Fuzz(func(t *testing.T, data []byte) {
		sum := hexSum(data)
		for _, dir := range []string{dockerImages + "/imagedb/content/sha256/", containerdBlobs + "/"} {
			name := d.Host(dir + sum)
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(name)
		}
		found := Layers{}
		if err := found.docker(d, "var/lib/docker"); err != nil {
			t.Error(err)
		}
		for dir := range found {
			if !strings.HasPrefix(dir, dockerLayers+"/") {
				t.Errorf("%q leads to %q", data, dir)
			}
		}
		follower{d, containerdBlobs, map[string]int{}, map[string]bool{}}.follow("sha256:"+sum, 0)
	})
}
