package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// emptying is what was seen while the donor was emptied and sealed.
type emptying struct {
	evicting bool      // this process has asked the donor's pods to leave
	emptied  time.Time // when no pod was left that had to leave
	held     time.Time // when the donor was first seen out of service
	// surveyless: the donor cannot be looked at beside its pods.
	surveyless bool
	served     bool // no pod that looks at the donor beside its pods is of a former process
	unasked    bool // the donor's mark was seen before any seal pod was asked for
	listing    bool // this process has asked the donor for its packages
	listed     bool // they are compared, or are not known before the seal
	rested     bool // the donor was seen off after its snapshot had been begun
	patch      patching
	local      []Refusal // of a plan: the local volumes of the donor
}

// lookRehearse finds out, before anything is done to the donor, what would end
// its drain or its seal anyway: once its pods are evicted, somebody has noticed.
func (r *Run) lookRehearse(ctx context.Context) (Next, error) {
	return r.rehearse(ctx, r.sealOrder())
}

func (r *Run) rehearse(ctx context.Context, order SealOrder) (Next, error) {
	pods, err := r.engine.Cluster.Rehearse(ctx, r.donor.node, order, r.opts.drainOptions())
	var refused *RefusedError
	if errors.As(err, &refused) {
		return Next{}, err
	} else if err != nil {
		return Next{}, fmt.Errorf("dry-run drain and seal of node %s: %w", r.donor.node.Name, err)
	}
	var stuck []Pod
	var doubts []Doubt
	for _, p := range pods {
		if p.Stuck {
			stuck = append(stuck, p)
		} else {
			doubts = append(doubts, Doubt{Found: fmt.Sprintf("pod %s might not end in time: %s", p, p.Reason)})
		}
	}
	r.doubtAll(InRehearse, doubts)
	if len(stuck) > 0 {
		return Next{}, &RefusedError{Subject: "node " + r.donor.node.Name, Refusals: []Refusal{refuseStuck(stuck)}}
	}
	if r.pool.Capacity == 1 {
		r.doubt(InRehearse, fmt.Sprintf("pool %s has one node, the donor: until it is back, its pods run only where other pools have room for them", r.pool.Name))
	}
	return done("drain and seal are possible"), nil
}

// refuseSeal refuses a donor to which something came after the rehearsal that a stop would harm: a
// local volume, or a pod that tolerates the block.
func (r *Run) refuseSeal(ctx context.Context, n Node) error {
	pods, err := r.engine.Cluster.Rehearse(ctx, n, r.sealOrder(), r.opts.drainOptions())
	var refused *RefusedError
	switch back := tolerant(pods); {
	case errors.As(err, &refused):
		return err
	case err != nil:
		return fmt.Errorf("dry-run the seal of node %s: %w", n.Name, err)
	case len(back) > 0:
		return r.undrainable(back)
	}
	return nil
}

// undrainable is the error for pods that come back.
func (r *Run) undrainable(back []Pod) error {
	return WithHint(fmt.Errorf("node %s cannot be drained: %s", r.donor.node.Name, describePods(back)), leaveReturning)
}

func (r *Run) lookProtect(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.recentNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if n.Tainted(TaintDeleting) {
		return Next{}, fmt.Errorf("cluster-autoscaler is deleting node %s", n.Name)
	}
	if mark == nil && (r.held.sealing() || n.Tainted(TaintBlock)) {
		// A new mark would know nothing of what was done to the donor.
		return Next{}, r.lostMark()
	}
	if mark == nil {
		m := r.newMark(n, r.donor.instance, r.work())
		return act(ActProtect, "annotate the node with "+AnnotationProtect+"=true", func(ctx context.Context) error {
			if err := r.engine.Cluster.Mark(ctx, n, m); err != nil || r.held.overdue() || m.Work == WorkPatch {
				return err
			}
			// It takes about as long as the settling, so it begins with it. The next step looks
			// whether it did.
			return r.beginSurvey(ctx, n)
		}).announcing(ActSurvey, lookAtTheFiles).then(whySettle, r.opts.Settle), nil
	}
	// The autoscaler looks at the annotation only when it evaluates the node,
	// and finishes a deletion that it has begun.
	if age := r.engine.now().Sub(mark.Since); age >= 0 && age < r.opts.Settle && r.runner.Spent() < r.opts.Settle {
		return waitFor(whySettle, r.opts.Settle-max(age, r.runner.Spent())), nil
	}
	return done("protected"), nil
}

const whySettle = "cluster-autoscaler to notice the annotation"

