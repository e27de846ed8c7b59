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

// remove removes the first canary of the list that may be removed and that the function
// selects.
func (c *canary) remove(prover kamino.Prover, list []kamino.Canary, shall func(kamino.Canary) bool) (workflow.Next, bool) {
	for _, one := range list {
		c.machines[one.Instance] = one.Name
		switch {
		case !shall(one):
		case !c.mayRemove(one):
			why := fmt.Sprintf("belongs to run %s, which is not recorded on the lease of the pool: it is kept until it expires at %s",
				one.Run, one.Expires.Format(time.RFC3339))
			c.kept[one.Name] = why
			c.doubt(kamino.StepRetire, "canary "+one.Name+" "+why)
		case one.State == kamino.Deleting:
			c.leaving = true
			return workflow.Wait("canary " + one.Name + " to be deleted"), true
		default:
			c.shown = true
			return c.removal(prover, one.Name, one.Run), true
		}
	}
	return workflow.Next{}, false
}

// removeUnlisted removes the canary on the lease by its name, once, if no list shows it: a list may
// lack a canary that a killed process requested.
func (c *canary) removeUnlisted(prover kamino.Prover, list []kamino.Canary) (workflow.Next, bool) {
	name := c.held.Lease.Record.Canary
	if !c.knownCanary(name) || c.removed[name] || kamino.Lists(list, name) {
		return workflow.Next{}, false
	}
	return c.removal(prover, name, c.held.Run), true
}

func (c *canary) removal(prover kamino.Prover, name, run string) workflow.Next {
	return workflow.Act(kamino.ActRemoveCanary, "remove canary "+name+" of run "+run, func(ctx context.Context) error {
		c.listedAt = time.Time{}
		err := prover.RemoveCanary(ctx, c.pool, name)
		if err == nil {
			c.removed[name] = true
		}
		return err
	}).Of(name).Then("canary "+name+" to be deleted", 0)
}

