package kamino

import "context"

// Holding is how an instance stands in its pool.
type Holding string

// How an instance stands.
const (
	InService Holding = "in service" // replaced as soon as it is off
	Held      Holding = "held"       // left alone, whatever its power
	Moving    Holding = "moving"     // becomes one of the two by itself
	// Remains: it is in service or gone, and something that Hold did to the pool is still to be
	// undone by Release.
	Remains Holding = "remains"
)

// Standby is a [Provider] whose pools replace an instance in service that is off, found by asking.
// One that is no Holder leaves such an instance alone.
type Standby interface {
	// Holding reads how an instance stands. ErrNotFound: the pool does not have it, and nothing
	// remains.
	Holding(context.Context, Pool, InstanceID) (Holding, error)
	// Hold begins to take an instance out of service without another one in its place, and keeps
	// the pool from making up for the gap by other means. What of that was so before is left.
	// ErrUnsupported: the pool would have too few instances.
	Hold(context.Context, Pool, InstanceID) error
	// Release begins to put an instance back in service and, once that is done, undoes what Hold
	// did to the pool. ErrInProgress: it does not run, so that it would be replaced.
	Release(context.Context, Pool, InstanceID) error
	// Lost tells what a pool may lack after an instance is gone that was held, and what to type. It
	// makes no call: whether others have changed the pool's capacity since, nobody can know.
	Lost(Pool, InstanceID) Warning
}
