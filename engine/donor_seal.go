package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// guestHalt is how long a sealed machine may take to switch itself off before the provider switches
// it off.
const guestHalt = time.Minute

func (d *donor) sealOrder() kamino.SealOrder {
	order := kamino.SealOrder{Run: d.held.Run, Policy: d.opts.SealPolicy}
	if order.Run == "" { // a plan and a doctor try it for a run that never begins
		order.Run = d.held.FreshID()
	}
	if d.held.Lease != nil {
		order.Nonce = d.held.Lease.Record.Nonce
	}
	return order
}

// agentPod reads the pod in which the run does a task on a node. It is an error if somebody else
// made a pod of that name.
func (d *donor) agentPod(ctx context.Context, n kamino.Node, task kamino.Task) (kamino.AgentPod, error) {
	pod, err := d.engine.Cluster.AgentPod(ctx, d.held.Run, task)
	if err != nil {
		return kamino.AgentPod{}, err
	}
	return pod, pod.RefuseForeign(n.Name, d.held.Lease.Record.Nonce)
}

const sealTheDisk = "seal the disk"

// lookSeal waits for the receipt of this run and this boot. Without the receipt the run does not
// continue: an unsealed disk is never snapshotted.
func (d *donor) lookSeal(ctx context.Context) (workflow.Next, error) {
	n, mark, err := d.readNode(ctx, d.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil || !mark.Sealing {
		d.drain.unasked = true
		next, err := d.remark(kamino.ActSealing, "record on the node that its disk is about to be sealed", n, mark,
			func(m *kamino.Mark) { m.Sealing = true })
		return next.Announcing(kamino.ActSeal, sealTheDisk).Noting(func(l *kamino.Lease) {
			l.Record.Sealing, l.Record.Policy = true, d.policySum()
			l.Record.AwaySince, l.Record.AwayEnds = d.engine.date(), time.Time{}
			l.Record.Disk = d.instance.Disk
		}), err
	}
	if !n.Tainted(kamino.TaintBlock) {
		return d.remark(kamino.ActBlock, "block the node again with taint "+kamino.TaintBlock, n, mark,
			func(m *kamino.Mark) { m.Block = true })
	}
	if n.BootID != mark.BootID {
		return workflow.Next{}, fmt.Errorf("node %s has booted since the run began: its disk is not the sealed one", n.Name)
	}
	if receipt, ok := n.Receipt(); ok && receipt.Run == d.held.Run {
		if err := d.checkReceipt(receipt); err != nil {
			return workflow.Next{}, err
		}
		return workflow.Done("receipt " + receipt.Hash), nil
	}
	d.watchedOn = d.engine.now()
	if why := n.SealFailure(d.held.Run); why != "" {
		return workflow.Next{}, fmt.Errorf("the seal failed: %s", why)
	}
	var pod kamino.AgentPod
	if !d.drain.unasked {
		if pod, err = d.agentPod(ctx, n, kamino.TaskSeal); err != nil {
			return workflow.Next{}, fmt.Errorf("read the seal pod: %w", err)
		}
	}
	if pod.Failed {
		return workflow.Next{}, fmt.Errorf("the seal failed: %s", pod.Message)
	}
	if pod.Exists && n.Ready {
		return workflow.Wait("the seal; its pod is " + pod.Message), nil
	}
	return d.lookSilent(ctx, n, pod.Exists)
}

// lookSilent asks the cloud about a donor that does not report. The donor is switching off and its
// receipt will be seen, or it went off without a receipt, or nobody has asked the cloud yet.
func (d *donor) lookSilent(ctx context.Context, n kamino.Node, asked bool) (workflow.Next, error) {
	in, err := d.readInstance(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power == kamino.PowerOff {
		return d.lookUnreceipted(n)
	}
	if !asked && in.Power == kamino.PowerOn {
		if err := d.refuseServed(ctx); err != nil {
			return workflow.Next{}, err
		}
		if err := d.refuseSeal(ctx, n); err != nil {
			return workflow.Next{}, err
		}
		order := workflow.Act(kamino.ActSeal, sealTheDisk, func(ctx context.Context) error {
			d.drain.unasked = false
			return d.engine.Cluster.StartAgent(ctx, n, kamino.TaskSeal, d.sealOrder())
		}).Then("the seal", 0)
		if d.held.Lease.Record.Policy != d.policySum() { // the process that marked the node had another policy
			order = order.Noting(func(l *kamino.Lease) { l.Record.Policy = d.policySum() })
		}
		return order, nil
	}
	return workflow.Wait("the seal receipt (node not reporting)"), nil
}

// lookUnreceipted gives up a donor that is off and has no receipt. The agent writes the receipt
// before it switches the machine off, so a later read of the node shows it if it was written;
// LookAge covers a write whose reply the agent did not get.
func (d *donor) lookUnreceipted(n kamino.Node) (workflow.Next, error) {
	now := d.engine.now()
	if d.offSince.IsZero() {
		d.offSince = now
	}
	if now.Sub(d.offSince) < kamino.LookAge {
		return workflow.Wait("the seal receipt (donor is off)"), nil
	}
	return workflow.Next{}, fmt.Errorf("node %s switched off without a receipt of run %s: its disk is not sealed", n.Name, d.held.Run)
}

// checkReceipt returns what is wrong with a receipt that names this run. A kubelet may write any
// annotation of its own node, at any time.
func (d *donor) checkReceipt(receipt kamino.Receipt) error {
	switch nonce := d.held.Lease.Record.Nonce; {
	case !kamino.SameVM(receipt.VMID, d.instance.VMID):
		return fmt.Errorf("receipt of run %s comes from VM %s, not from the donor's %s", d.held.Run, receipt.VMID, d.instance.VMID)
	case receipt.Nonce != nonce:
		return kamino.WithHint(fmt.Errorf("receipt of run %s on node %s does not repeat the nonce of the run: the agent that was asked did not write it", d.held.Run, d.node.Name),
			"the pool's image stays as it is; find out who wrote annotation %s before you use this node again", kamino.AnnotationReceipt)
	case receipt.Policy != d.held.Lease.Record.Policy:
		return kamino.WithHint(fmt.Errorf("receipt of run %s on node %s names seal policy %q, and the run brought %q", d.held.Run,
			d.node.Name, receipt.Policy, d.held.Lease.Record.Policy),
			"the pool's image stays as it is; the seal pod's image must be of this version: see --image")
	}
	return d.refuseSame(receipt)
}

// refuseSame refuses a disk with the packages of a withdrawn version: another image of it would be
// as bad. If either digest is unknown, it refuses nothing.
func (d *donor) refuseSame(receipt kamino.Receipt) error {
	if v := d.sameAs(receipt.PackageDigest, receipt.VMID); v != nil {
		same := v.RefuseSame(d.node.Name)
		// an error and not a refusal, because the donor was away
		return kamino.WithHint(fmt.Errorf("node %s cannot be the donor: %s", d.node.Name, same.Why), "%s", same.Do)
	}
	return nil
}

// policySum returns the SHA-256 in hex of the seal policy; empty without one.
func (d *donor) policySum() string {
	if len(d.opts.SealPolicy) == 0 {
		return ""
	}
	sum := sha256.Sum256(d.opts.SealPolicy)
	return hex.EncodeToString(sum[:])
}

func (d *donor) planSeal() string {
	if sum := d.policySum(); sum != "" {
		return "seal the donor's disk and wait for the receipt; seal policy sha256:" + sum[:12] + "…"
	}
	return "seal the donor's disk and wait for the receipt; unknown files refuse the seal (no seal policy)"
}

var patchTasks = []kamino.Task{kamino.TaskCheck, kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook}

// removeAgents deletes the pods that the run may have made.
func (d *donor) removeAgents(ctx context.Context) error {
	return d.engine.Cluster.RemoveAgents(ctx, d.held.Run, agentTasks(d.patching(), d.held.GivingBack))
}

// agentTasks returns the tasks whose pods a run may have left, depending on whether it patches and
// whether it ended early.
func agentTasks(patches, ended bool) []kamino.Task {
	tasks := []kamino.Task{kamino.TaskSeal, kamino.TaskInventory} // also for a patch, because somebody else's pod may have the name
	switch {
	case patches:
		return append(tasks, patchTasks...)
	case ended: // it ended between requesting and reading the packages
		return append(tasks, kamino.TaskPackages)
	}
	return tasks
}

func (d *donor) lookStop(ctx context.Context) (workflow.Next, error) {
	if d.away.from.IsZero() && !(d.held.Adopted && d.held.Before.Sealing) { // otherwise only the previous process knows
		d.away.from = d.engine.now()
	}
	in, err := d.instanceNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	switch {
	case in.Power == kamino.PowerOff:
		return workflow.Done("off"), nil
	case in.Power == kamino.PowerOn && !d.stillOn(d.runner.Spent()):
		return workflow.Next{}, fmt.Errorf("node %s runs although its disk is sealed: %w", d.node.Name, errStartedSince)
	case in.Power == kamino.PowerOn && d.runner.Spent() > guestHalt:
		return workflow.Act(kamino.ActPowerOff, "switch the donor off", func(ctx context.Context) error {
			return d.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOff)
		}), nil
	}
	return workflow.Wait("the donor to switch itself off"), nil
}

// errStartedSince: nobody knows whether the disk is still as it was sealed.
var errStartedSince = errors.New("it may have been started again since")

func (d *donor) removePods(what string) workflow.Next {
	return workflow.Act(kamino.ActUnseal, what, d.removeAgents)
}
