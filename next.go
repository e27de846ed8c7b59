package kamino

import (
	"context"
	"time"
)

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
	within  time.Duration  // how long to wait at most, where that is known; 0: it is not
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

// waitUpTo is wait where a look after d shows more, whatever happens meanwhile.
func waitUpTo(why string, d time.Duration) Next {
	next := wait(why)
	next.within = d
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

// deed is an act, and which of several it is for.
type deed struct {
	act Act
	on  string
}
