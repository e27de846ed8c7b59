package kamino

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	Acts     []Act      `json:"acts,omitempty"`    // what it is about to do
	Nonce    string     `json:"nonce,omitempty"`   // what the receipt must repeat; see SealOrder
	Policy   string     `json:"policy,omitempty"`  // SHA-256 of the seal policy, which the receipt must name
	Sealing  bool       `json:"sealing,omitempty"` // as Mark.Sealing
	Disk     string     `json:"disk,omitempty"`    // the OS disk that is sealed, as Instance.Disk
	Held     bool       `json:"held,omitempty"`    // as Mark.Held
	Work     Work       `json:"work,omitempty"`    // as Mark.Work
	// Cycled is how far the power cycle of a node has come that did not boot by itself.
	Cycled PowerCycle `json:"cycled,omitempty"`
	// AwaySince is when the donor's disk began to be sealed, from when on it may be off, and
	// AwayEnds when it was back. Zero: not so far.
	AwaySince  time.Time `json:"awaySince,omitzero"`
	AwayEnds   time.Time `json:"awayEnds,omitzero"`
	GivingBack bool      `json:"givingBack,omitempty"`
	Failure    string    `json:"failure,omitempty"` // why it gives back
	Proof      Outcome   `json:"proof,omitempty"`   // how the proof ended, where that is why
	// Interrupted: it gives back because it was told to end.
	Interrupted bool   `json:"interrupted,omitempty"`
	FailedAt    string `json:"failedAt,omitempty"` // the step that failed
	ModelWas    string `json:"modelWas,omitempty"` // the model's image when the run began
	Storage     string `json:"storage,omitempty"`  // storage type to use for the version, once ZRS was refused
	// Promote is PromoteManual where the run leaves its version to a person; else empty.
	Promote PromoteMode `json:"promote,omitempty"`
	// Prove is how the run proves its version.
	Prove ProveMode `json:"prove,omitempty"`
	// Canary is the name of the one that the run has asked for or is about to, CanarySince when.
	Canary      string    `json:"canary,omitempty"`
	CanarySince time.Time `json:"canarySince,omitzero"`
	// Probe is the operator's Job that the run has started, or is about to.
	Probe *Probed `json:"probe,omitempty"`
}

// Intends says whether an act is among those that the record announces.
func (r Record) Intends(act Act) bool { return slices.Contains(r.Acts, act) }

// Ledger is what outlives a run: the way back, and how long runs take here.
type Ledger struct {
	// Original is the model before the first prototype, Former the one before
	// the last write.
	Original *SavedModel `json:"original,omitempty"`
	Former   *SavedModel `json:"former,omitempty"`
	// Wrote is the image that was last written; another one in the model is a pin.
	Wrote *WrittenModel `json:"wrote,omitempty"`
	// Writes are when the model was last written, newest first, at most maxPast.
	Writes []time.Time `json:"writes,omitempty"`
	// Promoted is what the definition was last made to stand for, in a pool that refers to it.
	Promoted *Promotion `json:"promoted,omitempty"`
	// Stood is what the definition stood for when the model was last written, or first seen to
	// refer to it. A pool that resolves its definition only then boots from it still: unverified.
	Stood *Promotion `json:"stood,omitempty"`
	// Strayed is why the pool refers to its definition no more; nil where it may.
	Strayed *Stray `json:"strayed,omitempty"`
	// RolledBack are versions that a rollback distrusts and has not marked yet.
	RolledBack []string `json:"rolledBack,omitempty"`
	// Unbuilt are those of them that were never seen whole.
	Unbuilt []string `json:"unbuilt,omitempty"`
	// Withdrew is the withdrawal that gave the pool its next image; nil where that was chosen.
	Withdrew *Withdrawal `json:"withdrew,omitempty"`
	// Empty: a run of this ledger made the image definition, and none began a version in it so far.
	Empty bool `json:"empty,omitempty"`
	// Owed are new nodes that a run was asked for and did not live to see.
	Owed *ScaleOut `json:"owed,omitempty"`
	// Canary is one that a run asked for and, with its node, did not see gone before it ended.
	Canary string `json:"canary,omitempty"`
	// CanaryNonce is what the agent of that canary repeats: how its node is known once its machine
	// is gone, in a cloud that names nodes its own way.
	CanaryNonce string    `json:"canaryNonce,omitempty"`
	Past        []PastRun `json:"past,omitempty"` // newest first, at most maxPast
	// Unfit are withdrawn versions that were pruned, newest first, at most maxPast: their donors
	// are none as long as they have the same packages.
	Unfit []Unfit `json:"unfit,omitempty"`
	// Boots are the seconds that canaries took which were good, newest first, at most maxPast.
	Boots []float64 `json:"boots,omitempty"`
	// Phases are the seconds that each phase of them took, as far as their agents told.
	Phases []map[string]float64 `json:"phases,omitempty"`
	// Generic is the newest boot that a donor told as that of a machine of the original image, and
	// Clone that of the newest good canary whose agent told when its phases began.
	Generic *Waterfall `json:"generic,omitempty"`
	Clone   *Waterfall `json:"clone,omitempty"`
	// Baked are how they did once they were Ready, newest first, at most maxPast.
	Baked []Baked `json:"baked,omitempty"`
}

