package engine

import (
	"context"
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// lookCheck lets the agent refuse a patch while the node serves its pods. If its pod cannot run
// here, the patch itself finds the problem.
func (p *patch) lookCheck(ctx context.Context) (workflow.Next, error) {
	n, left, err := p.donor.serving(ctx)
	if err != nil {
		return workflow.Next{}, err
	} else if left {
		return workflow.Done(upgradeChecks), nil
	}
	pod, err := p.donor.agentPod(ctx, n, kamino.TaskCheck)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the pod that checks the node: %w", err)
	}
	if next, found := p.donor.askAgain(pod); found {
		return next, nil
	}
	switch {
	case !pod.Exists:
		return workflow.Act(kamino.ActCheck, "check that the node's packages can be upgraded", func(ctx context.Context) error {
			p.donor.drain.served = true
			err := p.engine.Cluster.StartAgent(ctx, n, kamino.TaskCheck, p.patchOrder(kamino.TaskCheck, ""))
			if errors.Is(err, kamino.ErrUnsupported) {
				p.leaveToUpgrade(err.Error())
				return nil
			}
			return err
		}).Then("the check of the node", 0), nil
	case pod.Done:
		return workflow.Done("its packages can be upgraded"), nil
	case pod.Refused:
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + n.Name,
			Refusals: []kamino.Refusal{{Code: kamino.CodePatch, Why: "its packages cannot be upgraded as it is, and no pod was evicted: " +
				pod.Message,
				Do: "follow the message on the node, or choose another one"}}}
	case pod.Ousted, pod.Failed && pod.Started:
		p.leaveToUpgrade("its pod " + pod.Message)
		return workflow.Done(upgradeChecks), nil
	case pod.Failed:
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("no pod can upgrade the packages of node %s, and none was evicted: %s", n.Name,
			pod.Message), "make the image available to the node, or choose another one")
	}
	return workflow.Wait("the check of the node; its pod is " + pod.Message), nil
}

const upgradeChecks = "left to the upgrade"

func (p *patch) leaveToUpgrade(why string) {
	p.donor.drain.surveyless = true
	p.held.Warn("node " + p.donor.node.Name + " is checked by the upgrade only, after the drain: " + why)
}

// lookChoose makes sure, under the lock, that the pool can do without the node.
func (p *patch) lookChoose(ctx context.Context) (workflow.Next, error) {
	if mark, err := p.donor.node.Claimed(p.pool.ID); mark != nil || err != nil {
		return workflow.Done("chosen earlier"), nil // by the previous process of the run
	}
	nodes, err := p.engine.nodesOf(ctx, p.pool.ID)
	if err != nil {
		return workflow.Next{}, err
	}
	others := 0
	for _, n := range nodes {
		if n.Name != p.donor.node.Name && n.Serves() {
			others++
		}
	}
	if others == 0 {
		return workflow.Next{}, refusePatch(p.donor.node.Name, "last-ready", "it is the last node of pool "+p.pool.Name+" that serves pods",
			"ask for another node first")
	}
	daemons, err := p.patcher().Daemons(ctx, p.donor.node)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the DaemonSets' pods of node %s: %w", p.donor.node.Name, err)
	}
	if bad := unreadyDaemons(daemons); bad != "" {
		return workflow.Next{}, refusePatch(p.donor.node.Name, "daemonsets", bad,
			"fix that first, or choose another node: otherwise it would be unclear whether the patch was to blame")
	}
	return p.donor.rehearse(ctx, p.patchOrder(kamino.TaskPatch, ""))
}

func unreadyDaemons(list []kamino.DaemonPod) string {
	for _, d := range list {
		if !d.Ready {
			return fmt.Sprintf("the pod of DaemonSet %s is not Ready%s", d.Set, kamino.InBrackets(d.Reason))
		}
	}
	return ""
}

func refusePatch(node string, code kamino.Code, why, do string) error {
	return &kamino.RefusedError{Subject: "node " + node, Refusals: []kamino.Refusal{{Code: code, Why: why, Do: do}}}
}
