package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// lookRehearse finds out, before anything is done to the donor, what would end
// its drain or its seal anyway: once its pods are evicted, somebody has noticed.
func (r *Run) lookRehearse(ctx context.Context) (Next, error) {
	return r.rehearse(ctx, r.sealOrder())
}

func (r *Run) rehearse(ctx context.Context, order SealOrder) (Next, error) {
	pods, err := r.Cluster.Rehearse(ctx, r.node, order, r.drainOptions())
	var refused *RefusedError
	if errors.As(err, &refused) {
		return Next{}, err
	} else if err != nil {
		return Next{}, fmt.Errorf("try drain and seal of node %s without effect: %w", r.node.Name, err)
	}
	var stuck []Pod
	var doubts []string
	for _, p := range pods {
		if p.Stuck {
			stuck = append(stuck, p)
		} else {
			doubts = append(doubts, fmt.Sprintf("pod %s may not leave in time: %s", p, p.Reason))
		}
	}
	r.doubt("rehearse", doubts)
	if len(stuck) > 0 {
		return Next{}, &RefusedError{Subject: "node " + r.node.Name, Refusals: []Refusal{refuseStuck(stuck)}}
	}
	if r.pool.Capacity == 1 {
		r.doubt("rehearse", []string{fmt.Sprintf("pool %s has one node, the donor: until it is back, its pods run only where other pools have room for them", r.pool.Name)})
	}
	return done("drain and seal are possible"), nil
}

func (r *Run) lookProtect(ctx context.Context) (Next, error) {
	n, mark, err := r.recentNode(ctx)
	if err != nil {
		return Next{}, err
	}
	if n.Tainted(TaintDeleting) {
		return Next{}, fmt.Errorf("cluster-autoscaler is deleting node %s", n.Name)
	}
	if mark == nil && (r.lease.Record.Sealing || n.Tainted(TaintBlock)) {
		// A new mark would know nothing of what was done to the donor.
		return Next{}, r.lostMark()
	}
	if mark == nil {
		m := r.newMark(n)
		return act(ActProtect, "annotate the node with "+AnnotationProtect+"=true", func(ctx context.Context) error {
			if err := r.Cluster.Mark(ctx, n, &m); err != nil {
				return err
			}
			// It takes about as long as the settling, so it begins with it. The next step looks whether it did.
			return r.beginSurvey(ctx, n)
		}).announcing(ActSurvey, lookAtTheFiles).then(whySettle, r.Settle), nil
	}
	// The autoscaler looks at the annotation only when it evaluates the node,
	// and finishes a deletion that it has begun.
	if age := r.clock().Now().Sub(mark.Since); age >= 0 && age < r.Settle && r.spent() < r.Settle {
		return waitFor(whySettle, r.Settle-max(age, r.spent())), nil
	}
	return done("protected"), nil
}

const whySettle = "cluster-autoscaler to see the annotation"

func (r *Run) newMark(n Node) Mark {
	m := Mark{
		Format: MarkFormat, Run: r.id, Epoch: r.lease.Epoch, Pool: r.pool.ID,
		Instance: r.instance.ID, VMID: r.instance.VMID, BootID: n.BootID, Since: r.clock().Now(),
	}
	if v, ok := n.Annotations[AnnotationProtect]; ok {
		m.Protection = &v
	}
	return m
}

// remark is an act that changes the mark of the run.
func (r *Run) remark(what Act, says string, n Node, mark *Mark, change func(*Mark)) (Next, error) {
	if mark == nil {
		return Next{}, r.lostMark()
	}
	m := *mark
	change(&m)
	m.Epoch = r.lease.Epoch
	return act(what, says, func(ctx context.Context) error { return r.Cluster.Mark(ctx, n, &m) }), nil
}

func (r *Run) lostMark() error {
	return fmt.Errorf("node %s lost the mark of run %s: somebody removed annotation %s", r.node.Name, r.id, AnnotationRun)
}

func (r *Run) lookDrain(ctx context.Context) (Next, error) {
	n, mark, err := r.readNode(ctx)
	if err != nil {
		return Next{}, err
	}
	if mark == nil || !mark.Block || !n.Tainted(TaintBlock) {
		next, err := r.remark(ActBlock, "block the node with taint "+TaintBlock, n, mark, func(m *Mark) { m.Block = true })
		return next.announcing(ActEvict, evictThePods), err
	}
	if mark.Sealing {
		return done("drained earlier"), nil
	}
	opts := r.drainOptions()
	opts.Overdue = r.worked() > r.drainTimeout()
	evict := func(ctx context.Context) ([]Pod, error) { return r.Cluster.Evict(ctx, n, opts) }
	if !r.evicting {
		return act(ActEvict, evictThePods, func(ctx context.Context) error {
			r.evicting = true
			_, err := evict(ctx)
			return err
		}).then("the pods to leave", 0), nil
	}
	pods, err := evict(ctx)
	if err != nil {
		return Next{}, fmt.Errorf("evict the pods of node %s: %w", n.Name, err)
	}
	if len(pods) == 0 {
		return r.lookDetached(n), nil
	}
	if err := r.drainStuck(pods, opts); err != nil {
		return Next{}, err
	}
	return wait(describePods(pods)), nil
}

// detachTime is how long volumes are waited for once their pods have left. A volume that is still attached to a machine which goes off is
// let go by the attach-detach controller only after six minutes (maxWaitForUnmountDuration in
// k8s.io/kubernetes/pkg/controller/volume/attachdetach), and its pod cannot start elsewhere so long. Volumes of pods that stay are never
// detached: the node does not tell which those are.
const detachTime = 2 * time.Minute

// lookDetached waits until the volumes of the pods that left are detached from the donor.
func (r *Run) lookDetached(n Node) Next {
	now := r.clock().Now()
	if r.emptied.IsZero() {
		r.emptied = now
	}
	switch waited := now.Sub(r.emptied); {
	case len(n.Volumes) == 0:
		return done("no pod is left that had to leave")
	case waited > detachTime:
		r.tell(Event{Kind: Warned, Step: r.now.name, Percent: -1, Message: fmt.Sprintf("after %s still attached to node %s: %s", detachTime, n.Name, someOf(n.Volumes))})
		return done("no pod is left that had to leave; volumes still attached: " + someOf(n.Volumes))
	}
	return wait("volumes to be detached: " + someOf(n.Volumes))
}

const evictThePods = "evict the pods of the node"

// drainStuck decides whether waiting for pods still makes sense.
func (r *Run) drainStuck(pods []Pod, opts DrainOptions) error {
	stuck := slices.ContainsFunc(pods, func(p Pod) bool { return p.Stuck }) && !opts.Force
	overdue := opts.Overdue && !opts.Force
	hopeless := r.worked() > r.drainTimeout()+2*max(r.Grace, 0)+5*time.Minute
	if !stuck && !overdue && !hopeless {
		return nil
	}
	return WithHint(fmt.Errorf("node %s cannot be drained after %s: %s", r.node.Name, r.worked().Round(time.Second), describePods(pods)),
		"mend what holds the pods, choose another node, or use --force to delete them")
}

func describePods(pods []Pod) string {
	const most = 3
	words := make([]string, 0, most)
	for _, p := range pods[:min(len(pods), most)] {
		word := p.String()
		if p.Reason != "" {
			word += " (" + p.Reason + ")"
		}
		words = append(words, word)
	}
	text := fmt.Sprintf("%d pods to leave: %s", len(pods), strings.Join(words, ", "))
	if len(pods) == 1 {
		text = "1 pod to leave: " + words[0]
	}
	if len(pods) > most {
		text += ", …"
	}
	return text
}
