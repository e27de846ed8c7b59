package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// removeCanary removes the first canary of the list that may be removed and that the function
// selects.
func (r *Run) removeCanary(prover kamino.Prover, list []kamino.Canary, shall func(kamino.Canary) bool) (workflow.Next, bool) {
	for _, c := range list {
		r.proof.machines[c.Instance] = c.Name
		switch {
		case !shall(c):
		case !r.mayRemove(c):
			why := fmt.Sprintf("belongs to run %s, which is not recorded on the lease of the pool: it is kept until it expires at %s", c.Run, c.Expires.Format(time.RFC3339))
			r.proof.kept[c.Name] = why
			r.doubt(kamino.StepRetire, "canary "+c.Name+" "+why)
		case c.State == kamino.Deleting:
			r.proof.leaves = true
			return workflow.Wait("canary " + c.Name + " to be deleted"), true
		default:
			r.proof.shown = true
			return r.removal(prover, c.Name, c.Run), true
		}
	}
	return workflow.Next{}, false
}

// removeUnlisted removes the canary on the lease by its name, once, if no list shows it: a list may
// lack a canary that a killed process requested.
func (r *Run) removeUnlisted(prover kamino.Prover, list []kamino.Canary) (workflow.Next, bool) {
	name := r.held.Lease.Record.Canary
	if !r.knownCanary(name) || r.proof.removed[name] || kamino.Lists(list, name) {
		return workflow.Next{}, false
	}
	return r.removal(prover, name, r.held.Run), true
}

func (r *Run) removal(prover kamino.Prover, name, run string) workflow.Next {
	return workflow.Act(kamino.ActRemoveCanary, "remove canary "+name+" of run "+run, func(ctx context.Context) error {
		r.proof.listedAt = time.Time{}
		err := prover.RemoveCanary(ctx, r.pool, name)
		if err == nil {
			r.proof.removed[name] = true
		}
		return err
	}).Of(name).Then("canary "+name+" to be deleted", 0)
}

// removeProbe deletes the operator's probe that this run, or the run that it replaced, started.
func (r *Run) removeProbe(ctx context.Context) error {
	p := r.held.Lease.Record.Probe
	examiner, looks := r.engine.Cluster.(kamino.Examiner)
	if p == nil || !looks {
		return nil
	}
	if err := examiner.RemoveProbe(ctx, *p); err != nil {
		return fmt.Errorf("delete the probe of run %s: %w", p.Run, err)
	}
	return nil
}

// knownCanary reports whether the canary of this name belongs to this run, or to a run that has
// certainly ended. A canary's name on a lease is a claim, as a mark is.
func (r *Run) knownCanary(name string) bool {
	return name == r.canaryName() || slices.ContainsFunc(r.held.Lease.Ledger.Past, func(p kamino.PastRun) bool { return name == kamino.CanaryName(r.pool.ID, p.Run) })
}

// canaryOfNode returns the name of the canary that a node belongs to, derived from the node's name
// (the canary's name and six characters) and checked against its provider ID, if it has one.
func (r *Run) canaryOfNode(ctx context.Context, n kamino.Node) (name string, ok bool) {
	const suffix = 6 // https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-instance-ids
	name = n.Name[:max(0, len(n.Name)-suffix)]
	if n.ProviderID == "" {
		return name, kamino.PoolID(name).OfCanary()
	}
	if !kamino.PoolID(name).OfCanary() {
		return r.canaryByMachine(ctx, n)
	}
	set, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, err == nil && strings.EqualFold(set.Name(), name)
}

// canaryByMachine returns the name of the canary that a node belongs to, in clouds that choose node
// names. The node runs on a machine that was listed as a canary; or it belongs to no pool and
// repeats the nonce of this run, or of the run that left its canary.
func (r *Run) canaryByMachine(ctx context.Context, n kamino.Node) (name string, ok bool) {
	if name, ok = r.proof.machines[n.ProviderID]; ok {
		return name, true
	}
	l := r.held.Lease
	if _, own := n.Report(l.Record.Nonce); own {
		name = r.canaryName()
	} else if _, left := n.Report(l.Ledger.CanaryNonce); left {
		name = l.Ledger.Canary
	} else {
		return "", false
	}
	_, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, errors.Is(err, kamino.ErrUnsupported)
}

