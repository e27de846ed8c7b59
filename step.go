package kamino

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Step is a named, idempotent part of a run. Its Look reads the world and says
// what is next: the step is done, something must be done, or there is
// something to wait for. The engine does it and looks again.
type Step struct {
	Name string
	Seed string // the numbers of these steps in the original's description
	Does string // what it does, for people
	Back string // what is given back when a later step fails

	// Limit is how long the step may take, time of throttling not counted.
	Limit time.Duration
	// Patient steps wait for long operations while nothing is away.
	Patient bool
	// Stubborn steps give something back: they try again after any error.
	Stubborn bool
	// Spare steps clean up: when one fails, the run goes on and warns.
	Spare bool
	// Takes is what the run holds once the step has acted, in words for people, and Until the name
	// of the step that gives it back. Ends is the name of a step whose takings end with this one,
	// too.
	Takes, Until, Ends string
	// DonorBack: once this step is done, or not needed, the run has no donor away.
	DonorBack bool
	// Notify puts an event on the donor when the step first acts, which says Tells or, without,
	// what it is about to do.
	Notify, Tells string

	When func(*Run) bool // nil: always
	Look func(*Run, context.Context) (Next, error)
	Plan func(*Run) string // what a dry-run prints; nil: Does
}

// seenKey finds what a look has read.
type seenKey struct{}

// Looking begins a look. What a Provider or a Cluster reads with the context it returns may be read
// once and told again. Nothing is changed with such a context: what changes the world reads afresh.
func Looking(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, &sync.Map{})
}

// Seen is what was read in the look that a context belongs to; nil where it belongs to none.
func Seen(ctx context.Context) *sync.Map {
	seen, _ := ctx.Value(seenKey{}).(*sync.Map)
	return seen
}

// Next is what a Look found.
type Next struct {
	kind    nextKind
	act     Act
	on      string // which of several that the same act is for; "" where there is one
	what    string // for people
	percent int
	do      func(context.Context) error
	along   []announcement // acts that follow, written down as intent with this one
	note    func(*Lease)   // what to write on the lease before do
	why     string         // what is waited for after do; "": the next look comes at once
	after   time.Duration  // how long to wait, where that is known
	steps   bool           // do has steps of its own, with limits of their own
}

type nextKind int

const (
	nextDone nextKind = iota
	nextWait
	nextAct
)

// done: the world is as the step wants it.
func done(what string) Next { return Next{kind: nextDone, what: what, percent: -1} }

// wait: somebody else has to do something first.
func wait(why string) Next { return Next{kind: nextWait, what: why, percent: -1} }

// waitFor is wait where the step itself knows for how long.
func waitFor(why string, d time.Duration) Next {
	next := wait(why)
	next.after = d
	return next
}

// waitPercent is wait with progress.
func waitPercent(why string, percent int) Next {
	return Next{kind: nextWait, what: why, percent: percent}
}

// act: do is to be called, after what was written down as intent.
func act(id Act, what string, do func(context.Context) error) Next {
	return Next{kind: nextAct, act: id, what: what, do: do, percent: -1}
}

// actSteps is act where do runs steps.
func actSteps(id Act, what string, do func(context.Context) error) Next {
	next := act(id, what, do)
	next.steps = true
	return next
}

// then is an act whose effect takes time: the next look comes after d, or after
// the usual pause if that is longer.
func (n Next) then(why string, d time.Duration) Next {
	n.why, n.after = why, d
	return n
}

// announcement is an act that follows another.
type announcement struct {
	act  Act
	what string
}

// announcing adds an act that will follow, so that one intent on the lease is enough
// for all that are made within lookAge of it.
func (n Next) announcing(id Act, what string) Next {
	n.along = append(n.along, announcement{id, what})
	return n
}

// of says which of several artifacts the act is for.
func (n Next) of(name string) Next {
	n.on = name
	return n
}

// noting adds what must stand on the lease before the act.
func (n Next) noting(note func(*Lease)) Next {
	n.note = note
	return n
}

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

