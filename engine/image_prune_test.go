package engine

import (
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// shelf keeps lists in memory.
type shelf struct {
	kamino.Cluster
	kamino.PackageStore
	kept map[string]kamino.DiskList
}

// TestLists: a list is kept if the receipt has its digest, and as long as there is a version.
func TestLists(t *testing.T) {
	lines := []string{"a 1 amd64", "b 2 all"}
	s := &shelf{kept: map[string]kamino.DiskList{}}
	r := newRun((&Engine{Cluster: s}), kamino.Options{})
	r.held.Run, r.held.Lease = "r1", &kamino.Lease{}
	receipt := kamino.Receipt{Run: "r1", Nonce: "n", Freshness: kamino.Freshness{PackageDigest: poolstate.PackageDigest(lines)}}
	for name, n := range map[string]kamino.Node{"another list": told("r1", "n", "a 2 amd64", "b 2 all"), "another run's": told("r0", "n", lines...),
		"another nonce": told("r1", "m", lines...), "none": {}, "too long": told("r1", "n", strings.Repeat("a", kamino.MaxPackages+1))} {
		t.Run(name, func(t *testing.T) {
			if r.image.saveList(t.Context(), n, receipt); len(s.kept) > 0 {
				t.Errorf("%s is kept: %v", name, s.kept)
			}
		})
	}
	n := told("r1", "n", lines...)
	n.Software.Images = []kamino.CachedImage{{Name: "i", Bytes: 1}}
	r.image.saveList(t.Context(), n, receipt)
	if got := s.kept["r1"]; !slices.Equal(got.Packages, lines) || len(got.Images) != 1 {
		t.Errorf("kept %+v", s.kept)
	}
	s.kept["r0"], s.kept["gone"] = kamino.DiskList{}, kamino.DiskList{}
	versions := []kamino.Version{kamino.ParseVersion(kamino.Artifact{Tags: map[string]string{kamino.TagRun: "r0"}})}
	next, any := r.image.pruneLists(t.Context(), versions)
	if !any || next.Act != kamino.ActDeleteLists {
		t.Fatalf("%+v", next)
	}
	if err := next.Do(t.Context()); err != nil || len(s.kept) != 2 || s.kept["r1"].Packages == nil {
		t.Errorf("left %v, %v", s.kept, err)
	}
	if _, any := r.image.pruneLists(t.Context(), versions); any {
		t.Error("there is always one to delete")
	}
}
