package kamino

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// powerCycle is how far the power cycle of a node has come.
type powerCycle string

// The stages. The second is never followed by the first: a machine is switched off once.
const (
	cycleOff powerCycle = "off" // it is switched off
	cycleOn  powerCycle = "on"  // it was off, and is started
)

// patching is what a run knows of the node that it patches.
type patching struct {
	PatchedNode
	good  time.Time // since when it is in order
	asked string    // boot for which a look was asked
	stamp time.Time // when it was patched
	boots bool      // its restart was announced, when the step had worked for as long as from
	from  time.Duration
}

// examineLimit is how long a patched node is given to be in order, from when it is Ready.
const examineLimit = 10 * time.Minute

func (r *Run) patcher() Patcher { return r.engine.Cluster.(Patcher) }

// patchOrder is what a pod of the run is told.
func (r *Run) patchOrder(task Task, boot string) SealOrder {
	o := r.opts.Patch
	policy := map[string]any{"manager": o.Manager, "scope": o.Scope, "held": o.Held, "phased": o.Phased, "release": o.Release,
		"seconds": int(o.Within.Seconds()), "roomMiB": o.RoomMiB}
	switch task {
	case TaskCheck:
		policy["task"] = string(task)
	case TaskReboot, TaskLook:
		policy = map[string]any{"task": string(task), "boot": boot}
	}
	order := r.sealOrder()
	order.Policy = nil
	order.Patch, _ = json.Marshal(policy) // texts and numbers
	return order
}

// lookChoose makes sure, under the lock, that the pool can do without the node.
func (r *Run) lookChoose(ctx context.Context) (Next, error) {
	if mark, err := r.donor.node.claim(r.pool.ID); mark != nil || err != nil {
		return done("chosen earlier"), nil // by the process that had the run before
	}
	nodes, err := r.engine.nodesOf(ctx, r.pool.ID)
	if err != nil {
		return Next{}, err
	}
	others := 0
	for _, n := range nodes {
		if n.Name != r.donor.node.Name && n.serves() {
			others++
		}
	}
	if others == 0 {
		return Next{}, refusePatch(r.donor.node.Name, "last-ready", "it is the last node of pool "+r.pool.Name+" that serves pods", "ask for another node first")
	}
	daemons, err := r.patcher().Daemons(ctx, r.donor.node)
	if err != nil {
		return Next{}, fmt.Errorf("read the DaemonSets' pods of node %s: %w", r.donor.node.Name, err)
	}
	if bad := unreadyDaemons(daemons); bad != "" {
		return Next{}, refusePatch(r.donor.node.Name, "daemonsets", bad, "fix that first, or choose another node: otherwise it would be unclear whether the patch was to blame")
	}
	return r.rehearse(ctx, r.patchOrder(TaskPatch, ""))
}

func unreadyDaemons(list []DaemonPod) string {
	for _, d := range list {
		if !d.Ready {
			return fmt.Sprintf("the pod of DaemonSet %s is not Ready%s", d.Set, inBrackets(d.Reason))
		}
	}
	return ""
}

func refusePatch(node, code, why, do string) error {
	return &RefusedError{Subject: "node " + node, Refusals: []Refusal{{Code: code, Why: why, Do: do}}}
}

const upgradeThePackages = "upgrade the packages of the node"

