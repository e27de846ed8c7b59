package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// PatchedNode is the result for one node.
type PatchedNode struct {
	Node      string              `json:"node"`
	Run       string              `json:"run,omitempty"`
	Report    *kamino.PatchReport `json:"report,omitempty"`
	Restarted bool                `json:"restarted"`
	Cycled    bool                `json:"powerCycled,omitempty"`
	Signed    string              `json:"signed,omitempty"`  // the patch time on the node's label
	Blocked   bool                `json:"blocked,omitempty"` // it did not come back healthy and stays blocked
	Steps     []kamino.StepTime   `json:"steps,omitempty"`
	Warnings  []string            `json:"warnings,omitempty"`
	Error     string              `json:"error,omitempty"`
	Hints     []string            `json:"hints,omitempty"` // what to do about Error
}

// The stages of a power cycle. A machine is switched off once, so cycleOff never follows cycleOn.
const (
	cycleOff kamino.PowerCycle = "off" // it is being switched off
	cycleOn  kamino.PowerCycle = "on"  // it was off, and is being started
)

// patch is what a run knows of the node that it patches.
type patch struct {
	*common
	donor *donor

	PatchedNode
	good  time.Time // since when it is healthy
	asked string    // boot for which a report was requested
	stamp time.Time // when it was patched
	boots bool      // its restart was announced, at this working time of the step
	from  time.Duration
}

func (p *patch) patcher() kamino.Patcher { return p.engine.Cluster.(kamino.Patcher) }

// patchOrder is the order for a pod of the run.
func (p *patch) patchOrder(task kamino.Task, boot string) kamino.SealOrder {
	o := p.opts.Patch
	policy := map[string]any{"manager": o.Manager, "scope": o.Scope, "held": o.Held, "phased": o.Phased, "release": o.Release,
		"seconds": int(o.Within.Seconds()), "roomMiB": o.RoomMiB}
	switch task {
	case kamino.TaskCheck:
		policy["task"] = string(task)
	case kamino.TaskReboot, kamino.TaskLook:
		policy = map[string]any{"task": string(task), "boot": boot}
	}
	order := p.donor.sealOrder()
	order.Policy = nil
	order.Patch, _ = json.Marshal(policy) // it holds texts and numbers only
	return order
}

const upgradeThePackages = "upgrade the packages of the node"

