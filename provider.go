package kamino

import "context"

// Kind names one of the things that a run makes at the provider.
type Kind string

// Warning is what could not be found out: a run goes on, and tells it as a warning.
type Warning struct {
	Found string
	Do    string // what a person may do about it; "" where nothing is known
}

func (d Warning) String() string {
	if d.Do == "" {
		return d.Found
	}
	return d.Found + "; to change that: " + d.Do
}

// Provider is the port to a factory of VMs. No method waits for the operation
// that it begins: the engine looks again. All methods may be repeated without
// harm, and none keeps state that another process would need.
//
// Errors, each to be recognised with errors.Is or errors.As: ErrNotFound,
// ErrNotVisible, ErrInProgress, ErrConflict, ErrUnavailable (the outcome is unknown),
// ErrForbidden, ErrUnsupported, and *ThrottledError. Anything else is final.
type Provider interface {
	Pools
	Machines
	Images
	Pointer

	// Preflight returns ErrForbidden naming every action that a run needs and
	// that is not allowed, or an error that says what is wrong with the
	// credentials. Doubts are what it could not find out, a sentence each that
	// names the right it lacks: the run goes on and tells them as warnings.
	Preflight(context.Context) (doubts []Warning, err error)
}

// Pools are groups of machines made from one recipe. Part of [Provider].
type Pools interface {
	// PoolOf tells which pool an instance belongs to: from its ID alone where that says it, else
	// from one list of all pools that answers for many instances, and is read again for one that
	// is not in it, but not within a few seconds. ErrUnsupported: the ID is not one of this
	// provider, the instance is in no pool, or its kind of pool is not supported.
	PoolOf(context.Context, InstanceID) (PoolID, error)
	// Pool reads a pool. ErrNotFound when it is gone.
	Pool(context.Context, PoolID) (Pool, error)
	// Instances lists the IDs of all instances of a pool. A pool that has none is
	// an empty list; a list that cannot be read is an error, whatever the reason.
	Instances(context.Context, Pool) ([]InstanceID, error)
	// SetCapacity sets the number of instances, conditional on pool.Revision.
	// ErrUnsupported where somebody else decides that number.
	SetCapacity(ctx context.Context, pool Pool, instances int) error
}

// Machines are the instances of pools. Part of [Provider].
type Machines interface {
	// Instance reads one instance. ErrNotFound when it is gone.
	Instance(context.Context, InstanceID) (Instance, error)
	// SetPower begins to switch an instance on or off.
	SetPower(context.Context, InstanceID, Power) error
	// Fit compares a donor with what the pool will make of its disk, and with the
	// image definition where it exists (nil: not yet). It only reads. What Create
	// carries over by itself is no refusal. Doubts are as Preflight's.
	Fit(ctx context.Context, pool Pool, donor Instance, definition *Artifact) (refusals []Refusal, doubts []Warning, err error)
}

// Images are what is made of a donor's disk, and what it lives in. Part of [Provider].
type Images interface {
	// Homes are the kinds of artifacts that image versions live in here, outermost
	// first: on Azure a gallery, and in it an image definition. None where versions
	// stand by themselves. It makes no call.
	Homes() []Kind
	// Find reads the artifacts of a kind that belong to the pool: the one of
	// that name, or all when the name is empty. None is no error; but a list that
	// was not found although its parent exists is ErrUnavailable. A list of
	// versions is newest first and tells who uses each.
	Find(context.Context, Pool, Kind, string) ([]Artifact, error)
	// Create begins to make an artifact. Repeated with the same content it
	// changes nothing.
	Create(context.Context, Pool, Artifact) error
	// Delete begins to delete an artifact; one that does not exist is no error.
	// A version is deleted only after a fresh read shows that neither the
	// model nor an instance of the pool uses it: else ErrInUse.
	Delete(context.Context, Pool, Artifact) error
	// SetTags writes tags and nothing else: of a home of versions all as they stand in the
	// artifact, of a version as Retagged makes them of a fresh read. ErrConflict: that read shows
	// the version withdrawn, or not, as the artifact does not tell. What somebody writes between
	// that read and the write is overwritten: no revision of either is known everywhere.
	SetTags(context.Context, Pool, Artifact) error
}

// Pointer decides what the next instance of a pool boots from. Part of [Provider].
type Pointer interface {
	// NextImage tells what a pool's next instance boots from once a target was
	// promoted, and what would have to change. It writes nothing. No difference:
	// the target is promoted already.
	NextImage(context.Context, Pool, Target) (NextImage, error)
	// Promote makes a target what the pool's next instance boots from, by one write a call. Where
	// the target offers its version, that is a write of its own: before the recipe's where the
	// recipe shall refer to the definition, after it where not, so that the next image changes
	// once. A write of the recipe is conditional on pool.Revision. That of a version is made only
	// if a fresh read shows it as in Target.Seen, else ErrConflict: what somebody else writes
	// between that read and the write is overwritten. Where nothing would change, nothing is sent.
	Promote(context.Context, Pool, Target) error
	// Withdraw takes a version back: no recipe that refers to its definition or pointer means it
	// any more, and its tags say so, with the reason (at most 256 characters count). The next image
	// never becomes a newer version: a definition stands for the newest that is left, a pointer
	// gets the newest older one that is good and has a receipt. ErrInUse: there is none, and a
	// recipe refers to it. ErrNotFound when the version is gone. Repeated with another reason it
	// changes that.
	Withdraw(ctx context.Context, pool Pool, version string, bad Bad) error
}
