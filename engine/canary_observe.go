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
func (c *canary) examine(ctx context.Context) (kamino.Outcome, []kamino.Finding, error) {
	out, findings, err := c.look(ctx)
	now := c.engine.now()
	switch {
	case !kamino.Transient(err):
		c.blind = time.Time{}
	case c.blind.IsZero():
		c.blind = now
	case now.Sub(c.blind) > max(c.opts.Proof.Budget, c.opts.Proof.For):
		return kamino.ProofInconclusive, []kamino.Finding{{Check: "cloud", Outcome: kamino.ProofInconclusive,
			Evidence: "the cloud or the API server does not answer: " + err.Error()}}, nil
	}
	return out, findings, err
}

// look is examine without the handling of reads that fail.
func (c *canary) look(ctx context.Context) (kamino.Outcome, []kamino.Finding, error) {
	now := c.engine.now()
	bounds := proof.Bounds{Boot: c.opts.Proof.BootBudget(c.held.Lease.Ledger), Bake: c.opts.Proof.For,
		History: kamino.Usually(c.held.Lease.Ledger.Boots),
		Phases:  c.held.Lease.Ledger.UsualPhases(), Baked: c.held.Lease.Ledger.Baked, Without: c.opts.Proof.Without}
	read := c.glance
	if now.Sub(c.whole) > proof.WholeObservation {
		read = c.sightWhole
	}
	if err := read(ctx); err != nil {
		return "", nil, err
	}
	out, findings := proof.Judge(c.sight, bounds)
	if out != kamino.ProofWaits && c.engine.now().Sub(c.whole) > kamino.JustNow {
		if err := c.sightWhole(ctx); err != nil {
			return "", nil, err
		}
		out, findings = proof.Judge(c.sight, bounds)
	}
	return out, findings, nil
}

// glance reads the canary's node, and the canary itself while the cloud creates it.
func (c *canary) glance(ctx context.Context) error {
	if c.sight.Running.IsZero() || c.engine.now().Sub(c.asked) > proof.CloudObservation {
		if err := c.sightCloud(ctx); err != nil {
			return err
		}
	}
	if c.sight.Now = c.engine.now(); c.sight.Canary.Hostname == "" {
		return nil
	}
	n, err := c.engine.Cluster.Node(ctx, c.sight.Canary.Hostname)
	if err != nil && !errors.Is(err, kamino.ErrNotFound) {
		return fmt.Errorf("read node %s: %w", c.sight.Canary.Hostname, err)
	}
	if n.UID == "" { // it may have another name, which two kubelets write in turn
		if err := c.sightOthers(ctx); err != nil {
			return err
		}
	}
	was := c.sight.Ready
	c.sight.SawNode(n)
	if was.IsZero() && !c.sight.Ready.IsZero() {
		c.whole = time.Time{} // from now on there is more to read
	}
	if c.sight.Probe.Runs() && c.sight.Now.Sub(c.seen) > kamino.LookAge {
		_, examiner, _ := c.engine.prover()
		return c.sightCluster(ctx, examiner) // only the API server knows when the probe ends
	}
	return nil
}

// sightCloud reads the canary from the cloud.
func (c *canary) sightCloud(ctx context.Context) error {
	list, err := c.canaries(ctx)
	if err != nil {
		return err
	}
	s, name := &c.sight, c.name()
	asked := c.asked
	c.asked = c.listedAt
	if s.Launched.IsZero() {
		s.Launched = c.held.Lease.Record.CanarySince
	}
	i := slices.IndexFunc(list, func(one kamino.Canary) bool {
		// A scale set that has lost the observed machine does not count as the canary: the machine
		// was evicted or deleted. A scale set that Failed shows why.
		same := s.Canary.Instance == "" || one.Instance == "" && one.State == kamino.Failed || one.Instance.Same(s.Canary.Instance) &&
			(one.VMID == s.Canary.VMID || kamino.SameVM(one.VMID, s.Canary.VMID))
		return one.Name == name && one.State != kamino.Deleting && same
	})
	switch {
	case i >= 0:
		s.Canary, s.Gone = list[i], time.Time{}
	case s.Gone.IsZero():
		s.Gone = c.asked
	}
	s.Runs(asked, c.asked)
	return nil
}

// sightWhole reads everything about the canary.
func (c *canary) sightWhole(ctx context.Context) error {
	prover, examiner, _ := c.engine.prover()
	if err := c.sightCloud(ctx); err != nil {
		return err
	}
	s := &c.sight
	s.Nonce, s.Reboots, s.Sealed = c.held.Lease.Record.Nonce, c.opts.PendingReboot, c.image.version.Tags
	s.Unsealed = s.Sealed[kamino.TagReceipt] == ""
	if s.Before == nil {
		if err := c.sightBefore(ctx); err != nil {
			return err
		}
	}
	if s.Canary.Hostname != "" {
		if err := c.sightCluster(ctx, examiner); err != nil {
			return err
		}
	}
	if c.mode == kamino.ProveCanary && (s.Node.UID == "" || !s.Node.Ready) {
		if lines, err := prover.Console(ctx, c.pool, s.Canary); err == nil {
			s.Console = lines
		}
	}
	if report, ok := s.Node.Report(s.Nonce); ok && s.Restarts == nil && !s.Ready.IsZero() {
		if s.Restarts = report.Restarts; s.Restarts == nil {
			s.Restarts = map[string]int{}
		}
	}
	s.Now = c.engine.now()
	c.whole = s.Now
	return nil
}

// sightBefore records the machine IDs of nodes before the canary's node exists; none if it exists
// already.
func (c *canary) sightBefore(ctx context.Context) error {
	nodes, err := c.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s := &c.sight
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
func (c *canary) sightOthers(ctx context.Context) error {
	s := &c.sight
	nodes, err := c.engine.Cluster.Nodes(ctx)
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

func (c *canary) sightCluster(ctx context.Context, examiner kamino.Examiner) error {
	if err := c.sightOthers(ctx); err != nil {
		return err
	}
	s := &c.sight
	s.Donor, s.Peers = "", nil
	sibling, tags := "", c.image.version.Tags
	for _, n := range s.Others {
		if n.Name == tags[kamino.TagBuiltFrom] && tags[kamino.TagRun] == c.held.Run && kamino.SameVM(n.SystemUUID, tags[kamino.TagVM]) {
			s.Donor = n.Name
		}
		pool, err := c.engine.poolOf(ctx, n)
		if err != nil {
			return err
		}
		if pool != c.pool.ID || !n.Ready || n.Unschedulable {
			continue
		}
		if s.Peers = append(s.Peers, n); sibling == "" || n.Name == s.Donor {
			sibling = n.Name
		}
	}
	seen, err := examiner.Examine(ctx, kamino.ExamineOrder{Run: c.held.Run, Node: s.Canary.Hostname, Sibling: sibling, Since: s.Launched,
		Probe: c.opts.Proof.Probe, Nonce: c.probeNonce()})
	if err != nil {
		return fmt.Errorf("examine node %s: %w", s.Canary.Hostname, err)
	}
	had := s.Node.Node
	s.ClusterObservation, s.Now = seen, c.engine.now()
	c.seen = s.Now
	s.Node.Node = had // as it was observed before
	s.SawNode(seen.Node.Node)
	return nil
}