// lookPatch waits for the node's answer. The work outlives its pod; another pod finds it again.
func (r *Run) lookPatch(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if mark == nil {
		return Next{}, r.lostMark()
	}
	if report := n.patchAnswer(AnnotationPatch, r.held.run, r.held.lease.Record.Nonce); report != nil {
		r.empty.patch.Report = report
		if report.Failure != "" {
			err := WithHint(fmt.Errorf("the packages of node %s were not upgraded: %s; the last lines:\n%s", n.Name, report.Failure, report.Last),
				"journalctl -u kamino-patch-%s on the node has the rest", r.held.run)
			return r.untouched(n, mark, len(report.Changed) == 0, err)
		}
		return done(report.summary()), nil
	}
	switch {
	case mark.Sealing:
		return Next{}, fmt.Errorf("node %s is being restarted, and its answer is gone: somebody removed annotation %s", n.Name, AnnotationPatch)
	case n.BootID != mark.BootID:
		return Next{}, fmt.Errorf("node %s has booted while its packages were upgraded: somebody else restarted it", n.Name)
	case !n.Tainted(TaintBlock):
		return r.remark(ActBlock, "block the node again with taint "+TaintBlock, n, mark, func(m *Mark) { m.Block = true })
	}
	pod, err := r.agentPod(ctx, n, TaskPatch)
	never := pod.Refused || pod.Failed && !pod.Started && !pod.Ousted // it did nothing, and will not
	switch {
	case err != nil:
		return Next{}, fmt.Errorf("read the pod that patches: %w", err)
	case !mark.Begun && !never:
		next, err := r.remark(ActPatching, "record on the node that its packages are about to be upgraded", n, mark, func(m *Mark) { m.Begun = true })
		return next.announcing(ActPatch, upgradeThePackages), err
	case !pod.Exists:
		return act(ActPatch, upgradeThePackages, func(ctx context.Context) error {
			return r.engine.Cluster.StartAgent(ctx, n, TaskPatch, r.patchOrder(TaskPatch, ""))
		}).then("the package manager", 0), nil
	case pod.Refused:
		return r.untouched(n, mark, true, &RefusedError{Subject: "node " + n.Name, Refusals: []Refusal{{Code: "patch", Why: pod.Message, Do: "follow the message on the node, or choose another one"}}})
	case pod.Ousted || pod.Done:
		// The runtime was restarted under it, or its answer removed: another one finds the unit.
		return r.removePods("remove the pod that ended, so that another one continues its work"), nil
	case pod.Failed:
		return r.untouched(n, mark, never, fmt.Errorf("the packages of node %s were not upgraded: %s", n.Name, pod.Message))
	}
	return wait("the package manager; the pod is " + pod.Message), nil
}

// untouched ends a patch with an error; where no package was changed, the node need not stay
// blocked.
func (r *Run) untouched(n Node, mark *Mark, sure bool, err error) (Next, error) {
	if !sure || mark == nil || !mark.Begun {
		return Next{}, err
	}
	return r.remark(ActPatching, "record on the node that no package was changed", n, mark, func(m *Mark) { m.Begun = false })
}

// lookBegun keeps a node blocked of whose patch nobody has seen a good end, before the marks are
// taken off it. Where only the taint is left of the mark, nobody knows how far the patch came.
func (r *Run) lookBegun(ctx context.Context) (Next, error) {
	mark, gone, err := r.donorMark(ctx)
	if err != nil || gone != "" {
		return done(gone), err
	}
	n := r.donor.node
	switch lost := n.Annotations[AnnotationRun] == ""; {
	case mark == nil, !mark.Begun && !lost:
		return done("it is as it was, or healthy"), nil
	case !SameVM(n.SystemUUID, r.donor.instance.VMID):
		return done("another machine has its name"), nil
	case n.failedPatch(r.held.run):
		r.empty.patch.Blocked = true
		r.held.warn(fmt.Sprintf("node %s stays blocked: its packages may have been changed, and it was not examined; kamino patch --target-node %s continues", n.Name, n.Name))
		return done("it stays blocked"), nil
	}
	why := "its patch was interrupted"
	if rec := r.held.lease.Record; r.held.mine() && rec.Failure != "" {
		why = rec.Failure
	}
	return r.blocking(n, why), nil
}

func (r *Run) removePods(what string) Next {
	return act(ActUnseal, what, r.removeAgents)
}

// wantsReboot: what was upgraded, or the user, asks for it.
func (r *Run) wantsReboot() bool {
	switch r.opts.Patch.Reboot {
	case RebootAlways:
		return true
	case RebootNever:
		return false
	}
	return r.empty.patch.Report != nil && len(r.empty.patch.Report.Reboot) > 0
}

// lookReboot restarts the node once and waits for its next boot. The order names the boot that it
// ends, so that no machine is restarted twice for it.
func (r *Run) lookReboot(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	switch {
	case err != nil:
		return Next{}, err
	case !r.wantsReboot():
		return done("not needed"), nil
	case mark == nil:
		return Next{}, r.lostMark()
	case n.BootID != mark.BootID && n.Ready:
		r.empty.patch.Restarted = true
		return done("boot " + n.BootID), nil
	case !mark.Sealing:
		next, err := r.remark(ActRestarting, "record on the node that it is about to be restarted", n, mark, func(m *Mark) { m.Sealing = true })
		return next.announcing(ActRestart, "restart the node").noting(func(l *Lease) {
			l.Record.Sealing, l.Record.AwaySince, l.Record.AwayEnds = true, r.engine.date(), time.Time{}
		}), err
	}
	cycled := r.held.lease.Record.Cycled
	if r.booting() > r.opts.Patch.Return || cycled != "" {
		return r.cycle(ctx, n, cycled)
	}
	pod, err := r.agentPod(ctx, n, TaskReboot)
	if err != nil {
		return Next{}, fmt.Errorf("read the pod that restarts the node: %w", err)
	}
	if !pod.Exists && n.BootID == mark.BootID {
		return act(ActRestart, "restart the node", func(ctx context.Context) error {
			return r.engine.Cluster.StartAgent(ctx, n, TaskReboot, r.patchOrder(TaskReboot, mark.BootID))
		}).then("the node to boot", 0), nil
	}
	return wait("the node to be Ready in another boot"), nil
}