// Withdrawal is the last time that a pool's next image was taken back, by a withdrawal or by a
// rollback without --to. While new nodes boot from To, nobody has chosen that version: it was only
// the next good one. So the same command, repeated by a script or a Job after a lost reply, is
// recognized and does not go one version further back. A time limit would miss a Job with a long
// back-off and block a person who finds the next version bad after five minutes; the reason alone
// would miss a script that puts the time into it. A promotion, or a rollback to a named version,
// ends this state.
type Withdrawal struct {
	Version string `json:"version"`
	To      string `json:"to"`
	Reason  string `json:"reason"`
}

// Left is the version that was left for the next image, which nobody has named since; "" where that
// was chosen. What comes before it is no target but by its name.
func (w *Withdrawal) Left(next *Artifact) string {
	if w == nil || next == nil || w.To != next.Name {
		return ""
	}
	return w.Version
}

// Again is the version that a person means who withdraws the next image and does not name it. A
// script that tries again means the one that it has withdrawn: what a withdrawal fell back to is
// withdrawn by its name only.
func (w *Withdrawal) Again(next string, opts WithdrawOptions) (string, error) {
	switch {
	case w == nil || w.To != next:
		return next, nil
	case w.Reason == CutText(opts.Reason, MaxTag):
		return w.Version, nil
	}
	return "", WithHint(fmt.Errorf("new nodes of pool %s boot from version %s since version %s was taken back (%s): nothing is changed", opts.Pool, next, w.Version, w.Reason),
		"to withdraw that too: --version %s", next)
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
	// ProofSeconds of Seconds went into the proof of its version.
	ProofSeconds float64 `json:"proofSeconds,omitempty"`
	// Pointed is what the model was pointed at by a run that takes no donor and makes no version,
	// Verb what that did, Withdrawn what a person took back, and Reason why.
	Pointed   string `json:"pointedAt,omitempty"`
	Verb      Verb   `json:"verb,omitempty"`
	Withdrawn string `json:"withdrawn,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Work is WorkProve of a run that proved a version by name, WorkPatch of one that patched a
	// node, and Packages how many it changed.
	Work     Work `json:"work,omitempty"`
	Packages int  `json:"packages,omitempty"`
	// Interrupted: it was told to end, or its process ended, and no run has gone on with it.
	Interrupted bool `json:"interrupted,omitempty"`
	// Failure is why it failed, "" when it did not, Step where, and Proof how the proof of its
	// version ended, where that is why.
	Failure string  `json:"failure,omitempty"`
	Step    string  `json:"step,omitempty"`
	Proof   Outcome `json:"proof,omitempty"`
}

const (
	// LeaseDuration is how long a lease that nobody renews must be watched
	// before its run may be adopted. It is measured by watching, never by
	// comparing clocks of two machines.
	LeaseDuration = 60 * time.Second
	// RenewAfter is how old the last write of a lease may be.
	RenewAfter = LeaseDuration / 4
	// ActTimeout is how long an act may take: it ends before the lease can run out.
	ActTimeout = LeaseDuration * 3 / 4
	// SlowWrite is how long ago a write of the lease may have begun that is acted on after another
	// look: what is left of the lease is enough for an act.
	SlowWrite = LeaseDuration * 3 / 5
	maxPast   = 20
)

// Kept is the withdrawal of what is next that a watch wanted and that could not be made; nil: there
// is none, or the version was promoted since.
func Kept(past []PastRun, next string) *PastRun {
	for i, p := range past {
		switch {
		case p.Verb == VerbWithdraw && p.Step == StepWatch && p.Withdrawn == next:
			return &past[i]
		case p.Failure == "" && p.Pointed == next:
			return nil
		}
	}
	return nil
}

// NotePast puts a run that has ended in front of the past ones.
func (l *Ledger) NotePast(p PastRun) { l.Past = keepNewest(p, l.Past) }

// keepNewest adds to a list of the ledger, the newest first. The one that was read stays as it was.
func keepNewest[T any](newest T, former []T) []T {
	return slices.Concat([]T{newest}, former[:min(len(former), maxPast-1)])
}

// NoteFailed notes the run of a record that comes to its end without success. What
// holds a pool without a donor, as a restore does, is no run.
func (l *Ledger) NoteFailed(run string, rec Record, now time.Time) {
	if run == "" || rec.Donor == "" && rec.Work != WorkProve {
		return
	}
	if rec.FailedAt == "" {
		rec.FailedAt = rec.Step
	}
	l.NotePast(PastRun{Run: run, Donor: rec.Donor, Interrupted: rec.Interrupted || rec.Failure == "", Work: rec.Work, Version: rec.Version, Ended: now, Seconds: now.Sub(rec.Started).Seconds(), AwaySeconds: rec.AwayFor().Seconds(),
		Failure: CutText(cmp.Or(rec.Failure, processEnded+rec.FailedAt), MaxFailure), Step: rec.FailedAt, Proof: rec.Proof})
}

// Away is since when the donor may be off; zero where it is not, or is back.
func (r Record) Away() time.Time {
	if !r.AwayEnds.IsZero() {
		return time.Time{}
	}
	return r.AwaySince
}

// AwayFor is how long the donor was away, as far as processes noted it.
func (r Record) AwayFor() time.Duration {
	if r.AwaySince.IsZero() || r.AwayEnds.IsZero() {
		return 0
	}
	return r.AwayEnds.Sub(r.AwaySince)
}

const (
	processEnded = "its process ended at step "
	// MaxFailure is how many characters of a failure the ledger keeps: annotations
	// of an object hold 256 KiB together.
	MaxFailure = 400
)

// Knows says whether the lease names a run, as its holder or as one that has ended.
func (l Lease) Knows(run string) bool {
	return l.Holder == run || slices.ContainsFunc(l.Ledger.Past, func(p PastRun) bool { return p.Run == run })
}

// Unfinished is a run that holds a pool, or one that left a marked node and no lease.
type Unfinished struct {
	Run     string `json:"run"`
	Process string `json:"process"` // "" when nobody holds the pool
	Record
	// Heartbeat is when its process last wrote the lease, by that process's clock,
	// and Silence how many seconds ago that is by ours.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Silence   float64   `json:"heartbeatAgeSeconds,omitempty"`
	// Alive: the silence is no longer than a run that works may be silent.
	Alive bool `json:"alive"`
}

// aliveFor is how long ago the last heartbeat of a run may be that is told to be
// alive. Whether a run may be taken over is never decided by it, as clocks differ:
// see leaseHolder.look.
const aliveFor = LeaseDuration

// Unfinished is the run that holds the lease; nil when none does.
func (l Lease) Unfinished(now time.Time) *Unfinished {
	if l.Holder == "" {
		return nil
	}
	u := &Unfinished{Run: l.Holder, Process: l.Process, Record: l.Record, Heartbeat: l.Renewed}
	if !l.Renewed.IsZero() {
		silence := max(now.Sub(l.Renewed), 0)
		u.Silence, u.Alive = silence.Round(time.Second).Seconds(), silence <= aliveFor
	}
	return u
}

// WrittenModel is the image that kamino last wrote into a pool's model, or was
// about to write.
type WrittenModel struct {
	Image string    `json:"image"`
	At    time.Time `json:"at"`
	// Stamp is that of the pool before the write.
	Stamp string `json:"stamp,omitempty"`
	// Seen: a later read has shown it in the model.
	Seen bool `json:"seen,omitempty"`
	// Refused: the run that noted it knows that it never took effect.
	Refused bool `json:"refused,omitempty"`
	// Whole: nothing else of the model was left to be written.
	Whole bool `json:"whole,omitempty"`
}

// NoteWrite notes the image that is about to be written. A write that nobody has seen yet, and that
// is repeated, is one.
func (l *Ledger) NoteWrite(image string, now time.Time, seen bool, stamp string) {
	again := l.Wrote != nil && !l.Wrote.Seen && strings.EqualFold(l.Wrote.Image, image)
	if l.Wrote = (&WrittenModel{Image: image, At: now, Stamp: stamp, Seen: seen}); again {
		return
	}
	l.Writes = keepNewest(now, l.Writes)
}

// NoteRead notes the image that a read has shown in the model.
func (l *Ledger) NoteRead(image string) {
	if w := l.Wrote; w != nil && !w.Seen && strings.EqualFold(w.Image, image) {
		seen := *w
		seen.Seen = true
		l.Wrote = &seen
	}
}

// NoteRolledBack notes a version that is not to be chosen, and not marked so far.
func (l *Ledger) NoteRolledBack(name string) {
	if name != "" && !slices.Contains(l.RolledBack, name) {
		l.RolledBack = append(slices.Clone(l.RolledBack), name)
	}
}

// Distrust shows the versions that were rolled back and could not be marked as
// those that could.
func (l Ledger) Distrust(versions []Artifact) []Artifact {
	for i := range versions {
		if v := &versions[i]; v.Tags[TagBad] == "" && slices.Contains(l.RolledBack, v.Name) {
			*v = v.WithTag(TagBad, "rolled back; the version could not be marked")
		}
	}
	return versions
}

// Expected is how long a run takes here, without its proof: the medians of those that ended well.
func (l Ledger) Expected() (run, away float64) {
	var runs, aways []float64
	for _, p := range l.Past {
		if p.Failure == "" && p.Work == "" && p.AwaySeconds > 0 {
			runs, aways = append(runs, p.Seconds-p.ProofSeconds), append(aways, p.AwaySeconds)
		}
	}
	return median(runs), median(aways)
}

// NoteBaked adds how long a canary was watched.
func (l *Ledger) NoteBaked(b Baked) { l.Baked = keepNewest(b, l.Baked) }

// Usually is the median of what good canaries took; 0 while fewer than three are known.
func Usually(seconds []float64) time.Duration {
	if len(seconds) < 3 {
		return 0
	}
	return time.Duration(median(slices.Clone(seconds)) * float64(time.Second))
}

// UsualPhases are what the phases of good canaries' boots usually took, by name.
func (l Ledger) UsualPhases() map[string]time.Duration {
	took := map[string][]float64{}
	for _, boot := range l.Phases {
		for name, seconds := range boot {
			took[name] = append(took[name], seconds)
		}
	}
	usual := map[string]time.Duration{}
	for name, seconds := range took {
		if len(seconds) >= 3 { // a phase that usually takes no time is known, too
			usual[name] = Usually(seconds)
		}
	}
	return usual
}

// median is the value in the middle, of two the mean; 0 of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// GoneOn notes that a run has come to its end: what was interrupted before it is not gone on with.
func (l *Ledger) GoneOn() {
	if len(l.Past) > 0 && l.Past[0].Interrupted {
		l.Past = slices.Clone(l.Past)
		l.Past[0].Interrupted = false
	}
}

// LastMade is the index of the last run that ended well and made a version; -1: none.
func (l Ledger) LastMade() int {
	return slices.IndexFunc(l.Past, func(p PastRun) bool { return p.Failure == "" && p.Pointed == "" && p.Work == "" && p.Version != "" })
}

// Before says whether cur, which is read from the cluster, is an earlier state of the lease than
// the last known one, as after a restore of etcd from a backup. Whoever takes a lease over writes
// a higher epoch than the one that is taken over; another run that took the restored lease wrote
// it after this run began.
func (l Lease) Before(cur Lease) bool {
	if SameOwner(cur, l) {
		return cur.Renewed.Before(l.Renewed)
	}
	return cur.Epoch < l.Epoch && (cur.Holder == l.Holder || cur.Holder == "" && !cur.Renewed.After(l.Record.Started))
}

// SameOwner says whether two reads of a lease show the same process with the same run.
func SameOwner(a, b Lease) bool {
	return a.Holder == b.Holder && a.Epoch == b.Epoch && a.Process == b.Process
}
