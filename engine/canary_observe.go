package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/proof"
)

// examine observes the canary and judges it. A verdict needs an observation in which everything is
// fresh.
func (r *Run) examine(ctx context.Context) (kamino.Outcome, []kamino.Finding, error) {
	out, findings, err := r.look(ctx)
	now, p := r.engine.now(), &r.proof
	switch {
	case !kamino.Transient(err):
		p.blind = time.Time{}
	case p.blind.IsZero():
		p.blind = now
	case now.Sub(p.blind) > max(r.opts.Proof.Budget, r.opts.Proof.For):
		return kamino.ProofInconclusive, []kamino.Finding{{Check: "cloud", Outcome: kamino.ProofInconclusive, Evidence: "the cloud or the API server does not answer: " + err.Error()}}, nil
	}
	return out, findings, err
}

// look is examine without the handling of reads that fail.
func (r *Run) look(ctx context.Context) (kamino.Outcome, []kamino.Finding, error) {
	p, now := &r.proof, r.engine.now()
	bounds := proof.Bounds{Boot: r.opts.Proof.BootBudget(r.held.Lease.Ledger), Bake: r.opts.Proof.For, History: kamino.Usually(r.held.Lease.Ledger.Boots),
		Phases: r.held.Lease.Ledger.UsualPhases(), Baked: r.held.Lease.Ledger.Baked, Without: r.opts.Proof.Without}
	read := r.glance
	if now.Sub(p.whole) > proof.WholeObservation {
		read = r.sightWhole
	}
	if err := read(ctx); err != nil {
		return "", nil, err
	}
	out, findings := proof.Judge(p.sight, bounds)
	if out != kamino.ProofWaits && r.engine.now().Sub(p.whole) > kamino.JustNow {
		if err := r.sightWhole(ctx); err != nil {
			return "", nil, err
		}
		out, findings = proof.Judge(p.sight, bounds)
	}
	return out, findings, nil
}

// glance reads the canary's node, and the canary itself while the cloud creates it.
func (r *Run) glance(ctx context.Context) error {
	p := &r.proof
	if p.sight.Running.IsZero() || r.engine.now().Sub(p.asked) > proof.CloudObservation {
		if err := r.sightCloud(ctx); err != nil {
			return err
		}
	}
	if p.sight.Now = r.engine.now(); p.sight.Canary.Hostname == "" {
		return nil
	}
	n, err := r.engine.Cluster.Node(ctx, p.sight.Canary.Hostname)
	if err != nil && !errors.Is(err, kamino.ErrNotFound) {
		return fmt.Errorf("read node %s: %w", p.sight.Canary.Hostname, err)
	}
	if n.UID == "" { // it may have another name, which two kubelets write in turn
		if err := r.sightOthers(ctx); err != nil {
			return err
		}
	}
	was := p.sight.Ready
	p.sight.SawNode(n)
	if was.IsZero() && !p.sight.Ready.IsZero() {
		p.whole = time.Time{} // from now on there is more to read
	}
	if p.sight.Probe.Runs() && p.sight.Now.Sub(p.seen) > kamino.LookAge {
		_, examiner, _ := r.engine.prover()
		return r.sightCluster(ctx, examiner) // only the API server knows when the probe ends
	}
	return nil
}

// sightCloud reads the canary from the cloud.
func (r *Run) sightCloud(ctx context.Context) error {
	list, err := r.canaries(ctx)
	if err != nil {
		return err
	}
	s, name := &r.proof.sight, r.canaryName()
	asked := r.proof.asked
	r.proof.asked = r.proof.listedAt
	if s.Launched.IsZero() {
		s.Launched = r.held.Lease.Record.CanarySince
	}
	i := slices.IndexFunc(list, func(c kamino.Canary) bool {
		// A scale set that has lost the observed machine does not count as the canary: the machine
		// was evicted or deleted. A scale set that Failed shows why.
		same := s.Canary.Instance == "" || c.Instance == "" && c.State == kamino.Failed || c.Instance.Same(s.Canary.Instance) && (c.VMID == s.Canary.VMID || kamino.SameVM(c.VMID, s.Canary.VMID))
		return c.Name == name && c.State != kamino.Deleting && same
	})
	switch {
	case i >= 0:
		s.Canary, s.Gone = list[i], time.Time{}
	case s.Gone.IsZero():
		s.Gone = r.proof.asked
	}
	s.Runs(asked, r.proof.asked)
	return nil
}