// removeProbe deletes the operator's probe that this run, or the run that it replaced, started.
func (c *canary) removeProbe(ctx context.Context) error {
	p := c.held.Lease.Record.Probe
	examiner, looks := c.engine.Cluster.(kamino.Examiner)
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
func (c *canary) knownCanary(name string) bool {
	return name == c.name() || slices.ContainsFunc(c.held.Lease.Ledger.Past,
		func(p kamino.PastRun) bool { return name == kamino.CanaryName(c.pool.ID, p.Run) })
}

// canaryOfNode returns the name of the canary that a node belongs to, derived from the node's name
// (the canary's name and six characters) and checked against its provider ID, if it has one.
func (c *canary) canaryOfNode(ctx context.Context, n kamino.Node) (name string, ok bool) {
	const suffix = 6 // https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-instance-ids
	name = n.Name[:max(0, len(n.Name)-suffix)]
	if n.ProviderID == "" {
		return name, kamino.PoolID(name).OfCanary()
	}
	if !kamino.PoolID(name).OfCanary() {
		return c.canaryByMachine(ctx, n)
	}
	set, err := c.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, err == nil && strings.EqualFold(set.Name(), name)
}

// canaryByMachine returns the name of the canary that a node belongs to, in clouds that choose node
// names. The node runs on a machine that was listed as a canary; or it belongs to no pool and
// repeats the nonce of this run, or of the run that left its canary.
func (c *canary) canaryByMachine(ctx context.Context, n kamino.Node) (name string, ok bool) {
	if name, ok = c.machines[n.ProviderID]; ok {
		return name, true
	}
	l := c.held.Lease
	if _, own := n.Report(l.Record.Nonce); own {
		name = c.name()
	} else if _, left := n.Report(l.Ledger.CanaryNonce); left {
		name = l.Ledger.Canary
	} else {
		return "", false
	}
	_, err := c.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, errors.Is(err, kamino.ErrUnsupported)
}

// mayRemove reports whether a canary may be removed: its run is this one or has certainly ended, or
// it has expired.
func (c *canary) mayRemove(one kamino.Canary) bool {
	l := c.held.Lease
	ended := slices.ContainsFunc(l.Ledger.Past, func(p kamino.PastRun) bool { return p.Run == one.Run })
	return one.Run == c.held.Run || one.Name == l.Record.Canary && c.knownCanary(one.Name) || ended || !one.Expires.After(c.engine.now())
}

// proved describes how the version of a run passed its proof.
func (c *canary) proved() *kamino.Proved {
	without, s, passed := c.opts.Proof.Without, c.sight, map[string]bool{}
	p := &kamino.Proved{By: c.mode, Node: cmp.Or(s.Node.Name, s.Canary.Hostname), ReadySeconds: s.Boot().Seconds()}
	for _, f := range c.findings {
		if passed[f.Check] = passed[f.Check] || f.Outcome == kamino.ProofPassed; f.Outcome == kamino.ProofNotApplicable {
			p.Left = append(p.Left, f)
		}
	}
	p.Checks = len(slices.DeleteFunc(kamino.Checks(), func(name string) bool {
		return slices.Contains(without, name) || name == "probe" && c.opts.Proof.Probe == nil || !passed[name]
	}))
	return p
}

// canaries lists the pool's canaries. It uses the last list if that was read just now and no canary
// was changed since.
func (c *canary) canaries(ctx context.Context) ([]kamino.Canary, error) {
	if kamino.Elapsed(c.listedAt, c.engine.now()) <= kamino.JustNow {
		return c.listed, nil
	}
	list, err := c.list(ctx)
	if err == nil {
		c.listed, c.listedAt = list, c.engine.now()
	}
	return list, err
}

func (c *canary) list(ctx context.Context) ([]kamino.Canary, error) {
	prover, _, _ := c.engine.prover()
	list, err := prover.Canaries(ctx, c.pool)
	if err != nil {
		return nil, fmt.Errorf("list canaries of pool %s: %w", c.pool.Name, err)
	}
	return list, nil
}

// lookProvable makes sure that the version that a person named can be proved by a canary.
func (c *canary) lookProvable(ctx context.Context) (workflow.Next, error) {
	return workflow.Done("a canary can be created"), c.chooseProof(ctx)
}

// lookNamed reads, under the lease, the version that a person named.
func (c *canary) lookNamed(ctx context.Context) (workflow.Next, error) {
	o, err := c.pointer.overviewNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	i := kamino.IndexOf(o.Versions, c.opts.Version)
	if i < 0 && c.runner.Spent() < kamino.GoneAfter {
		return workflow.Wait("version " + c.opts.Version + " (not listed; confirming that it was deleted)"), nil
	} else if i < 0 {
		return workflow.Next{}, fmt.Errorf("version %s is gone: there is nothing to prove", c.opts.Version)
	}
	c.pool = o.Pool
	if err := c.pointer.refusePinned(ctx, o.Versions); err != nil {
		return workflow.Next{}, err
	} else if err := o.Provable(o.Versions[i]); err != nil {
		return workflow.Next{}, kamino.InTheWay{Err: err}
	}
	t := poolstate.Destination{Version: &o.Versions[i], Points: c.opts.Offers || o.Follows(), Offered: c.opts.Offers}
	if err := c.engine.comeToPoint(ctx, &o, &t); err != nil {
		return workflow.Next{}, err
	}
	c.pointer.reference = t.Spec().Reference
	c.image.version, c.image.preBuilt, c.image.there = o.Versions[i], true, true
	if o.Versions[i].Receipt == "" {
		c.doubt(kamino.StepVersion, "whether the disk of version "+c.opts.Version+
			" holds the identity and the secrets of the machine that it was made of: it has no seal receipt")
	}
	return workflow.Done(c.opts.Version + " is there"), nil
}
