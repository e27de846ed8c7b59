package kamino

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// settleTime is how long a donor that may have been told to go off is watched
// before it counts as never having gone.
const settleTime = 30 * time.Second

// comingBack is what was seen of a donor that comes back.
type comingBack struct {
	offSeen    bool   // the machine was off, or on its way
	bootThen   string // what Kubernetes took for its boot then
	firstPulse time.Time
	// sealStarted: a seal pod of the run had begun to run; unsealed: none was left when the marks
	// were taken off.
	sealStarted, unsealed bool

	work      Work     // that the donor's mark names
	missing   missing  // zero while the donor's instance is there
	poolGone  bool     // a person said that the pool was deleted for good
	keepTrial bool     // what new nodes boot from is decided by whoever restores first
	returned  []string // runs whose donors this one has given back
}

// sawPower notes that the machine was off, and what its node told of its boot then.
func (c *comingBack) sawPower(power Power, n Node) {
	if power != PowerOn && !c.offSeen {
		c.offSeen, c.bootThen = true, n.BootID
	}
}

// boot compares the boot that the node shows with that of its mark.
func (c *comingBack) boot(n Node, mark *Mark) bootSight {
	switch {
	case mark == nil && n.UID == "", mark != nil && mark.BootID == "" && n.BootID == "":
		return bootUnknown
	case mark != nil && n.BootID == mark.BootID:
		return bootMarked
	case c.offSeen && n.BootID != c.bootThen:
		return bootFresh
	case mark != nil && mark.BootID == "":
		return bootUnmarked
	}
	return bootOther
}

// alive watches the kubelet's pulse: true once it has moved after settleTime. A seal that has just
// begun lets the kubelet beat once more: only what is heard after the settling counts.
func (c *comingBack) alive(ready bool, pulse time.Time, spent time.Duration) bool {
	if spent <= settleTime {
		return false
	}
	if c.firstPulse.IsZero() {
		c.firstPulse = pulse
	}
	return ready && pulse.After(c.firstPulse)
}

// lookStart brings the donor's machine and node back. It is done when the node
// is Ready in a boot that began after the mark was written, or when the donor
// never went off.
func (r *Run) lookStart(ctx context.Context) (Next, error) {
	mark, gone, err := r.donorMark(ctx)
	if err != nil || gone != "" {
		return done(gone), err
	}
	if r.donor.node.failedPatch(r.held.run) { // it stays blocked, and need not be Ready
		return r.lookPower(ctx, r.donor.node.Name, r.donor.instance)
	}
	if !r.touched(mark) {
		return done("the donor was not switched off"), nil
	}
	if r.donor.node.UID != "" && !r.donor.node.runsOn(r.donor.instance.ID) {
		// The node's name is another machine's: no node tells when the donor is back.
		return r.lookPower(ctx, r.donor.node.Name, r.donor.instance)
	}
	if why, err := r.stranger(ctx, r.donor.node.Name, r.donor.instance.ID); err != nil || why != "" {
		return r.leftOff(why), err
	}
	in, err := r.donor.asShown(ctx, r.donor.instance.ID)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotVisible) && r.back.poolGone {
		return r.lookMissing(ctx, r.donor.instance.ID)
	} else if err != nil {
		return Next{}, fmt.Errorf("read instance %s: %w", r.donor.instance.ID, err)
	}
	r.back.missing = missing{}
	if in = in.as(r.donor.instance.VMID); replaced(in, r.donor.instance.VMID) {
		return done("the donor is gone: its instance was replaced"), nil
	}
	in = r.donor.sawShown(in)
	r.back.sawPower(in.Power, r.donor.node)
	return r.comeBack(ctx, in, r.sight(mark, in).decide())
}

// sight is what giving back sees of the donor. Started is a machine that was seen off, or that the
// run asked to start: then only the boot is missing.
func (r *Run) sight(mark *Mark, in Instance) sight {
	n := r.donor.node
	receipt, receipted := n.Receipt()
	// A seal that tells why it failed took everything back and started the kubelet again, or is
	// switching the machine off: the kubelet, or its silence, tells which.
	began := r.back.sealStarted && n.SealFailure(r.held.run) == ""
	return sight{
		power: in.Power, ready: n.Ready && SameVM(n.SystemUUID, in.VMID), boot: r.back.boot(n, mark),
		started: r.back.offSeen || r.held.mine() && r.held.lease.Record.intends(ActPowerOn),
		sealed:  receipted && receipt.Run == r.held.run || began,
	}
}

