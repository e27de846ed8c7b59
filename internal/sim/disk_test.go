package sim

import (
	"testing"

	"kamino.dev/kamino/internal/worlds"
)

// TestDiskSwapped: whenever the OS disk of a donor is replaced while it is off, nothing is made of
// the new one, and the donor comes back.
func TestDiskSwapped(t *testing.T) {
	sites, _ := golden(t, aged)
	var trials []trial
	for _, s := range sites {
		for i, r := range rivals("a-0", "a-1") {
			if r.Name == rivalDiskSwapped {
				trials = append(trials, trial{begin: aged, site: s, kind: worlds.RivalActs, rival: rivals("a-0", "a-1")[i]})
			}
		}
	}
	play(t, trials, []string{rivalDiskSwapped})
}