func (p *pace) reset() { p.began = p.run.engine.now(); p.failures = 0 }

// deed is an act, and which of several it is for.
type deed struct {
	act Act
	on  string
}

// tooSoon says whether an act that was already made must be given time to
// show, so that a slow or lying service is not flooded.
func (p *pace) tooSoon(what deed) bool {
	now := p.run.engine.now()
	if n := p.acts[what]; n > 0 && now.Before(p.hold) {
		return true
	}
	p.acts[what]++
	back := min(time.Second<<min(p.acts[what], 6), 30*time.Second)
	p.hold = now.Add(back)
	return false
}

// worked is spent without the time in which the service asked for silence.
func (r *Run) worked() time.Duration { return r.spent() - r.now.throttled }

// errOverdue: a step has taken longer than its limit.
var errOverdue = errors.New("not done")

// pause waits as long as the last look or failure demands.
func (p *pace) pause(ctx context.Context, next Next, failure error) error {
	now := p.run.engine.now()
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
		d = min(p.run.engine.minPoll()<<min(p.failures-1, 6), 30*time.Second)
	}
	p.run.donor.read, p.run.donor.seenAt = false, time.Time{}
	return p.run.held.sleep(ctx, d)
}

// delay grows with the time already waited, so that short waits end promptly
// and long ones cost few calls.
func (p *pace) delay(now time.Time) time.Duration {
	if p.began.IsZero() {
		p.began = p.run.now.since
	}
	most := p.run.engine.MaxPoll
	if most == 0 {
		most = 5 * time.Second
	}
	if p.step.Patient {
		most *= 3
	}
	return min(max(now.Sub(p.began)/20, p.run.engine.minPoll()), max(most, p.run.engine.minPoll()))
}

func (e *Engine) minPoll() time.Duration {
	if e.MinPoll > 0 {
		return e.MinPoll
	}
	return time.Second
}

// Act is something that a run does to the world, as it stands on the lease before it is done. What
// people read of it stands beside it, in words of its own.
type Act string

// The acts.
const (
	ActLease            Act = "take-lease"
	ActBegin            Act = "begin-run"
	ActGiveBack         Act = "give-back"
	ActCreateGallery    Act = "create-gallery"
	ActCreateDefinition Act = "create-definition"
	ActName             Act = "name-version"
	ActProtect          Act = "protect-node"
	ActBlock            Act = "block-node"
	ActSurvey           Act = "survey-disk"
	ActEvict            Act = "evict-pods"
	ActHolding          Act = "announce-hold"
	ActHold             Act = "hold-node"
	ActRelease          Act = "release-node"
	ActSealing          Act = "announce-seal"
	ActSeal             Act = "seal-disk"
	ActPowerOff         Act = "power-off"
	ActPowerOn          Act = "power-on"
	ActCreateSnapshot   Act = "create-snapshot"
	ActDeleteSnapshot   Act = "delete-snapshot"
	ActUnmark           Act = "unmark-node"
	ActUnseal           Act = "delete-seal-pod"
	ActCreateVersion    Act = "create-version"
	ActDeleteVersion    Act = "delete-version"
	ActMarkVersion      Act = "mark-version"
	ActModel            Act = "write-model"
	ActScaleOut         Act = "scale-out"
	ActLaunchCanary     Act = "launch-canary"
	ActAdmitCanary      Act = "admit-canary"
	ActProbe            Act = "start-probe"
	ActRemoveCanary     Act = "remove-canary"
	ActRemoveNode       Act = "remove-node"
	ActWithdraw         Act = "withdraw-version"
	ActDeleteLists      Act = "delete-lists"
	ActPatching         Act = "announce-patch"
	ActPatch            Act = "patch-node"
	ActRestarting       Act = "announce-restart"
	ActRestart          Act = "restart-node"
	ActLook             Act = "look-at-node"
	ActSign             Act = "sign-node"
	ActKeepBlocked      Act = "keep-blocked"
)
