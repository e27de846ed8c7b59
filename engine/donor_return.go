package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// settleTime is how long a donor that may have been told to go off is watched before it counts as
// never having gone. A seal stops the kubelet within a few seconds, and after ten more where it
// records the donor's boot first (agent/generic.go).
const settleTime = time.Minute

// recovery is what was seen of a donor that comes back.
type recovery struct {
	offSeen    bool   // the machine was off, or on its way
	bootThen   string // what Kubernetes took for its boot then
	firstPulse time.Time
	// sealStarted: a seal pod of the run had begun to run; unsealed: none was left when the marks
	// were taken off.
	sealStarted, unsealed bool
	removed               bool // the pods of the run, by an act that took long

	work      kamino.Work // that the donor's mark names
	missing   missing     // zero while the donor's instance is there
	forgotten bool        // only the snapshot of its disk names the donor
	poolGone  bool        // a person said that the pool was deleted for good
	returned  []string    // runs whose donors this one has given back
	// leaves are versions still being built that are not waited for; left: there was one.
	leaves func(kamino.Artifact) bool
	left   bool
}

// sawPower notes that the machine was off, and what its node told of its boot then.
func (c *recovery) sawPower(power kamino.Power, n kamino.Node) {
	if power != kamino.PowerOn && !c.offSeen {
		c.offSeen, c.bootThen = true, n.BootID
	}
}

// boot compares the boot that the node shows with that of its mark.
func (c *recovery) boot(n kamino.Node, mark *kamino.Mark) bootSight {
	switch {
	case mark == nil && n.UID == "", mark != nil && mark.BootID == "" && n.BootID == "":
		return bootUnknown
	case mark != nil && n.BootID == mark.BootID:
		return bootMarked
	case c.offSeen && n.BootID != c.bootThen:
		return bootFresh
	case mark == nil || mark.BootID == "": // then nothing tells that it has booted
		return bootUnmarked
	}
	return bootOther
}

// alive watches the kubelet's pulse: true once it has moved after settleTime. A seal that has just
// begun lets the kubelet beat once more: only what is heard after the settling counts.
func (c *recovery) alive(ready bool, pulse time.Time, spent time.Duration) bool {
	if spent <= settleTime {
		return false
	}
	if c.firstPulse.IsZero() {
		c.firstPulse = pulse
	}
	return ready && pulse.After(c.firstPulse)
}

// bootSight compares the boot that a donor's node shows with the one that its mark names.
type bootSight int

const (
	bootMarked   bootSight = iota // the same: what Kubernetes shows is from before the donor was touched
	bootFresh                     // another one, and another than when the machine was seen off
	bootOther                     // another one than the marked
	bootUnmarked                  // the mark names none, as where only the taint is left of it, or is gone
	bootUnknown                   // neither mark nor node name one, as where Kubernetes forgot the node
)

// recoveryObservation is what giving back sees of a donor that may have been sealed or switched off.
type recoveryObservation struct {
	power   kamino.Power
	ready   bool // its node is Ready, and is that of this machine
	boot    bootSight
	started bool // it was seen off, or this run asked it to start: only the boot is missing
	sealed  bool // a receipt of the run, or a seal pod that ran: the disk may be sealed
}

// recoveryAction is what brings a donor back.
type recoveryAction int

const (
	backNow       recoveryAction = iota // nothing: it is back
	switchOn                            // start the machine
	awaitPower                          // wait until it is on or off
	awaitBoot                           // wait for the node to show another boot
	awaitReady                          // wait for the node to be Ready
	hearNode                            // back, once its kubelet is heard of: Ready may be of the past
	hearKubelet                         // never went, if its kubelet is heard of for longer than a seal leaves it
	switchOffSoon                       // sealed and hanging: off after two minutes, for the next boot mends the disk
	switchOffLate                       // the same after a silence that no boot lasts, where nobody knows what was sealed
)

// backRow is a row of the table; what it leaves out is any.
type backRow struct {
	power   []kamino.Power
	ready   []bool
	boot    []bootSight
	started []bool
	sealed  []bool
	what    recoveryAction
}

