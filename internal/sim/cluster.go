package sim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// simCluster is Kubernetes as one process sees it.
type simCluster struct{ p *proc }

func (p *proc) cluster() kamino.Cluster { return simCluster{p} }

func (c simCluster) call(ctx context.Context, what call, effect func(*fault) error) error {
	what.kube = true
	return c.p.call(ctx, what, effect)
}

func (c simCluster) Node(ctx context.Context, name string) (out kamino.Node, err error) {
	w := c.p.w
	err = c.call(ctx, call{method: "Node", subject: name}, func(*fault) error {
		n := w.nodes[name]
		if n == nil {
			return fmt.Errorf("node %s: %w", name, kamino.ErrNotFound)
		}
		out = w.readNode(n)
		return nil
	})
	return out, err
}

func (c simCluster) Nodes(ctx context.Context) (out []kamino.Node, err error) {
	w := c.p.w
	err = c.call(ctx, call{method: "Nodes"}, func(*fault) error {
		out = nil
		for _, n := range w.nodes {
			out = append(out, w.readNode(n))
		}
		slices.SortFunc(out, func(a, b kamino.Node) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return out, err
}

func (c simCluster) Pulse(ctx context.Context, node kamino.Node) (out time.Time, err error) {
	err = c.call(ctx, call{method: "Pulse", subject: node.Name}, func(*fault) error {
		if n := c.p.w.nodes[node.Name]; n != nil {
			out = c.p.w.readNode(n).Heartbeat
		}
		return nil
	})
	return out, err
}

// Mark implements kamino.Cluster.
func (c simCluster) Mark(ctx context.Context, node kamino.Node, mark kamino.Mark) error {
	return c.mark(ctx, node, &mark)
}

// Unmark implements kamino.Cluster.
func (c simCluster) Unmark(ctx context.Context, node kamino.Node) error {
	return c.mark(ctx, node, nil)
}

func (c simCluster) mark(ctx context.Context, node kamino.Node, mark *kamino.Mark) error {
	w := c.p.w
	what := call{method: "Mark", subject: node.Name, write: true}
	if mark == nil {
		what.method = "Unmark"
	}
	return c.call(ctx, what, func(*fault) error {
		n := w.nodes[node.Name]
		if n == nil {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		}
		if n.UID != node.UID {
			return fmt.Errorf("node %s: UID: %w", node.Name, kamino.ErrConflict)
		}
		if now, ok := n.Annotations[kamino.AnnotationProtect]; mark != nil && n.Annotations[kamino.AnnotationRun] == "" &&
			(ok != (mark.Protection != nil) || ok && now != *mark.Protection) {
			return fmt.Errorf("node %s: its protection has changed: %w", node.Name, kamino.ErrConflict)
		}
		what := w.audit.before(c.p.onNode(n.Node, markVerb(mark)))
		n.Annotations = maps.Clone(n.Annotations)
		if mark == nil {
			n.unmark()
		} else {
			text, _ := json.Marshal(mark)
			n.Annotations[kamino.AnnotationRun] = string(text)
			n.Annotations[kamino.AnnotationProtect] = "true"
			n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintBlock })
			if mark.Block {
				n.Taints = append(n.Taints, kamino.Taint{Key: kamino.TaintBlock, Value: mark.Run, Effect: "NoSchedule"})
			}
		}
		w.changeNode(n)
		w.audit.after(what)
		w.happened("%s marks node %s: %+v", c.p.name, n.Name, mark != nil)
		return nil
	})
}

// markedBy says whether a run has left its annotation or its taint on a node.
func (w *world) markedBy(n *simNode, run string) bool {
	mark, err := n.Mark()
	return err == nil && mark != nil && mark.Run == run && !w.audit.judge.IsForged(n.Name, n.Annotations[kamino.AnnotationRun]) ||
		run != "" && slices.ContainsFunc(n.Taints, func(t kamino.Taint) bool { return t.Key == kamino.TaintBlock && t.Value == run })
}

// unmark does what kube's Mark does with nil.
func (n *simNode) unmark() {
	mark, err := n.Mark()
	if err == nil && mark != nil && n.Annotations[kamino.AnnotationProtect] == "true" {
		delete(n.Annotations, kamino.AnnotationProtect)
		if mark.Protection != nil {
			n.Annotations[kamino.AnnotationProtect] = *mark.Protection
		}
	}
	delete(n.Annotations, kamino.AnnotationRun)
	delete(n.Annotations, kamino.AnnotationReceipt)
	delete(n.Annotations, kamino.AnnotationPackages)
	delete(n.Annotations, kamino.AnnotationSealFailure)
	delete(n.Annotations, kamino.AnnotationPatch)
	delete(n.Annotations, kamino.AnnotationPatchLook)
	n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintBlock })
}