// comeBack does what was decided, where it takes time in its time.
func (r *Run) comeBack(ctx context.Context, in Instance, what wayBack) (Next, error) {
	switch what {
	case backNow:
		return done("the node is Ready"), nil
	case awaitPower:
		return wait("the machine to start"), nil
	case switchOn:
		why := startTheDonor
		if in.Failure != "" {
			why += " again after: " + in.Failure
		}
		return act(ActPowerOn, why, func(ctx context.Context) error { return r.engine.Provider.SetPower(ctx, in.ID, PowerOn) }).
			then("the machine to start", 0), nil
	case awaitBoot:
		return wait("the node to boot"), nil
	case hearNode:
		return r.lookAlive(ctx, "the node is Ready", "a heartbeat of the node")
	case hearKubelet:
		return r.lookAlive(ctx, "the donor never went off", "a heartbeat of the kubelet")
	case switchOffSoon:
		if r.spent() < r.silence(2*guestHalt) {
			return wait("the sealed machine to go off"), nil
		}
		return r.switchOff(in), nil
	case switchOffLate:
		if r.spent() >= longSilence {
			return r.switchOff(in), nil
		}
	}
	return wait("the node to be Ready"), nil
}

func (r *Run) switchOff(in Instance) Next {
	return act(ActPowerOff, "switch the machine off, so that its first boot can repair the sealed disk", func(ctx context.Context) error {
		return r.engine.Provider.SetPower(ctx, in.ID, PowerOff)
	})
}

func (r *Run) lookAlive(ctx context.Context, fine, why string) (Next, error) {
	n := r.donor.node
	pulse, err := r.engine.Cluster.Pulse(ctx, n)
	if err != nil {
		return Next{}, fmt.Errorf("read the pulse of node %s: %w", n.Name, err)
	}
	if r.back.alive(n.Ready, pulse, r.spent()) {
		return done(fine), nil
	}
	return wait(why), nil
}

// donorMark reads the donor's node and its mark. A node that is gone or that
// another machine has taken over leaves only the record to go by.
func (r *Run) donorMark(ctx context.Context) (mark *Mark, gone string, err error) {
	n, err := r.donor.rereadNode(ctx)
	if errors.Is(err, ErrNotFound) {
		r.donor.node = Node{Name: r.donor.node.Name}
		return nil, "", nil
	} else if err != nil {
		return nil, "", fmt.Errorf("read node %s: %w", r.donor.node.Name, err)
	}
	if mark, err = n.claim(r.pool.ID); err != nil {
		return nil, "", err
	}
	if mark != nil && mark.Run != r.held.run {
		return nil, fmt.Sprintf("the node belongs to run %s now", mark.Run), nil
	}
	if mark != nil {
		r.back.work = mark.Work
	}
	r.donor.sawNode(n)
	return mark, "", nil
}

// longSilence is more than any donor needs to boot and report.
const longSilence = 10 * time.Minute

// touched says whether the donor may have been sealed or switched off: its
// mark tells, and where Kubernetes has forgotten the node, the lease.
func (r *Run) touched(mark *Mark) bool {
	if mark != nil {
		return mark.Sealing
	}
	return r.held.mine() && r.held.lease.Record.Sealing
}

const startTheDonor = "start the donor"

