package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
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
		p := w.startUpdate(&proc{faults: []fault{{kind: worlds.Throttled, at: s.at}}}, goldenOptions())
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

// TestEndedWhileThrottled: a run whose start of the donor is throttled is told to end. It gives the
// donor back when the service takes the start again, and does not ask before.
func TestEndedWhileThrottled(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, s := range sites {
		if s.step != kamino.StepStart || s.call.method != "SetPower on" {
			continue
		}
		w := aged(1)
		p := w.startUpdate(&proc{faults: []fault{{kind: worlds.Throttled, at: s.at}}}, goldenOptions())
		w.after(s.when.Add(30*time.Second).Sub(w.now), func() { p.interrupted = true; p.cancel() })
		w.wait()
		m, n := w.donorOf("a-0")
		if took := w.now.Sub(s.when); p.err == nil || took < 20*time.Minute || took > 30*time.Minute || m.Power != kamino.PowerOn || !n.Ready {
			t.Errorf("the run ended %v after %s; the donor is %s, ready %t", p.err, took, m.Power, n.Ready)
		}
		if again := w.update(goldenOptions()); again.err != nil {
			t.Errorf("the same command again: %v", again.err)
		}
		w.sound(t)
		return
	}
	t.Fatal("no donor is started")
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
	p.tune = func(e *engine.Engine) {
		if sim, ok := e.Provider.(simProvider); ok {
			e.Provider = silent{sim, &starts}
		}
	}
	began := w.now
	w.startUpdate(p, goldenOptions())
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
