package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

func (r *Run) lookConnect(ctx context.Context) (Next, error) {
	if err := r.checkCredentials(ctx); err != nil {
		return Next{}, err
	}
	if err := r.checkCluster(ctx); err != nil {
		return Next{}, err
	}
	if err := r.refusePaused(ctx); err != nil && r.opts.Donor != "" {
		return Next{}, err // a rollback goes on
	}
	return done("credentials work"), nil
}

func (r *Run) checkCluster(ctx context.Context) error {
	doubts, err := r.engine.Cluster.Preflight(ctx, r.opts.drainOptions())
	if errors.Is(err, ErrForbidden) { // what else is missing is told at once
		if more := r.checkProof(ctx); errors.Is(more, ErrForbidden) {
			return errors.Join(err, more)
		}
	}
	if err != nil {
		return err
	}
	r.doubtAll(InConnect, doubts)
	return r.checkProof(ctx)
}

// checkProof makes sure that the cluster may be asked what a proof looks at.
func (r *Run) checkProof(ctx context.Context) error {
	examiner, looks := r.engine.Cluster.(Examiner)
	if !looks || r.opts.Proof.Mode == ProveNone {
		return nil
	}
	if err := examiner.PreflightProof(ctx, r.opts.Proof.Probe); err != nil {
		return fmt.Errorf("check the rights of a proof: %w", err)
	}
	return nil
}

// checkCredentials is as much of connect as a plan needs, which is printed on clusters that were
// not prepared yet.
func (r *Run) checkCredentials(ctx context.Context) error {
	doubts, err := r.engine.Provider.Preflight(ctx)
	if err != nil {
		return err
	}
	r.doubtAll(InConnect, doubts)
	return nil
}

func (r *Run) lookValidate(ctx context.Context) (Next, error) {
	node, err := r.engine.namedNode(ctx, r.opts.Donor)
	if err != nil {
		return Next{}, err
	}
	if _, err := node.Mark(); err != nil {
		return Next{}, refuseMark(node.Name, err)
	}
	r.donor.node = node
	if refusals := refuseNode(node, r.opts, true); node.ProviderID == "" {
		return Next{}, &RefusedError{Subject: "node " + node.Name, Refusals: refusals}
	}
	if err := r.readPool(ctx); err != nil {
		return Next{}, err
	}
	mark, err := node.claim(r.pool.ID)
	if err != nil {
		return Next{}, refuseMark(node.Name, err)
	}
	if err := r.refuse(mark != nil); err != nil {
		return Next{}, err
	}
	// A donor that is marked may be away. Whose mark it is shows under the lease, and then it is
	// judged.
	if r.donor.unjudged = mark != nil; !r.donor.unjudged {
		if err := r.refuseHeld(ctx); err != nil {
			return Next{}, err
		}
		if err := r.fit(ctx); err != nil {
			return Next{}, err
		}
	}
	if r.work() != WorkPatch {
		if err := r.chooseProof(ctx); err != nil {
			return Next{}, err
		}
	}
	return done(fmt.Sprintf("%s is %s of pool %s", node.Name, r.donor.instance.ID, r.pool.Name)), nil
}

// chooseProof refuses, by reading only, a run that is to prove its version where no canary can be
// created.
func (r *Run) chooseProof(ctx context.Context) error {
	if r.proof.mode = r.opts.Proof.Mode; r.proof.mode != ProveCanary {
		return nil
	}
	prover, _, ok := r.engine.prover()
	if !ok {
		return r.refuseCanary(Refusal{Why: "this provider cannot create canaries"})
	}
	doubts, err := prover.PreflightCanary(ctx)
	if errors.Is(err, ErrForbidden) {
		return r.refuseCanary(Refusal{Why: err.Error(), Do: "grant the rights of " + prover.CanaryRights()})
	} else if err != nil {
		return fmt.Errorf("check the rights of a canary: %w", err)
	}
	r.doubtAll(InValidate, doubts)
	if r.proof.fit.Size == "" {
		if r.proof.fit, err = prover.CanaryFit(ctx, r.pool); err != nil {
			return fmt.Errorf("compare pool %s with a canary: %w", r.pool.Name, err)
		}
	}
	return r.refuseCanary(r.proof.fit.Refusals...)
}

// refuseCanary is the refusal where no canary can be created, for the given reasons; nil where there
// are none.
func (r *Run) refuseCanary(reasons ...Refusal) error {
	if len(reasons) == 0 {
		return nil
	}
	accept := "use --prove none to accept the version unproved"
	if r.work() == WorkProve {
		accept = "omit --prove to accept the version unproved"
	}
	refused := &RefusedError{Subject: "a canary of pool " + r.pool.Name}
	for _, f := range reasons {
		f.Code = CodeNoCanary
		if f.Do != "" {
			f.Do += ", or "
		}
		f.Do += accept
		refused.Refusals = append(refused.Refusals, f)
	}
	return refused
}

// CodeNoCanary is the code of the refusal of a proof where no canary can be created.
const CodeNoCanary = "no-canary"