// lookReturn takes our marks off the node, and with them the seal pod.
func (r *Run) lookReturn(ctx context.Context) (Next, error) {
	if r.away.to.IsZero() {
		r.away.to = r.engine.now()
	}
	n, err := r.donor.rereadNode(ctx)
	if errors.Is(err, ErrNotFound) {
		return done("the node is gone"), nil
	} else if err != nil {
		return Next{}, fmt.Errorf("read node %s: %w", r.donor.node.Name, err)
	}
	mark, err := n.claim(r.pool.ID)
	if err != nil {
		return Next{}, err
	}
	r.donor.node = n
	if mark != nil && mark.Run == r.held.run {
		off := act(ActUnmark, "take off the block and the protection", func(ctx context.Context) error { return r.takeOff(ctx, n) }).announcing(ActUnseal, deleteTheSealPod)
		if !r.held.givingBack && r.work() == "" && r.imageMissing() {
			off = off.announcing(ActCreateVersion, buildText(r.image.version.Name))
		}
		return off.noting(r.held.ifOwn(func(l *Lease) { l.Record.Sealing, l.Record.Held, l.Record.AwayEnds = false, false, r.away.to.UTC() })), nil
	}
	if r.back.unsealed {
		return done("as it was before"), nil
	}
	return r.lookUnseal(ctx)
}

// takeOff takes the marks off the node once no pod can seal its disk any more.
// ErrInProgress: one is still there.
func (r *Run) takeOff(ctx context.Context, n Node) error {
	if err := r.removeAgents(ctx); err != nil {
		return err
	}
	if next, err := r.lookUnseal(ctx); err != nil {
		return err
	} else if next.kind != nextDone {
		return fmt.Errorf("the seal pod of run %s is still there: %w", r.held.run, ErrInProgress)
	}
	if r.held.late() {
		return fmt.Errorf("the lease was written %s ago: %w", r.held.leaseAge().Round(time.Second), ErrInProgress)
	}
	r.back.unsealed = true
	return r.engine.Cluster.Unmark(ctx, n)
}

// giveBackNode gives back a node that another run left.
func (r *Run) giveBackNode(ctx context.Context, n Node, mark Mark) error {
	engine := *r.engine
	engine.DonorBack = nil // this run's own is still to go
	other := engine.newRun(r.opts)
	other.pool, other.holds, other.back.poolGone = r.pool, r.holds, r.back.poolGone
	other.held.inNameOf(mark.Run, r.held.lease)
	other.back.work = mark.Work
	other.donor.node, other.donor.instance = n, Instance{ID: mark.Instance, VMID: n.vmOf(mark, *r.held.lease), Pool: mark.Pool}
	err := other.exec(ctx, restitution())
	r.back.missing = other.back.missing
	if err == nil {
		r.back.returned = append(r.back.returned, mark.Run)
	}
	return err
}

// abandon gives back everything after a failure. It goes on although ctx may
// have ended: that is when giving back matters most.
func (r *Run) abandon(ctx context.Context, cause error) error {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	if r.refusedFirst(cause) {
		return errors.Join(cause, r.held.release(ctx, func(l *Lease) { l.Record = Record{} })) // no run of which to tell
	}
	r.held.givingBack = true
	if rec := r.held.lease.Record; r.held.adopted && rec.Donor != "" && !(rec.Donor == r.donor.node.Name && SameVM(rec.VMID, r.donor.instance.VMID)) {
		// The run that was adopted had another donor, and still has it.
		r.donor.node = Node{Name: rec.Donor}
		r.donor.instance = Instance{ID: rec.Instance, VMID: rec.VMID}
	}
	r.tell(Event{Kind: GivingBack, Percent: -1, Message: cause.Error()})
	errs := []error{cause}
	if err := r.unwatched(cause); err != nil {
		errs = append(errs, err)
	}
	if err := r.held.persist(ctx, "write failure on", func(l *Lease) {
		l.Record.GivingBack, l.Record.Failure, l.Record.FailedAt, l.Record.Interrupted = true, cause.Error(), failedStep(cause), interrupted
	}); err != nil {
		if errors.Is(err, ErrLeaseLost) {
			return errors.Join(cause, err)
		}
		errs = append(errs, err)
	}
	failed := r.giveBack(ctx, cause)
	left := r.exec(ctx, canaryBack())
	if failed == nil && !interrupted && r.work() == "" {
		failed = r.exec(ctx, leftovers())
	}
	failed = errors.Join(failed, left)
	if failed != nil {
		// The lease stays: whoever comes next adopts the run and gives back.
		errs = append(errs, WithHint(fmt.Errorf("give back: %w", failed), "kamino restore"))
		return errors.Join(errs...)
	}
	if err := r.held.release(ctx, nil); err != nil {
		errs = append(errs, err)
	} else {
		r.freed()
	}
	return errors.Join(errs...)
}