// sightWhole reads everything about the canary.
func (r *Run) sightWhole(ctx context.Context) error {
	p := &r.proof
	prover, examiner, _ := r.engine.prover()
	if err := r.sightCloud(ctx); err != nil {
		return err
	}
	s := &p.sight
	s.Nonce, s.Reboots, s.Sealed = r.held.Lease.Record.Nonce, r.opts.PendingReboot, r.image.version.Tags
	s.Unsealed = s.Sealed[kamino.TagReceipt] == ""
	if s.Before == nil {
		if err := r.sightBefore(ctx); err != nil {
			return err
		}
	}
	if s.Canary.Hostname != "" {
		if err := r.sightCluster(ctx, examiner); err != nil {
			return err
		}
	}
	if p.mode == kamino.ProveCanary && (s.Node.UID == "" || !s.Node.Ready) {
		if lines, err := prover.Console(ctx, r.pool, s.Canary); err == nil {
			s.Console = lines
		}
	}
	if report, ok := s.Node.Report(s.Nonce); ok && s.Restarts == nil && !s.Ready.IsZero() {
		if s.Restarts = report.Restarts; s.Restarts == nil {
			s.Restarts = map[string]int{}
		}
	}
	s.Now = r.engine.now()
	p.whole = s.Now
	return nil
}

// sightBefore records the machine IDs of nodes before the canary's node exists; none if it exists
// already.
func (r *Run) sightBefore(ctx context.Context) error {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s := &r.proof.sight
	s.Before = map[string]string{}
	if slices.ContainsFunc(nodes, func(n kamino.Node) bool { return n.Name == s.Canary.Hostname }) {
		return nil
	}
	for _, n := range nodes {
		s.Before[n.Name] = n.MachineID
	}
	return nil
}

// sightOthers reads the other nodes. One of them may show the canary's machine.
func (r *Run) sightOthers(ctx context.Context) error {
	s := &r.proof.sight
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.Others = nil
	for _, n := range nodes {
		if n.Name == s.Canary.Hostname {
			continue
		}
		s.Others = append(s.Others, n)
		if kamino.SameVM(n.SystemUUID, s.VM()) {
			s.Stray = n.Name
		}
	}
	return nil
}

func (r *Run) sightCluster(ctx context.Context, examiner kamino.Examiner) error {
	if err := r.sightOthers(ctx); err != nil {
		return err
	}
	s := &r.proof.sight
	s.Donor, s.Peers = "", nil
	sibling, tags := "", r.image.version.Tags
	for _, n := range s.Others {
		if n.Name == tags[kamino.TagBuiltFrom] && tags[kamino.TagRun] == r.held.Run && kamino.SameVM(n.SystemUUID, tags[kamino.TagVM]) {
			s.Donor = n.Name
		}
		pool, err := r.engine.poolOf(ctx, n)
		if err != nil {
			return err
		}
		if pool != r.pool.ID || !n.Ready || n.Unschedulable {
			continue
		}
		if s.Peers = append(s.Peers, n); sibling == "" || n.Name == s.Donor {
			sibling = n.Name
		}
	}
	seen, err := examiner.Examine(ctx, kamino.ExamineOrder{Run: r.held.Run, Node: s.Canary.Hostname, Sibling: sibling, Since: s.Launched, Probe: r.opts.Proof.Probe, Nonce: r.probeNonce()})
	if err != nil {
		return fmt.Errorf("examine node %s: %w", s.Canary.Hostname, err)
	}
	had := s.Node.Node
	s.ClusterObservation, s.Now = seen, r.engine.now()
	r.proof.seen = s.Now
	s.Node.Node = had // as it was observed before
	s.SawNode(seen.Node.Node)
	return nil
}
