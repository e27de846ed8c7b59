package kamino

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SystemNamespace is the namespace of all leases, ledgers and pods of Kamino, on every cluster. Two
// processes that looked for a pool's lock in different namespaces would not see each other.
const SystemNamespace = "kamino-system"

// Lease is the lock of a pool, and the record in which a run writes what it is about to do. An
// expired lease does not free the pool for a second donor: another process adopts the run that the
// lease names, and finishes or restores it.
type Lease struct {
	Pool     PoolID        `json:"pool"`
	Holder   string        `json:"holder"`  // run ID; "" when free
	Process  string        `json:"process"` // host/pid of the process that drives the run
	Epoch    int64         `json:"epoch"`   // grows each time the lease is taken; never reset
	Renewed  time.Time     `json:"renewed,omitzero"`
	Duration time.Duration `json:"-"`
	Record   Record        `json:"record"`
	Ledger   Ledger        `json:"ledger"`
	Revision string        `json:"-"` // makes the next write conditional
	// Err is why [Leases] could not read the lease of Pool. Then only Pool is known, and nothing
	// may be done to the pool.
	Err error `json:"-"`
}

// Record is the state of the run that holds a lease: what it has decided and is about to do.
type Record struct {
	Donor    string     `json:"donor,omitempty"`
	Instance InstanceID `json:"instance,omitempty"`
	VMID     string     `json:"vmId,omitempty"`
	Version  string     `json:"version,omitempty"`
	Started  time.Time  `json:"started,omitzero"`
	Step     string     `json:"step,omitempty"`    // where the run was when this was written
	Intent   string     `json:"intent,omitempty"`  // what the run is about to do, worded for people
	Acts     []Act      `json:"acts,omitempty"`    // what the run is about to do
	Nonce    string     `json:"nonce,omitempty"`   // the receipt must repeat it; see SealOrder
	Policy   string     `json:"policy,omitempty"`  // SHA-256 of the seal policy; the receipt must name it
	Sealing  bool       `json:"sealing,omitempty"` // as Mark.Sealing
	Disk     string     `json:"disk,omitempty"`    // the OS disk that is sealed, as Instance.Disk
	Held     bool       `json:"held,omitempty"`    // as Mark.Held
	Work     Work       `json:"work,omitempty"`    // as Mark.Work
	// Cycled is the progress of the power cycle of a node that did not boot by itself.
	Cycled PowerCycle `json:"cycled,omitempty"`
	// AwaySince is when the seal of the donor's disk began, so that the donor may be off; AwayEnds
	// is when the donor was back. Zero: not yet.
	AwaySince  time.Time `json:"awaySince,omitzero"`
	AwayEnds   time.Time `json:"awayEnds,omitzero"`
	GivingBack bool      `json:"givingBack,omitempty"`
	Failure    string    `json:"failure,omitempty"` // why the run is restoring what it took
	Proof      Outcome   `json:"proof,omitempty"`   // outcome of the proof, if that is the reason
	// Interrupted: the run is restoring because its process was told to end.
	Interrupted bool   `json:"interrupted,omitempty"`
	FailedAt    string `json:"failedAt,omitempty"` // the step that failed
	ModelWas    string `json:"modelWas,omitempty"` // the model's image when the run began
	Storage     string `json:"storage,omitempty"`  // storage type of the version, once ZRS was refused
	// Promote is PromoteManual if the run leaves the promotion of its version to a person; else
	// empty.
	Promote PromoteMode `json:"promote,omitempty"`
	// Prove is how the run proves its version.
	Prove ProveMode `json:"prove,omitempty"`
	// Canary is the name of the canary that the run requested or is about to request; CanarySince
	// is when.
	Canary      string    `json:"canary,omitempty"`
	CanarySince time.Time `json:"canarySince,omitzero"`
	// Probe is the operator's Job that the run started or is about to start.
	Probe *Probed `json:"probe,omitempty"`
}

// Intends reports whether the record announces an act.
func (r Record) Intends(act Act) bool { return slices.Contains(r.Acts, act) }

