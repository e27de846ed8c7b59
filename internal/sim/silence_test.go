package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestPausedWhileThrottled: a pause ends a run that waits until it may call again.
func TestPausedWhileThrottled(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, s := range sites {
		if s.call.method != "Create snapshot" {
			continue
		}
		w := aged(1)
		paused := s.when.Add(30 * time.Second)
		w.after(paused.Sub(w.now), func() { w.paused = "incident" })
		p := w.startUpdate(&proc{faults: []fault{{kind: worlds.Throttled, at: s.at}}}, w.goldenOptions())
		w.wait()
		if took := w.now.Sub(paused); p.err == nil || took > 6*time.Minute {
			t.Errorf("the run ended %v, %s after the pause", p.err, took)
		}
		w.audit.settled()
		for _, v := range w.audit.violations {
			t.Error(v)
		}
		return
	}
	t.Fatal("no snapshot is made")
}

// silent answers each start with a Retry-After of a day, until somebody mends it.
type silent struct {
	simProvider
	starts *int
}

func (s silent) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	if want == kamino.PowerOn {
		*s.starts++
		return &kamino.ThrottledError{After: 24 * time.Hour, Err: errors.New("429")}
	}
	return s.simProvider.SetPower(ctx, id, want)
}

// TestSilentForADay: a run whose start of the donor is refused for a day gives up at once, asks once
// only, and leaves what a restore needs.
func TestSilentForADay(t *testing.T) {
	w, starts := aged(1), 0
	p := &proc{}
	p.tune = func(e *kamino.Engine) {
		if sim, ok := e.Provider.(simProvider); ok {
			e.Provider = silent{sim, &starts}
		}
	}
	began := w.now
	w.startUpdate(p, w.goldenOptions())
	w.wait()
	if took := w.now.Sub(began); took > time.Hour || p.err == nil || starts != 1 || kamino.Hint(p.err) != "kamino restore" {
		t.Errorf("after %s and %d starts the run ended %v; hint %q", took, starts, p.err, kamino.Hint(p.err))
	}
	if back := w.restore(); back.err != nil {
		t.Error(back.err)
	}
	w.audit.settled()
	for _, v := range w.audit.violations {
		t.Error(v)
	}
}
