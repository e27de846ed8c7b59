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

// provesCanary reports whether the version is to be proved by a canary.
func (r *Run) provesCanary() bool {
	return r.proof.mode == kamino.ProveCanary && (!r.image.preBuilt || r.image.version.Unproved() || r.work() == kamino.WorkProve)
}

// mayHaveCanary reports whether this run, or an earlier one that did not see its canary removed,
// has requested a canary or would.
func (r *Run) mayHaveCanary() bool {
	_, _, ok := r.engine.prover()
	return ok && (r.held.Lease != nil && r.held.Lease.Record.Canary+r.held.Lease.Ledger.Canary != "" || r.plan != nil && r.provesCanary())
}

// promotes reports whether the run promotes its version once it has passed. No option lifts a
// decision that was made for the version, or for the adopted run, because a nightly Job has the
// same options as a person. Only a person who names the version does.
func (r *Run) promotes() bool {
	return r.work() == kamino.WorkProve || r.opts.Proof.Promote != kamino.PromoteManual && r.held.Before.Promote != kamino.PromoteManual && !r.image.version.Gated()
}

// leaves is the PromoteMode of this run for its record; see promotes.
func (r *Run) leaves() kamino.PromoteMode {
	if r.promotes() {
		return ""
	}
	return kamino.PromoteManual
}

func (r *Run) canaryName() string { return kamino.CanaryName(r.pool.ID, r.held.Run) }

// lookLaunch requests the canary, after the canaries of ended runs are removed.
func (r *Run) lookLaunch(ctx context.Context) (workflow.Next, error) {
	prover, _, _ := r.engine.prover()
	if r.proof.denied != nil {
		return r.concluded(ctx, kamino.ProofInconclusive, []kamino.Finding{{Check: "cloud", Outcome: kamino.ProofInconclusive, Evidence: r.proof.denied.Error()}})
	}
	list, err := r.canaries(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	name := r.canaryName()
	if next, found := r.removeCanary(prover, list, func(c kamino.Canary) bool { return c.Name != name }); found {
		return next, nil
	}
	if next, found := r.removeUnlisted(prover, list); found && r.held.Lease.Record.Canary != name {
		return next, nil
	}
	if i := slices.IndexFunc(list, func(c kamino.Canary) bool { return c.Name == name }); i >= 0 {
		if r.proof.sight.Launched.IsZero() { // otherwise this process knows the time by a clock that nobody sets
			r.proof.sight.Launched = r.held.Lease.Record.CanarySince
		}
		return workflow.Done(fmt.Sprintf("%s is %s", name, list[i].State)), nil
	}
	v := r.image.version
	if kamino.Elapsed(r.image.readAt, r.engine.now()) > kamino.JustNow { // otherwise the version was seen whole just now
		var next workflow.Next
		if v, next, err = r.provedVersion(ctx); err != nil || next.Kind != workflow.NextDone {
			return next, err
		}
	}
	want := v.Offering(kamino.TagOfferProving)
	if !r.promotes() {
		want = want.Gate()
	}
	if r.work() == kamino.WorkProve {
		want.Tags[kamino.TagProof] = kamino.TagProofWanted // an earlier result does not count
	}
	if slices.ContainsFunc([]string{kamino.TagOffer, kamino.TagProof, kamino.TagPromote}, func(tag string) bool { return v.Tags[tag] != want.Tags[tag] }) {
		return r.writeVersion("record on version "+v.Name+" that it is being proved", want), nil
	}
	if err := r.refusePaused(ctx); err != nil {
		return workflow.Next{}, err
	}
	now := r.engine.date()
	order := kamino.CanaryOrder{Name: name, Version: v.ID, Run: r.held.Run, Nonce: r.held.Lease.Record.Nonce, Expires: now.Add(r.proofTime())}
	return workflow.Act(kamino.ActLaunchCanary, fmt.Sprintf("start canary %s from version %s beside pool %s", name, v.Name, r.pool.Name), func(ctx context.Context) error {
		r.proof.listedAt, r.proof.sight.Launched = time.Time{}, r.engine.now()
		err := prover.LaunchCanary(ctx, r.pool, order)
		var silence *kamino.ThrottledError
		long := errors.As(err, &silence) && silence.After > proof.CreateLimit // as if the creation took that long
		if err != nil && (!kamino.Transient(err) || long) && ctx.Err() == nil {
			r.proof.denied = err
			return nil
		}
		return err
	}).Noting(func(l *kamino.Lease) { l.Record.Canary, l.Record.CanarySince = name, now }), nil
}

// proofTime is longer than any proof takes.
func (r *Run) proofTime() time.Duration {
	return proof.CreateLimit + 3*max(r.opts.Proof.Budget, r.opts.Proof.For) + returnLimit
}

// provedVersion reads the version under proof, and waits until it shows what was written.
func (r *Run) provedVersion(ctx context.Context) (kamino.Artifact, workflow.Next, error) {
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Version, r.image.version.Name)
	if err != nil {
		return kamino.Artifact{}, workflow.Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 {
		return kamino.Artifact{}, workflow.Next{}, fmt.Errorf("version %s is gone: there is nothing to prove", r.image.version.Name)
	}
	v := found[0]
	if err := r.unswapped(v); err != nil {
		return v, workflow.Next{}, err
	}
	switch {
	case v.Tags[kamino.TagBad] != "" && v.Tags[kamino.TagBad] != r.bad().Reason:
		return v, workflow.Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Tags[kamino.TagBad])
	case v.State == kamino.Failed && v.Whole():
		return v, r.writeVersion("write the tags of version "+v.Name+" again: that failed", v), nil
	case v.State == kamino.Failed:
		return v, workflow.Next{}, fmt.Errorf("version %s is %s: it is not proved", v.Name, v.State)
	case v.State != kamino.Succeeded || !v.Ready:
		return v, workflow.WaitPercent("the change of version "+v.Name, v.Percent), nil
	}
	return v, workflow.Done(v.Name), nil
}