// Ledger is the part of a lease that outlives a run: former models, the history of versions and
// runs, and how long runs take.
type Ledger struct {
	// Original is the model before the first prototype; Former is the model before the last write.
	Original *SavedModel `json:"original,omitempty"`
	Former   *SavedModel `json:"former,omitempty"`
	// Wrote is the image that Kamino last wrote into the model. Another image in the model is a
	// pin.
	Wrote *WrittenModel `json:"wrote,omitempty"`
	// Writes are when the model was last written, newest first, at most maxPast.
	Writes []time.Time `json:"writes,omitempty"`
	// Promoted is the version that the definition was last made to stand for, in a pool that refers
	// to its definition.
	Promoted *Promotion `json:"promoted,omitempty"`
	// Stood is the version that the definition stood for when the model was last written, or first
	// seen to refer to the definition. A pool that resolves its definition only then still boots
	// from this version (unverified).
	Stood *Promotion `json:"stood,omitempty"`
	// Strayed is why the pool no longer refers to its definition; nil if it may.
	Strayed *Stray `json:"strayed,omitempty"`
	// RolledBack are versions that a rollback rejected and could not mark yet.
	RolledBack []string `json:"rolledBack,omitempty"`
	// Unbuilt are the versions of RolledBack whose build was never seen to succeed.
	Unbuilt []string `json:"unbuilt,omitempty"`
	// Withdrew is the withdrawal that gave the pool its next image; nil if somebody chose that
	// image.
	Withdrew *Withdrawal `json:"withdrew,omitempty"`
	// Empty: a run of this ledger made the image definition, and no run has begun a version in it.
	Empty bool `json:"empty,omitempty"`
	// Owed are new nodes that a run was asked for and had not requested when it ended.
	Owed *ScaleOut `json:"owed,omitempty"`
	// Canary is a canary that a run requested and had not seen removed, with its node, when it
	// ended.
	Canary string `json:"canary,omitempty"`
	// CanaryNonce is the nonce that the agent of Canary repeats. It identifies the canary's node
	// after the machine is gone, in a cloud that chooses node names.
	CanaryNonce string    `json:"canaryNonce,omitempty"`
	Past        []PastRun `json:"past,omitempty"` // newest first, at most maxPast
	// Unfit are withdrawn versions that were pruned, newest first, at most maxPast. Their donors
	// are rejected while they have the same packages.
	Unfit []Unfit `json:"unfit,omitempty"`
	// Boots are the boot times of good canaries in seconds, newest first, at most maxPast.
	Boots []float64 `json:"boots,omitempty"`
	// Phases are the seconds of each phase of those boots, if the canary's agent reported them.
	Phases []map[string]float64 `json:"phases,omitempty"`
	// Generic is the newest recorded boot of a machine of the original image. Clone is that of the
	// newest good canary whose agent reported when the phases began.
	Generic *Waterfall `json:"generic,omitempty"`
	Clone   *Waterfall `json:"clone,omitempty"`
	// Baked are the observations of good canaries after they were Ready, newest first, at most
	// maxPast.
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

// Left returns the version that was withdrawn in favor of the pool's next image, if nobody has
// named a version since; else "". An older version is a target only by its name.
func (w *Withdrawal) Left(next *Version) string {
	if w == nil || next == nil || w.To != next.Name {
		return ""
	}
	return w.Version
}

// Again returns the version that a withdrawal without --version means. With the reason of the last
// withdrawal it is a repetition and means the version withdrawn then. With another reason it is an
// error while the next image is what that withdrawal fell back to: that version is withdrawn only
// by its name.
func (w *Withdrawal) Again(next string, opts WithdrawOptions) (string, error) {
	switch {
	case w == nil || w.To != next:
		return next, nil
	case w.Reason == CutText(opts.Reason, MaxTag):
		return w.Version, nil
	}
	return "", WithHint(fmt.Errorf("new nodes of pool %s boot from version %s since version %s was taken back (%s): nothing is changed",
		opts.Pool, next, w.Version, w.Reason),
		"to withdraw that too: --version %s", next)
}

// ScaleOut is a request for new nodes of a version.
type ScaleOut struct {
	Version string `json:"version"`
	To      int    `json:"to,omitempty"` // target capacity, once it is decided
}

// SavedModel is a model that can be written back.
type SavedModel struct {
	At    time.Time       `json:"at"`
	Image string          `json:"image"`
	Saved json.RawMessage `json:"saved"`
}

// PastRun is a run that has ended, successfully or not.
type PastRun struct {
	Run         string    `json:"run"`
	Donor       string    `json:"donor"`
	Version     string    `json:"version"`
	Ended       time.Time `json:"ended"`
	Seconds     float64   `json:"seconds"`
	AwaySeconds float64   `json:"awaySeconds"` // 0 if not known; see Record.AwaySince
	// ProofSeconds is the part of Seconds that the proof took.
	ProofSeconds float64 `json:"proofSeconds,omitempty"`
	// Pointed is the image that a run without a donor made the pool's next image. Verb is the
	// command, Withdrawn the version that a person took back, and Reason why.
	Pointed   string `json:"pointedAt,omitempty"`
	Verb      Verb   `json:"verb,omitempty"`
	Withdrawn string `json:"withdrawn,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Work is WorkProve for a run that proved a named version, WorkPatch for one that patched a
	// node. Packages is how many packages it changed.
	Work     Work `json:"work,omitempty"`
	Packages int  `json:"packages,omitempty"`
	// Interrupted: the process was told to end or was killed, and no run has continued it.
	Interrupted bool `json:"interrupted,omitempty"`
	// Failure is why the run failed, "" if it did not; Step is where. Proof is the outcome of the
	// version's proof, if that is the reason.
	Failure string  `json:"failure,omitempty"`
	Step    string  `json:"step,omitempty"`
	Proof   Outcome `json:"proof,omitempty"`
}

const (
	// LeaseDuration is how long a lease must be watched without a renewal before its run may be
	// adopted. The watcher uses only its own clock.
	LeaseDuration = 60 * time.Second
	// RenewAfter is the age at which the holder renews the lease.
	RenewAfter = LeaseDuration / 4
	// ActTimeout is how long an act may take. It ends before the lease can expire.
	ActTimeout = LeaseDuration * 3 / 4
	// SlowWrite is the greatest age of a write of the lease after which the run still acts (after
	// it looked again). The rest of the lease is enough for an act.
	SlowWrite = LeaseDuration * 3 / 5
	maxPast   = 20
)

// Kept returns the withdrawal of the next image that a watch wanted and could not make; nil if
// there is none, or if the version was promoted since.
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

// NotePast adds a run that has ended to the history.
func (l *Ledger) NotePast(p PastRun) { l.Past = keepNewest(p, l.Past) }

// keepNewest adds an entry to a history, newest first. It does not change the slice that was read.
func keepNewest[T any](newest T, former []T) []T {
	return slices.Concat([]T{newest}, former[:min(len(former), maxPast-1)])
}

// NoteFailed adds a run that ended without success to the history. A holder without a donor, such
// as a restore, is not a run.
func (l *Ledger) NoteFailed(run string, rec Record, now time.Time) {
	if run == "" || rec.Donor == "" && rec.Work != WorkProve {
		return
	}
	if rec.FailedAt == "" {
		rec.FailedAt = rec.Step
	}
	l.NotePast(PastRun{Run: run, Donor: rec.Donor, Interrupted: rec.Interrupted || rec.Failure == "", Work: rec.Work, Version: rec.Version,
		Ended: now, Seconds: now.Sub(rec.Started).Seconds(), AwaySeconds: rec.AwayFor().Seconds(),
		Failure: CutText(cmp.Or(rec.Failure, processEnded+rec.FailedAt), MaxFailure), Step: rec.FailedAt, Proof: rec.Proof})
}

// Away returns since when the donor may be off; zero if it is not, or is back.
func (r Record) Away() time.Time {
	if !r.AwayEnds.IsZero() {
		return time.Time{}
	}
	return r.AwaySince
}

// AwayFor returns how long the donor was away, as far as it was recorded.
func (r Record) AwayFor() time.Duration {
	if r.AwaySince.IsZero() || r.AwayEnds.IsZero() {
		return 0
	}
	return r.AwayEnds.Sub(r.AwaySince)
}

const (
	processEnded = "its process ended at step "
	// MaxFailure is how many characters of a failure the ledger keeps. All annotations of an object
	// hold 256 KiB together.
	MaxFailure = 400
)

// Knows reports whether the lease names a run, as its holder or in its history.
func (l Lease) Knows(run string) bool {
	return l.Holder == run || slices.ContainsFunc(l.Ledger.Past, func(p PastRun) bool { return p.Run == run })
}

// Unfinished is a run that holds a pool, or a run without a lease that left a marked node.
type Unfinished struct {
	Run     string `json:"run"`
	Process string `json:"process"` // "" if nobody holds the pool
	Record
	// Heartbeat is when the run's process last wrote the lease, by its clock. Silence is how many
	// seconds ago that is, by ours.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Silence   float64   `json:"heartbeatAgeSeconds,omitempty"`
	// Alive: the silence is no longer than that of a working run may be.
	Alive bool `json:"alive"`
}

// aliveFor is the age of the last heartbeat up to which a run is shown as alive. It never decides
// whether a run may be adopted, because clocks differ: see lock.Lock.Look.
const aliveFor = LeaseDuration

// Unfinished returns the run that holds the lease; nil if none does.
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

// WrittenModel is the image that Kamino last wrote into a pool's model, or was about to write.
type WrittenModel struct {
	Image string    `json:"image"`
	At    time.Time `json:"at"`
	// Stamp is the pool's stamp before the write.
	Stamp string `json:"stamp,omitempty"`
	// Seen: a later read showed the image in the model.
	Seen bool `json:"seen,omitempty"`
	// Refused: the run knows that its write did not take effect.
	Refused bool `json:"refused,omitempty"`
	// Whole: the write covered every difference of the model.
	Whole bool `json:"whole,omitempty"`
}

// NoteWrite records the image that is about to be written into the model. A repeated write that
// nobody has seen yet is recorded once.
func (l *Ledger) NoteWrite(image string, now time.Time, seen bool, stamp string) {
	again := l.Wrote != nil && !l.Wrote.Seen && strings.EqualFold(l.Wrote.Image, image)
	if l.Wrote = (&WrittenModel{Image: image, At: now, Stamp: stamp, Seen: seen}); again {
		return
	}
	l.Writes = keepNewest(now, l.Writes)
}

// NoteRead records the image that a read showed in the model.
func (l *Ledger) NoteRead(image string) {
	if w := l.Wrote; w != nil && !w.Seen && strings.EqualFold(w.Image, image) {
		seen := *w
		seen.Seen = true
		l.Wrote = &seen
	}
}

// NoteRolledBack records a version that must not be chosen and is not marked yet.
func (l *Ledger) NoteRolledBack(name string) {
	if name != "" && !slices.Contains(l.RolledBack, name) {
		l.RolledBack = append(slices.Clone(l.RolledBack), name)
	}
}

// Distrust returns the versions with those that were rolled back but not marked yet shown as
// marked.
func (l Ledger) Distrust(versions []Version) []Version {
	for i := range versions {
		if v := &versions[i]; v.Bad == "" && slices.Contains(l.RolledBack, v.Name) {
			*v = v.write(map[string]string{TagBad: "rolled back; the version could not be marked"})
		}
	}
	return versions
}

// Expected returns how long a run of this pool takes without its proof: the medians of the
// successful runs.
func (l Ledger) Expected() (run, away float64) {
	var runs, aways []float64
	for _, p := range l.Past {
		if p.Failure == "" && p.Work == "" && p.AwaySeconds > 0 {
			runs, aways = append(runs, p.Seconds-p.ProofSeconds), append(aways, p.AwaySeconds)
		}
	}
	return median(runs), median(aways)
}

// NoteBaked adds the observation of a watched canary.
func (l *Ledger) NoteBaked(b Baked) { l.Baked = keepNewest(b, l.Baked) }

// Usually returns the median boot time of good canaries; 0 if fewer than three are known.
func Usually(seconds []float64) time.Duration {
	if len(seconds) < 3 {
		return 0
	}
	return time.Duration(median(slices.Clone(seconds)) * float64(time.Second))
}

// UsualPhases returns how long each phase of a good canary's boot usually takes, by name.
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

// median returns the value in the middle, of two the mean; 0 of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// GoneOn records that a run has ended, so an earlier interrupted run is no longer continued.
func (l *Ledger) GoneOn() {
	if len(l.Past) > 0 && l.Past[0].Interrupted {
		l.Past = slices.Clone(l.Past)
		l.Past[0].Interrupted = false
	}
}

// LastMade returns the index of the last successful run that made a version; -1 if there is none.
func (l Ledger) LastMade() int {
	return slices.IndexFunc(l.Past, func(p PastRun) bool { return p.Failure == "" && p.Pointed == "" && p.Work == "" && p.Version != "" })
}

// Before reports whether cur, read from the cluster, is an earlier state of this lease, as after
// etcd was restored from a backup. A process that takes a lease over writes a higher epoch, and a run
// that has ended never takes the lease again; another run that took the restored lease wrote it
// after this run began.
func (l Lease) Before(cur Lease) bool {
	if SameOwner(cur, l) {
		return cur.Renewed.Before(l.Renewed)
	}
	return cur.Epoch < l.Epoch && (l.Knows(cur.Holder) || cur.Holder == "" && !cur.Renewed.After(l.Record.Started))
}

// SameOwner reports whether two reads of a lease show the same process with the same run.
func SameOwner(a, b Lease) bool {
	return a.Holder == b.Holder && a.Epoch == b.Epoch && a.Process == b.Process
}
