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

// settleTime is how long a donor that may be switching off is watched before it counts as never
// having gone. A seal stops the kubelet within a few seconds, or ten seconds later if it records
// the donor's boot first (agent/generic.go).
const settleTime = time.Minute

// recovery is what was observed of a donor that comes back.
type recovery struct {
	offSeen    bool   // the machine was off, or switching off
	bootThen   string // the boot ID that its Node showed then
	firstPulse time.Time
	// sealStarted: a seal pod of the run had begun to run. unsealed: there was none when the marks
	// were removed.
	sealStarted, unsealed bool
	removed               bool // the pods of the run were removed, in an act that took long

	work      kamino.Work // work of the donor's mark
	missing   missing     // zero while the donor's instance exists
	forgotten bool        // only the tags of a snapshot name the donor
	poolGone  bool        // a person declared that the pool was deleted
	returned  []string    // runs whose donors this run has given back
}

// sawPower records that the machine was off, and the boot ID that its Node showed then.
func (c *recovery) sawPower(power kamino.Power, n kamino.Node) {
	if power != kamino.PowerOn && !c.offSeen {
		c.offSeen, c.bootThen = true, n.BootID
	}
}

// boot compares the boot ID of the node with that of its mark.
func (c *recovery) boot(n kamino.Node, mark *kamino.Mark) bootSight {
	switch {
	case mark == nil && n.UID == "", mark != nil && mark.BootID == "" && n.BootID == "":
		return bootUnknown
	case mark != nil && n.BootID == mark.BootID:
		return bootMarked
	case c.offSeen && n.BootID != c.bootThen:
		return bootFresh
	case mark == nil || mark.BootID == "": // then nothing shows a new boot
		return bootUnmarked
	}
	return bootOther
}

// alive watches the kubelet's pulse. It is true once the pulse has moved after settleTime: a seal
// that has just begun lets the kubelet report once more, so an earlier pulse does not count.
func (c *recovery) alive(ready bool, pulse time.Time, spent time.Duration) bool {
	if spent <= settleTime {
		return false
	}
	if c.firstPulse.IsZero() {
		c.firstPulse = pulse
	}
	return ready && pulse.After(c.firstPulse)
}

// bootSight is the result of comparing the boot ID of a donor's node with the one in its mark.
type bootSight int

const (
	bootMarked   bootSight = iota // the same: Kubernetes shows the node as it was before the run changed it
	bootFresh                     // another than the mark's, and another than when the machine was seen off
	bootOther                     // another than the mark's
	bootUnmarked                  // the mark has no boot ID, as where only the taint is left, or there is no mark
	bootUnknown                   // neither mark nor node has a boot ID, as where Kubernetes forgot the node
)

// recoveryObservation is what a restore observes of a donor that may have been sealed or switched
// off.
type recoveryObservation struct {
	power   kamino.Power
	ready   bool // its node is Ready, and runs on this machine
	boot    bootSight
	started bool // it was seen off, or this run started it: only the boot is missing
	sealed  bool // there is a receipt of the run, or a seal pod ran: the disk may be sealed
}

// recoveryAction is what a restore does next to bring a donor back.
type recoveryAction int

const (
	backNow       recoveryAction = iota // nothing: the donor is back
	switchOn                            // start the machine
	awaitPower                          // wait until it is on or off
	awaitBoot                           // wait for the node to show another boot
	awaitReady                          // wait for the node to be Ready
	hearNode                            // the donor is back once its kubelet reports: Ready may be old
	hearKubelet                         // the donor never went off, if its kubelet reports for longer than during a seal
	switchOffSoon                       // sealed and hanging: switch it off after two minutes, because the next boot repairs the disk
	switchOffLate                       // the same after a silence longer than any boot, if nobody knows what was sealed
)

// backRow is a row of the table; an empty field matches anything.
type backRow struct {
	power   []kamino.Power
	ready   []bool
	boot    []bootSight
	started []bool
	sealed  []bool
	what    recoveryAction
}