func is[T any](values ...T) []T { return values }

// waysBack is the table. Exactly one row fits every sight. A start is waited for and never undone,
// or a slow boot would be ended again and again.
var waysBack = []backRow{
	{power: is(kamino.PowerOff), what: switchOn},
	{power: is(kamino.PowerBetween), what: awaitPower},

	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootFresh), what: backNow},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootOther, bootUnmarked), what: hearNode},
	// What is shown is the old boot: has the machine just been started, did it never go off, or is
	// it still going?
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(true), what: awaitBoot},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(false), sealed: is(false), what: hearKubelet},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked), started: is(false), sealed: is(true), what: switchOffSoon},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootUnknown), started: is(false), sealed: is(true), what: switchOffLate},

	{power: is(kamino.PowerOn), ready: is(false), started: is(true), what: awaitReady},
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootFresh, bootOther), started: is(false), what: awaitReady},
	// It was not seen to boot, and may hang half sealed: then only its next boot mends the disk.
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootMarked), started: is(false), what: switchOffSoon},
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootUnmarked, bootUnknown), started: is(false), what: switchOffLate},
}

// decide finds the row that fits. It is a pure function.
func (s recoveryObservation) decide() recoveryAction {
	for _, row := range waysBack {
		if row.fits(s) {
			return row.what
		}
	}
	return awaitReady // a test keeps it from coming here
}

func (row backRow) fits(s recoveryObservation) bool {
	return anyOr(row.power, s.power) && anyOr(row.ready, s.ready) && anyOr(row.boot, s.boot) &&
		anyOr(row.started, s.started) && anyOr(row.sealed, s.sealed)
}

func anyOr[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// lookStart brings the donor's machine and node back. It is done when the node
// is Ready in a boot that began after the mark was written, or when the donor
// never went off.
func (r *Run) lookStart(ctx context.Context) (workflow.Next, error) {
	mark, gone, err := r.donorMark(ctx)
	if err != nil || gone != "" {
		return workflow.Done(gone), err
	}
	if r.donor.node.FailedPatch(r.held.Run) { // it stays blocked, and need not be Ready
		return r.lookPower(ctx, r.donor.node.Name, r.donor.instance)
	}
	if !r.touched(mark) {
		return workflow.Done("the machine was not switched off"), nil
	}
	if r.donor.node.UID != "" && !r.donor.node.RunsOn(r.donor.instance.ID) {
		// The node's name is another machine's: no node tells when the donor is back.
		return r.lookPower(ctx, r.donor.node.Name, r.donor.instance)
	}
	if why, err := r.stranger(ctx, r.donor.node.Name, r.donor.instance.ID); err != nil || why != "" {
		return r.leftOff(why), err
	}
	in, err := r.donor.asShown(ctx, r.donor.instance.ID)
	if errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible) && r.back.poolGone {
		return r.lookMissing(ctx, r.donor.instance.ID)
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read instance %s: %w", r.donor.instance.ID, err)
	}
	r.back.missing = missing{}
	if in = in.WithVM(r.donor.instance.VMID); replaced(in, r.donor.instance.VMID) {
		return workflow.Done("the donor is gone: its instance was replaced"), nil
	}
	in = r.donor.sawShown(in)
	r.back.sawPower(in.Power, r.donor.node)
	return r.comeBack(ctx, in, r.sight(mark, in).decide())
}

// sight is what giving back sees of the donor. Started is a machine that was seen off, or that the
// run asked to start: then only the boot is missing.
func (r *Run) sight(mark *kamino.Mark, in kamino.Instance) recoveryObservation {
	n := r.donor.node
	receipt, receipted := n.Receipt()
	// A seal that tells why it failed took everything back and started the kubelet again, or is
	// switching the machine off: the kubelet, or its silence, tells which.
	began := r.back.sealStarted && n.SealFailure(r.held.Run) == ""
	return recoveryObservation{
		power: in.Power, ready: n.Ready && kamino.SameVM(n.SystemUUID, in.VMID), boot: r.back.boot(n, mark),
		started: r.back.offSeen || r.held.Mine() && r.held.Lease.Record.Intends(kamino.ActPowerOn),
		sealed:  receipted && receipt.Run == r.held.Run || began,
	}
}