// namedNode reads a node that a person named.
func (e *Engine) namedNode(ctx context.Context, name string) (Node, error) {
	n, err := e.Cluster.Node(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return n, refuseUnknown(name)
	} else if err != nil {
		return n, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// namedPool is the pool of such a node, which has to be of one.
func (e *Engine) namedPool(ctx context.Context, n Node) (PoolID, error) {
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if errors.Is(err, ErrUnsupported) {
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
	r.donor.instance = in.as(r.donor.node.SystemUUID)
	r.donor.instance.Architecture = cmp.Or(in.Architecture, nodeArchitecture(r.donor.node.Architecture))
	return nil
}

// labelKarpenter is on each node that Karpenter makes, with its node pool
// (https://karpenter.sh/docs/concepts/nodepools).
const labelKarpenter = "karpenter.sh/nodepool"

// refuseOutside refuses a node that is of no pool.
func refuseOutside(n Node, err error) error {
	f := Refusal{Code: "provider", Field: "spec.providerID", Value: string(n.ProviderID), Why: err.Error(), Do: "choose a node of a pool that this provider can handle"}
	if by := n.Labels[labelKarpenter]; by != "" {
		f = Refusal{Code: "owner", Field: "metadata.labels[" + labelKarpenter + "]", Value: by, Why: "Karpenter made the node, and it belongs to no pool: " + err.Error(),
			Do: "choose a node of a pool; the image of Karpenter's nodes is set in their node class"}
	}
	return &RefusedError{Subject: "node " + n.Name, Refusals: []Refusal{f}}
}

// hintGone tells what to do about a node whose machine is gone.
func (r *Run) hintGone(err error) error {
	switch marked := r.donor.node.Annotations[AnnotationRun] != "" || r.donor.node.Tainted(TaintBlock); {
	case !errors.Is(err, ErrNotFound):
		return err
	case marked: // the node is what others know of its run
		return WithHint(err, "a run took the node; to give back what it left: kamino restore")
	}
	return WithHint(err, "if the machine was deleted, its Node object is stale: kubectl delete node %s; else check the node's providerID", r.donor.node.Name)
}

func (r *Run) lookLock(ctx context.Context) (Next, error) { return r.held.look(ctx, r.freshRecord) }

// lookFreeLock takes a lease that nobody holds. A run is never adopted, since
// its donor would have to be given back.
func (r *Run) lookFreeLock(ctx context.Context) (Next, error) {
	lease, err := r.engine.Cluster.Lease(ctx, r.pool.ID)
	if err != nil {
		return Next{}, fmt.Errorf("read lease of pool %s: %w", r.pool.Name, err)
	}
	if lease.Holder != "" && lease.Holder != r.held.run {
		return Next{}, heldError(lease)
	}
	return r.lookLock(ctx)
}

// lookRecover gives back what earlier runs of the pool left before a new donor
// is touched. An adopted run goes on where it stood if that is possible.
func (r *Run) lookRecover(ctx context.Context) (Next, error) {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range twins(nodes) {
		if n.Name == r.donor.node.Name {
			r.donor.sawNode(n) // much may have happened while the lease was watched
		}
	}
	continues := r.held.adopted && r.continues()
	if next, found, err := r.leftBehind(ctx, nodes, continues); found || err != nil {
		return next, err
	}
	if n := r.donor.node; n.Twin != "" && !continues {
		return Next{}, &RefusedError{Subject: "node " + n.Name, Refusals: []Refusal{{Code: "machine", Field: "spec.providerID", Value: string(n.ProviderID),
			Why: "node " + n.Twin + " shows the same machine: the disk of another node could become the image",
			Do:  "find out which of the two runs on it, and delete the other Node object: kubectl delete node NODE"}}}
	}
	if r.held.adopted && !continues {
		return act(ActBegin, "begin a new run in place of "+r.held.run, func(ctx context.Context) error {
			id := r.held.freshID()
			if err := r.readVerdict(ctx); err != nil {
				return err
			}
			err := r.held.setLease(ctx, func(l *Lease) {
				if l.Holder != id {
					l.Epoch++
					l.Ledger.failed(l.Holder, r.held.asFound(l.Record), r.engine.date())
				}
				was := l.Record
				l.Holder, l.Record = id, r.freshRecord()
				l.Record.Canary, l.Record.CanarySince, l.Record.Probe = was.Canary, was.CanarySince, was.Probe // until they are removed
			})
			if err == nil {
				r.held.run, r.held.adopted, r.held.replaced = id, false, r.held.run
			}
			return err
		}), nil
	}
	if former := r.held.replaced; former != r.held.cleared {
		// Where somebody removed the donor's mark, nothing else leads to that run's pods.
		return act(ActUnseal, "remove the pods of run "+former, func(ctx context.Context) error {
			err := r.engine.Cluster.RemoveAgents(ctx, former, agentTasks(r.held.before.Work == WorkPatch, true))
			if err == nil {
				r.held.cleared = former
			}
			return err
		}), nil
	}
	if err := r.judge(ctx, continues); err != nil {
		return Next{}, err
	}
	if err := r.keepProof(ctx); err != nil {
		return Next{}, err
	}
	if err := r.held.refuseModel(); err != nil && !continues && r.work() == "" && r.donorNeeded() {
		return Next{}, err
	}
	if continues {
		r.away = span{r.held.lease.Record.AwaySince, r.held.lease.Record.AwayEnds}
		return done(fmt.Sprintf("continuing run %s at step %s", r.held.run, r.held.lease.Record.Step)), nil
	}
	return done("nothing was left"), nil
}

// judge asks of a donor that was marked what validate asks of any other. One that a run goes on
// with may be away; what has become of its pool since then counts for it too.
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

// leftBehind finds a donor of the pool that an earlier run left: by the marks,
// and where Kubernetes has forgotten the node, by the record on the lease.
func (r *Run) leftBehind(ctx context.Context, nodes []Node, continues bool) (next Next, found bool, err error) {
	if nodes, err = r.engine.ofPool(ctx, nodes, r.pool.ID); err != nil {
		return Next{}, false, err
	}
	for _, n := range nodes {
		mark, err := n.taken(r.pool.ID, *r.held.lease)
		if err != nil {
			r.tell(Event{Kind: Warned, Step: InRecover, Percent: -1, Message: err.Error() + ": left alone"})
		}
		if err != nil || mark == nil || (mark.Run == r.held.run && continues) {
			continue
		}
		return actSteps(ActGiveBack, fmt.Sprintf("give back node %s, which run %s left", n.Name, mark.Run),
			func(ctx context.Context) error { return r.giveBackNode(ctx, n, *mark) }).of(n.Name), true, nil
	}
	rec := r.held.lease.Record
	if !r.held.adopted || continues || !rec.Sealing && !rec.Held {
		return Next{}, false, nil
	}
	mark := Mark{Run: r.held.run, Pool: r.pool.ID, Instance: rec.Instance, VMID: rec.VMID}
	return actSteps(ActGiveBack, fmt.Sprintf("give back the machine of node %s, which run %s left", rec.Donor, r.held.run), func(ctx context.Context) error {
		if err := r.giveBackNode(ctx, Node{Name: rec.Donor}, mark); err != nil {
			return err
		}
		return r.held.setLease(ctx, func(l *Lease) { l.Record.Sealing, l.Record.Held = false, false })
	}), true, nil
}

// continues says whether the adopted run can go on with this donor. It cannot
// when it was giving back, had another donor, or when the donor has booted
// since: then its disk is no longer the sealed one.
func (r *Run) continues() bool {
	rec := r.held.lease.Record
	if rec.GivingBack || rec.Donor != r.donor.node.Name || !SameVM(rec.VMID, r.donor.instance.VMID) {
		return false
	}
	if rec.Work != r.work() {
		return false
	}
	if rec.Work == "" && rec.Intent == "" && rec.Version != VersionName(r.engine.now()) {
		return false // it had not begun anything, and its day is over
	}
	mark, err := r.donor.node.claim(r.pool.ID)
	if err != nil || mark == nil {
		// Not marked yet, or returned already: both are fine to go on from. A mark
		// that somebody removed meanwhile is not.
		return err == nil && !rec.Sealing && !rec.Held
	}
	// A node that is patched boots in between.
	return mark.Run == r.held.run && (mark.BootID == r.donor.node.BootID || rec.Work == WorkPatch)
}

// fit compares the donor with the pool's model and image definition, before
// anything is touched: what of these can never be changed later would otherwise
// be found out when the donor is off, or when the pool can no longer grow.
func (r *Run) fit(ctx context.Context) error {
	if r.work() == WorkPatch {
		return nil // nothing is made of its disk
	}
	var all []Refusal
	var definition *Artifact
	if r.inDefinition() {
		found, err := r.engine.Provider.Find(ctx, r.pool, Definition, DefinitionName(r.pool.Name))
		if err != nil {
			return fmt.Errorf("read image definition of pool %s: %w", r.pool.Name, err)
		}
		if len(found) > 0 && found[0].State == Succeeded {
			definition, r.image.formerHome = &found[0], true
			all = misfits(found[0], r.wantedDefinition())
		}
	}
	refusals, doubts, err := r.engine.Provider.Fit(ctx, r.pool, r.donor.instance, definition)
	if err != nil {
		return fmt.Errorf("compare node %s with pool %s: %w", r.donor.node.Name, r.pool.Name, err)
	}
	r.doubtAll(InValidate, doubts)
	all = append(all, refusals...)
	if len(all) > 0 {
		return &RefusedError{Subject: "node " + r.donor.node.Name, Refusals: all}
	}
	return nil
}

// said are the doubts that were told.
func (r *Run) said() (texts []string) {
	for _, d := range r.doubts {
		texts = append(texts, d.String())
	}
	return texts
}

// doubt tells what could not be found out, once.
func (r *Run) doubt(step, what string) { r.doubtAll(step, []Doubt{{Found: what}}) }

func (r *Run) doubtAll(step string, doubts []Doubt) {
	for _, d := range doubts {
		if slices.Contains(r.doubts, d) {
			continue
		}
		r.doubts = append(r.doubts, d)
		r.tell(Event{Kind: Warned, Step: step, Percent: -1, Message: d.String()})
	}
}
