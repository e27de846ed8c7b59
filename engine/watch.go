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
	"kamino.dev/kamino/proof"
)

// newborn lists the instances of a pool that boot from an image. The image of each instance is read
// once; elders are the instances with another image, which are not read again.
func newborn(ctx context.Context, e *Engine, pool kamino.Pool, image string, elders *map[kamino.InstanceID]bool) (born []kamino.Instance,
	err error) {
	ids, err := e.Provider.Instances(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("list the instances of pool %s: %w", pool.Name, err)
	}
	if *elders == nil {
		*elders = map[kamino.InstanceID]bool{}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if (*elders)[id] {
			continue
		}
		in, err := e.Provider.Instance(ctx, id)
		if errors.Is(err, kamino.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read instance %s: %w", id, err)
		}
		if strings.EqualFold(in.Image, image) {
			born = append(born, in)
		} else {
			(*elders)[id] = true
		}
	}
	return born, nil
}

// Watching are the options of watching the nodes of a new version.
type Watching struct {
	For   time.Duration  // 0: do not watch
	Proof kamino.Proving // its boot budget counts from when a machine is first seen to run
}

// watched is a pool whose next image was changed by a run of this process.
type watched struct {
	pool    kamino.PoolID
	version string
	began   time.Time // when the version was promoted, or earlier
	looked  time.Time // time of the last look
	born    poolstate.NewNodes
	elders  map[kamino.InstanceID]bool // instances that boot from another version, or are older
	doubts  []string                   // warnings that were reported
	failed  error                      // the withdrawal, or why it could not be made so far
	kept    bool                       // it was reported that the version could not be withdrawn
	over    bool
}

// Watch watches the nodes of the versions that the given runs promoted, for the given time and
// without holding leases, while the pools boot from them. If too many nodes of a version are not
// Ready within the budget, the version is withdrawn, or reported if no good version comes before
// it. Both are errors.
func (e *Engine) Watch(ctx context.Context, results []PoolResult, w Watching) error {
	began := e.now()
	var pools []*watched
	var names []string
	for _, r := range results {
		if r.Result != nil && r.Result.Changed {
			pools = append(pools, &watched{pool: r.Pool, version: r.Result.Version, born: poolstate.NewNodes{}})
			names = append(names, string(r.Pool))
		}
	}
	var ended error
	going := func(p *watched) bool { return !p.over }
	for ended == nil && slices.ContainsFunc(pools, going) && e.now().Sub(began) < w.For {
		all, nodes, err := e.overviews(ctx, names)
		if err != nil && !kamino.Transient(err) {
			ended = err
			break
		}
		for _, o := range all {
			i := slices.IndexFunc(pools, func(p *watched) bool { return p.pool == o.ID })
			watchOnce(ctx, e, pools[i], o, nodes, w.Proof)
		}
		ended = e.clock().Sleep(ctx, watchPoll)
	}
	errs := make([]error, len(pools))
	for i, p := range pools {
		errs[i] = p.failed
	}
	return errors.Join(append(errs, ended)...)
}

const watchPoll = time.Minute

// watchOnce makes one look at a pool. A failed read is repeated by the next look.
func watchOnce(ctx context.Context, e *Engine, p *watched, o poolstate.State, nodes []kamino.Node, proof kamino.Proving) {
	v, now, budget := o.Next(), e.now(), proof.BootBudget(o.Lease.Ledger)
	if p.over || o.Err == nil && (v == nil || v.Name != p.version) {
		return
	}
	born, err := []kamino.Instance(nil), o.Err
	if err == nil {
		born, err = newborn(ctx, e, o.Pool, v.ID, &p.elders)
	}
	if err != nil {
		if !kamino.Transient(err) {
			doubt(e, p, o, "new nodes, which it cannot read: %v", err)
		}
		return
	}
	if p.began.IsZero() {
		if p.began = o.PromotedAt(v); p.began.IsZero() {
			p.began = now
		}
	}
	if p.looked.IsZero() && o.BornBefore(v) {
		for _, in := range born {
			p.elders[in.ID] = true
		}
		born = nil
	}
	born = slices.DeleteFunc(born, func(in kamino.Instance) bool {
		if p.born[in.ID] != nil || !in.Settled(nodes, now, budget) {
			return false
		}
		doubt(e, p, o, "node %s, which is not Ready and was older than %s when the watch first saw it", in.Hostname, budget)
		return true
	})
	others := slices.DeleteFunc(slices.Clone(nodes), func(n kamino.Node) bool {
		young := !n.Ready && !n.Created.Before(p.began) // it is no evidence of an outage: it may be as bad as the new nodes
		ready := p.born[n.ProviderID] != nil && p.born[n.ProviderID].Ready
		return young || ready || slices.ContainsFunc(born, func(in kamino.Instance) bool { return n.RunsOn(in.ID) })
	})
	well, prompt := poolstate.OthersFine(others, now), p.looked.IsZero() || now.Sub(p.looked) < 3*watchPoll
	fair := func(zone string) bool { return well && prompt && !kamino.CutOff(zone, nodes, p.began) }
	p.looked = now
	// No look sees the last minute of an instance, and a single look shows no duration.
	long := max(budget/2, kamino.Usually(o.Lease.Ledger.Boots)*3/2, 2*watchPoll) - watchPoll
	if kamino.Spot(o.Pool.Refusals) {
		long = budget
		doubt(e, p, o, "new nodes that are spot instances and are gone before they are Ready")
	}
	lost := p.born.Saw(born, nodes, now, budget, long, fair)
	doubtful(e, p, o, nodes, lost, now.Add(-budget), long, well)
	for id, n := range p.born {
		p.elders[id] = p.elders[id] || n.Ready // nothing more is asked about it
	}
	late, of, bad := p.born.TooMany()
	if !bad || !blames(ctx, e, p, o) {
		return
	}
	p.failed = withdrawLate(ctx, e, p, o, late, of, budget)
	refused := (*kamino.RefusedError)(nil)
	p.over = !passing(p.failed) && !errors.As(p.failed, &refused) // otherwise the next look tries again
}

