package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/selection"
	"kamino.dev/kamino/workflow"
)

func (r *Run) lookConnect(ctx context.Context) (workflow.Next, error) {
	if err := r.checkCredentials(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.checkCluster(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.refusePaused(ctx); err != nil && r.opts.Donor != "" {
		return workflow.Next{}, err // a rollback continues
	}
	return workflow.Done("credentials work"), nil
}

func (r *Run) checkCluster(ctx context.Context) error {
	doubts, err := r.engine.Cluster.Preflight(ctx, r.opts.DrainOptions())
	if errors.Is(err, kamino.ErrForbidden) { // what else is missing is reported together
		if more := r.checkProof(ctx); errors.Is(more, kamino.ErrForbidden) {
			return errors.Join(err, more)
		}
	}
	if err != nil {
		return err
	}
	r.doubtAll(kamino.StepConnect, doubts)
	return r.checkProof(ctx)
}

// checkProof makes sure that the run may read from the cluster what a proof observes.
func (r *Run) checkProof(ctx context.Context) error {
	examiner, looks := r.engine.Cluster.(kamino.Examiner)
	if !looks || r.opts.Proof.Mode == kamino.ProveNone {
		return nil
	}
	if err := examiner.PreflightProof(ctx, r.opts.Proof.Probe); err != nil {
		return fmt.Errorf("check the rights of a proof: %w", err)
	}
	return nil
}

// checkCredentials is the part of connect that a plan needs. A plan also works on a cluster that
// was not prepared.
func (r *Run) checkCredentials(ctx context.Context) error {
	doubts, err := r.engine.Provider.Preflight(ctx)
	if err != nil {
		return err
	}
	r.doubtAll(kamino.StepConnect, doubts)
	return nil
}

func (r *Run) lookValidate(ctx context.Context) (workflow.Next, error) {
	node, err := r.engine.namedNode(ctx, r.opts.Donor)
	if err != nil {
		return workflow.Next{}, err
	}
	if _, err := node.Mark(); err != nil {
		return workflow.Next{}, kamino.RefuseMark(node.Name, err)
	}
	r.donor.node = node
	if refusals := selection.RefuseNode(node, r.opts, true); node.ProviderID == "" {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + node.Name, Refusals: refusals}
	}
	if err := r.readPool(ctx); err != nil {
		return workflow.Next{}, err
	}
	mark, err := node.Claimed(r.pool.ID)
	if err != nil {
		return workflow.Next{}, kamino.RefuseMark(node.Name, err)
	}
	if err := r.refuse(mark != nil); err != nil {
		return workflow.Next{}, err
	}
	// A marked donor may be away. Whose mark it is shows under the lease; then the donor is judged.
	if r.donor.unjudged = mark != nil; !r.donor.unjudged {
		if err := r.refuseHeld(ctx); err != nil {
			return workflow.Next{}, err
		}
		if err := r.fit(ctx); err != nil {
			return workflow.Next{}, err
		}
	}
	if r.work() != kamino.WorkPatch {
		if err := r.chooseProof(ctx); err != nil {
			return workflow.Next{}, err
		}
	}
	return workflow.Done(fmt.Sprintf("%s is %s of pool %s", node.Name, r.donor.instance.ID, r.pool.Name)), nil
}

// chooseProof refuses, by reading only, a run that has to prove its version where no canary can be
// created.
func (r *Run) chooseProof(ctx context.Context) error {
	if r.proof.mode = r.opts.Proof.Mode; r.proof.mode != kamino.ProveCanary {
		return nil
	}
	prover, _, ok := r.engine.prover()
	if !ok {
		return r.refuseCanary(kamino.Refusal{Why: "this provider cannot create canaries"})
	}
	doubts, err := prover.PreflightCanary(ctx)
	if errors.Is(err, kamino.ErrForbidden) {
		return r.refuseCanary(kamino.Refusal{Why: err.Error(), Do: "grant the rights of " + prover.CanaryRights()})
	} else if err != nil {
		return fmt.Errorf("check the rights of a canary: %w", err)
	}
	r.doubtAll(kamino.StepValidate, doubts)
	if r.proof.fit.Size == "" {
		if r.proof.fit, err = prover.CanaryFit(ctx, r.pool); err != nil {
			return fmt.Errorf("compare pool %s with a canary: %w", r.pool.Name, err)
		}
	}
	return r.refuseCanary(r.proof.fit.Refusals...)
}

// refuseCanary is the refusal of a proof by canary, with the given reasons; nil without any.
func (r *Run) refuseCanary(reasons ...kamino.Refusal) error {
	if len(reasons) == 0 {
		return nil
	}
	accept := "use --prove none to accept the version unproved"
	if r.work() == kamino.WorkProve {
		accept = "omit --prove to accept the version unproved"
	}
	refused := &kamino.RefusedError{Subject: "a canary of pool " + r.pool.Name}
	for _, f := range reasons {
		f.Code = kamino.CodeNoCanary
		if f.Do != "" {
			f.Do += ", or "
		}
		f.Do += accept
		refused.Refusals = append(refused.Refusals, f)
	}
	return refused
}

// namedNode reads a node that a person named.
func (e *Engine) namedNode(ctx context.Context, name string) (kamino.Node, error) {
	n, err := e.Cluster.Node(ctx, name)
	if errors.Is(err, kamino.ErrNotFound) {
		return n, kamino.RefuseUnknown(name)
	} else if err != nil {
		return n, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// namedPool returns the pool of a named node. A node without a pool is an error.
func (e *Engine) namedPool(ctx context.Context, n kamino.Node) (kamino.PoolID, error) {
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if errors.Is(err, kamino.ErrUnsupported) {
		return "", refuseOutside(n, err)
	} else if err != nil {
		return "", fmt.Errorf("find the pool of node %s: %w", n.Name, err)
	}
	return id, nil
}

// readPool reads the donor's instance and its pool.
func (r *Run) readPool(ctx context.Context) error {
	id, err := r.engine.namedPool(ctx, r.donor.node)
	if err != nil {
		return err
	}
	if r.pool, err = r.engine.Provider.Pool(ctx, id); err != nil {
		return r.hintGone(fmt.Errorf("read pool %s of node %s: %w", id.Name(), r.donor.node.Name, err))
	}
	in, err := r.engine.Provider.Instance(ctx, r.donor.node.ProviderID)
	if err != nil {
		return r.hintGone(fmt.Errorf("read instance %s of node %s: %w", r.donor.node.ProviderID, r.donor.node.Name, err))
	}
	r.donor.instance = in.WithVM(r.donor.node.SystemUUID)
	r.donor.instance.Architecture = cmp.Or(in.Architecture, kamino.NodeArchitecture(r.donor.node.Architecture))
	return nil
}

// labelKarpenter is the label with the node pool on each node that Karpenter creates
// (https://karpenter.sh/docs/concepts/nodepools).
const labelKarpenter = "karpenter.sh/nodepool"

// refuseOutside refuses a node that belongs to no pool.
func refuseOutside(n kamino.Node, err error) error {
	f := kamino.Refusal{Code: "provider", Field: "spec.providerID", Value: string(n.ProviderID), Why: err.Error(), Do: "choose a node of a pool that this provider can handle"}
	if by := n.Labels[labelKarpenter]; by != "" {
		f = kamino.Refusal{Code: "owner", Field: "metadata.labels[" + labelKarpenter + "]", Value: by, Why: "Karpenter made the node, and it belongs to no pool: " + err.Error(),
			Do: "choose a node of a pool; the image of Karpenter's nodes is set in their node class"}
	}
	return &kamino.RefusedError{Subject: "node " + n.Name, Refusals: []kamino.Refusal{f}}
}

// hintGone adds what to do about a node whose machine is gone.
func (r *Run) hintGone(err error) error {
	switch marked := r.donor.node.Annotations[kamino.AnnotationRun] != "" || r.donor.node.Tainted(kamino.TaintBlock); {
	case !errors.Is(err, kamino.ErrNotFound):
		return err
	case marked: // other runs know of this run by the node
		return kamino.WithHint(err, "a run took the node; to give back what it left: kamino restore")
	}
	return kamino.WithHint(err, "if the machine was deleted, its Node object is stale: kubectl delete node %s; else check the node's providerID", r.donor.node.Name)
}

func (r *Run) lookLock(ctx context.Context) (workflow.Next, error) {
	return r.held.Look(ctx, r.freshRecord)
}

// lookFreeLock takes a lease that nobody holds. It adopts no run, because the run's donor would
// have to be given back.
func (r *Run) lookFreeLock(ctx context.Context) (workflow.Next, error) {
	lease, err := r.engine.Cluster.Lease(ctx, r.pool.ID)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read lease of pool %s: %w", r.pool.Name, err)
	}
	if lease.Holder != "" && lease.Holder != r.held.Run {
		return workflow.Next{}, lock.HeldBy(lease)
	}
	return r.lookLock(ctx)
}

// lookRecover restores what earlier runs of the pool left, before a new donor is touched. An
// adopted run continues where it was, if possible.
func (r *Run) lookRecover(ctx context.Context) (workflow.Next, error) {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range selection.Twins(nodes) {
		if n.Name == r.donor.node.Name {
			r.donor.sawNode(n) // much may have happened while the lease was watched
		}
	}
	continues := r.held.Adopted && r.continues()
	if next, found, err := r.leftBehind(ctx, nodes, continues); found || err != nil {
		return next, err
	}
	if n := r.donor.node; n.Twin != "" && !continues {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + n.Name, Refusals: []kamino.Refusal{{Code: "machine", Field: "spec.providerID", Value: string(n.ProviderID),
			Why: "node " + n.Twin + " shows the same machine: the disk of another node could become the image",
			Do:  "find out which of the two runs on it, and delete the other Node object: kubectl delete node NODE"}}}
	}
	if r.held.Adopted && !continues {
		return workflow.Act(kamino.ActBegin, "begin a new run in place of "+r.held.Run, func(ctx context.Context) error {
			id := r.held.FreshID()
			if err := r.readVerdict(ctx); err != nil {
				return err
			}
			err := r.held.SetLease(ctx, func(l *kamino.Lease) {
				if l.Holder != id {
					l.Epoch++
					l.Ledger.NoteFailed(l.Holder, r.held.AsFound(l.Record), r.engine.date())
				}
				was := l.Record
				l.Holder, l.Record = id, r.freshRecord()
				l.Record.Canary, l.Record.CanarySince, l.Record.Probe = was.Canary, was.CanarySince, was.Probe // until they are removed
			})
			if err == nil {
				r.held.Run, r.held.Adopted, r.held.Replaced = id, false, r.held.Run
			}
			return err
		}), nil
	}
	if former := r.held.Replaced; former != r.held.Cleared {
		// If somebody removed the donor's mark, the pods of that run are found only this way.
		return workflow.Act(kamino.ActUnseal, "remove the pods of run "+former, func(ctx context.Context) error {
			err := r.engine.Cluster.RemoveAgents(ctx, former, agentTasks(r.held.Before.Work == kamino.WorkPatch, true))
			if err == nil {
				r.held.Cleared = former
			}
			return err
		}), nil
	}
	if err := r.judge(ctx, continues); err != nil {
		return workflow.Next{}, err
	}
	if err := r.keepProof(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.held.RefuseModel(); err != nil && !continues && r.work() == "" && r.donorNeeded() {
		return workflow.Next{}, err
	}
	if continues {
		r.away = span{r.held.Lease.Record.AwaySince, r.held.Lease.Record.AwayEnds}
		return workflow.Done(fmt.Sprintf("continuing run %s at step %s", r.held.Run, r.held.Lease.Record.Step)), nil
	}
	return workflow.Done("nothing was left"), nil
}

// judge makes the checks of validate for a donor that was marked. A donor that this run continues
// with may be away; changes of its pool since then count for it too.
func (r *Run) judge(ctx context.Context, continues bool) error {
	if !r.donor.unjudged {
		return nil
	}
	if !continues {
		if err := r.readPool(ctx); err != nil {
			return err
		}
		if err := r.refuse(false); err != nil {
			return err
		}
	}
	if err := r.fit(ctx); err != nil {
		return err
	}
	r.donor.unjudged = false
	return nil
}

// leftBehind finds a donor of the pool that an earlier run left: by the marks or, if Kubernetes has
// forgotten the node, by the record on the lease.
func (r *Run) leftBehind(ctx context.Context, nodes []kamino.Node, continues bool) (next workflow.Next, found bool, err error) {
	if nodes, err = r.engine.ofPool(ctx, nodes, r.pool.ID); err != nil {
		return workflow.Next{}, false, err
	}
	for _, n := range nodes {
		mark, err := n.OwnedBy(r.pool.ID, *r.held.Lease)
		if err != nil {
			r.tell(kamino.Event{Kind: kamino.EventWarning, Step: kamino.StepRecover, Percent: -1, Message: err.Error() + ": left alone"})
		}
		if err != nil || mark == nil || (mark.Run == r.held.Run && continues) {
			continue
		}
		return workflow.ActSteps(kamino.ActGiveBack, fmt.Sprintf("give back node %s, which run %s left", n.Name, mark.Run),
			func(ctx context.Context) error { return r.giveBackNode(ctx, n, *mark) }).Of(n.Name), true, nil
	}
	rec := r.held.Lease.Record
	if !r.held.Adopted || continues || !rec.Sealing && !rec.Held {
		return workflow.Next{}, false, nil
	}
	mark := kamino.Mark{Run: r.held.Run, Pool: r.pool.ID, Instance: rec.Instance, VMID: rec.VMID}
	return workflow.ActSteps(kamino.ActGiveBack, fmt.Sprintf("give back the machine of node %s, which run %s left", rec.Donor, r.held.Run), func(ctx context.Context) error {
		if err := r.giveBackNode(ctx, kamino.Node{Name: rec.Donor}, mark); err != nil {
			return err
		}
		return r.held.SetLease(ctx, func(l *kamino.Lease) { l.Record.Sealing, l.Record.Held = false, false })
	}), true, nil
}

// continues reports whether the adopted run can continue with this donor. It cannot if it was
// restoring, if it had another donor, or if the donor has booted since, because its disk is then
// not the sealed one.
func (r *Run) continues() bool {
	rec := r.held.Lease.Record
	if rec.GivingBack || rec.Donor != r.donor.node.Name || !kamino.SameVM(rec.VMID, r.donor.instance.VMID) {
		return false
	}
	if rec.Work != r.work() {
		return false
	}
	if rec.Work == "" && rec.Intent == "" && rec.Version != kamino.VersionName(r.engine.now()) {
		return false // it had not begun anything, and its day is over
	}
	mark, err := r.donor.node.Claimed(r.pool.ID)
	if err != nil || mark == nil {
		// The run can continue if the donor is not marked yet, or was returned already. It cannot
		// if somebody removed the mark meanwhile.
		return err == nil && !rec.Sealing && !rec.Held
	}
	// A node that is patched boots in between.
	return mark.Run == r.held.Run && (mark.BootID == r.donor.node.BootID || rec.Work == kamino.WorkPatch)
}

// fit compares the donor with the pool's model and image definition before anything is changed.
// Differences that can never be changed would otherwise show when the donor is off, or when the
// pool cannot grow any more.
func (r *Run) fit(ctx context.Context) error {
	if r.work() == kamino.WorkPatch {
		return nil // no image is made of its disk
	}
	var all []kamino.Refusal
	var definition *kamino.Artifact
	if r.inDefinition() {
		found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Definition, kamino.DefinitionName(r.pool.Name))
		if err != nil {
			return fmt.Errorf("read image definition of pool %s: %w", r.pool.Name, err)
		}
		if len(found) > 0 && found[0].State == kamino.Succeeded {
			definition, r.image.formerHome = &found[0], true
			all = misfits(found[0], r.wantedDefinition())
		}
	}
	refusals, doubts, err := r.engine.Provider.Fit(ctx, r.pool, r.donor.instance, definition)
	if err != nil {
		return fmt.Errorf("compare node %s with pool %s: %w", r.donor.node.Name, r.pool.Name, err)
	}
	r.doubtAll(kamino.StepValidate, doubts)
	all = append(all, refusals...)
	if len(all) > 0 {
		return &kamino.RefusedError{Subject: "node " + r.donor.node.Name, Refusals: all}
	}
	return nil
}

// said returns the doubts that were reported.
func (r *Run) said() (texts []string) {
	for _, d := range r.doubts {
		texts = append(texts, d.String())
	}
	return texts
}

// doubt reports once what could not be found out.
func (r *Run) doubt(step, what string) { r.doubtAll(step, []kamino.Warning{{Found: what}}) }

func (r *Run) doubtAll(step string, doubts []kamino.Warning) {
	for _, d := range doubts {
		if slices.Contains(r.doubts, d) {
			continue
		}
		r.doubts = append(r.doubts, d)
		r.tell(kamino.Event{Kind: kamino.EventWarning, Step: step, Percent: -1, Message: d.String()})
	}
}