// lookPatch waits for the node's report. The patch outlives its pod; another pod finds it again.
func (p *patch) lookPatch(ctx context.Context) (workflow.Next, error) {
	n, mark, err := p.donor.readNode(ctx, p.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil {
		return workflow.Next{}, p.donor.lostMark()
	}
	if report := n.PatchAnswer(kamino.AnnotationPatch, p.held.Run, p.held.Lease.Record.Nonce); report != nil {
		p.Report = report
		if report.Failure != "" {
			err := kamino.WithHint(fmt.Errorf("the packages of node %s were not upgraded: %s; the last lines:\n%s", n.Name, report.Failure,
				report.Last),
				"journalctl -u kamino-patch-%s on the node has the rest", p.held.Run)
			return p.untouched(n, mark, len(report.Changed) == 0, err)
		}
		return workflow.Done(report.Summary()), nil
	}
	switch {
	case mark.Sealing:
		return workflow.Next{}, fmt.Errorf("node %s is being restarted, and its report is gone: somebody removed annotation %s", n.Name,
			kamino.AnnotationPatch)
	case n.BootID != mark.BootID:
		return workflow.Next{}, fmt.Errorf("node %s has booted while its packages were upgraded: somebody else restarted it", n.Name)
	case !n.Tainted(kamino.TaintBlock):
		return p.donor.remark(kamino.ActBlock, "block the node again with taint "+kamino.TaintBlock, n, mark,
			func(m *kamino.Mark) { m.Block = true })
	}
	pod, err := p.donor.agentPod(ctx, n, kamino.TaskPatch)
	never := pod.Refused || pod.Failed && !pod.Started && !pod.Ousted // it changed nothing, and will not
	switch {
	case err != nil:
		return workflow.Next{}, fmt.Errorf("read the pod that patches: %w", err)
	case !mark.Begun && !never:
		next, err := p.donor.remark(kamino.ActPatching, "record on the node that its packages are about to be upgraded", n, mark,
			func(m *kamino.Mark) { m.Begun = true })
		return next.Announcing(kamino.ActPatch, upgradeThePackages), err
	case !pod.Exists:
		return workflow.Act(kamino.ActPatch, upgradeThePackages, func(ctx context.Context) error {
			return p.engine.Cluster.StartAgent(ctx, n, kamino.TaskPatch, p.patchOrder(kamino.TaskPatch, ""))
		}).Then("the package manager", 0), nil
	case pod.Refused:
		return p.untouched(n, mark, true, &kamino.RefusedError{Subject: "node " + n.Name,
			Refusals: []kamino.Refusal{{Code: kamino.CodePatch, Why: pod.Message,
				Do: "follow the message on the node, or choose another one"}}})
	case pod.Ousted || pod.Done:
		// The container runtime was restarted under the pod, or its report was removed. Another pod
		// finds the unit.
		return p.donor.removePods("remove the pod that ended, so that another one continues its work"), nil
	case pod.Failed:
		return p.untouched(n, mark, never, fmt.Errorf("the packages of node %s were not upgraded: %s", n.Name, pod.Message))
	}
	return workflow.Wait("the package manager; the pod is " + pod.Message), nil
}

// untouched ends a patch with an error. If no package was changed, the node need not stay blocked.
func (p *patch) untouched(n kamino.Node, mark *kamino.Mark, sure bool, err error) (workflow.Next, error) {
	if !sure || mark == nil || !mark.Begun {
		return workflow.Next{}, err
	}
	return p.donor.remark(kamino.ActPatching, "record on the node that no package was changed", n, mark,
		func(m *kamino.Mark) { m.Begun = false })
}

// lookBegun keeps a node blocked whose patch was not seen to end well, before the marks are
// removed. If only the taint is left of the mark, nobody knows how far the patch got.
func (p *patch) lookBegun(ctx context.Context) (workflow.Next, error) {
	mark, gone, err := p.donor.donorMark(ctx)
	if err != nil || gone != "" {
		return workflow.Done(gone), err
	}
	n := p.donor.node
	switch lost := n.Annotations[kamino.AnnotationRun] == ""; {
	case mark == nil, !mark.Begun && !lost:
		return workflow.Done("it is as it was, or healthy"), nil
	case !kamino.SameVM(n.SystemUUID, p.donor.instance.VMID):
		return workflow.Done("another machine has its name"), nil
	case n.FailedPatch(p.held.Run):
		p.Blocked = true
		p.held.Warn(fmt.Sprintf("node %s stays blocked: its packages may have been changed, and it was not examined; kamino patch --target-node %s continues", n.Name, n.Name))
		return workflow.Done("it stays blocked"), nil
	}
	why := "its patch was interrupted"
	if rec := p.held.Lease.Record; p.held.Mine() && rec.Failure != "" {
		why = rec.Failure
	}
	return p.blocking(n, why), nil
}

// wantsReboot reports whether the upgraded packages or the user require a restart.
func (p *patch) wantsReboot() bool {
	switch p.opts.Patch.Reboot {
	case kamino.RebootAlways:
		return true
	case kamino.RebootNever:
		return false
	}
	return p.Report != nil && len(p.Report.Reboot) > 0
}

// lookReboot restarts the node once and waits for its next boot. The order names the boot that it
// ends, so it restarts no machine twice.
func (p *patch) lookReboot(ctx context.Context) (workflow.Next, error) {
	n, mark, err := p.donor.readNode(ctx, p.held.Run)
	switch {
	case err != nil:
		return workflow.Next{}, err
	case !p.wantsReboot():
		return workflow.Done("not needed"), nil
	case mark == nil:
		return workflow.Next{}, p.donor.lostMark()
	case n.BootID != mark.BootID && n.Ready:
		p.Restarted = true
		return workflow.Done("boot " + n.BootID), nil
	case !mark.Sealing:
		next, err := p.donor.remark(kamino.ActRestarting, "record on the node that it is about to be restarted", n, mark,
			func(m *kamino.Mark) { m.Sealing = true })
		return next.Announcing(kamino.ActRestart, "restart the node").Noting(func(l *kamino.Lease) {
			l.Record.Sealing, l.Record.AwaySince, l.Record.AwayEnds = true, p.engine.date(), time.Time{}
		}), err
	}
	cycled := p.held.Lease.Record.Cycled
	if p.booting() > p.opts.Patch.Return || cycled != "" {
		return p.cycle(ctx, n, cycled)
	}
	pod, err := p.donor.agentPod(ctx, n, kamino.TaskReboot)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the pod that restarts the node: %w", err)
	}
	if !pod.Exists && n.BootID == mark.BootID {
		return workflow.Act(kamino.ActRestart, "restart the node", func(ctx context.Context) error {
			return p.engine.Cluster.StartAgent(ctx, n, kamino.TaskReboot, p.patchOrder(kamino.TaskReboot, mark.BootID))
		}).Then("the node to boot", 0), nil
	}
	return workflow.Wait("the node to be Ready in another boot"), nil
}