func (c simCluster) Rehearse(ctx context.Context, node kamino.Node, order kamino.SealOrder, opts kamino.DrainOptions) (stuck []kamino.Pod,
	err error) {
	err = c.call(ctx, call{method: "Rehearse", subject: node.Name}, func(*fault) error {
		stuck = nil
		if order.Patch == nil {
			if err := c.p.w.refuseLocal(node); err != nil {
				return err
			}
		}
		if !opts.Force {
			stuck = c.p.w.patchPods(node)
		}
		for _, p := range c.p.w.pods {
			if p.node == node.Name && !p.daemon && !p.ending && p.bare && !opts.Force {
				stuck = append(stuck, kamino.Pod{Namespace: p.Namespace, Name: p.Name, Reason: "no controller would recreate it",
					Stuck: true})
			}
			if p.node == node.Name && p.comes && !p.ending {
				stuck = append(stuck, p.returning())
			}
		}
		return nil
	})
	return stuck, err
}

func (p *simPod) returning() kamino.Pod {
	return kamino.Pod{Namespace: p.Namespace, Name: p.Name, Reason: "it tolerates the block", Stuck: !p.job, Returns: true}
}

// refuseLocal is how package kube refuses a node whose machine has a local volume.
func (w *world) refuseLocal(node kamino.Node) error {
	if m := w.machines[node.ProviderID]; m != nil && m.local {
		return &kamino.RefusedError{Subject: "node " + node.Name,
			Refusals: []kamino.Refusal{{Code: kamino.CodeLocalVolume, Why: "PersistentVolume pv keeps its data on this machine"}}}
	}
	return nil
}

func (c simCluster) Evict(ctx context.Context, node kamino.Node, opts kamino.DrainOptions) (left []kamino.Pod, err error) {
	w := c.p.w
	err = c.call(ctx, call{method: "Evict", subject: node.Name, write: true}, func(f *fault) error {
		w.audit.before(c.p.onNode(node, invariant.Evict))
		left = nil
		for _, p := range w.pods {
			if p.node != node.Name || p.daemon {
				continue
			}
			if p.comes && !p.ending {
				left = append(left, p.returning())
				continue
			}
			if !f.is(worlds.FalseSuccess) && !w.now.Before(w.conflicts) {
				w.evict(c.p.onNode(node, invariant.Evict), p, opts)
			}
			p.UID = cmp.Or(p.UID, p.String())
			left = append(left, p.Pod)
		}
		left = append(left, w.patchPods(node)...)
		return nil
	})
	return left, err
}

func (w *world) evict(c invariant.Call, p *simPod, opts kamino.DrainOptions) {
	p.Reason, p.Stuck = "", false
	switch {
	case p.ending:
		p.Reason = "ending"
	case p.bare && !opts.Force:
		p.Reason, p.Stuck = "no controller would recreate it", true
	case p.held && !(opts.Overdue && opts.Force):
		p.Reason = "held by budget web"
	default:
		if p.held {
			c.Verb = invariant.DeletePod
		}
		c.Pod = p.String()
		w.audit.before(c)
		p.ending = true
		w.say("  ~ pod %s is evicted", p.Name)
		w.after(5*time.Second, func() {
			w.pods = slices.DeleteFunc(w.pods, func(o *simPod) bool { return o == p })
			w.happened("pod %s is gone", p.Name)
			if w.evicted != nil {
				w.evicted()
			}
		})
	}
}

func (c simCluster) Preview(ctx context.Context, node kamino.Node, opts kamino.DrainOptions) (left []kamino.Pod, err error) {
	for _, p := range c.p.w.pods {
		switch {
		case p.node != node.Name || p.daemon:
		case p.comes:
			left = append(left, p.returning())
		default:
			left = append(left, p.Pod)
		}
	}
	return left, c.p.w.refuseLocal(node)
}