func (r *Run) newMark(n Node, of Instance, work Work) Mark {
	m := Mark{
		Format: MarkFormat, Run: r.held.run, Epoch: r.held.lease.Epoch, Pool: r.pool.ID,
		Instance: of.ID, VMID: of.VMID, BootID: n.BootID, Since: r.engine.date(), Work: work,
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
	m.Epoch = r.held.lease.Epoch
	return act(what, says, func(ctx context.Context) error { return r.engine.Cluster.Mark(ctx, n, m) }), nil
}

func (r *Run) lostMark() error {
	return fmt.Errorf("node %s lost the mark of run %s: somebody removed annotation %s", r.donor.node.Name, r.held.run, AnnotationRun)
}

func (r *Run) lookDrain(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
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
	opts := r.opts.drainOptions()
	opts.Overdue = r.runner.Worked() > r.opts.drainTimeout()
	evict := func(ctx context.Context) ([]Pod, error) { return r.engine.Cluster.Evict(ctx, n, opts) }
	if !r.empty.evicting {
		return act(ActEvict, evictThePods, func(ctx context.Context) error {
			r.empty.evicting = true
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

// detachTime is how long volumes are waited for once their pods have left. A volume that is still
// attached to a machine which goes off is let go by the attach-detach controller only after six
// minutes (maxWaitForUnmountDuration in k8s.io/kubernetes/pkg/controller/volume/attachdetach), and
// its pod cannot start elsewhere so long. Volumes of pods that stay are never detached: the node
// does not tell which those are.
const detachTime = 2 * time.Minute

// lookDetached waits until the volumes of the pods that left are detached from the donor.
func (r *Run) lookDetached(n Node) Next {
	now := r.engine.now()
	if r.empty.emptied.IsZero() {
		r.empty.emptied = now
	}
	switch waited := now.Sub(r.empty.emptied); {
	case len(n.Volumes) == 0:
		return done("every pod that had to leave is gone")
	case waited > detachTime:
		r.held.warn(fmt.Sprintf("volumes still attached to node %s after %s: %s", n.Name, detachTime, someOf(n.Volumes)))
		return done("every pod that had to leave is gone; volumes still attached: " + someOf(n.Volumes))
	}
	return wait("volumes to be detached: " + someOf(n.Volumes))
}

const evictThePods = "evict the pods of the node"

// drainStuck decides whether waiting for pods still makes sense.
func (r *Run) drainStuck(pods []Pod, opts DrainOptions) error {
	if back := returning(pods); len(back) > 0 {
		return r.undrainable(back)
	}
	stuck := slices.ContainsFunc(pods, func(p Pod) bool { return p.Stuck }) && !opts.Force
	overdue := opts.Overdue && !opts.Force
	hopeless := r.runner.Worked() > r.opts.drainTimeout()+2*max(r.opts.Grace, 0)+5*time.Minute
	if !stuck && !overdue && !hopeless {
		return nil
	}
	return WithHint(fmt.Errorf("node %s cannot be drained after %s: %s", r.donor.node.Name, r.runner.Worked().Round(time.Second), describePods(pods)),
		"fix what blocks their eviction, choose another node, or use --force to delete them")
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

const lookAtTheFiles = "check the files of the donor's disk"

// lookSurvey waits for the inventory of the donor's files: what a policy refuses is refused before
// a pod is evicted, and in the donor's time away only what changed is read again. Where it cannot
// be made here, the seal makes it.
func (r *Run) lookSurvey(ctx context.Context) (Next, error) {
	n, left, err := r.serving(ctx)
	if err != nil {
		return Next{}, err
	} else if left {
		return done(sealSurveys), nil
	}
	if next, err := r.lookPackages(ctx, n); err != nil || next.kind != nextDone {
		return next, err
	}
	pod, err := r.agentPod(ctx, n, TaskInventory)
	if err != nil {
		return Next{}, fmt.Errorf("read the inventory's pod: %w", err)
	}
	if next, found := r.askAgain(pod); found {
		return next, nil
	}
	switch {
	case !pod.Exists:
		return act(ActSurvey, lookAtTheFiles, func(ctx context.Context) error { return r.beginSurvey(ctx, n) }).then("the inventory of the donor's files", 0), nil
	case pod.Done:
		return done("the disk may be sealed"), nil
	case pod.Ousted:
		r.withoutSurvey("node " + n.Name + " has no room for the inventory pod: " + pod.Message)
		return done(sealSurveys), nil
	case pod.Failed:
		err := WithHint(fmt.Errorf("the disk of node %s cannot be sealed as it is; no pod was evicted: %s", n.Name, pod.Message),
			"follow the message on the node or in the seal policy, or choose another node")
		if pod.Refused {
			err = inTheWay{err}
		}
		return Next{}, err
	}
	return wait("the inventory of the donor's files; its pod is " + pod.Message), nil
}

const sealSurveys = "the seal makes the inventory"

// serving reads the node for a look at it beside its pods. left: that is left to a later step,
// because it cannot be made here, or an earlier process of this run has come further.
func (r *Run) serving(ctx context.Context) (n Node, left bool, err error) {
	n, mark, err := r.donor.recentNode(ctx, r.held.run)
	switch {
	case err != nil:
		return n, false, err
	case mark == nil:
		return n, false, r.lostMark()
	case mark.Block || mark.Sealing || mark.Begun || n.Tainted(TaintBlock) || r.empty.surveyless:
		return n, true, nil
	case n.BootID != mark.BootID:
		return n, false, fmt.Errorf("node %s has booted since the run began", n.Name)
	}
	return n, false, nil
}

// askAgain removes the pod that refused the node for the former process of an adopted run: a person
// may have mended since what it tells.
func (r *Run) askAgain(pod AgentPod) (Next, bool) {
	if !r.held.adopted || r.empty.served || !pod.Failed && !pod.Refused {
		return Next{}, false
	}
	return r.removePods("remove the pod that examined the node for the former process, to examine it again"), true
}

// beginSurvey asks for the inventory. A cluster that admits no such pod is no reason to stay away.
func (r *Run) beginSurvey(ctx context.Context, n Node) error {
	r.empty.served = true
	err := r.engine.Cluster.StartAgent(ctx, n, TaskInventory, r.sealOrder())
	if errors.Is(err, ErrUnsupported) {
		r.withoutSurvey(err.Error())
		return nil
	}
	return err
}

func (r *Run) withoutSurvey(why string) {
	r.empty.surveyless = true
	r.held.warn(why + "; the inventory is taken after the drain instead")
}

// lookCheck lets the agent refuse, while the node serves its pods, what the upgrade would refuse.
// Where no pod can tell that here, the upgrade finds it out.
func (r *Run) lookCheck(ctx context.Context) (Next, error) {
	n, left, err := r.serving(ctx)
	if err != nil {
		return Next{}, err
	} else if left {
		return done(upgradeChecks), nil
	}
	pod, err := r.agentPod(ctx, n, TaskCheck)
	if err != nil {
		return Next{}, fmt.Errorf("read the pod that checks the node: %w", err)
	}
	if next, found := r.askAgain(pod); found {
		return next, nil
	}
	switch {
	case !pod.Exists:
		return act(ActCheck, "check that the node's packages can be upgraded", func(ctx context.Context) error {
			r.empty.served = true
			err := r.engine.Cluster.StartAgent(ctx, n, TaskCheck, r.patchOrder(TaskCheck, ""))
			if errors.Is(err, ErrUnsupported) {
				r.leaveToUpgrade(err.Error())
				return nil
			}
			return err
		}).then("the check of the node", 0), nil
	case pod.Done:
		return done("its packages can be upgraded"), nil
	case pod.Refused:
		return Next{}, &RefusedError{Subject: "node " + n.Name, Refusals: []Refusal{{Code: "patch", Why: "its packages cannot be upgraded as it is, and no pod was evicted: " + pod.Message,
			Do: "follow the message on the node, or choose another one"}}}
	case pod.Ousted, pod.Failed && pod.Started:
		r.leaveToUpgrade("its pod " + pod.Message)
		return done(upgradeChecks), nil
	case pod.Failed:
		return Next{}, WithHint(fmt.Errorf("no pod can upgrade the packages of node %s, and none was evicted: %s", n.Name, pod.Message), "make the image available to the node, or choose another one")
	}
	return wait("the check of the node; its pod is " + pod.Message), nil
}

const upgradeChecks = "left to the upgrade"

func (r *Run) leaveToUpgrade(why string) {
	r.empty.surveyless = true
	r.held.warn("node " + r.donor.node.Name + " is checked by the upgrade only, after the drain: " + why)
}

// lookUnseal removes the seal pod, so that nothing seals the disk any more.
func (r *Run) lookUnseal(ctx context.Context) (Next, error) {
	pod, err := r.engine.Cluster.AgentPod(ctx, r.held.run, TaskSeal)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Next{}, fmt.Errorf("read the seal pod: %w", err)
	}
	if !pod.Exists {
		return done("no seal pod"), nil
	}
	r.back.sealStarted = r.back.sealStarted || pod.Started
	return act(ActUnseal, deleteTheSealPod, r.removeAgents), nil
}

const deleteTheSealPod = "delete the seal pod"

// lookPods removes the seal pod, and those of an inventory or a patch that ended with their run.
func (r *Run) lookPods(ctx context.Context) (Next, error) {
	next, err := r.lookUnseal(ctx)
	if err != nil || next.kind != nextDone {
		return next, err
	}
	tasks := []Task{TaskInventory}
	if r.patching() {
		tasks = patchTasks
	}
	for _, task := range tasks {
		pod, err := r.engine.Cluster.AgentPod(ctx, r.held.run, task)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return Next{}, fmt.Errorf("read the pod of task %s: %w", task, err)
		}
		if pod.Exists {
			return act(ActUnseal, "delete the pods of the run", r.removeAgents), nil
		}
	}
	return next, nil
}