// booting returns how long the restart of the node has taken, without the time for which a service
// asked to back off.
func (p *patch) booting() time.Duration {
	if !p.boots {
		p.boots, p.from = true, p.runner.Worked()
	}
	return p.runner.Worked() - p.from
}

// cycle switches a machine that did not boot off and on again, once, and gives up if that does not
// help.
func (p *patch) cycle(ctx context.Context, n kamino.Node, stage kamino.PowerCycle) (workflow.Next, error) {
	if p.booting() > 2*p.opts.Patch.Return {
		return p.keepBlocked(n, fmt.Sprintf("not Ready in another boot within %s, nor after a power cycle", p.opts.Patch.Return))
	}
	in, err := p.donor.readInstance(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power == kamino.PowerOn && stage != cycleOn {
		if err := p.donor.refuseServed(ctx); err != nil {
			return workflow.Next{}, err
		}
		var local *kamino.RefusedError // a reboot keeps a local volume, a stop destroys it
		if _, err := p.engine.Cluster.Preview(ctx, n, p.opts.DrainOptions()); errors.As(err, &local) {
			return p.keepBlocked(n, fmt.Sprintf("not Ready within %s, and not switched off: %v", p.opts.Patch.Return, err))
		} else if err != nil {
			return workflow.Next{}, fmt.Errorf("look for local volumes of node %s: %w", n.Name, err)
		}
	}
	p.Cycled = true
	switch {
	case in.Power == kamino.PowerBetween:
		return workflow.Wait("the machine to start or to stop"), nil
	case in.Power == kamino.PowerOff:
		return workflow.Act(kamino.ActPowerOn, startTheMachine+" after its power cycle", func(ctx context.Context) error {
			return p.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOn)
		}).Then("the machine to start", 0).Noting(func(l *kamino.Lease) { l.Record.Cycled = cycleOn }), nil
	case stage == cycleOn:
		return workflow.Wait("the node to be Ready after its power cycle"), nil
	}
	if stage == "" {
		p.held.Warn(fmt.Sprintf("node %s did not come back within %s: switching its machine off and on", n.Name, p.opts.Patch.Return))
	}
	return workflow.Act(kamino.ActPowerOff, "switch off the machine, which did not boot within "+p.opts.Patch.Return.String(),
		func(ctx context.Context) error {
			return p.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOff)
		}).Noting(func(l *kamino.Lease) { l.Record.Cycled = cycleOff }), nil
}

// keepBlocked marks a node as unhealthy, before the run restores the rest.
func (p *patch) keepBlocked(n kamino.Node, why string) (workflow.Next, error) {
	if n.FailedPatch(p.held.Run) {
		p.Blocked = true
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("node %s is not healthy after its patch and stays blocked: %s", n.Name, why),
			"check the node; if it is healthy: kubectl taint node %s %s- ; if not, delete its machine", n.Name, kamino.TaintPatchFailed)
	}
	return p.blocking(n, why), nil
}

func (p *patch) blocking(n kamino.Node, why string) workflow.Next {
	return workflow.Act(kamino.ActKeepBlocked, "keep the node blocked: "+why, func(ctx context.Context) error {
		p.warn(ctx, n, kamino.EventPatchFailed, why, nil)
		return p.patcher().KeepBlocked(ctx, n, kamino.PatchFailure{Run: p.held.Run, Reason: kamino.CutText(why, 500), At: p.engine.date()})
	})
}

