package main

import (
	"slices"
	"testing"

	"kamino.dev/kamino"
)

// TestLeftLines: what a second signal tells is what is left.
func TestLeftLines(t *testing.T) {
	event := func(step string, kind kamino.EventKind) kamino.Event {
		return kamino.Event{Pool: "a", Step: step, Kind: kind}
	}
	took := func(ev kamino.Event) kamino.Event { ev.Adopted = true; return ev }
	const acted, done, skipped, waiting = kamino.StepActed, kamino.StepDone, kamino.StepSkipped, kamino.StepWaiting
	for name, tt := range map[string]struct {
		events []kamino.Event
		want   []string
	}{
		"nothing":          {events: []kamino.Event{event("validate", done), event("lock", waiting)}},
		"taken":            {[]kamino.Event{event("lock", acted), event("protect", acted), event("drain", acted), event("drain", done)}, []string{"the donor's block", "the donor's protection", "the lease"}},
		"given back":       {[]kamino.Event{event("lock", acted), event("stop", acted), event("snapshot", acted), event("return", done)}, []string{"the lease", "the snapshot"}},
		"being given back": {[]kamino.Event{event("unseal", acted), event("start", waiting)}, []string{"a donor that is being given back"}},
		"built":            {[]kamino.Event{event("lock", acted), event("snapshot", acted), event("image", acted), event("image", done), event("clean", done)}, []string{"the lease"}},
		"failed to build":  {[]kamino.Event{event("image", acted), event("failed-version", done)}, nil},
		"adopted": {[]kamino.Event{event("lock", acted), took(event("lock", done)), took(event("version", waiting))},
			[]string{"the lease", "what its former process had taken, perhaps the donor"}},
		"adopted, its donor off": {[]kamino.Event{event("lock", acted), took(event("lock", done)), took(event("stop", done)), took(event("snapshot", waiting))},
			[]string{"the donor off", "the lease", "what its former process had taken, perhaps the donor"}},
		"adopted, its donor back": {[]kamino.Event{event("lock", acted), took(event("lock", done)), took(event("return", skipped))}, []string{"the lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l leftovers
			for _, ev := range tt.events {
				l.event(ev)
			}
			var want []string
			for _, what := range tt.want {
				want = append(want, "pool a: "+what)
			}
			if got := l.lines(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}
