package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// call is one call of a port.
type call struct {
	method, subject string
	write           bool
	kube            bool
	create, deletes bool // artifacts
	list            bool
}

// site is one call of the golden run where faults are tried. Of calls that
// repeat in a step, as polls do, the first two and the last stand for all; but
// in the seal, where much happens unseen, each stands for itself.
type site struct {
	at   int
	when time.Time // in the golden run
	step string
	call call
}

func (s site) String() string {
	return strings.TrimSpace(fmt.Sprintf("#%d %s: %s %s", s.at, s.step, s.call.method, s.call.subject))
}

// faults are those of the dictionary that a port shows: the ways to die, to be told to stop, and
// then to lie. What a poller meets, or an operation's URL, the engine never sees.
var faults = []worlds.Fault{
	worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.Interrupted,
	worlds.LostReply, worlds.FalseFailure, worlds.FalseSuccess, worlds.ServerError, worlds.Unknown,
	worlds.Conflict, worlds.Precondition, worlds.Throttled, worlds.Forbidden, worlds.OperationFailed, worlds.OperationCanceled,
	worlds.LateCreate, worlds.StaleRead, worlds.Absent, worlds.Unread, worlds.Blind, worlds.Empty, worlds.Vanished,
}

// is tells what the dictionary asks of a call. Only lists of versions change behind a caller's
// back.
func (c call) is() worlds.Call {
	return worlds.Call{
		Write: c.write, Kube: c.kube, Lease: c.method == "SetLease" || c.method == "Lease", Create: c.create, List: c.list,
		Long: c.write && !c.kube, Instance: c.method == "Instance", Older: c.method == "Find image version" && c.subject == "",
	}
}

// fault strikes one call of a process: the at-th from 0, or with on the
// nth of that method.
type fault struct {
	kind  worlds.Fault
	at    int
	rival *rival
}

func (f *fault) is(k worlds.Fault) bool { return f != nil && f.kind == k }

// fails says whether the operation that a call begins comes to nothing.
func (f *fault) fails() bool { return f.is(worlds.OperationFailed) || f.is(worlds.OperationCanceled) }

func (f fault) String() string {
	if f.rival != nil {
		return fmt.Sprintf("%s at call %d", f.rival.Name, f.at)
	}
	return fmt.Sprintf("%s at call %d", f.kind, f.at)
}

// maxCalls is many times what the longest run that ends makes.
const maxCalls = 20000

// blindTime is longer than a run waits between the two looks that make an
// instance count as gone.
const blindTime = 10 * time.Minute

// errUnseen is what credentials that see nothing are answered.
var errUnseen = kamino.ErrNotVisible

var errFinal = errors.New("the service said something that nobody knows")

// call makes one call: others may run first, faults strike, effect happens.
func (p *proc) call(ctx context.Context, c call, effect func(*fault) error) error {
	w := p.w
	root := p.root()
	if root.dying {
		panic(crash{})
	}
	p.pass(w.now.Add(callTime * time.Duration(max(root.slow, 1))))
	if c.kube && c.write {
		p.pass(w.now.Add(w.slowWrites))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", c.method, err)
	}
	n := root.calls
	if root.calls++; n > maxCalls {
		w.audit.violate("I18", "%s has made %d calls and does not end", p.name, n)
		panic(crash{})
	}
	w.calls = append(w.calls, c.method)
	if root.logging {
		root.log = append(root.log, site{n, w.now, p.step, c})
	}
	var f *fault
	var suspend time.Duration
	for i := range root.faults {
		g := &root.faults[i]
		if g.at != n {
			continue
		}
		if g.kind == worlds.RivalActs {
			suspend = max(suspend, g.rival.Suspend)
			p.meet(g.rival)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", c.method, err)
			}
			continue
		}
		if g.kind == worlds.Interrupted {
			w.say("  ! interrupt")
			w.hit(string(g.kind))
			root.cancel()
			root.interrupted = true
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", c.method, err)
			}
			continue
		}
		if g.kind.Fits(c.is()) {
			f = g
		}
	}
	err := p.strike(c, f, effect)
	if suspend > 0 {
		p.pass(w.now.Add(suspend))
		root.slept += suspend
	}
	if w.tracing || err != nil || c.write {
		w.say("%s #%d %s %s: %v", p.name, n, c.method, c.subject, err)
	}
	return err
}

// meet lets others act, and does to the process what they do to it.
func (p *proc) meet(r *rival) {
	w, root := p.w, p.root()
	w.say("  ! rival: %s", r.Name)
	w.hit("rival: " + r.Name)
	root.skew += r.Jump
	root.slow = max(root.slow, r.Slow)
	r.happen(w)
	p.pass(w.now.Add(r.Freeze))
}

func (p *proc) strike(c call, f *fault, effect func(*fault) error) error {
	w := p.w
	if f != nil {
		w.hit(string(f.kind))
		w.say("  ! %s", f.kind)
	}
	bucket := c.subject
	if c.method == "SetLease" {
		bucket = "" // whatever is written there
	}
	key := p.name + " " + c.method + " " + bucket
	// a read that comes early is only answered so again
	if until, ok := w.throttled[key]; ok && w.now.Before(until) && (c.write || !p.root().interrupted) {
		w.audit.violate("I20", "%s %s was called %s before its Retry-After", c.method, c.subject, until.Sub(w.now))
	}
	if c.kube && w.now.Before(w.apiAway) {
		p.pass(w.now.Add(time.Second))
		return fmt.Errorf("connect: %w", kamino.ErrUnavailable)
	}
	if f.is(worlds.Blind) {
		w.blindUntil = w.now.Add(blindTime)
	}
	if f.is(worlds.Vanished) {
		w.vanished = w.now.Add(worlds.Vanishing)
	}
	if err := w.forbids(c); err != nil && !c.kube {
		return err
	}
	if !c.kube && w.now.Before(w.blindUntil) {
		return fmt.Errorf("SubscriptionNotFound: %w", errUnseen)
	}
	if f == nil {
		return p.effect(c, f, effect)
	}
	switch f.kind {
	case worlds.KillBefore:
		panic(crash{})
	case worlds.ServerError:
		return fmt.Errorf("503: %w", kamino.ErrUnavailable)
	case worlds.Unknown:
		return errFinal
	case worlds.Conflict:
		return fmt.Errorf("409: %w", kamino.ErrInProgress)
	case worlds.Precondition:
		return fmt.Errorf("412: %w", kamino.ErrConflict)
	case worlds.Forbidden:
		return fmt.Errorf("403: %w", kamino.ErrForbidden)
	case worlds.Throttled:
		w.throttled[key] = w.now.Add(20 * time.Minute)
		return &kamino.ThrottledError{After: 20 * time.Minute, Err: errors.New("429")}
	case worlds.FalseSuccess:
		if c.method == "Evict" {
			return p.effect(c, f, effect) // what is listed is true
		}
		return nil
	}
	err := p.effect(c, f, effect)
	switch f.kind {
	case worlds.KillUnheard:
		panic(crash{})
	case worlds.KillAfter:
		p.root().dying = true
	case worlds.LostReply:
		return fmt.Errorf("connection reset: %w", kamino.ErrUnavailable)
	case worlds.FalseFailure:
		return errFinal
	}
	return err
}

func (p *proc) effect(c call, f *fault, effect func(*fault) error) error {
	if c.write && c.method != "SetLease" {
		p.w.writes++
	}
	return effect(f)
}
