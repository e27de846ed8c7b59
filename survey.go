package kamino

import (
	"context"
	"errors"
	"fmt"
)

// Surveyor is a cluster that can have the files of a donor's disk looked at while the node still serves its pods.
type Surveyor interface {
	// Survey creates the pod of a run that looks at the disk and refuses what the seal would refuse. It changes nothing but the
	// host's memory, in which the seal finds what was seen. One that exists already is no error. ErrUnsupported where such pods are not
	// admitted and seal pods are.
	Survey(ctx context.Context, node Node, order SealOrder) error
	// SurveyPod reads it. RemoveSealPod removes it.
	SurveyPod(ctx context.Context, node Node, run string) (SealPod, error)
}

const lookAtTheFiles = "look at the files of the donor's disk"

// lookSurvey waits for the inventory of the donor's files: what a policy refuses is refused before a pod is evicted, and in the donor's time
// away only what changed is read again. Where it cannot be made here, the seal makes it.
func (r *Run) lookSurvey(ctx context.Context) (Next, error) {
	s, ok := r.Cluster.(Surveyor)
	if !ok {
		return done(sealSurveys), nil
	}
	n, mark, err := r.recentNode(ctx)
	switch {
	case err != nil:
		return Next{}, err
	case mark == nil:
		return Next{}, r.lostMark()
	case mark.Block || mark.Sealing || n.Tainted(TaintBlock) || r.surveyless:
		return done(sealSurveys), nil // the first two by an earlier process of this run
	case n.BootID != mark.BootID:
		return Next{}, fmt.Errorf("node %s has booted since the run began", n.Name)
	}
	pod, err := s.SurveyPod(ctx, n, r.id)
	if err != nil {
		return Next{}, fmt.Errorf("read the inventory's pod: %w", err)
	}
	switch {
	case !pod.Exists:
		return act(ActSurvey, lookAtTheFiles, func(ctx context.Context) error { return r.beginSurvey(ctx, n) }).then("the inventory of the donor's files", 0), nil
	case pod.Done:
		return done("the disk may be sealed"), nil
	case pod.Ousted:
		r.withoutSurvey("node " + n.Name + " has no room for the inventory beside its pods: " + pod.Message)
		return done(sealSurveys), nil
	case pod.Failed:
		return Next{}, WithHint(fmt.Errorf("the disk of node %s cannot be sealed as it is; no pod was evicted: %s", n.Name, pod.Message),
			"do what the message says on the node or in the seal policy, or choose another node")
	}
	return wait("the inventory of the donor's files; its pod is " + pod.Message), nil
}

const sealSurveys = "left to the seal"

// beginSurvey asks for the inventory. A cluster that admits no such pod is no reason to stay away.
func (r *Run) beginSurvey(ctx context.Context, n Node) error {
	s, ok := r.Cluster.(Surveyor)
	if !ok {
		return nil
	}
	err := s.Survey(ctx, n, r.sealOrder())
	if errors.Is(err, ErrUnsupported) {
		r.withoutSurvey(err.Error())
		return nil
	}
	return err
}

func (r *Run) withoutSurvey(why string) {
	r.surveyless = true
	r.tell(Event{Kind: Warned, Step: r.now.name, Percent: -1, Message: why + "; it is made after the drain instead"})
}

// lookUnseal removes the seal pod, so that nothing seals the disk any more.
func (r *Run) lookUnseal(ctx context.Context) (Next, error) {
	pod, err := r.Cluster.SealPod(ctx, r.node, r.id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Next{}, fmt.Errorf("read the seal pod: %w", err)
	}
	if !pod.Exists {
		return done("no seal pod"), nil
	}
	r.sealStarted = r.sealStarted || pod.Started
	return act(ActUnseal, deleteTheSealPod, func(ctx context.Context) error {
		return r.Cluster.RemoveSealPod(ctx, r.node, r.id)
	}), nil
}

const deleteTheSealPod = "delete the seal pod"

// lookPods removes the seal pod, and what an inventory left that ended with its run.
func (r *Run) lookPods(ctx context.Context) (Next, error) {
	next, err := r.lookUnseal(ctx)
	s, ok := r.Cluster.(Surveyor)
	if err != nil || next.kind != nextDone || !ok {
		return next, err
	}
	pod, err := s.SurveyPod(ctx, r.node, r.id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Next{}, fmt.Errorf("read the inventory's pod: %w", err)
	}
	if !pod.Exists {
		return next, nil
	}
	return act(ActUnseal, deleteTheSealPod+" and the inventory's", func(ctx context.Context) error {
		return r.Cluster.RemoveSealPod(ctx, r.node, r.id)
	}), nil
}