func is[T any](values ...T) []T { return values }

// waysBack is the table of actions. Exactly one row matches each observation. A start is waited for
// and never interrupted, because a slow boot would be ended again and again.
var waysBack = []backRow{
	{power: is(kamino.PowerOff), what: switchOn},
	{power: is(kamino.PowerBetween), what: awaitPower},

	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootFresh), what: backNow},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootOther, bootUnmarked), what: hearNode},
	// The node shows the old boot: the machine was just started, or never went off, or is still
	// switching off.
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(true), what: awaitBoot},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(false),
		sealed: is(false), what: hearKubelet},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootMarked), started: is(false), sealed: is(true), what: switchOffSoon},
	{power: is(kamino.PowerOn), ready: is(true), boot: is(bootUnknown), started: is(false), sealed: is(true), what: switchOffLate},

	{power: is(kamino.PowerOn), ready: is(false), started: is(true), what: awaitReady},
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootFresh, bootOther), started: is(false), what: awaitReady},
	// It was not seen to boot, and may hang half sealed: then only its next boot repairs the disk.
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootMarked), started: is(false), what: switchOffSoon},
	{power: is(kamino.PowerOn), ready: is(false), boot: is(bootUnmarked, bootUnknown), started: is(false), what: switchOffLate},
}

// decide returns the action of the matching row. It is a pure function.
func (s recoveryObservation) decide() recoveryAction {
	for _, row := range waysBack {
		if row.fits(s) {
			return row.what
		}
	}
	return awaitReady // a test shows that this is never reached
}

func (row backRow) fits(s recoveryObservation) bool {
	return anyOr(row.power, s.power) && anyOr(row.ready, s.ready) && anyOr(row.boot, s.boot) &&
		anyOr(row.started, s.started) && anyOr(row.sealed, s.sealed)
}

func anyOr[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// lookStart brings the donor's machine and node back. It is done when the node is Ready in a boot
// that began after the mark was written, or when the donor never went off.
func (d *donor) lookStart(ctx context.Context) (workflow.Next, error) {
	mark, gone, err := d.donorMark(ctx)
	if err != nil || gone != "" {
		return workflow.Done(gone), err
	}
	if d.node.FailedPatch(d.held.Run) { // it stays blocked, and need not be Ready
		return d.lookPower(ctx, d.node.Name, d.instance)
	}
	if !d.touched(mark) {
		return workflow.Done("the machine was not switched off"), nil
	}
	if d.node.UID != "" && !d.node.RunsOn(d.instance.ID) {
		// Another machine has the node's name, so no node shows when the donor is back.
		return d.lookPower(ctx, d.node.Name, d.instance)
	}
	if why, err := d.stranger(ctx, d.node.Name, d.instance.ID); err != nil || why != "" {
		return d.leftOff(why), err
	}
	in, err := d.asShown(ctx, d.instance.ID)
	if errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible) && d.back.poolGone {
		return d.lookMissing(ctx, d.instance.ID)
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read instance %s: %w", d.instance.ID, err)
	}
	d.back.missing = missing{}
	if in = in.WithVM(d.instance.VMID); replaced(in, d.instance.VMID) {
		return workflow.Done("the donor is gone: its instance was replaced"), nil
	}
	in = d.sawShown(in)
	d.back.sawPower(in.Power, d.node)
	return d.comeBack(ctx, in, d.sight(mark, in).decide())
}

// sight returns the observation of the donor. started: the machine was seen off, or the run started
// it, so only the boot is missing.
func (d *donor) sight(mark *kamino.Mark, in kamino.Instance) recoveryObservation {
	n := d.node
	receipt, receipted := n.Receipt()
	// A seal that reports why it failed has restored everything and started the kubelet again, or
	// is switching the machine off. The kubelet, or its silence, shows which.
	began := d.back.sealStarted && n.SealFailure(d.held.Run) == ""
	return recoveryObservation{
		power: in.Power, ready: n.Ready && kamino.SameVM(n.SystemUUID, in.VMID), boot: d.back.boot(n, mark),
		started: d.back.offSeen || d.held.Mine() && d.held.Lease.Record.Intends(kamino.ActPowerOn),
		sealed:  receipted && receipt.Run == d.held.Run || began,
	}
}

