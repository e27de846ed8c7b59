package kamino

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Clock is the one source of time of a run: nothing else here reads the time, waits or gives up by
// it. Tests put a virtual clock here, whose Sleep advances it.
type Clock interface {
	// Now is this machine's time, with its monotonic reading where there is one. UTC, as JSON,
	// takes that off: so the zone is anybody's, and who writes a time down converts it.
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is [context.WithTimeout] by this clock. With which error the
	// context ends is the clock's business.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WallClock is the time of this machine.
type WallClock struct{}

// Now returns the present time. UTC would take its monotonic reading off
// (https://pkg.go.dev/time#hdr-Monotonic_Clocks), and who sets the clock would move every deadline.
func (WallClock) Now() time.Time { return time.Now() }

// Sleep waits for d or for the end of ctx.
func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// WithTimeout is [context.WithTimeout].
func (WallClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// now is for measuring, date for what is written down.
func (e *Engine) now() time.Time { return e.clock().Now() }

func (e *Engine) date() time.Time { return e.now().UTC() }

// expected is how long a run takes here, without its proof: the medians of those that ended well.
func (l Ledger) expected() (run, away float64) {
	var runs, aways []float64
	for _, p := range l.Past {
		if p.Failure == "" && p.Work == "" && p.AwaySeconds > 0 {
			runs, aways = append(runs, p.Seconds-p.ProofSeconds), append(aways, p.AwaySeconds)
		}
	}
	return median(runs), median(aways)
}

// proofSeconds is how long the steps of a run took that prove its version.
func (r Result) proofSeconds() (sum float64) {
	for _, s := range r.Steps {
		if slices.Contains([]string{InLaunch, InJoin, InExamine, InRetire, InWatch}, s.Name) {
			sum += s.Seconds
		}
	}
	return sum
}

// proofExpected is how long the proof of a version may be expected to take.
func (r *Run) proofExpected() time.Duration {
	boot := 5 * time.Minute
	if usual := usually(r.held.lease.Ledger.Boots); usual > 0 {
		boot = usual
	}
	return boot + r.opts.Proof.For
}

// budget is for the boot of a pool's canary: a factor of what theirs usually took counts once that
// is known, and as one that no machine is too fast for.
func (p Proving) budget(l Ledger) time.Duration {
	if usual := usually(l.Boots); p.Times > 0 && usual > 0 {
		return max(time.Duration(p.Times*float64(usual)), time.Minute)
	}
	return p.Budget
}

// booted notes how many seconds a good canary took to be Ready, and each phase of its boot.
func (l *Ledger) booted(seconds float64, phases map[string]float64) {
	l.Boots = append([]float64{seconds}, l.Boots...)
	l.Boots = l.Boots[:min(len(l.Boots), maxPast)]
	if len(phases) > 0 {
		l.Phases = append([]map[string]float64{phases}, l.Phases...)
		l.Phases = l.Phases[:min(len(l.Phases), maxPast)]
	}
}

// usually is the median of what good canaries took; 0 while fewer than three are known.
func usually(seconds []float64) time.Duration {
	if len(seconds) < 3 {
		return 0
	}
	return time.Duration(median(slices.Clone(seconds)) * float64(time.Second))
}

// usualPhases are what the phases of good canaries' boots usually took, by name.
func (l Ledger) usualPhases() map[string]time.Duration {
	took := map[string][]float64{}
	for _, boot := range l.Phases {
		for name, seconds := range boot {
			took[name] = append(took[name], seconds)
		}
	}
	usual := map[string]time.Duration{}
	for name, seconds := range took {
		if usual[name] = usually(seconds); usual[name] == 0 {
			delete(usual, name)
		}
	}
	return usual
}

// boot is how long it took from a machine that runs to a node that is Ready: by the node's own word
// where that can be, else by when that was seen.
func (s Sight) boot() time.Duration {
	if s.ReadyAs.After(s.Running) && s.ReadyAs.Before(s.Ready) {
		return s.ReadyAs.Sub(s.Running)
	}
	return max(s.Ready.Sub(s.Running), 0)
}

func judgeBoot(s Sight, b Bounds) (Outcome, string) {
	if !s.there() || b.History == 0 {
		return ProofPassed, "no history to compare with"
	}
	slow, over := "", time.Duration(0) // of the phases the one that is most beyond its limit
	report, _ := s.Node.Report(s.Nonce)
	for _, name := range slices.Sorted(maps.Keys(b.Phases)) {
		took := time.Duration(report.Phases[name] * float64(time.Second))
		if more := took - b.slowest(b.Phases[name]); more > over {
			slow, over = fmt.Sprintf("phase %s took %s, usually %s", name, took.Round(time.Second), b.Phases[name].Round(time.Second)), more
		}
	}
	took, most := s.boot(), b.slowest(b.History)
	switch {
	case took > most:
		return ProofFailed, fmt.Sprintf("Ready %s after the machine ran, where the pool's canaries take %s: more than %s%s",
			took.Round(time.Second), b.History.Round(time.Second), most.Round(time.Second), inBrackets(slow))
	case slow != "":
		return ProofFailed, slow
	}
	return ProofPassed, fmt.Sprintf("%s, usually %s", took.Round(time.Second), b.History.Round(time.Second))
}

// slowest is how long may take what usually takes a while.
func (b Bounds) slowest(usual time.Duration) time.Duration {
	return 2*usual + max(time.Minute, b.Boot/4)
}

func (r *Run) donorUsed() bool { return !r.away.from.IsZero() && !r.away.to.IsZero() }

func (r *Run) awayFor() time.Duration {
	if !r.donorUsed() {
		return 0
	}
	return r.away.to.Sub(r.away.from)
}

// elapsed is how much later b is than a, by the clock that says more: the monotonic one stands
// still while the machine is suspended, and the other may be set back. Both stand still in a VM
// that is paused.
func elapsed(a, b time.Time) time.Duration { return max(b.Sub(a), b.Round(0).Sub(a.Round(0))) }