// doubtful reports new nodes that were not Ready and cannot be judged: the instances that are gone
// since the last look, and those that were there before a time (the budget ago).
func doubtful(e *Engine, p *watched, o poolstate.State, nodes []kamino.Node, lost []poolstate.NewNode, before time.Time,
	long time.Duration, well bool) {
	for _, n := range lost {
		if n.Failure == "" { // otherwise the cloud did not create it
			doubt(e, p, o, "node %s, whose machine is gone: it counts only if it ran for %s while other nodes were Ready and was no spot instance", n.Hostname, long)
		}
	}
	for _, id := range p.born.InOrder() {
		switch n := p.born[id]; {
		case n.Ready, n.Late, n.Failure != "", !n.Seen.Before(before):
		case !well:
			doubt(e, p, o, "node %s: most other nodes of the cluster are not Ready, or none has reported for some minutes", n.Hostname)
		case kamino.CutOff(n.Zone, nodes, p.began):
			doubt(e, p, o, "node %s in zone %s: most nodes there that are older than the promotion are not Ready", n.Hostname, n.Zone)
		case n.Off:
			doubt(e, p, o, "node %s, whose machine does not run", n.Hostname)
		}
	}
}

// doubt warns, once for each reason, about new nodes that are no evidence for or against their
// image. Then it means less that the version stays the next image.
func doubt(e *Engine, p *watched, o poolstate.State, format string, args ...any) {
	if slices.Contains(p.doubts, format) {
		return
	}
	p.doubts = append(p.doubts, format)
	pool := cmp.Or(o.Pool.Name, o.ID.Name())
	e.report(kamino.Event{Kind: kamino.EventWarning, Pool: pool, Step: kamino.StepWatch, Percent: -1,
		Message: fmt.Sprintf("the watch of version %s cannot judge %s; if its nodes do not become Ready: kamino withdraw --pool %s --version %[1]s --reason TEXT",
			p.version, fmt.Sprintf(format, args...), pool)})
}

// blames makes sure, for each late node, that other kubelets reach the API server and that the node
// does not wait for a certificate that nobody approves. Without the rights to look, the nodes' own
// reports count.
func blames(ctx context.Context, e *Engine, p *watched, o poolstate.State) bool {
	examiner, ok := e.Cluster.(kamino.Examiner)
	for _, id := range p.born.InOrder() { // in a stable order, so that a simulation can be repeated
		n := p.born[id]
		if !ok || !n.Late {
			continue
		}
		seen, err := examiner.Examine(ctx, kamino.ExamineOrder{Node: n.Hostname, Since: n.Seen})
		switch s := (proof.Observation{ClusterObservation: seen}); {
		case errors.Is(err, kamino.ErrForbidden):
		case err != nil:
			return false // the next look tries again
		case s.Renewed.IsZero():
			doubt(e, p, o, "node %s: no other kubelet renews its lease", n.Hostname)
			return false
		case s.Unheeded():
			doubt(e, p, o, "node %s: its certificate is denied, or not approved and no other is (kubectl get csr)", n.Hostname)
			return false
		case s.Owed():
			doubt(e, p, o, "node %s: a DaemonSet's pod there waits for its image or for another object (kubectl get pods -A --field-selector spec.nodeName=%s)", n.Hostname, n.Hostname)
			return false
		}
	}
	return true
}

// passing reports whether a withdrawal failed for a reason that ends by itself: a cloud that does
// not answer, or another run.
func passing(err error) bool {
	held := (*kamino.HeldError)(nil)
	return kamino.Transient(err) || errors.As(err, &held)
}

func withdrawLate(ctx context.Context, e *Engine, p *watched, o poolstate.State, late, of int, budget time.Duration) error {
	version := p.version
	proof := &kamino.ProofError{Version: version, Outcome: kamino.ProofFailed,
		Findings: []kamino.Finding{{Check: "watch", Outcome: kamino.ProofFailed,
			Evidence: fmt.Sprintf("%d of %d new nodes of pool %s were not Ready within %s", late, of, o.Pool.Name, budget)}}}
	e.report(kamino.Event{Kind: kamino.EventWarning, Pool: o.Pool.Name, Step: kamino.StepWatch, Percent: -1, Message: proof.Error()})
	bad := badBy(proof)
	if _, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: string(o.ID), Version: version, Reason: bad.Reason,
		Nodes: bad.Nodes}); err != nil {
		proof.Kept = true
		if !p.kept && !passing(err) {
			p.kept = true
			e.report(kamino.Event{Kind: kamino.EventWarning, Pool: o.Pool.Name, Step: kamino.StepWatch, Percent: -1,
				Message: "version " + version + " was not withdrawn: " + err.Error()})
			why := kamino.CutText(strings.Join(append([]string{err.Error()}, kamino.Advice(err)...), ": "), kamino.MaxFailure)
			err = errors.Join(err, underLease(ctx, e, o.Pool, nil, func(l *kamino.Lease) {
				l.Ledger.NotePast(kamino.PastRun{Run: l.Holder, Ended: e.date(), Verb: kamino.VerbWithdraw, Withdrawn: version,
					Reason: bad.Reason, Step: kamino.StepWatch, Failure: why})
			}))
		}
		return errors.Join(proof, fmt.Errorf("withdraw version %s: %w", version, err))
	}
	return kamino.WithHint(proof, "the version is withdrawn: kamino status shows what the pool's next node boots from")
}
