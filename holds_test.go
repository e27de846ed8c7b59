package kamino

import (
	"slices"
	"testing"
)

// TestHolds: what the engine says that a run holds is what a second signal leaves.
func TestHolds(t *testing.T) {
	steps := map[string]Step{}
	for _, s := range slices.Concat(Pipeline(), restitution(), leftovers()) {
		steps[s.Name] = s
	}
	type deeds = []string // of steps: "+" it has acted, "=" it is done, "-" it was not needed
	for name, tt := range map[string]struct {
		deeds   deeds
		adopted bool
		want    []string
	}{
		"nothing":                 {deeds: deeds{"=" + InValidate}},
		"taken":                   {deeds: deeds{"+" + InLock, "+" + InProtect, "+" + InDrain, "=" + InDrain}, want: []string{"the donor's block", "the donor's protection", "the lease"}},
		"given back":              {deeds: deeds{"+" + InLock, "+" + InStop, "+" + InSnapshot, "=" + InReturn}, want: []string{"the lease", "the snapshot"}},
		"being given back":        {deeds: deeds{"+" + InUnseal}, want: []string{"a donor that is being given back"}},
		"built":                   {deeds: deeds{"+" + InLock, "+" + InSnapshot, "+" + InImage, "=" + InImage, "=" + InClean}, want: []string{"the lease"}},
		"failed to build":         {deeds: deeds{"+" + InImage, "=" + InFailedVersion}},
		"adopted":                 {deeds: deeds{"=" + InLock}, adopted: true, want: []string{"the lease", "what its former process had taken, perhaps the donor"}},
		"adopted, its donor off":  {deeds: deeds{"=" + InLock, "=" + InStop}, adopted: true, want: []string{"the donor off", "the lease", "what its former process had taken, perhaps the donor"}},
		"adopted, its donor back": {deeds: deeds{"=" + InLock, "-" + InReturn}, adopted: true, want: []string{"the lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			r := (&Engine{Holds: func(_ PoolID, what []string) { got = slices.Sorted(slices.Values(what)) }}).newRun(Options{})
			r.adopted = tt.adopted
			for _, d := range tt.deeds {
				s := steps[d[1:]]
				if d[0] != '-' {
					r.takes(s)
				}
				if d[0] != '+' {
					r.passed(s)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
