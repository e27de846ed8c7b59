package main

import (
	"fmt"
	"slices"
	"sync"

	"kamino.dev/kamino"
)

// leftover is something that a run holds, until the step that gives it back is done or
// turns out not to be needed.
type leftover struct{ what, until string }

// taken is what a run holds once it has acted in a step, or has found it done: by the
// process from which it took the run over.
var taken = map[string]leftover{
	"lock":     {what: "the lease"},
	"protect":  {"the donor's protection", "return"},
	"drain":    {"the donor's block", "return"},
	"seal":     {"the donor sealed and perhaps off", "return"},
	"stop":     {"the donor off", "return"},
	"unseal":   {"a donor that is being given back", "return"},
	"snapshot": {"the snapshot", "clean"},
	"image":    {"the image being built", "image"},
}

// adopted is what a run holds that was taken over, before its steps have told more.
var adopted = leftover{"what its former process had taken, perhaps the donor", "return"}

// leftovers follows the events of runs, to know what each still holds.
type leftovers struct {
	mu   sync.Mutex
	runs map[string][]leftover // by pool
}

func (l *leftovers) event(ev kamino.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string][]leftover{}
	}
	held := l.runs[ev.Pool]
	hold := func(what leftover) {
		if !slices.Contains(held, what) {
			held = append(held, what)
		}
	}
	if ev.Adopted && ev.Step == "lock" {
		hold(adopted)
	}
	over := ev.Kind == kamino.StepDone || ev.Kind == kamino.StepSkipped
	if what, ok := taken[ev.Step]; ok && (ev.Kind == kamino.StepActed || ev.Kind == kamino.StepDone) {
		hold(what)
	}
	if over {
		step := ev.Step
		if step == "failed-version" {
			step = "image"
		}
		held = slices.DeleteFunc(held, func(h leftover) bool { return h.until == step })
	}
	l.runs[ev.Pool] = held
}

// lines says what each run holds.
func (l *leftovers) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for pool, held := range l.runs {
		for _, h := range held {
			out = append(out, fmt.Sprintf("pool %s: %s", pool, h.what))
		}
	}
	slices.Sort(out)
	return out
}
