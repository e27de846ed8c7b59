package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// guestHalt is how long a sealed machine may take to switch itself off before the provider switches
// it off.
const guestHalt = time.Minute

func (r *Run) sealOrder() kamino.SealOrder {
	order := kamino.SealOrder{Run: r.held.Run, Policy: r.opts.SealPolicy}
	if order.Run == "" { // a plan and a doctor try it for a run that never begins
		order.Run = r.held.FreshID()
	}
	if r.held.Lease != nil {
		order.Nonce = r.held.Lease.Record.Nonce
	}
	return order
}

// agentPod reads the pod in which the run does a task on a node. It is an error if somebody else
// made a pod of that name.
func (r *Run) agentPod(ctx context.Context, n kamino.Node, task kamino.Task) (kamino.AgentPod, error) {
	pod, err := r.engine.Cluster.AgentPod(ctx, r.held.Run, task)
	if err != nil {
		return kamino.AgentPod{}, err
	}
	return pod, pod.RefuseForeign(n.Name, r.held.Lease.Record.Nonce)
}

const sealTheDisk = "seal the disk"

// lookSeal waits for the receipt of this run and this boot. Without the receipt the run does not
// continue: an unsealed disk is never snapshotted.
func (r *Run) lookSeal(ctx context.Context) (workflow.Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil || !mark.Sealing {
		r.empty.unasked = true
		next, err := r.remark(kamino.ActSealing, "record on the node that its disk is about to be sealed", n, mark, func(m *kamino.Mark) { m.Sealing = true })
		return next.Announcing(kamino.ActSeal, sealTheDisk).Noting(func(l *kamino.Lease) {
			l.Record.Sealing, l.Record.Policy = true, r.policySum()
			l.Record.AwaySince, l.Record.AwayEnds = r.engine.date(), time.Time{}
			l.Record.Disk = r.donor.instance.Disk
		}), err
	}
	if !n.Tainted(kamino.TaintBlock) {
		return r.remark(kamino.ActBlock, "block the node again with taint "+kamino.TaintBlock, n, mark, func(m *kamino.Mark) { m.Block = true })
	}
	if n.BootID != mark.BootID {
		return workflow.Next{}, fmt.Errorf("node %s has booted since the run began: its disk is not the sealed one", n.Name)
	}
	if receipt, ok := n.Receipt(); ok && receipt.Run == r.held.Run {
		if err := r.checkReceipt(receipt); err != nil {
			return workflow.Next{}, err
		}
		return workflow.Done("receipt " + receipt.Hash), nil
	}
	r.donor.watchedOn = r.engine.now()
	if why := n.SealFailure(r.held.Run); why != "" {
		return workflow.Next{}, fmt.Errorf("the seal failed: %s", why)
	}
	var pod kamino.AgentPod
	if !r.empty.unasked {
		if pod, err = r.agentPod(ctx, n, kamino.TaskSeal); err != nil {
			return workflow.Next{}, fmt.Errorf("read the seal pod: %w", err)
		}
	}
	if pod.Failed {
		return workflow.Next{}, fmt.Errorf("the seal failed: %s", pod.Message)
	}
	if pod.Exists && n.Ready {
		return workflow.Wait("the seal; its pod is " + pod.Message), nil
	}
	return r.lookSilent(ctx, n, pod.Exists)
}