// comeBack does what was decided, where it takes time in its time.
func (r *Run) comeBack(ctx context.Context, in kamino.Instance, what recoveryAction) (workflow.Next, error) {
	switch what {
	case backNow:
		return workflow.Done("the node is Ready"), nil
	case awaitPower:
		return workflow.Wait("the machine to start"), nil
	case switchOn:
		why := startTheMachine
		if in.Failure != "" {
			why += " again after: " + in.Failure
		}
		return workflow.Act(kamino.ActPowerOn, why, func(ctx context.Context) error { return r.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOn) }).
			Then("the machine to start", 0), nil
	case awaitBoot:
		return workflow.Wait("the node to boot"), nil
	case hearNode:
		return r.lookAlive(ctx, "the node is Ready", "a heartbeat of the node")
	case hearKubelet:
		return r.lookAlive(ctx, "the donor was never off", "a heartbeat of the kubelet")
	case switchOffSoon:
		if r.runner.Spent() < r.silence(2*guestHalt) {
			return workflow.Wait("the sealed machine to switch off"), nil
		}
		return r.switchOff(in), nil
	case switchOffLate:
		if r.runner.Spent() >= longSilence {
			return r.switchOff(in), nil
		}
	}
	return workflow.Wait("the node to be Ready"), nil
}

func (r *Run) switchOff(in kamino.Instance) workflow.Next {
	return workflow.Act(kamino.ActPowerOff, "switch the machine off, so that its first boot can repair the sealed disk", func(ctx context.Context) error {
		return r.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOff)
	})
}

func (r *Run) lookAlive(ctx context.Context, fine, why string) (workflow.Next, error) {
	n := r.donor.node
	pulse, err := r.engine.Cluster.Pulse(ctx, n)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the heartbeat of node %s: %w", n.Name, err)
	}
	if r.back.alive(n.Ready, pulse, r.runner.Spent()) {
		return workflow.Done(fine), nil
	}
	return workflow.Wait(why), nil
}

