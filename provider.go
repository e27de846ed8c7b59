package kamino

import "context"

// Warning is something that could not be found out. A run continues and prints it.
type Warning struct {
	Found string
	Do    string // what a person may do about it; "" if nothing is known
}

func (d Warning) String() string {
	if d.Do == "" {
		return d.Found
	}
	return d.Found + "; to change that: " + d.Do
}

// Provider is the port to a cloud. No method waits for the operation that it begins: the engine
// looks again. All methods may be repeated, and none keeps state that another process would need.
//
// Errors, each to be recognized with errors.Is or errors.As: ErrNotFound, ErrNotVisible,
// ErrInProgress, ErrConflict, ErrUnavailable (the outcome is unknown), ErrForbidden,
// ErrUnsupported, and *ThrottledError. Any other error is final.
type Provider interface {
	Pools
	Machines
	Images
	Pointer

	// Preflight returns ErrForbidden, naming every missing permission of a run, or an error that
	// says what is wrong with the credentials. Doubts are what it could not find out, one sentence
	// each with the missing right; the run continues and prints them as warnings.
	Preflight(context.Context) (doubts []Warning, err error)
}

// Pools are groups of machines made from one recipe. Part of [Provider].
type Pools interface {
	// PoolOf returns the pool of an instance: from its ID alone where that names it, else from one
	// list of all pools. The list answers for many instances; it is read again for an instance that
	// is not in it, but not within a few seconds. ErrUnsupported: the ID is not of this provider,
	// the instance is in no pool, or its kind of pool is not supported.
	PoolOf(context.Context, InstanceID) (PoolID, error)
	// Pool reads a pool. ErrNotFound if it is gone.
	Pool(context.Context, PoolID) (Pool, error)
	// Instances lists the IDs of all instances of a pool. A pool without instances is an empty
	// list; a list that cannot be read is an error.
	Instances(context.Context, Pool) ([]InstanceID, error)
	// SetCapacity sets the number of instances, conditional on pool.Revision. ErrUnsupported:
	// somebody else decides that number.
	SetCapacity(ctx context.Context, pool Pool, instances int) error
}

// Machines are the instances of pools. Part of [Provider].
type Machines interface {
	// Instance reads one instance. ErrNotFound if it is gone.
	Instance(context.Context, InstanceID) (Instance, error)
	// SetPower begins to switch an instance on or off.
	SetPower(context.Context, InstanceID, Power) error
	// Fit compares a donor with what the pool will make of its disk, and with the image definition
	// (nil: it does not exist yet). It only reads. A property that Create carries over by itself is
	// no refusal. Doubts are as in Preflight.
	Fit(ctx context.Context, pool Pool, donor Instance, definition *Artifact) (refusals []Refusal, doubts []Warning, err error)
}

// Images are the artifacts made from a donor's disk, and their containers. Part of [Provider].
type Images interface {
	// Homes returns the kinds of artifacts that contain image versions, outermost first: on Azure a
	// gallery, and in it an image definition. None where versions have no container. It makes no
	// call.
	Homes() []Kind
	// Find reads the artifacts of a kind that belong to the pool: the one of that name, or all if
	// the name is empty. None is no error. ErrUnavailable: the list was not found although its
	// parent exists. A list of versions is newest first and shows who uses each.
	Find(context.Context, Pool, Kind, string) ([]Artifact, error)
	// Create begins to make an artifact. Repeated with the same content it changes nothing.
	Create(context.Context, Pool, Artifact) error
	// Delete begins to delete an artifact. An artifact that does not exist is no error. ErrInUse: a
	// fresh read shows that the model or an instance of the pool uses the version.
	Delete(context.Context, Pool, Artifact) error
	// SetTags writes tags and nothing else: of a home all tags of the artifact, of a version the
	// tags that Retagged computes from a fresh read. ErrConflict: the read shows the version
	// withdrawn and the artifact does not, or the reverse. A write of somebody else between that
	// read and this write is overwritten, because not every cloud has revisions of both.
	SetTags(context.Context, Pool, Artifact) error
}

// Pointer decides what the next instance of a pool boots from. Part of [Provider].
type Pointer interface {
	// NextImage returns what a pool's next instance boots from once a target is promoted, and what
	// would have to change. It writes nothing. An empty difference: the target is promoted already.
	NextImage(context.Context, Pool, Target) (NextImage, error)
	// Promote makes a target what the pool's next instance boots from, with one write for each
	// call. If the target offers its version, that is a write of its own: before the recipe's if
	// the recipe will refer to the definition, after it if not, so that the next image changes
	// once. A write of the recipe is conditional on pool.Revision. A write of the version is made
	// only if a fresh read shows the version as Target.Seen, else ErrConflict; a write of somebody
	// else in between is overwritten. If nothing would change, nothing is sent.
	Promote(context.Context, Pool, Target) error
	// Withdraw takes a version back: no recipe that refers to its definition or pointer gets it any
	// more, and its tags say so, with the reason (at most 256 characters). The next image never
	// becomes a newer version: a definition stands for the newest that is left, a pointer gets the
	// newest older version that is good and has a receipt. ErrInUse: there is none, and a recipe
	// refers to it. ErrNotFound: the version is gone. Repeated with another reason it changes the
	// reason.
	Withdraw(ctx context.Context, pool Pool, version string, bad Bad) error
}