// lookPatched examines the node until it was healthy for long enough, or was not healthy for too
// long.
func (p *patch) lookPatched(ctx context.Context) (workflow.Next, error) {
	n, mark, err := p.donor.readNode(ctx, p.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil {
		return workflow.Next{}, p.donor.lostMark()
	}
	why, next, err := p.examinePatched(ctx, n)
	late := n.FailedPatch(p.held.Run) || p.runner.Worked() > examineLimit+p.opts.Patch.Settle
	if err != nil || next.Kind == workflow.NextAct && !late {
		return next, err
	}
	now := p.engine.now()
	if why == "" {
		if p.good.IsZero() {
			p.good = now
		}
		if left := p.opts.Patch.Settle - now.Sub(p.good); left > 0 {
			return workflow.WaitFor("the node to stay healthy", left), nil
		}
		return workflow.Done("healthy"), nil
	}
	p.good = time.Time{}
	if late {
		return p.keepBlocked(n, why)
	}
	return workflow.Wait(why), nil
}

// examinePatched makes one examination; why is what is not healthy.
func (p *patch) examinePatched(ctx context.Context, n kamino.Node) (why string, next workflow.Next, err error) {
	if !n.Ready {
		return "the node is not Ready", next, nil
	}
	daemons, err := p.patcher().Daemons(ctx, n)
	if err != nil {
		return "", next, fmt.Errorf("read the DaemonSets' pods of node %s: %w", n.Name, err)
	}
	if bad := unreadyDaemons(daemons); bad != "" {
		return bad, next, nil
	}
	look := n.PatchAnswer(kamino.AnnotationPatchLook, p.held.Run, p.held.Lease.Record.Nonce)
	if look == nil || look.Boot != n.BootID {
		return p.askLook(ctx, n)
	}
	for _, unit := range look.FailedUnits {
		if p.Report == nil || !slices.Contains(p.Report.FailedUnits, unit) {
			return "unit " + unit + " failed", next, nil
		}
	}
	if p.opts.Patch.Reboot != kamino.RebootNever && len(look.Reboot) > 0 {
		return "the node still asks for a reboot: " + strings.Join(look.Reboot, "; "), next, nil
	}
	unknown := "node " + n.Name + " has no kernel in /boot: cannot check whether it runs the newest one"
	if look.Newest == "" && !slices.Contains(p.Warnings, unknown) {
		p.Warnings = append(p.Warnings, unknown)
		p.held.Warn(unknown)
	}
	return "", next, nil
}

// askLook lets the agent report the state of the node in its present boot.
func (p *patch) askLook(ctx context.Context, n kamino.Node) (why string, next workflow.Next, err error) {
	pod, err := p.donor.agentPod(ctx, n, kamino.TaskLook)
	switch {
	case err != nil:
		return "", next, fmt.Errorf("read the pod that examines the node: %w", err)
	case !pod.Exists:
		return "no pod has reported the state of the node", workflow.Act(kamino.ActLook, "examine the node's units and kernel",
			func(ctx context.Context) error {
				p.asked = n.BootID
				return p.engine.Cluster.StartAgent(ctx, n, kamino.TaskLook, p.patchOrder(kamino.TaskLook, ""))
			}).Then("the examination of the node", 0), nil
	case pod.Done || pod.Failed || p.asked != n.BootID:
		return "no pod has reported the state of the node: the last one is " + pod.Message,
			p.donor.removePods("remove the pod that examined the node, to examine it again"), nil
	}
	return "the examination of the node; its pod is " + pod.Message, next, nil
}

// lookSign records when the node was patched. A node on which nothing changed keeps its former
// time, so that no image is made without a reason.
func (p *patch) lookSign(ctx context.Context) (workflow.Next, error) {
	n, mark, err := p.donor.readNode(ctx, p.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil {
		return workflow.Next{}, p.donor.lostMark()
	}
	if p.stamp.IsZero() {
		p.stamp = p.engine.date()
		at, err := time.Parse(kamino.PatchedFormat, n.Labels[kamino.LabelPatched])
		if report := p.Report; err == nil && !p.Restarted && report != nil && len(report.Changed) == 0 {
			p.stamp = at
		}
	}
	p.Signed = p.stamp.UTC().Format(kamino.PatchedFormat)
	if n.Labels[kamino.LabelPatched] == p.Signed && !mark.Begun && n.Annotations[kamino.AnnotationPatchFailed] == "" &&
		!n.Tainted(kamino.TaintPatchFailed) {
		return workflow.Done("patched at " + p.Signed), nil
	}
	if look := n.PatchAnswer(kamino.AnnotationPatchLook, p.held.Run, p.held.Lease.Record.Nonce); look == nil || look.Boot != n.BootID {
		if next, err := p.lookPatched(ctx); err != nil || next.Kind != workflow.NextDone {
			return next, err // it has booted since
		}
	}
	return workflow.Act(kamino.ActSign, "record on the node that it was patched", func(ctx context.Context) error {
		return p.patcher().Sign(ctx, n, p.stamp)
	}), nil
}

// pastPatch is the entry of the run in the pool's history.
func (p *patch) pastPatch(rec kamino.Record) kamino.PastRun {
	now := p.engine.date()
	past := kamino.PastRun{Run: p.held.Run, Donor: p.donor.node.Name, Work: kamino.WorkPatch, Ended: now,
		Seconds: now.Sub(rec.Started).Seconds(), AwaySeconds: rec.AwayFor().Seconds()}
	if p.Report != nil {
		past.Packages = len(p.Report.Changed)
	}
	return past
}
