package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

const lookAtTheFiles = "check the files of the donor's disk"

// lookSurvey waits for the inventory of the donor's files. A disk that a policy refuses is refused
// before a pod is evicted, and while the donor is away only changes are read again. If the
// inventory cannot be made here, the seal makes it.
func (d *donor) lookSurvey(ctx context.Context) (workflow.Next, error) {
	n, left, err := d.serving(ctx)
	if err != nil {
		return workflow.Next{}, err
	} else if left {
		return workflow.Done(sealSurveys), nil
	}
	if next, err := d.lookPackages(ctx, n); err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	pod, err := d.agentPod(ctx, n, kamino.TaskInventory)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the inventory's pod: %w", err)
	}
	if next, found := d.askAgain(pod); found {
		return next, nil
	}
	switch {
	case !pod.Exists:
		return workflow.Act(kamino.ActSurvey, lookAtTheFiles, func(ctx context.Context) error { return d.beginSurvey(ctx, n) }).Then(
			"the inventory of the donor's files", 0), nil
	case pod.Done:
		return workflow.Done("the disk may be sealed"), nil
	case pod.Ousted:
		d.withoutSurvey("node " + n.Name + " has no room for the inventory pod: " + pod.Message)
		return workflow.Done(sealSurveys), nil
	case pod.Failed:
		err := kamino.WithHint(fmt.Errorf("the disk of node %s cannot be sealed as it is; no pod was evicted: %s", n.Name, pod.Message),
			"follow the message on the node or in the seal policy, or choose another node")
		if pod.Refused {
			err = kamino.InTheWay{Err: err}
		}
		return workflow.Next{}, err
	}
	return workflow.Wait("the inventory of the donor's files; its pod is " + pod.Message), nil
}

const sealSurveys = "the seal makes the inventory"

// serving reads the node for a task that runs beside its pods. left: a later step does the task,
// because it cannot run here, or because an earlier process of this run is further.
func (d *donor) serving(ctx context.Context) (n kamino.Node, left bool, err error) {
	n, mark, err := d.recentNode(ctx, d.held.Run)
	switch {
	case err != nil:
		return n, false, err
	case mark == nil:
		return n, false, d.lostMark()
	case mark.Block || mark.Sealing || mark.Begun || n.Tainted(kamino.TaintBlock) || d.drain.surveyless:
		return n, true, nil
	case n.BootID != mark.BootID:
		return n, false, fmt.Errorf("node %s has booted since the run began", n.Name)
	}
	return n, false, nil
}

// askAgain removes the pod that refused the node for the former process of an adopted run, because
// a person may have solved the problem since.
func (d *donor) askAgain(pod kamino.AgentPod) (workflow.Next, bool) {
	if !d.held.Adopted || d.drain.served || !pod.Failed && !pod.Refused {
		return workflow.Next{}, false
	}
	return d.removePods("remove the pod that examined the node for the former process, to examine it again"), true
}

// beginSurvey starts the inventory. If the cluster does not admit its pod, the run continues
// without.
func (d *donor) beginSurvey(ctx context.Context, n kamino.Node) error {
	d.drain.served = true
	err := d.engine.Cluster.StartAgent(ctx, n, kamino.TaskInventory, d.sealOrder())
	if errors.Is(err, kamino.ErrUnsupported) {
		d.withoutSurvey(err.Error())
		return nil
	}
	return err
}

func (d *donor) withoutSurvey(why string) {
	d.drain.surveyless = true
	d.held.Warn(why + "; the inventory is taken after the drain instead")
}

// lookUnseal removes the seal pod, so that nothing can seal the disk any more.
func (d *donor) lookUnseal(ctx context.Context) (workflow.Next, error) {
	pod, err := d.engine.Cluster.AgentPod(ctx, d.held.Run, kamino.TaskSeal)
	if err != nil && !errors.Is(err, kamino.ErrNotFound) {
		return workflow.Next{}, fmt.Errorf("read the seal pod: %w", err)
	}
	if !pod.Exists {
		return workflow.Done("no seal pod"), nil
	}
	d.back.sealStarted = d.back.sealStarted || pod.Started
	return workflow.Act(kamino.ActUnseal, deleteTheSealPod, d.removeAgents), nil
}

