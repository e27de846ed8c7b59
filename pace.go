package kamino

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pace decides how long to wait between looks.
type pace struct {
	run      *Run
	step     Step
	began    time.Time
	failures int
	acts     map[deed]int
	notified bool
	hold     time.Time // before which the same act is not repeated
}

func (p *pace) reset() { p.began = p.run.clock().Now(); p.failures = 0 }

// deed is an act, and which of several it is for.
type deed struct {
	act Act
	on  string
}

// tooSoon says whether an act that was already made must be given time to
// show, so that a slow or lying service is not flooded.
func (p *pace) tooSoon(what deed) bool {
	now := p.run.clock().Now()
	if n := p.acts[what]; n > 0 && now.Before(p.hold) {
		return true
	}
	p.acts[what]++
	back := min(time.Second<<min(p.acts[what], 6), 30*time.Second)
	p.hold = now.Add(back)
	return false
}

// errOverdue: a step has taken longer than its limit.
var errOverdue = errors.New("not done")

// pause waits as long as the last look or failure demands.
func (p *pace) pause(ctx context.Context, next Next, failure error) error {
	now := p.run.clock().Now()
	limit := p.step.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	if spent := p.run.worked(); spent > limit {
		if failure != nil {
			return fmt.Errorf("%w after %s: %w", errOverdue, spent.Round(time.Second), failure)
		}
		return fmt.Errorf("%w after %s, last waiting for: %s", errOverdue, spent.Round(time.Second), next.what)
	}
	d := max(p.delay(now), next.after)
	var t *ThrottledError
	if errors.As(failure, &t) {
		d = max(t.After, d)
		p.run.now.throttled += d
	} else if failure != nil {
		p.failures++
		d = min(p.run.minPoll()<<min(p.failures-1, 6), 30*time.Second)
	}
	p.run.read = false
	return p.run.sleep(ctx, d)
}

// delay grows with the time already waited, so that short waits end promptly
// and long ones cost few calls.
func (p *pace) delay(now time.Time) time.Duration {
	if p.began.IsZero() {
		p.began = p.run.now.since
	}
	most := p.run.MaxPoll
	if most == 0 {
		most = 5 * time.Second
	}
	if p.step.Patient {
		most *= 3
	}
	return min(max(now.Sub(p.began)/20, p.run.minPoll()), max(most, p.run.minPoll()))
}

func (e *Engine) minPoll() time.Duration {
	if e.MinPoll > 0 {
		return e.MinPoll
	}
	return time.Second
}

// sleep waits in pieces short enough to keep the lease.
func (r *Run) sleep(ctx context.Context, d time.Duration) error {
	for d > 0 {
		piece := min(d, renewAfter)
		if err := r.clock().Sleep(ctx, piece); err != nil {
			return err
		}
		if d -= piece; d > 0 {
			if err := r.renew(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