// booting is for how long the restart of the node has been under way, without the time in which a
// service asked to be left alone.
func (r *Run) booting() time.Duration {
	p := &r.empty.patch
	if !p.boots {
		p.boots, p.from = true, r.runner.Worked()
	}
	return r.runner.Worked() - p.from
}

// cycle switches a machine that did not boot off and on again, once, and gives it up when that does
// not help.
func (r *Run) cycle(ctx context.Context, n Node, stage powerCycle) (Next, error) {
	if r.booting() > 2*r.opts.Patch.Return {
		return r.keepBlocked(n, fmt.Sprintf("not Ready in another boot within %s, nor after a power cycle", r.opts.Patch.Return))
	}
	in, err := r.donor.readInstance(ctx)
	if err != nil {
		return Next{}, err
	}
	if in.Power == PowerOn && stage != cycleOn {
		if err := r.refuseServed(ctx); err != nil {
			return Next{}, err
		}
		var local *RefusedError // a reboot keeps a local volume, a stop destroys it
		if _, err := r.engine.Cluster.Preview(ctx, n, r.opts.drainOptions()); errors.As(err, &local) {
			return r.keepBlocked(n, fmt.Sprintf("not Ready within %s, and not switched off: %v", r.opts.Patch.Return, err))
		} else if err != nil {
			return Next{}, fmt.Errorf("look for local volumes of node %s: %w", n.Name, err)
		}
	}
	r.empty.patch.Cycled = true
	switch {
	case in.Power == PowerBetween:
		return wait("the machine to start or to stop"), nil
	case in.Power == PowerOff:
		return act(ActPowerOn, startTheMachine+" after its power cycle", func(ctx context.Context) error {
			return r.engine.Provider.SetPower(ctx, in.ID, PowerOn)
		}).then("the machine to start", 0).noting(func(l *Lease) { l.Record.Cycled = cycleOn }), nil
	case stage == cycleOn:
		return wait("the node to be Ready after its power cycle"), nil
	}
	if stage == "" {
		r.held.warn(fmt.Sprintf("node %s did not come back within %s: switching its machine off and on", n.Name, r.opts.Patch.Return))
	}
	return act(ActPowerOff, "switch off the machine, which did not boot within "+r.opts.Patch.Return.String(), func(ctx context.Context) error {
		return r.engine.Provider.SetPower(ctx, in.ID, PowerOff)
	}).noting(func(l *Lease) { l.Record.Cycled = cycleOff }), nil
}

// keepBlocked writes on a node that it is not in order, before the run gives back the rest.
func (r *Run) keepBlocked(n Node, why string) (Next, error) {
	if n.failedPatch(r.held.run) {
		r.empty.patch.Blocked = true
		return Next{}, WithHint(fmt.Errorf("node %s is not healthy after its patch and stays blocked: %s", n.Name, why),
			"check the node; if it is healthy: kubectl taint node %s %s- ; if not, delete its machine", n.Name, TaintPatchFailed)
	}
	return r.blocking(n, why), nil
}

func (r *Run) blocking(n Node, why string) Next {
	return act(ActKeepBlocked, "keep the node blocked: "+why, func(ctx context.Context) error {
		r.warn(ctx, n, EventPatchFailed, why, nil)
		return r.patcher().KeepBlocked(ctx, n, PatchFailure{Run: r.held.run, Reason: cutText(why, 500), At: r.engine.date()})
	})
}

// lookPatched examines the node until it was in order for long enough, or for too long was not.
func (r *Run) lookPatched(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if mark == nil {
		return Next{}, r.lostMark()
	}
	why, next, err := r.examinePatched(ctx, n)
	late := n.failedPatch(r.held.run) || r.runner.Worked() > examineLimit+r.opts.Patch.Settle
	if err != nil || next.kind == nextAct && !late {
		return next, err
	}
	p, now := &r.empty.patch, r.engine.now()
	if why == "" {
		if p.good.IsZero() {
			p.good = now
		}
		if left := r.opts.Patch.Settle - now.Sub(p.good); left > 0 {
			return waitFor("the node to stay healthy", left), nil
		}
		return done("healthy"), nil
	}
	p.good = time.Time{}
	if late {
		return r.keepBlocked(n, why)
	}
	return wait(why), nil
}

