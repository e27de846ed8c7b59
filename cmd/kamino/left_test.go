package main

import (
	"slices"
	"testing"
)

// TestLeftLines: what a second signal tells is what the engine last said of each pool, of pools of
// one name too.
func TestLeftLines(t *testing.T) {
	var l leftovers
	l.hold("/groups/x/scaleSets/a", []string{"the lease", "the donor off"})
	l.hold("/groups/y/scaleSets/a", []string{"the snapshot"})
	l.hold("/groups/x/scaleSets/a", []string{"the lease"})
	l.hold("/groups/x/scaleSets/b", nil)
	if got, want := l.lines(), []string{"pool a: the lease", "pool a: the snapshot"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
