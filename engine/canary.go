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
	"kamino.dev/kamino/proof"
	"kamino.dev/kamino/workflow"
)

// canary is the instance that proves a version before its promotion, and how the proof stands.
type canary struct {
	*common
	donor   *donor
	image   *image
	pointer *pointer

	fit      kamino.CanaryFit
	sight    proof.Observation
	asked    time.Time                    // when the cloud was last read
	whole    time.Time                    // when all of the observation was last read
	seen     time.Time                    // when the cluster's part of it was last read
	denied   error                        // why the cloud refused to create the canary
	listed   []kamino.Canary              // the canaries as last listed
	listedAt time.Time                    // when listed was read; zero after an act on a canary
	absent   time.Time                    // since when no canary is listed
	leaving  bool                         // the canary was seen to be deleted
	shown    bool                         // the canary was listed: once its deletion was requested and it is not listed, it is gone
	removed  map[string]bool              // canaries whose deletion this process has requested
	machines map[kamino.InstanceID]string // canaries by their machines, from the lists
	kept     map[string]string            // canaries that may not be removed, with the reason
	error    *kamino.ProofError           // how the proof ended, to be written on the version
	passed   bool
	findings []kamino.Finding // the findings with which it passed
	blind    time.Time        // since when reads fail that may work again; zero: they do not fail
}

// mayExist reports whether this run, or an earlier one that did not see its canary removed,
// has requested a canary or would.
func (c *canary) mayExist() bool {
	_, _, ok := c.engine.prover()
	return ok && (c.held.Lease != nil && c.held.Lease.Record.Canary+c.held.Lease.Ledger.Canary != "" || c.plan != nil && c.image.wanted())
}

func (c *canary) name() string { return kamino.CanaryName(c.pool.ID, c.held.Run) }

// lookLaunch requests the canary, after the canaries of ended runs are removed.
func (c *canary) lookLaunch(ctx context.Context) (workflow.Next, error) {
	prover, _, _ := c.engine.prover()
	if c.denied != nil {
		return c.concluded(ctx, kamino.ProofInconclusive,
			[]kamino.Finding{{Check: "cloud", Outcome: kamino.ProofInconclusive, Evidence: c.denied.Error()}})
	}
	list, err := c.canaries(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	name := c.name()
	if next, found := c.remove(prover, list, func(one kamino.Canary) bool { return one.Name != name }); found {
		return next, nil
	}
	if next, found := c.removeUnlisted(prover, list); found && c.held.Lease.Record.Canary != name {
		return next, nil
	}
	if i := slices.IndexFunc(list, func(one kamino.Canary) bool { return one.Name == name }); i >= 0 {
		if c.sight.Launched.IsZero() { // otherwise this process knows the time by a clock that nobody sets
			c.sight.Launched = c.held.Lease.Record.CanarySince
		}
		return workflow.Done(fmt.Sprintf("%s is %s", name, list[i].State)), nil
	}
	v := c.image.version
	if kamino.Elapsed(c.image.readAt, c.engine.now()) > kamino.JustNow { // otherwise the version was seen whole just now
		var next workflow.Next
		if v, next, err = c.provedVersion(ctx); err != nil || next.Kind != workflow.NextDone {
			return next, err
		}
	}
	want := v.Offering(kamino.TagOfferProving)
	if !c.image.promotes() {
		want = want.Gate()
	}
	if c.work() == kamino.WorkProve {
		want = want.WithProof(kamino.TagProofWanted) // an earlier result does not count
	}
	if v.Offer != want.Offer || v.Proof != want.Proof || v.Gated != want.Gated {
		return c.image.writeVersion("record on version "+v.Name+" that it is being proved", want), nil
	}
	if err := c.refusePaused(ctx); err != nil {
		return workflow.Next{}, err
	}
	now := c.engine.date()
	order := kamino.CanaryOrder{Name: name, Version: v.ID, Run: c.held.Run, Nonce: c.held.Lease.Record.Nonce,
		Expires: now.Add(c.proofTime())}
	return workflow.Act(kamino.ActLaunchCanary, fmt.Sprintf("start canary %s from version %s beside pool %s", name, v.Name, c.pool.Name),
		func(ctx context.Context) error {
			c.listedAt, c.sight.Launched = time.Time{}, c.engine.now()
			err := prover.LaunchCanary(ctx, c.pool, order)
			var silence *kamino.ThrottledError
			long := errors.As(err, &silence) && silence.After > proof.CreateLimit // as if the creation took that long
			if err != nil && (!kamino.Transient(err) || long) && ctx.Err() == nil {
				c.denied = err
				return nil
			}
			return err
		}).Noting(func(l *kamino.Lease) { l.Record.Canary, l.Record.CanarySince = name, now }), nil
}

// proofTime is longer than any proof takes.
func (c *canary) proofTime() time.Duration {
	return proof.CreateLimit + 3*max(c.opts.Proof.Budget, c.opts.Proof.For) + returnLimit
}

// provedVersion reads the version under proof, and waits until it shows what was written.
func (c *canary) provedVersion(ctx context.Context) (v kamino.Version, next workflow.Next, err error) {
	found, err := c.engine.readVersion(ctx, c.pool, c.image.version.Name)
	if err != nil {
		return v, next, err
	} else if found == nil {
		return v, next, fmt.Errorf("version %s is gone: there is nothing to prove", c.image.version.Name)
	}
	v = *found
	if err := c.image.unswapped(v); err != nil {
		return v, workflow.Next{}, err
	}
	switch {
	case v.Bad != "" && v.Bad != c.bad().Reason:
		return v, workflow.Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Bad)
	case v.State == kamino.Failed && v.Whole():
		return v, c.image.writeVersion("write the tags of version "+v.Name+" again: that failed", v), nil
	case v.State == kamino.Failed:
		return v, workflow.Next{}, fmt.Errorf("version %s is %s: it is not proved", v.Name, v.State)
	case v.State != kamino.Succeeded || !v.Ready:
		return v, workflow.WaitPercent("the change of version "+v.Name, v.Percent), nil
	}
	return v, workflow.Done(v.Name), nil
}