// examinePatched is one look; why is what is not in order.
func (r *Run) examinePatched(ctx context.Context, n Node) (why string, next Next, err error) {
	if !n.Ready {
		return "the node is not Ready", next, nil
	}
	daemons, err := r.patcher().Daemons(ctx, n)
	if err != nil {
		return "", next, fmt.Errorf("read the DaemonSets' pods of node %s: %w", n.Name, err)
	}
	if bad := unreadyDaemons(daemons); bad != "" {
		return bad, next, nil
	}
	look := n.patchAnswer(AnnotationPatchLook, r.held.run, r.held.lease.Record.Nonce)
	if look == nil || look.Boot != n.BootID {
		return r.askLook(ctx, n)
	}
	for _, unit := range look.FailedUnits {
		if r.empty.patch.Report == nil || !slices.Contains(r.empty.patch.Report.FailedUnits, unit) {
			return "unit " + unit + " failed", next, nil
		}
	}
	if r.opts.Patch.Reboot != RebootNever && len(look.Reboot) > 0 {
		return "the node still asks for a reboot: " + strings.Join(look.Reboot, "; "), next, nil
	}
	unknown := "node " + n.Name + " has no kernel in /boot: cannot check whether it runs the newest one"
	if p := &r.empty.patch; look.Newest == "" && !slices.Contains(p.Warnings, unknown) {
		p.Warnings = append(p.Warnings, unknown)
		r.held.warn(unknown)
	}
	return "", next, nil
}

// askLook lets the agent tell how the node stands in its present boot.
func (r *Run) askLook(ctx context.Context, n Node) (why string, next Next, err error) {
	pod, err := r.agentPod(ctx, n, TaskLook)
	switch {
	case err != nil:
		return "", next, fmt.Errorf("read the pod that examines the node: %w", err)
	case !pod.Exists:
		return "no pod has reported the state of the node", act(ActLook, "examine the node's units and kernel", func(ctx context.Context) error {
			r.empty.patch.asked = n.BootID
			return r.engine.Cluster.StartAgent(ctx, n, TaskLook, r.patchOrder(TaskLook, ""))
		}).then("the examination of the node", 0), nil
	case pod.Done || pod.Failed || r.empty.patch.asked != n.BootID:
		return "no pod has reported the state of the node: the last one is " + pod.Message, r.removePods("remove the pod that examined the node, to examine it again"), nil
	}
	return "the examination of the node; its pod is " + pod.Message, next, nil
}

// lookSign writes when the node was patched. One on which nothing changed keeps its former time, so
// that no image is made for nothing.
func (r *Run) lookSign(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if mark == nil {
		return Next{}, r.lostMark()
	}
	p := &r.empty.patch
	if p.stamp.IsZero() {
		p.stamp = r.engine.date()
		at, err := time.Parse(PatchedFormat, n.Labels[LabelPatched])
		if report := p.Report; err == nil && !p.Restarted && report != nil && len(report.Changed) == 0 {
			p.stamp = at
		}
	}
	p.Signed = p.stamp.UTC().Format(PatchedFormat)
	if n.Labels[LabelPatched] == p.Signed && !mark.Begun && n.Annotations[AnnotationPatchFailed] == "" && !n.Tainted(TaintPatchFailed) {
		return done("patched at " + p.Signed), nil
	}
	if look := n.patchAnswer(AnnotationPatchLook, r.held.run, r.held.lease.Record.Nonce); look == nil || look.Boot != n.BootID {
		if next, err := r.lookPatched(ctx); err != nil || next.kind != nextDone {
			return next, err // it has booted since
		}
	}
	return act(ActSign, "record on the node that it was patched", func(ctx context.Context) error {
		return r.patcher().Sign(ctx, n, p.stamp)
	}), nil
}

// silence is how long a machine that should go off is left alone; one that restarts has to boot.
func (r *Run) silence(usual time.Duration) time.Duration {
	if r.patching() {
		return longSilence
	}
	return usual
}

// patching says whether the run patches its node, or gives back one of a run that did.
func (r *Run) patching() bool {
	return r.back.work == WorkPatch || r.held.mine() && r.held.lease.Record.Work == WorkPatch
}