// AgentPod implements kamino.Cluster.
func (c simCluster) AgentPod(ctx context.Context, run string, task kamino.Task) (out kamino.AgentPod, err error) {
	method, pods := "SealPod", c.p.w.sealPods
	if task == kamino.TaskInventory {
		method, pods = "SurveyPod", c.p.w.surveys
	} else if task != kamino.TaskSeal {
		method, run, pods = "PatchPod", string(task)+" "+run, c.p.w.patches
	}
	err = c.call(ctx, call{method: method, subject: run}, func(*fault) error {
		out = kamino.AgentPod{}
		if pod := pods[run]; pod != nil {
			out = pod.AgentPod
			out.Name, out.Node, out.Nonce = kamino.SystemNamespace+"/"+run, pod.node, pod.nonce
		}
		return nil
	})
	return out, err
}

// StartAgent implements kamino.Cluster.
func (c simCluster) StartAgent(ctx context.Context, node kamino.Node, task kamino.Task, order kamino.SealOrder) error {
	switch task {
	case kamino.TaskInventory:
		return c.survey(ctx, node, order)
	case kamino.TaskSeal:
		return c.seal(ctx, node, order)
	}
	return c.startPatch(ctx, node, task, order)
}

// RemoveAgents implements kamino.Cluster.
func (c simCluster) RemoveAgents(ctx context.Context, run string, tasks []kamino.Task) error {
	w := c.p.w
	return c.call(ctx, call{method: "RemoveSealPod", subject: run, write: true}, func(*fault) error {
		c.p.auditSeal(w.nodeOf(run), run, invariant.Unseal)
		for _, task := range tasks {
			switch task {
			case kamino.TaskSeal:
				delete(w.sealPods, run)
			case kamino.TaskInventory:
				delete(w.surveys, run)
			default:
				delete(w.patches, string(task)+" "+run)
			}
		}
		w.lostPods()
		w.happened("%s deletes seal pod of %s", c.p.name, run)
		return nil
	})
}

// nodeOf is the node that a run has, as far as pods, marks and leases tell.
func (w *world) nodeOf(run string) kamino.Node {
	var found kamino.Node
	for _, l := range w.allLeases() {
		if l.Holder == run {
			found.Name = l.Record.Donor
		}
	}
	for _, pods := range []map[string]*simSealPod{w.surveys, w.sealPods} {
		if pod := pods[run]; pod != nil {
			found.Name = pod.node
		}
	}
	for _, n := range w.nodes {
		if n.Name == found.Name || found.Name == "" && w.markedBy(n, run) {
			return n.Node
		}
	}
	return found
}

// Preflight and RehearseSeal find nothing in the way.
func (c simCluster) Preflight(context.Context, kamino.DrainOptions) ([]kamino.Warning, error) {
	return nil, nil
}

func (c simCluster) RehearseSeal(context.Context, kamino.Node, kamino.SealOrder) error {
	return c.p.w.notAdmitted()
}

func (c simCluster) seal(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	w, run := c.p.w, order.Run
	return c.call(ctx, call{method: "Seal", subject: run, write: true}, func(*fault) error {
		if w.nodes[node.Name] == nil {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		}
		c.p.auditSeal(node, run, invariant.Seal)
		pod, err := w.newPod(node.Name, order)
		if err != nil || w.sealPods[run] != nil {
			return err
		}
		w.happened("%s creates seal pod of %s", c.p.name, run)
		w.play(w.sealPods, run, pod, node, kamino.TaskSeal, order, "")
		return nil
	})
}

// policySum is the SHA-256 in hex of the seal policy that an order brings; "" without one.
func policySum(policy []byte) string {
	if len(policy) == 0 {
		return ""
	}
	sum := sha256.Sum256(policy)
	return hex.EncodeToString(sum[:])
}

func (c simCluster) Lease(ctx context.Context, pool kamino.PoolID) (out kamino.Lease, err error) {
	err = c.call(ctx, call{method: "Lease", subject: pool.Name()}, func(*fault) error {
		out = c.p.w.standing(pool)
		return nil
	})
	return out, err
}

func (c simCluster) Leases(ctx context.Context) (out []kamino.Lease, err error) {
	err = c.call(ctx, call{method: "Leases"}, func(*fault) error {
		out = c.p.w.allLeases()
		return nil
	})
	return out, err
}

func (c simCluster) SetLease(ctx context.Context, l kamino.Lease) (out kamino.Lease, err error) {
	w := c.p.w
	what := call{method: "SetLease", subject: l.Pool.Name() + " " + l.Record.Step + " " + l.Record.Intent, write: true}
	err = c.call(ctx, what, func(*fault) (err error) {
		out, err = w.writeLease(c.p, l)
		return err
	})
	return out, err
}