// comeBack does the action, at its time.
func (d *donor) comeBack(ctx context.Context, in kamino.Instance, what recoveryAction) (workflow.Next, error) {
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
		return workflow.Act(kamino.ActPowerOn, why,
			func(ctx context.Context) error { return d.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOn) }).
			Then("the machine to start", 0), nil
	case awaitBoot:
		return workflow.Wait("the node to boot"), nil
	case hearNode:
		return d.lookAlive(ctx, "the node is Ready", "a heartbeat of the node")
	case hearKubelet:
		return d.lookAlive(ctx, "the donor was never off", "a heartbeat of the kubelet")
	case switchOffSoon:
		if d.runner.Spent() < d.silence(2*guestHalt) {
			return workflow.Wait("the sealed machine to switch off"), nil
		}
		return d.switchOff(in), nil
	case switchOffLate:
		if d.runner.Spent() >= longSilence {
			return d.switchOff(in), nil
		}
	}
	return workflow.Wait("the node to be Ready"), nil
}

func (d *donor) switchOff(in kamino.Instance) workflow.Next {
	return workflow.Act(kamino.ActPowerOff, "switch the machine off, so that its first boot can repair the sealed disk",
		func(ctx context.Context) error {
			return d.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOff)
		})
}

func (d *donor) lookAlive(ctx context.Context, fine, why string) (workflow.Next, error) {
	n := d.node
	pulse, err := d.engine.Cluster.Pulse(ctx, n)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the heartbeat of node %s: %w", n.Name, err)
	}
	if d.back.alive(n.Ready, pulse, d.runner.Spent()) {
		return workflow.Done(fine), nil
	}
	return workflow.Wait(why), nil
}

// donorMark reads the donor's node and its mark. If the node is gone, or another machine has its
// name, only the record on the lease is left.
func (d *donor) donorMark(ctx context.Context) (mark *kamino.Mark, gone string, err error) {
	n, err := d.rereadNode(ctx)
	if errors.Is(err, kamino.ErrNotFound) {
		d.node = kamino.Node{Name: d.node.Name}
		return nil, "", nil
	} else if err != nil {
		return nil, "", fmt.Errorf("read node %s: %w", d.node.Name, err)
	}
	if mark, err = n.Claimed(d.pool.ID); err != nil {
		return nil, "", err
	}
	if mark != nil && mark.Run != d.held.Run && d.held.Mine() && d.held.Lease.Knows(mark.Run) {
		mark = nil // of a run that has ended: Kubernetes went back in time, and the next run takes it off
	}
	if mark != nil && mark.Run != d.held.Run {
		return nil, fmt.Sprintf("the node belongs to run %s now", mark.Run), nil
	}
	if mark != nil {
		d.back.work = mark.Work
	}
	d.sawNode(n)
	return mark, "", nil
}

// longSilence is longer than any donor needs to boot and report.
const longSilence = 10 * time.Minute

// touched reports whether the donor may have been sealed or switched off, by its mark or by the
// lease. Kubernetes may have forgotten the node, or may show its mark from a backup of etcd.
func (d *donor) touched(mark *kamino.Mark) bool {
	return d.back.forgotten || mark != nil && mark.Sealing || d.held.Mine() && d.held.Lease.Record.Sealing
}

const startTheMachine = "start the machine"

