package kamino

import (
	"encoding/json"
	"slices"
	"time"
)

// SystemNamespace is where all leases, ledgers and pods of Kamino live, on every
// cluster and whoever runs the command: two processes that looked for a pool's lock in
// two places would not see each other.
const SystemNamespace = "kamino-system"

// Lease is the lock of a pool, and the place where a run writes what it is
// about to do before it does it. It never protects a second donor by expiring:
// when it has run out, another process adopts the run that it names and
// finishes or gives back.
type Lease struct {
	Pool     PoolID        `json:"pool"`
	Holder   string        `json:"holder"`  // run ID; "" when free
	Process  string        `json:"process"` // host/pid of the process that drives the run
	Epoch    int64         `json:"epoch"`   // grows with each taking; never reset
	Renewed  time.Time     `json:"renewed,omitzero"`
	Duration time.Duration `json:"-"`
	Record   Record        `json:"record"`
	Ledger   Ledger        `json:"ledger"`
	Revision string        `json:"-"` // makes the next write conditional
	// Err is why [Leases] could not read the lease of Pool. Then nothing else of it is known, and
	// nothing may be done to its pool.
	Err error `json:"-"`
}

// Record is what the run that holds a lease has decided and is about to do.
type Record struct {
	Donor    string     `json:"donor,omitempty"`
	Instance InstanceID `json:"instance,omitempty"`
	VMID     string     `json:"vmId,omitempty"`
	Version  string     `json:"version,omitempty"`
	Started  time.Time  `json:"started,omitzero"`
	Step     string     `json:"step,omitempty"`    // where the run was when this was written
	Intent   string     `json:"intent,omitempty"`  // what it is about to do, for people
	Acts     []Act      `json:"acts,omitempty"`    // what it is about to do; empty where a former version wrote the intent
	Nonce    string     `json:"nonce,omitempty"`   // what the receipt must repeat; see SealOrder
	Policy   string     `json:"policy,omitempty"`  // SHA-256 of the seal policy, which the receipt must name
	Sealing  bool       `json:"sealing,omitempty"` // as Mark.Sealing
	// AwaySince is when the donor's disk began to be sealed, from when on it may be off, and AwayEnds when it was back. Zero:
	// not so far, or a former version noted none.
	AwaySince  time.Time `json:"awaySince,omitzero"`
	AwayEnds   time.Time `json:"awayEnds,omitzero"`
	GivingBack bool      `json:"givingBack,omitempty"`
	Failure    string    `json:"failure,omitempty"`  // why it gives back
	FailedAt   string    `json:"failedAt,omitempty"` // the step that failed
	ModelWas   string    `json:"modelWas,omitempty"` // the model's image when the run began
	Storage    string    `json:"storage,omitempty"`  // storage type to use for the version, once ZRS was refused
}

// intends says whether an act is among those that the record announces.
func (r Record) intends(act Act) bool { return slices.Contains(r.Acts, act) }

// Ledger is what outlives a run: the way back, and how long runs take here.
type Ledger struct {
	// Original is the model before the first prototype, Former the one before
	// the last write.
	Original *SavedModel `json:"original,omitempty"`
	Former   *SavedModel `json:"former,omitempty"`
	// Wrote is the image that was last written; another one in the model is a pin.
	Wrote *WrittenModel `json:"wrote,omitempty"`
	// RolledBack are versions that a rollback distrusts and has not marked yet.
	RolledBack []string `json:"rolledBack,omitempty"`
	// Owed are new nodes that a run was asked for and did not live to see.
	Owed *ScaleOut `json:"owed,omitempty"`
	Past []PastRun `json:"past,omitempty"` // newest first, at most maxPast
}

// ScaleOut is a scale-out that belongs to a version.
type ScaleOut struct {
	Version string `json:"version"`
	To      int    `json:"to,omitempty"` // capacity aimed at, once that is decided
}

// SavedModel is a model that can be written back.
type SavedModel struct {
	At    time.Time       `json:"at"`
	Image string          `json:"image"`
	Saved json.RawMessage `json:"saved"`
}

// PastRun is a run that has ended, well or not.
type PastRun struct {
	Run         string    `json:"run"`
	Donor       string    `json:"donor"`
	Version     string    `json:"version"`
	Ended       time.Time `json:"ended"`
	Seconds     float64   `json:"seconds"`
	AwaySeconds float64   `json:"awaySeconds"` // 0 where it is not known; see Record.AwaySince
	// Failure is why it failed, "" when it did not, and Step where.
	Failure string `json:"failure,omitempty"`
	Step    string `json:"step,omitempty"`
}

const (
	// LeaseDuration is how long a lease that nobody renews must be watched
	// before its run may be adopted. It is measured by watching, never by
	// comparing clocks of two machines.
	LeaseDuration = 60 * time.Second
	renewAfter    = LeaseDuration / 4
	actTimeout    = LeaseDuration * 3 / 4
	maxPast       = 20
)