// waitProof waits for a check that has no verdict yet.
func waitProof(f kamino.Finding) workflow.Next {
	return workflow.Wait("the proof (" + f.String() + ")")
}

// lookJoin waits for the canary's node and admits it: it cordons the node and removes the canary
// taint.
func (c *canary) lookJoin(ctx context.Context) (workflow.Next, error) {
	out, findings, err := c.examine(ctx)
	n := c.sight.Node.Node
	switch {
	case err != nil:
		return workflow.Next{}, err
	case out == kamino.ProofFailed || out == kamino.ProofInconclusive:
		return c.concluded(ctx, out, findings)
	case n.UID == "" || !kamino.SameVM(n.SystemUUID, c.sight.VM()):
		return waitProof(findings[0]), nil
	case n.Unschedulable && !n.Tainted(kamino.TaintCanary):
		c.whole = time.Time{} // an observation from before the node was admitted is no evidence
		return workflow.Done("node " + n.Name + " joined, cordoned"), nil
	}
	_, examiner, _ := c.engine.prover()
	return workflow.Act(kamino.ActAdmitCanary, "cordon node "+n.Name+" and remove taint "+kamino.TaintCanary,
		func(ctx context.Context) error {
			return examiner.AdmitCanary(ctx, n)
		}), nil
}

// lookRetire removes the canary and then its Node object. The cloud controller manager would remove
// the Node only when its cache expires, after ten minutes
// (https://github.com/kubernetes-sigs/cloud-provider-azure, vmssCacheTTLInSeconds).
func (c *canary) lookRetire(ctx context.Context) (workflow.Next, error) {
	prover, examiner, _ := c.engine.prover()
	list, err := c.list(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if next, found := c.remove(prover, list, func(kamino.Canary) bool { return true }); found {
		return next, nil
	}
	if next, found := c.removeUnlisted(prover, list); found {
		return next, nil
	}
	// A list may lack a new canary, and may still show a deleted one.
	if c.absent.IsZero() {
		c.absent = c.engine.now()
	}
	gone := c.leaving || c.shown && len(c.removed) > 0
	if left := kamino.LookAge - c.engine.now().Sub(c.absent); !gone && left > 0 {
		return workflow.WaitFor("any canary that the cloud lists late, for "+kamino.LookAge.String(), left), nil
	}
	nodes, err := c.engine.Cluster.Nodes(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if name, ok := c.canaryOfNode(ctx, n); ok && !kamino.Lists(list, name) && (c.removed[name] || c.knownCanary(name)) {
			return workflow.Act(kamino.ActRemoveNode, "delete the Node object of canary "+n.Name, func(ctx context.Context) error {
				return examiner.RemoveNode(ctx, n)
			}).Of(n.Name), nil
		}
	}
	if err := c.removeProbe(ctx); err != nil {
		return workflow.Next{}, err
	}
	c.held.Retired = true
	return workflow.Done("no canary is left"), nil
}

func (c *canary) planLaunch() string {
	would := fmt.Sprintf("start one instance (%s) from the hidden version beside the pool, which costs an instance for about %d minutes",
		cmp.Or(c.fit.Size, "the pool's size"), int(c.proofExpected()/time.Minute)+1)
	if out := c.fit.LeftOut; len(out) > 0 {
		would += "; left out: " + strings.Join(out, ", ")
	}
	if kept := c.fit.Kept; len(kept) > 0 {
		would += "; kept: " + strings.Join(kept, ", ")
	}
	return would
}

// proveAs changes how the run proves its version, and reports why.
func (c *canary) proveAs(ctx context.Context, mode kamino.ProveMode, why string) error {
	c.doubt(c.held.Step, why)
	least, p := kamino.Defaults().Proof, &c.opts.Proof
	if p.Mode == kamino.ProveNone { // its limits did not count
		p.Budget, p.For = max(p.Budget, least.Budget), max(p.For, least.For)
	}
	p.Mode, c.mode = mode, ""
	return c.chooseProof(ctx)
}

// keepProof proves in the way of the adopted run.
func (c *canary) keepProof(ctx context.Context) error {
	was := c.held.Before.Prove
	if c.mode != kamino.ProveNone || was == "" || was == kamino.ProveNone || c.held.Before.Work != "" {
		return nil
	}
	return c.proveAs(ctx, was, "the adopted run began with --prove "+string(was)+": this one continues the same way")
}
