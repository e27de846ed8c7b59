package engine

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"kamino.dev/kamino"
)

// TestFreshTags: what a version tells of its disk fits into tags, whatever a node writes.
func TestFreshTags(t *testing.T) {
	f := kamino.Freshness{PackageDigest: strings.Repeat("a", 64), PackageCount: 876, PatchedAt: selectNow, Kernel: "6.8.0-12"}
	s := kamino.Software{Kernel: "6.8.0-9", OS: "Ubuntu\x1b[2J 24.04", Kubelet: "v1.36.3", Runtime: strings.Repeat("ü", 1000), Images: []kamino.CachedImage{{Name: "a", Bytes: 5}, {Name: "b", Bytes: 7}, {Name: "c", Bytes: -9}}}
	got := f.Tags(s)
	for tag, want := range map[string]string{kamino.TagPackages: f.PackageDigest, kamino.TagPackageCount: "876", kamino.TagPatched: "2026-11-20T12:00:00Z", kamino.TagKernel: "6.8.0-12",
		kamino.TagOS: "Ubuntu[2J 24.04", kamino.TagKubelet: "v1.36.3", kamino.TagImages: "3", kamino.TagImageBytes: "12"} {
		t.Run(tag, func(t *testing.T) {
			if got[tag] != want {
				t.Errorf("%s = %q, want %q", tag, got[tag], want)
			}
		})
	}
	for tag, value := range got {
		if utf8.RuneCountInString(value) > 256 || value == "" {
			t.Errorf("%s has %d characters", tag, utf8.RuneCountInString(value))
		}
	}
	r := newRun((&Engine{Clock: &turnWorld{now: selectNow}}), kamino.Options{})
	r.held.Lease = &kamino.Lease{}
	r.donor.node.Software = s
	all := r.build.tags(kamino.Receipt{Freshness: f, Policy: "p", Unknown: &kamino.UnknownFiles{}})
	if len(all) > 50-3 { // TagOffer, TagProof and TagBad come later
		t.Errorf("%d tags; Azure and AWS take 50", len(all))
	}
	if got := (kamino.Freshness{}).Tags(kamino.Software{}); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// TestTagsFit: no node and no person can make a tag that Azure or AWS refuses by its length, or more
// tags than they take.
func TestTagsFit(t *testing.T) {
	long := strings.Repeat("ä", 1000)
	r := newRun((&Engine{Clock: kamino.WallClock{}}), kamino.Options{})
	r.held.Run, r.held.Lease = "run", &kamino.Lease{}
	r.donor.node = kamino.Node{Name: strings.Repeat("n", 253), Software: kamino.Software{Kernel: long, OS: long, Kubelet: long, Runtime: long, Images: []kamino.CachedImage{{Name: long}}}}
	r.donor.instance = kamino.Instance{Image: "a/" + long + "/" + long, VMID: long}
	tags := r.build.tags(kamino.Receipt{Hash: long, Policy: long, SSHKeys: []string{long, long}, Unknown: &kamino.UnknownFiles{Mode: long, Digest: long},
		Freshness: kamino.Freshness{PackageDigest: long, PackageCount: 7, PatchedAt: time.Now(), Kernel: long}})
	a := kamino.ParseVersion(kamino.Artifact{Tags: tags}).Withdrawn(kamino.Bad{Reason: long, Nodes: true}).Artifact
	for _, tag := range []string{kamino.TagPromote, kamino.TagBootstrap, kamino.TagPointer, kamino.TagPool, kamino.TagPoolUID} { // that others of the program add
		a = a.WithTag(tag, "x")
	}
	for tag, value := range a.Tags {
		if n := utf8.RuneCountInString(value); n > 256 || len(tag) > 128 {
			t.Errorf("tag %s has %d characters", tag, n)
		}
	}
	if n := len(a.Tags); n > 40 {
		t.Errorf("%d tags leave no place for those of others", n)
	}
}
