package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// call is one call of a port.
type call struct {
	method, subject string
	write           bool
	kube            bool
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

// faultKind is how a call goes wrong.
type faultKind int

const (
	crashBefore  faultKind = iota // killed before the call is sent
	crashUnheard                  // killed after it took effect, before the reply
	crashAfter                    // killed after the reply
	interrupt                     // SIGTERM: the context ends before the call
	lostReply                     // took effect; the reply is lost
	falseFailure                  // took effect; a final error is reported
	falseSuccess                  // reported done, nothing happened
	serverError                   // 5xx, nothing happened
	finalError                    // an unknown error, nothing happened
	conflict                      // 409: something else is going on
	precondition                  // 412: changed since it was read
	throttle                      // 429 with Retry-After of 20 minutes
	forbidden                     // 403
	opFailed                      // accepted, and the operation ends Failed
	lateFind                      // 404 for a while after create
	staleList                     // a list of before the last change
	absent                        // a read is answered 404, though what is asked for is there
	unread                        // a read of an instance is answered 404, though its pool lists it
	blind                         // for ten minutes the cloud shows these credentials nothing at all
	rivalEvent                    // something else happens just before the call
	faultKinds
)

var faultNames = [faultKinds]string{"killed before", "killed unheard", "killed after", "interrupt", "lost reply",
	"false failure", "false success", "5xx", "final error", "409", "412", "429", "403", "operation failed",
	"404 after create", "stale list", "404 though there", "404 though listed", "blind credentials", "rival"}

func (k faultKind) String() string { return faultNames[k] }

// fits says whether a fault makes sense for a call. The API server is never
// made to acknowledge a lease that it did not store: etcd does not lie so, and
// without that no lock exists.
func (k faultKind) fits(c call) bool {
	switch k {
	case falseFailure, lostReply, conflict, precondition:
		return c.write
	case falseSuccess:
		return c.write && c.method != "SetLease"
	case opFailed:
		return c.write && !c.kube
	case lateFind:
		return len(c.method) > 6 && c.method[:6] == "Create"
	case staleList:
		return c.method == "Find image version" && c.subject == ""
	case absent:
		return !c.write && !c.kube
	case unread:
		return c.method == "Instance"
	case blind:
		return !c.kube
	case forbidden, finalError:
		return c.method != "Lease"
	}
	return true
}

// fault strikes one call of a process: the at-th from 0, or with on the
// nth of that method.
type fault struct {
	kind  faultKind
	at    int
	rival *rival
}

func (f *fault) is(k faultKind) bool { return f != nil && f.kind == k }

func (f fault) String() string {
	if f.rival != nil {
		return fmt.Sprintf("%s at call %d", f.rival.name, f.at)
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
	p.pass(w.now.Add(callTime))
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
	for i := range root.faults {
		g := &root.faults[i]
		if g.at != n {
			continue
		}
		if g.kind == rivalEvent {
			w.say("  ! rival: %s", g.rival.name)
			w.hit("rival: " + g.rival.name)
			g.rival.happen(w, p)
			p.pass(w.now.Add(g.rival.pause))
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", c.method, err)
			}
			continue
		}
		if g.kind == interrupt {
			w.say("  ! interrupt")
			w.hit(interrupt.String())
			root.cancel()
			root.interrupted = true
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", c.method, err)
			}
			continue
		}
		if g.kind.fits(c) {
			f = g
		}
	}
	err := p.strike(c, f, effect)
	if w.tracing || err != nil || c.write {
		w.say("%s #%d %s %s: %v", p.name, n, c.method, c.subject, err)
	}
	return err
}

func (p *proc) strike(c call, f *fault, effect func(*fault) error) error {
	w := p.w
	if f != nil {
		w.hit(f.kind.String())
		w.say("  ! %s", f.kind)
	}
	bucket := c.subject
	if c.method == "SetLease" {
		bucket = "" // whatever is written there
	}
	key := p.name + " " + c.method + " " + bucket
	if until, ok := w.throttled[key]; ok && w.now.Before(until) && !p.root().interrupted {
		w.audit.violate("I20", "%s %s was called %s before its Retry-After", c.method, c.subject, until.Sub(w.now))
	}
	if c.kube && w.now.Before(w.apiAway) {
		p.pass(w.now.Add(time.Second))
		return fmt.Errorf("connect: %w", kamino.ErrUnavailable)
	}
	if f.is(blind) {
		w.blindUntil = w.now.Add(blindTime)
	}
	if !c.kube && w.now.Before(w.blindUntil) {
		return fmt.Errorf("SubscriptionNotFound: %w", errUnseen)
	}
	if f == nil {
		return p.effect(c, f, effect)
	}
	switch f.kind {
	case crashBefore:
		panic(crash{})
	case serverError:
		return fmt.Errorf("503: %w", kamino.ErrUnavailable)
	case finalError:
		return errFinal
	case conflict:
		return fmt.Errorf("409: %w", kamino.ErrInProgress)
	case precondition:
		return fmt.Errorf("412: %w", kamino.ErrConflict)
	case forbidden:
		return fmt.Errorf("403: %w", kamino.ErrForbidden)
	case throttle:
		w.throttled[key] = w.now.Add(20 * time.Minute)
		return &kamino.ThrottledError{After: 20 * time.Minute, Err: errors.New("429")}
	case falseSuccess:
		if c.method == "Evict" {
			return p.effect(c, f, effect) // what is listed is true
		}
		return nil
	}
	err := p.effect(c, f, effect)
	switch f.kind {
	case crashUnheard:
		panic(crash{})
	case crashAfter:
		p.root().dying = true
	case lostReply:
		return fmt.Errorf("connection reset: %w", kamino.ErrUnavailable)
	case falseFailure:
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
