package kamino

import "context"

// Holding is the state of an instance in its pool.
type Holding string

// The states of an instance in its pool.
const (
	InService Holding = "in service" // the pool replaces it as soon as it is off
	Held      Holding = "held"       // the pool leaves it alone, whatever its power state
	Moving    Holding = "moving"     // becomes InService or Held by itself
	// Remains: the instance is in service or gone, but Release still has to undo what Hold did to
	// the pool.
	Remains Holding = "remains"
)

// Standby is a [Provider] whose pools replace an instance that is off, and that can take an
// instance out of service. The pools of a Provider without it leave such an instance alone.
type Standby interface {
	// Holding reads the state of an instance. ErrNotFound: the pool does not have it, and nothing
	// remains.
	Holding(context.Context, Pool, InstanceID) (Holding, error)
	// Hold begins to take an instance out of service without a replacement, and keeps the pool from
	// filling the gap by other means. It does not change what was held before. ErrUnsupported: the
	// pool would have too few instances.
	Hold(context.Context, Pool, InstanceID) error
	// Release begins to put an instance back in service and then undoes what Hold did to the pool.
	// ErrInProgress: the instance does not run, so the pool would replace it.
	Release(context.Context, Pool, InstanceID) error
	// Lost describes what a pool may lack after a held instance is gone, and what to type. It makes
	// no call: nobody can know whether others have changed the pool's capacity since.
	Lost(Pool, InstanceID) Warning
}