// lookUnmark removes the run's marks from the node, and the seal pod. build is the act that follows,
// in words for people; "" none.
func (d *donor) lookUnmark(ctx context.Context, build string) (workflow.Next, error) {
	if d.away.to.IsZero() {
		d.away.to = d.engine.now()
	}
	n, err := d.rereadNode(ctx)
	if errors.Is(err, kamino.ErrNotFound) {
		return workflow.Done("the node is gone"), nil
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read node %s: %w", d.node.Name, err)
	}
	mark, err := n.Claimed(d.pool.ID)
	if err != nil {
		return workflow.Next{}, err
	}
	d.node = n
	if mark != nil && mark.Run == d.held.Run {
		off := workflow.Act(kamino.ActUnmark, "remove the block and the protection",
			func(ctx context.Context) error { return d.takeOff(ctx, n) }).Announcing(kamino.ActUnseal, deleteTheSealPod)
		if build != "" {
			off = off.Announcing(kamino.ActCreateVersion, build)
		}
		return off.Noting(d.held.IfOwn(func(l *kamino.Lease) {
			l.Record.Sealing, l.Record.Held, l.Record.AwayEnds = false, false, d.away.to.UTC()
			l.Ledger.Empty = l.Ledger.Empty && build == ""
		})), nil
	}
	if d.back.unsealed {
		return workflow.Done("as it was before"), nil
	}
	return d.lookUnseal(ctx)
}

// takeOff removes the marks once no pod can seal the node's disk any more. ErrInProgress: a pod is
// still there.
func (d *donor) takeOff(ctx context.Context, n kamino.Node) error {
	if !d.back.removed { // otherwise it was done in an earlier act, which had to end
		if err := d.removeAgents(ctx); err != nil {
			return err
		}
	}
	d.back.removed = d.held.LeaseAge() >= kamino.LookAge
	if next, err := d.lookUnseal(ctx); err != nil {
		return err
	} else if next.Kind != workflow.NextDone {
		return fmt.Errorf("the seal pod of run %s is still there: %w", d.held.Run, kamino.ErrInProgress)
	}
	if d.held.LeaseAge() >= kamino.SlowWrite {
		return fmt.Errorf("the lease was written %s ago: %w", d.held.LeaseAge().Round(time.Second), kamino.ErrInProgress)
	}
	d.back.unsealed = true
	return d.engine.Cluster.Unmark(ctx, n)
}

// lookPower starts a donor's machine where no node shows when it is back. The record of the machine
// is a claim here too: a machine of another node or pool is not touched.
func (d *donor) lookPower(ctx context.Context, donor string, was kamino.Instance) (workflow.Next, error) {
	in, err := d.engine.Provider.Instance(ctx, was.ID)
	if errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible) && d.back.poolGone {
		return d.lookMissing(ctx, was.ID)
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("read instance %s: %w", was.ID, err)
	}
	d.back.missing = missing{}
	switch {
	case !kamino.SameVM(in.WithVM(was.VMID).VMID, was.VMID):
		return workflow.Done("it was replaced"), nil
	case in.Power == kamino.PowerOn:
		return workflow.Done("it runs"), nil
	}
	if why, err := d.stranger(ctx, donor, in.ID); err != nil || why != "" {
		return d.leftOff(why), err
	}
	if in.Power == kamino.PowerBetween {
		return workflow.Wait("the machine to start or to stop"), nil
	}
	return workflow.Act(kamino.ActPowerOn, startTheMachine+", which was switched off", func(ctx context.Context) error {
		return d.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOn)
	}).Then("the machine to start", 0), nil
}

// leftOff is done without a change to a machine that is not the donor's.
func (d *donor) leftOff(why string) workflow.Next {
	if why == "" {
		return workflow.Next{}
	}
	d.held.Warn(why + ": nothing was done to it")
	return workflow.Done("nothing was done to the machine: " + why)
}

// silence is how long a machine that should switch off is left alone. A machine that restarts needs
// time to boot.
func (d *donor) silence(usual time.Duration) time.Duration {
	if d.patching() {
		return longSilence
	}
	return usual
}

// patching reports whether the run patches its node, or restores a node of a run that did.
func (d *donor) patching() bool {
	return d.back.work == kamino.WorkPatch || d.held.Mine() && d.held.Lease.Record.Work == kamino.WorkPatch
}