// mayRemove reports whether a canary may be removed: its run is this one or has certainly ended, or
// it has expired.
func (r *Run) mayRemove(c kamino.Canary) bool {
	l := r.held.Lease
	ended := slices.ContainsFunc(l.Ledger.Past, func(p kamino.PastRun) bool { return p.Run == c.Run })
	return c.Run == r.held.Run || c.Name == l.Record.Canary && r.knownCanary(c.Name) || ended || !c.Expires.After(r.engine.now())
}

// proved describes how the version of a run passed its proof.
func (r *Run) proved() *kamino.Proved {
	without, s, passed := r.opts.Proof.Without, r.proof.sight, map[string]bool{}
	p := &kamino.Proved{By: r.proof.mode, Node: cmp.Or(s.Node.Name, s.Canary.Hostname), ReadySeconds: s.Boot().Seconds()}
	for _, f := range r.proof.findings {
		if passed[f.Check] = passed[f.Check] || f.Outcome == kamino.ProofPassed; f.Outcome == kamino.ProofNotApplicable {
			p.Left = append(p.Left, f)
		}
	}
	p.Checks = len(slices.DeleteFunc(kamino.Checks(), func(name string) bool {
		return slices.Contains(without, name) || name == "probe" && r.opts.Proof.Probe == nil || !passed[name]
	}))
	return p
}

// canaries lists the pool's canaries. It uses the last list if that was read just now and no canary
// was changed since.
func (r *Run) canaries(ctx context.Context) ([]kamino.Canary, error) {
	p := &r.proof
	if kamino.Elapsed(p.listedAt, r.engine.now()) <= kamino.JustNow {
		return p.listed, nil
	}
	list, err := r.listCanaries(ctx)
	if err == nil {
		p.listed, p.listedAt = list, r.engine.now()
	}
	return list, err
}

func (r *Run) listCanaries(ctx context.Context) ([]kamino.Canary, error) {
	prover, _, _ := r.engine.prover()
	list, err := prover.Canaries(ctx, r.pool)
	if err != nil {
		return nil, fmt.Errorf("list canaries of pool %s: %w", r.pool.Name, err)
	}
	return list, nil
}

// retireLeft removes the canary, or its Node object, that an earlier proof could not remove.
func (e *Engine) retireLeft(ctx context.Context, o poolstate.State) error {
	return e.underLease(ctx, o.Pool, func(r *Run) []Step {
		return []Step{{Name: kamino.StepRetire, Does: "remove canaries", When: r.makesCanaries, Look: r.lookRetire, Patient: true}}
	}, nil)
}

// lookProvable makes sure that the version that a person named can be proved by a canary.
func (r *Run) lookProvable(ctx context.Context) (workflow.Next, error) {
	return workflow.Done("a canary can be created"), r.chooseProof(ctx)
}

// lookNamed reads, under the lease, the version that a person named.
func (r *Run) lookNamed(ctx context.Context) (workflow.Next, error) {
	o, err := r.overviewNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	i := kamino.IndexOf(o.Versions, r.opts.Version)
	if i < 0 && r.runner.Spent() < kamino.GoneAfter {
		return workflow.Wait("version " + r.opts.Version + " (not listed; confirming that it was deleted)"), nil
	} else if i < 0 {
		return workflow.Next{}, fmt.Errorf("version %s is gone: there is nothing to prove", r.opts.Version)
	}
	r.pool = o.Pool
	if err := r.refusePinned(ctx, o.Versions); err != nil {
		return workflow.Next{}, err
	} else if err := o.Provable(o.Versions[i]); err != nil {
		return workflow.Next{}, kamino.InTheWay{Err: err}
	}
	t := poolstate.Destination{Version: &o.Versions[i], Points: r.opts.Offers || o.Follows(), Offered: r.opts.Offers}
	if err := r.engine.comeToPoint(ctx, &o, &t); err != nil {
		return workflow.Next{}, err
	}
	r.image.reference = t.Spec().Reference
	r.image.version, r.image.preBuilt, r.image.there = o.Versions[i], true, true
	if o.Versions[i].Tags[kamino.TagReceipt] == "" {
		r.doubt(kamino.StepVersion, "whether the disk of version "+r.opts.Version+" holds the identity and the secrets of the machine that it was made of: it has no seal receipt")
	}
	return workflow.Done(r.opts.Version + " is there"), nil
}
