package workflow

import (
	"context"
	"time"

	"kamino.dev/kamino"
)

// Next is the result of a Look: done, wait, act, or fail.
type Next struct {
	Kind     nextKind
	Act      kamino.Act
	On       string // the artifact that the act is for, if the act exists for several; else ""
	What     string // description, for people
	Percent  int
	Do       func(context.Context) error
	Along    []announcement      // following acts, announced in the same write as this one
	Note     func(*kamino.Lease) // changes the lease in the write before the act
	Why      string              // what is waited for after the act; "": the next look comes at once
	After    time.Duration       // how long to wait, if known
	Within   time.Duration       // how long to wait at most; 0 if not known
	HasSteps bool                // the act runs steps of its own, with their own limits
}

type nextKind int

// The kinds of results of a look.
const (
	NextDone nextKind = iota
	NextWait
	NextAct
)

// Done is the result of a look that shows the wanted state.
func Done(what string) Next { return Next{Kind: NextDone, What: what, Percent: -1} }

// Wait is the result of a look after which somebody else has to do something first.
func Wait(why string) Next { return Next{Kind: NextWait, What: why, Percent: -1} }

// WaitFor is Wait with the time until the next look.
func WaitFor(why string, d time.Duration) Next {
	next := Wait(why)
	next.After = d
	return next
}

// WaitUpTo is Wait for at most d, after which the next look will show more.
func WaitUpTo(why string, d time.Duration) Next {
	next := Wait(why)
	next.Within = d
	return next
}

// WaitPercent is Wait with a progress.
func WaitPercent(why string, percent int) Next {
	return Next{Kind: NextWait, What: why, Percent: percent}
}

// Act is the result of a look after which do has to be called, once the intent is written down.
func Act(id kamino.Act, what string, do func(context.Context) error) Next {
	return Next{Kind: NextAct, Act: id, What: what, Do: do, Percent: -1}
}

// ActSteps is Act where do runs steps.
func ActSteps(id kamino.Act, what string, do func(context.Context) error) Next {
	next := Act(id, what, do)
	next.HasSteps = true
	return next
}

// Then sets that the effect of an act takes time: the next look comes after d, or after the usual
// pause if that is longer.
func (n Next) Then(why string, d time.Duration) Next {
	n.Why, n.After = why, d
	return n
}

// announcement is an act that follows another and is announced with it.
type announcement struct {
	Act  kamino.Act
	What string
}

// Announcing adds an act that will follow within kamino.LookAge, so that one write of the lease
// announces both.
func (n Next) Announcing(id kamino.Act, what string) Next {
	n.Along = append(n.Along, announcement{id, what})
	return n
}

// Of sets the artifact that the act is for.
func (n Next) Of(name string) Next {
	n.On = name
	return n
}

// Noting adds a change of the lease to the write before the act.
func (n Next) Noting(note func(*kamino.Lease)) Next {
	n.Note = note
	return n
}

// ActKey is an act and the artifact that it is for.
type ActKey struct {
	Act kamino.Act
	On  string
}