// donorMark reads the donor's node and its mark. A node that is gone or that
// another machine has taken over leaves only the record to go by.
func (r *Run) donorMark(ctx context.Context) (mark *kamino.Mark, gone string, err error) {
	n, err := r.donor.rereadNode(ctx)
	if errors.Is(err, kamino.ErrNotFound) {
		r.donor.node = kamino.Node{Name: r.donor.node.Name}
		return nil, "", nil
	} else if err != nil {
		return nil, "", fmt.Errorf("read node %s: %w", r.donor.node.Name, err)
	}
	if mark, err = n.Claimed(r.pool.ID); err != nil {
		return nil, "", err
	}
	if mark != nil && mark.Run != r.held.Run {
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

// touched says whether the donor may have been sealed or switched off: its mark or the lease says
// so. Kubernetes may have forgotten the node, or shows its mark as it was in a backup of etcd.
func (r *Run) touched(mark *kamino.Mark) bool {
	return r.back.forgotten || mark != nil && mark.Sealing || r.held.Mine() && r.held.Lease.Record.Sealing
}

const startTheMachine = "start the machine"

// lookReturn takes our marks off the node, and with them the seal pod.
func (r *Run) lookReturn(ctx context.Context) (workflow.Next, error) {
	if r.away.to.IsZero() {
		r.away.to = r.engine.now()
	}
	n, err := r.donor.rereadNode(ctx)
	if errors.Is(err, kamino.ErrNotFound) {
		return workflow.Done("the node is gone"), nil
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read node %s: %w", r.donor.node.Name, err)
	}
	mark, err := n.Claimed(r.pool.ID)
	if err != nil {
		return workflow.Next{}, err
	}
	r.donor.node = n
	if mark != nil && mark.Run == r.held.Run {
		off := workflow.Act(kamino.ActUnmark, "remove the block and the protection", func(ctx context.Context) error { return r.takeOff(ctx, n) }).Announcing(kamino.ActUnseal, deleteTheSealPod)
		builds := !r.held.GivingBack && r.work() == "" && r.imageMissing()
		if builds {
			off = off.Announcing(kamino.ActCreateVersion, buildText(r.image.version.Name))
		}
		return off.Noting(r.held.IfOwn(func(l *kamino.Lease) {
			l.Record.Sealing, l.Record.Held, l.Record.AwayEnds = false, false, r.away.to.UTC()
			l.Ledger.Empty = l.Ledger.Empty && !builds
		})), nil
	}
	if r.back.unsealed {
		return workflow.Done("as it was before"), nil
	}
	return r.lookUnseal(ctx)
}

// takeOff takes the marks off the node once no pod can seal its disk any more.
// ErrInProgress: one is still there.
func (r *Run) takeOff(ctx context.Context, n kamino.Node) error {
	if !r.back.removed { // else it was done before, and took so long that this act had to end
		if err := r.removeAgents(ctx); err != nil {
			return err
		}
	}
	r.back.removed = r.held.LeaseAge() >= kamino.LookAge
	if next, err := r.lookUnseal(ctx); err != nil {
		return err
	} else if next.Kind != workflow.NextDone {
		return fmt.Errorf("the seal pod of run %s is still there: %w", r.held.Run, kamino.ErrInProgress)
	}
	if r.held.LeaseAge() >= kamino.SlowWrite {
		return fmt.Errorf("the lease was written %s ago: %w", r.held.LeaseAge().Round(time.Second), kamino.ErrInProgress)
	}
	r.back.unsealed = true
	return r.engine.Cluster.Unmark(ctx, n)
}

// giveBackNode gives back a node that another run left.
func (r *Run) giveBackNode(ctx context.Context, n kamino.Node, mark kamino.Mark) error {
	engine := *r.engine
	engine.DonorBack = nil // this run's own is still to go
	other := engine.newRun(r.opts)
	other.pool, other.holds, other.back.poolGone = r.pool, r.holds, r.back.poolGone
	other.held.InNameOf(mark.Run, r.held.Lease)
	other.back.work = mark.Work
	other.back.forgotten = mark.Forgotten
	other.donor.node, other.donor.instance = n, kamino.Instance{ID: mark.Instance, VMID: n.VMOf(mark, *r.held.Lease), Pool: mark.Pool}
	err := other.exec(ctx, restitution(other))
	r.back.missing = other.back.missing
	if err == nil {
		r.back.returned = append(r.back.returned, mark.Run)
	}
	return err
}

// lookPower starts a donor's machine where no node tells when it is back. What is known of it is a
// claim here too: nothing is done to a machine of another node or pool.
func (r *Run) lookPower(ctx context.Context, donor string, was kamino.Instance) (workflow.Next, error) {
	in, err := r.engine.Provider.Instance(ctx, was.ID)
	if errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible) && r.back.poolGone {
		return r.lookMissing(ctx, was.ID)
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read instance %s: %w", was.ID, err)
	}
	r.back.missing = missing{}
	switch {
	case !kamino.SameVM(in.WithVM(was.VMID).VMID, was.VMID):
		return workflow.Done("it was replaced"), nil
	case in.Power == kamino.PowerOn:
		return workflow.Done("it runs"), nil
	}
	if why, err := r.stranger(ctx, donor, in.ID); err != nil || why != "" {
		return r.leftOff(why), err
	}
	if in.Power == kamino.PowerBetween {
		return workflow.Wait("the machine to start or to stop"), nil
	}
	return workflow.Act(kamino.ActPowerOn, startTheMachine+", which was switched off", func(ctx context.Context) error {
		return r.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOn)
	}).Then("the machine to start", 0), nil
}

// leftOff is done without having done anything to a machine that is not the donor's.
func (r *Run) leftOff(why string) workflow.Next {
	if why == "" {
		return workflow.Next{}
	}
	r.held.Warn(why + ": nothing was done to it")
	return workflow.Done("nothing was done to the machine: " + why)
}
