package engine

import (
	"testing"

	"kamino.dev/kamino"
)

// TestOriginal: an image of Kamino's own is never the original, whatever its ID looks like.
func TestOriginal(t *testing.T) {
	versions := kamino.ParseVersions([]kamino.Artifact{{Name: "2026.1.2", ID: "ami-2"}, {Name: "2026.1.1", ID: "ami-1"}})
	for _, c := range []struct {
		name, image, gallery string
		original             bool
	}{
		{"an AMI of somebody else's", "ami-0", "", true},
		{"an AMI of a version", "ami-1", "", false},
		{"a stock image", "Canonical:server:24_04:latest", "SIG_a", true},
		{"the definition", "/resourceGroups/rg/providers/Microsoft.Compute/galleries/SIG_a/images/x", "sig_a", false},
		{"another gallery", "/resourceGroups/rg/providers/Microsoft.Compute/galleries/SIG_b/images/x", "SIG_a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := kamino.Pool{Gallery: c.gallery, Model: kamino.Model{Image: c.image}}
			var l kamino.Lease
			l.Ledger.NoteSaved(kamino.SavedModel{Image: c.image}, prototype(pool, versions))
			if got := l.Ledger.Original != nil; got != c.original || l.Ledger.Former == nil {
				t.Errorf("%s: remembered as the original %t, want %t", c.name, got, c.original)
			}
		})
	}
}