// giveBack gives the donor back, unless that is what has failed already: then
// a person is needed, and hears of it now.
func (r *Run) giveBack(ctx context.Context, cause error) error {
	var s *StepError
	if errors.As(cause, &s) && (s.Step == InStart || s.Step == InReturn) && errors.Is(cause, errOverdue) {
		return errors.New("the donor does not come back")
	}
	return r.exec(ctx, restitution())
}

// stayedOn looks at the donor of an adopted run once more before its lease is freed.
func (r *Run) stayedOn(ctx context.Context) error {
	if r.held.before.Instance == "" {
		return nil
	}
	return r.exec(ctx, stayOn())
}

// lookPower starts a donor's machine where no node tells when it is back. What is known of it is a
// claim here too: nothing is done to a machine of another node or pool.
func (r *Run) lookPower(ctx context.Context, donor string, was Instance) (Next, error) {
	in, err := r.engine.Provider.Instance(ctx, was.ID)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotVisible) && r.back.poolGone {
		return r.lookMissing(ctx, was.ID)
	} else if err != nil {
		return Next{}, fmt.Errorf("read instance %s: %w", was.ID, err)
	}
	r.back.missing = missing{}
	switch {
	case !SameVM(in.as(was.VMID).VMID, was.VMID):
		return done("it was replaced"), nil
	case in.Power == PowerOn:
		return done("it runs"), nil
	}
	if why, err := r.stranger(ctx, donor, in.ID); err != nil || why != "" {
		return r.leftOff(why), err
	}
	if in.Power == PowerBetween {
		return wait("the machine to start or to stop"), nil
	}
	return act(ActPowerOn, startTheDonor+", which was switched off", func(ctx context.Context) error {
		return r.engine.Provider.SetPower(ctx, in.ID, PowerOn)
	}).then("the machine to start", 0), nil
}

// leftOff is done without having done anything to a machine that is not the donor's.
func (r *Run) leftOff(why string) Next {
	if why == "" {
		return Next{}
	}
	r.held.warn(why + ": nothing was done to it")
	return done("nothing was done to the machine: " + why)
}

// finish writes the run into the ledger and frees the pool.
func (r *Run) finish(ctx context.Context, started time.Time) error {
	now := r.engine.now()
	return r.held.release(context.WithoutCancel(ctx), func(l *Lease) {
		if l.Ledger.Owed = nil; r.promotes() {
			l.Ledger.Trial = ""
		}
		l.Ledger.goneOn()
		l.Ledger.promoted(r.image.version.Name, now)
		if w := l.Ledger.Wrote; r.image.whole && w != nil && strings.EqualFold(w.Image, r.pool.Model.Image) {
			l.Ledger.Wrote = &WrittenModel{Image: w.Image, At: w.At, Seen: true, Whole: true}
		}
		if r.donorUsed() || r.result.Changed {
			l.Ledger.passed(PastRun{Run: r.held.run, Donor: firstWord(r.image.version.Tags[TagBuiltFrom], r.donor.node.Name), Version: r.image.version.Name,
				Ended: now.UTC(), Seconds: now.Sub(started).Seconds(), AwaySeconds: r.awayFor().Seconds(), ProofSeconds: r.result.proofSeconds()})
		}
		l.Record = Record{} // it did not fail
	})
}

func (r *Run) fillResult() {
	r.result.Run, r.result.Pool = r.held.run, r.pool.ID
	// What was made before, by this run or another, tells whom it was made of.
	r.result.Donor = firstWord(r.image.version.Tags[TagBuiltFrom], r.donor.node.Name)
	r.result.Version, r.result.Image = r.image.version.Name, r.image.version.ID
	r.result.Adopted = r.held.adopted
	if r.modelIsTheirs() {
		r.result.Owner, r.result.Extensions = r.pool.Owner, r.pool.Model.Extensions
	}
	r.result.AwaySeconds = r.awayFor().Seconds()
}
