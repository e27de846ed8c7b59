package workflow

import (
	"context"
	"time"

	"kamino.dev/kamino"
)

// Next is what a Look found.
type Next struct {
	Kind     nextKind
	Act      kamino.Act
	On       string // which of several that the same act is for; "" where there is one
	What     string // for people
	Percent  int
	Do       func(context.Context) error
	Along    []announcement      // acts that follow, written down as intent with this one
	Note     func(*kamino.Lease) // what to write on the lease before do
	Why      string              // what is waited for after do; "": the next look comes at once
	After    time.Duration       // how long to wait, where that is known
	Within   time.Duration       // how long to wait at most, where that is known; 0: it is not
	HasSteps bool                // do has steps of its own, with limits of their own
}

type nextKind int

// The kinds of what a look finds.
const (
	NextDone nextKind = iota
	NextWait
	NextAct
)

// Done says that the world is as the step wants it.
func Done(what string) Next { return Next{Kind: NextDone, What: what, Percent: -1} }

// Wait says that somebody else has to do something first.
func Wait(why string) Next { return Next{Kind: NextWait, What: why, Percent: -1} }

// WaitFor is wait where the step itself knows for how long.
func WaitFor(why string, d time.Duration) Next {
	next := Wait(why)
	next.After = d
	return next
}

// WaitUpTo is wait where a look after d shows more, whatever happens meanwhile.
func WaitUpTo(why string, d time.Duration) Next {
	next := Wait(why)
	next.Within = d
	return next
}

// WaitPercent is wait with progress.
func WaitPercent(why string, percent int) Next {
	return Next{Kind: NextWait, What: why, Percent: percent}
}

// Act says that do is to be called, after what was written down as intent.
func Act(id kamino.Act, what string, do func(context.Context) error) Next {
	return Next{Kind: NextAct, Act: id, What: what, Do: do, Percent: -1}
}

// ActSteps is act where do runs steps.
func ActSteps(id kamino.Act, what string, do func(context.Context) error) Next {
	next := Act(id, what, do)
	next.HasSteps = true
	return next
}

// Then is an act whose effect takes time: the next look comes after d, or after
// the usual pause if that is longer.
func (n Next) Then(why string, d time.Duration) Next {
	n.Why, n.After = why, d
	return n
}

// announcement is an act that follows another.
type announcement struct {
	Act  kamino.Act
	What string
}

// Announcing adds an act that will follow, so that one intent on the lease is enough
// for all that are made within lookAge of it.
func (n Next) Announcing(id kamino.Act, what string) Next {
	n.Along = append(n.Along, announcement{id, what})
	return n
}

// Of says which of several artifacts the act is for.
func (n Next) Of(name string) Next {
	n.On = name
	return n
}

// Noting adds what must stand on the lease before the act.
func (n Next) Noting(note func(*kamino.Lease)) Next {
	n.Note = note
	return n
}

// ActKey is an act, and which of several it is for.
type ActKey struct {
	Act kamino.Act
	On  string
}