const deleteTheSealPod = "delete the seal pod"

// lookPods removes the seal pod, and the pods of an inventory or a patch that ended with their run.
func (d *donor) lookPods(ctx context.Context) (workflow.Next, error) {
	next, err := d.lookUnseal(ctx)
	if err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	tasks := []kamino.Task{kamino.TaskInventory}
	if d.patching() {
		tasks = patchTasks
	}
	for _, task := range tasks {
		pod, err := d.engine.Cluster.AgentPod(ctx, d.held.Run, task)
		if err != nil && !errors.Is(err, kamino.ErrNotFound) {
			return workflow.Next{}, fmt.Errorf("read the pod of task %s: %w", task, err)
		}
		if pod.Exists {
			return workflow.Act(kamino.ActUnseal, "delete the pods of the run", d.removeAgents), nil
		}
	}
	return next, nil
}

// asker is a Cluster that reads the packages of nodes, as a PackageStore does.
type asker interface {
	AskPackages(ctx context.Context, node kamino.Node, order kamino.SealOrder) error
}

// lookPackages refuses, before a pod is evicted, a donor with the same packages as a withdrawn
// version that was made of it. If the node does not report its packages, the receipt will.
func (d *donor) lookPackages(ctx context.Context, n kamino.Node) (workflow.Next, error) {
	shelf, ok := d.engine.Cluster.(asker)
	bad := d.withdrawnOf(d.instance.VMID)
	if !ok || bad == nil || d.drain.listed {
		return workflow.Done("no withdrawn version was made of it"), nil
	}
	if !d.drain.listing {
		return workflow.Act(kamino.ActSurvey, "ask the node for its packages: version "+bad.Name+", which is withdrawn, was made of it",
			func(ctx context.Context) error {
				err := shelf.AskPackages(ctx, n, d.sealOrder())
				if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) {
					d.untold(refused.Error())
					return nil
				}
				d.drain.listing = d.drain.listing || err == nil
				return err
			}).Then("the node's packages", 0), nil
	}
	n, err := d.engine.Cluster.Node(ctx, n.Name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read node %s: %w", n.Name, err)
	}
	pod, err := d.agentPod(ctx, n, kamino.TaskPackages)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the pod that lists the packages: %w", err)
	}
	list, told := n.Packages(d.held.Run, d.held.Lease.Record.Nonce)
	switch {
	case told && pod.Exists, pod.Failed, d.runner.Spent() > packagesLimit:
		return workflow.Act(kamino.ActUnseal, "remove the pod that listed the packages", func(ctx context.Context) error {
			if !told {
				d.untold("node " + n.Name + " did not report its packages: " + pod.Message)
			}
			return d.engine.Cluster.RemoveAgents(ctx, d.held.Run, []kamino.Task{kamino.TaskPackages})
		}), nil
	case told:
		d.drain.listed = true
		if v := d.sameAs(poolstate.PackageDigest(list), d.instance.VMID); v != nil {
			return workflow.Next{}, &kamino.RefusedError{Subject: "node " + n.Name, Refusals: []kamino.Refusal{v.RefuseSame(n.Name)}}
		}
		return workflow.Done("other packages than those of a withdrawn version"), nil
	}
	return workflow.Wait("the node's packages; the pod is " + pod.Message), nil
}

func (d *donor) untold(why string) {
	d.drain.listed = true
	d.held.Warn(why + "; whether its packages are those of a withdrawn version is checked after the drain")
}

// withdrawnOf returns the newest withdrawn version that was made of a machine and has the digest of
// its packages.
func (d *donor) withdrawnOf(vm string) *kamino.Version {
	return kamino.First(d.bad, func(v kamino.Version) bool {
		return v.Packages != "" && kamino.SameVM(v.VM, vm)
	})
}

// sameAs returns the withdrawn version that was made of the same packages on the same machine.
func (d *donor) sameAs(digest, vm string) *kamino.Version {
	return kamino.First(d.bad, func(v kamino.Version) bool {
		return digest != "" && v.Packages == digest && kamino.SameVM(v.VM, vm)
	})
}

const (
	packagesPause = time.Second
	packagesLimit = 5 * time.Minute
)
