package providertest_test

import (
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// TestGalleryOfAmbiguousGroup: a resource group that another one's gallery could be
// named after gets a name of its own, and keeps the gallery that it has.
func TestGalleryOfAmbiguousGroup(t *testing.T) {
	const group = "lab_group"
	c := begin(t, setting{latencies: emulator.NoLatency(), in: group})
	if have := c.pool().Gallery; have != kamino.GalleryName(group) || have == kamino.FormerGalleryName(group) {
		t.Errorf("the gallery is to be %s", have)
	}
	d := begin(t, setting{latencies: emulator.NoLatency(), in: group})
	old := c.pool()
	old.Gallery = kamino.FormerGalleryName(group)
	d.must(d.Create(t.Context(), old, kamino.Artifact{Kind: kamino.KindGallery, Name: old.Gallery}))
	if have := d.pool().Gallery; have != kamino.FormerGalleryName(group) {
		t.Errorf("there is a gallery %s, and the pool's is to be %s", old.Gallery, have)
	}
}