// writeVersion is the act that writes the tags of a version.
func (r *Run) writeVersion(what string, v kamino.Artifact) workflow.Next {
	return workflow.Act(kamino.ActMarkVersion, what, func(ctx context.Context) error {
		r.image.readAt = time.Time{}
		return r.engine.Provider.SetTags(ctx, r.pool, v)
	}).Of(v.Name)
}

// waitProof waits for a check that has no verdict yet.
func waitProof(f kamino.Finding) workflow.Next {
	return workflow.Wait("the proof (" + f.String() + ")")
}

// lookJoin waits for the canary's node and admits it: it cordons the node and removes the canary
// taint.
func (r *Run) lookJoin(ctx context.Context) (workflow.Next, error) {
	out, findings, err := r.examine(ctx)
	n := r.proof.sight.Node.Node
	switch {
	case err != nil:
		return workflow.Next{}, err
	case out == kamino.ProofFailed || out == kamino.ProofInconclusive:
		return r.concluded(ctx, out, findings)
	case n.UID == "" || !kamino.SameVM(n.SystemUUID, r.proof.sight.VM()):
		return waitProof(findings[0]), nil
	case n.Unschedulable && !n.Tainted(kamino.TaintCanary):
		r.proof.whole = time.Time{} // an observation from before the node was admitted is no evidence
		return workflow.Done("node " + n.Name + " joined, cordoned"), nil
	}
	_, examiner, _ := r.engine.prover()
	return workflow.Act(kamino.ActAdmitCanary, "cordon node "+n.Name+" and remove taint "+kamino.TaintCanary, func(ctx context.Context) error {
		return examiner.AdmitCanary(ctx, n)
	}), nil
}

// lookRetire removes the canary and then its Node object. The cloud controller manager would remove
// the Node only when its cache expires, after ten minutes
// (https://github.com/kubernetes-sigs/cloud-provider-azure, vmssCacheTTLInSeconds).
func (r *Run) lookRetire(ctx context.Context) (workflow.Next, error) {
	prover, examiner, _ := r.engine.prover()
	list, err := r.listCanaries(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if next, found := r.removeCanary(prover, list, func(kamino.Canary) bool { return true }); found {
		return next, nil
	}
	if next, found := r.removeUnlisted(prover, list); found {
		return next, nil
	}
	// A list may lack a new canary, and may still show a deleted one.
	if r.proof.absent.IsZero() {
		r.proof.absent = r.engine.now()
	}
	gone := r.proof.leaves || r.proof.shown && len(r.proof.removed) > 0
	if left := kamino.LookAge - r.engine.now().Sub(r.proof.absent); !gone && left > 0 {
		return workflow.WaitFor("any canary that the cloud lists late, for "+kamino.LookAge.String(), left), nil
	}
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if name, ok := r.canaryOfNode(ctx, n); ok && !kamino.Lists(list, name) && (r.proof.removed[name] || r.knownCanary(name)) {
			return workflow.Act(kamino.ActRemoveNode, "delete the Node object of canary "+n.Name, func(ctx context.Context) error {
				return examiner.RemoveNode(ctx, n)
			}).Of(n.Name), nil
		}
	}
	if err := r.removeProbe(ctx); err != nil {
		return workflow.Next{}, err
	}
	r.held.Retired = true
	return workflow.Done("no canary is left"), nil
}

func (r *Run) planLaunch() string {
	would := fmt.Sprintf("start one instance (%s) from the hidden version beside the pool, which costs an instance for about %d minutes",
		cmp.Or(r.proof.fit.Size, "the pool's size"), int(r.proofExpected()/time.Minute)+1)
	if out := r.proof.fit.LeftOut; len(out) > 0 {
		would += "; left out: " + strings.Join(out, ", ")
	}
	if kept := r.proof.fit.Kept; len(kept) > 0 {
		would += "; kept: " + strings.Join(kept, ", ")
	}
	return would
}

// proveAs changes how the run proves its version, and reports why.
func (r *Run) proveAs(ctx context.Context, mode kamino.ProveMode, why string) error {
	r.doubt(r.held.Step, why)
	least, p := kamino.Defaults().Proof, &r.opts.Proof
	if p.Mode == kamino.ProveNone { // its limits did not count
		p.Budget, p.For = max(p.Budget, least.Budget), max(p.For, least.For)
	}
	p.Mode, r.proof.mode = mode, ""
	return r.chooseProof(ctx)
}

// keepProof proves in the way of the adopted run.
func (r *Run) keepProof(ctx context.Context) error {
	was := r.held.Before.Prove
	if r.proof.mode != kamino.ProveNone || was == "" || was == kamino.ProveNone || r.held.Before.Work != "" {
		return nil
	}
	return r.proveAs(ctx, was, "the adopted run began with --prove "+string(was)+": this one continues the same way")
}