// lookSilent asks the cloud about a donor that does not report. The donor is switching off and its
// receipt will be seen, or it went off without a receipt, or nobody has asked the cloud yet.
func (r *Run) lookSilent(ctx context.Context, n kamino.Node, asked bool) (workflow.Next, error) {
	in, err := r.donor.readInstance(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power == kamino.PowerOff {
		return r.lookUnreceipted(n)
	}
	if !asked && in.Power == kamino.PowerOn {
		if err := r.refuseServed(ctx); err != nil {
			return workflow.Next{}, err
		}
		if err := r.refuseSeal(ctx, n); err != nil {
			return workflow.Next{}, err
		}
		order := workflow.Act(kamino.ActSeal, sealTheDisk, func(ctx context.Context) error {
			r.empty.unasked = false
			return r.engine.Cluster.StartAgent(ctx, n, kamino.TaskSeal, r.sealOrder())
		}).Then("the seal", 0)
		if r.held.Lease.Record.Policy != r.policySum() { // the process that marked the node had another policy
			order = order.Noting(func(l *kamino.Lease) { l.Record.Policy = r.policySum() })
		}
		return order, nil
	}
	return workflow.Wait("the seal receipt (node not reporting)"), nil
}

// lookUnreceipted gives up a donor that is off and has no receipt. The agent writes the receipt
// before it switches the machine off, so a later read of the node shows it if it was written;
// LookAge covers a write whose reply the agent did not get.
func (r *Run) lookUnreceipted(n kamino.Node) (workflow.Next, error) {
	now := r.engine.now()
	if r.offSince.IsZero() {
		r.offSince = now
	}
	if now.Sub(r.offSince) < kamino.LookAge {
		return workflow.Wait("the seal receipt (donor is off)"), nil
	}
	return workflow.Next{}, fmt.Errorf("node %s switched off without a receipt of run %s: its disk is not sealed", n.Name, r.held.Run)
}

// checkReceipt returns what is wrong with a receipt that names this run. A kubelet may write any
// annotation of its own node, at any time.
func (r *Run) checkReceipt(receipt kamino.Receipt) error {
	switch nonce := r.held.Lease.Record.Nonce; {
	case !kamino.SameVM(receipt.VMID, r.donor.instance.VMID):
		return fmt.Errorf("receipt of run %s comes from VM %s, not from the donor's %s", r.held.Run, receipt.VMID, r.donor.instance.VMID)
	case receipt.Nonce != nonce:
		return kamino.WithHint(fmt.Errorf("receipt of run %s on node %s does not repeat the nonce of the run: the agent that was asked did not write it", r.held.Run, r.donor.node.Name),
			"the pool's image stays as it is; find out who wrote annotation %s before you use this node again", kamino.AnnotationReceipt)
	case receipt.Policy != r.held.Lease.Record.Policy:
		return kamino.WithHint(fmt.Errorf("receipt of run %s on node %s names seal policy %q, and the run brought %q", r.held.Run, r.donor.node.Name, receipt.Policy, r.held.Lease.Record.Policy),
			"the pool's image stays as it is; the seal pod's image must be of this version: see --image")
	}
	return r.refuseSame(receipt)
}

// refuseSame refuses a disk with the packages of a withdrawn version: another image of it would be
// as bad. If either digest is unknown, it refuses nothing.
func (r *Run) refuseSame(receipt kamino.Receipt) error {
	if v := r.sameAs(receipt.PackageDigest, receipt.VMID); v != nil {
		same := v.RefuseSame(r.donor.node.Name)
		return kamino.WithHint(fmt.Errorf("node %s cannot be the donor: %s", r.donor.node.Name, same.Why), "%s", same.Do) // an error and not a refusal, because the donor was away
	}
	return nil
}

// policySum returns the SHA-256 in hex of the seal policy; empty without one.
func (r *Run) policySum() string {
	if len(r.opts.SealPolicy) == 0 {
		return ""
	}
	sum := sha256.Sum256(r.opts.SealPolicy)
	return hex.EncodeToString(sum[:])
}

func (r *Run) planSeal() string {
	if sum := r.policySum(); sum != "" {
		return "seal the donor's disk and wait for the receipt; seal policy sha256:" + sum[:12] + "…"
	}
	return "seal the donor's disk and wait for the receipt; unknown files refuse the seal (no seal policy)"
}

var patchTasks = []kamino.Task{kamino.TaskCheck, kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook}

// removeAgents deletes the pods that the run may have made.
func (r *Run) removeAgents(ctx context.Context) error {
	return r.engine.Cluster.RemoveAgents(ctx, r.held.Run, agentTasks(r.patching(), r.held.GivingBack))
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
