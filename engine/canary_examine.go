package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// lookExamine watches the canary until the checks have a verdict, and writes the verdict on the
// version.
func (c *canary) lookExamine(ctx context.Context) (workflow.Next, error) {
	if c.error != nil {
		return c.concluded(ctx, c.error.Outcome, c.error.Findings)
	}
	if !c.passed {
		out, findings, err := c.examine(ctx)
		s := c.sight
		switch {
		case err != nil:
			return workflow.Next{}, err
		case out == kamino.ProofFailed || out == kamino.ProofInconclusive:
			return c.concluded(ctx, out, findings)
		case c.wantsProbe():
			return c.probe(ctx, s.Node.Node)
		case out == kamino.ProofWaits:
			return waitProof(findings[0]), nil
		}
		c.passed, c.findings = true, findings
	}
	v, next, err := c.provedVersion(ctx)
	if err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	c.image.version, c.image.readAt = v, c.engine.now()
	if v.Proof == kamino.TagProofPassed {
		return workflow.Done("passed; Ready in " + c.sight.Boot().Round(time.Second).String()), nil
	}
	if v = v.Offering(kamino.TagOfferHidden); !c.image.promotes() {
		v = v.Gate()
	}
	next = c.image.writeVersion("record on version "+v.Name+" that it passed its proof", v.WithProof(kamino.TagProofPassed))
	s := c.sight
	report, told := s.Node.Report(s.Nonce)
	baked, watched := s.Baked()
	if !s.Ready.IsZero() && (s.Exact || told) {
		took := 0.0 // seen too late to measure; the phases are the node's own report
		if s.Exact {
			took = s.Boot().Seconds()
		}
		next = next.Noting(func(l *kamino.Lease) {
			if l.Ledger.NoteBoot(took, report.Timing, s.Node.Name, c.engine.date()); watched {
				l.Ledger.NoteBaked(baked)
			}
		})
	}
	return next, nil
}

// wantsProbe reports whether the operator's probe has to be started now.
func (c *canary) wantsProbe() bool {
	s := c.sight
	return c.opts.Proof.Probe != nil && !slices.Contains(c.opts.Proof.Without, "probe") && s.There() && !s.Probe.Started
}

// probeNonce returns the nonce of the probe that this run started or is about to start; "" if there
// is none.
func (c *canary) probeNonce() string {
	if p := c.held.Lease.Record.Probe; p != nil && p.Run == c.held.Run {
		return p.Nonce
	}
	return ""
}

func (c *canary) probe(ctx context.Context, n kamino.Node) (workflow.Next, error) {
	_, examiner, _ := c.engine.prover()
	namespace, err := examiner.ProbeNamespace(c.opts.Proof.Probe)
	if err != nil {
		return workflow.Next{}, err
	}
	mine := kamino.Probed{Run: c.held.Run, Namespace: namespace, Nonce: c.probeNonce()}
	if left := c.held.Lease.Record.Probe; left != nil && *left != mine { // the lease has room for one probe
		if err := c.removeProbe(ctx); err != nil {
			return workflow.Next{}, err
		}
		mine.Nonce = ""
	}
	if mine.Nonce == "" {
		mine.Nonce = rand.Text()
	}
	return workflow.Act(kamino.ActProbe, "start the operator's probe on node "+n.Name, func(ctx context.Context) error {
		c.whole = time.Time{} // an observation from before the probe was started does not show it
		return examiner.StartProbe(ctx, mine, n, c.opts.Proof.Probe)
	}).Then("the probe", 0).Noting(func(l *kamino.Lease) { l.Record.Probe = &mine }), nil
}

// concluded writes the outcome of the proof on the version, and ends the run.
func (c *canary) concluded(ctx context.Context, out kamino.Outcome, findings []kamino.Finding) (workflow.Next, error) {
	if c.error == nil {
		c.unproved(out, findings)
	}
	v, next, err := c.provedVersion(ctx)
	if err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	want := v.Offering(kamino.TagOfferHidden).WithProof(kamino.CutText(string(out)+": "+c.error.Reason(), kamino.MaxTag))
	switch {
	case out == kamino.ProofFailed && v.Bad == "":
		return workflow.Act(kamino.ActMarkVersion, "withdraw version "+v.Name+", which failed its proof", func(ctx context.Context) error {
			return c.engine.Provider.Withdraw(ctx, c.pool, v.Name, c.bad())
		}).Of(v.Name), nil
	case out != kamino.ProofFailed && (v.Offer != want.Offer || v.Proof != want.Proof):
		return c.image.writeVersion("record on version "+v.Name+" that its proof is inconclusive", want), nil
	}
	c.recordProof(ctx)
	if out == kamino.ProofFailed {
		return workflow.Next{}, kamino.WithHint(c.error,
			"the pool's image stays as it is, and the version is never chosen again; kamino status shows more; if the check is wrong for this pool: --prove-without %s", findings[0].Check)
	}
	take := poolstate.HowToPromote(c.pool.Name, v.Name)
	if c.work() != kamino.WorkProve {
		return workflow.Next{}, kamino.WithHint(c.error,
			"the version stays hidden, and the next run proves it again; %s accepts it unproved", take)
	}
	if v.Receipt == "" {
		take += " --accept-unsealed"
	}
	return workflow.Next{}, kamino.WithHint(c.error,
		"nothing was promoted or withdrawn: %s --prove canary proves it again, and without --prove it is accepted unproved", take)
}

// unproved records that the proof ended without a pass, and reports each finding. The error names
// only the first.
func (c *canary) unproved(out kamino.Outcome, findings []kamino.Finding) {
	c.error = &kamino.ProofError{Version: c.image.version.Name, Outcome: out, Findings: findings}
	for _, f := range findings {
		c.tell(kamino.Event{Step: c.held.Step, Kind: kamino.EventWarning, Percent: -1,
			Message: fmt.Sprintf("proof of version %s: %s: %s", c.image.version.Name, f.Outcome, f)})
	}
}

// bad returns why the version is withdrawn; empty unless it failed.
func (c *canary) bad() kamino.Bad {
	if c.error == nil || c.error.Outcome != kamino.ProofFailed {
		return kamino.Bad{}
	}
	return badBy(c.error)
}

// badBy returns the reason of a version whose nodes were found bad by a proof or by a watch.
func badBy(proof *kamino.ProofError) kamino.Bad {
	return kamino.Bad{Reason: kamino.CutText("failed its proof: "+proof.Reason(), kamino.MaxTag), Nodes: true}
}

// recordProof writes an event about the proof on the donor's node.
func (c *canary) recordProof(ctx context.Context) {
	reason := map[kamino.Outcome]string{kamino.ProofFailed: kamino.EventProofFailed,
		kamino.ProofInconclusive: kamino.EventProofInconclusive}[c.error.Outcome]
	if c.donor.node.UID != "" {
		c.warn(ctx, c.donor.node, reason, c.error.Error(), nil)
	}
}

// readVerdict finds out from the version's tags whether the version of an adopted run failed its
// proof, in case that run was killed after the withdrawal and before it recorded the verdict.
func (c *canary) readVerdict(ctx context.Context) error {
	run, rec := c.held.Run, c.held.Before
	if !c.held.Adopted || c.held.Lease.Record.Proof != "" || rec.Work == kamino.WorkPatch {
		return nil
	}
	versions, err := c.image.everListed(ctx)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.Proof != kamino.TagProofFailed || v.Run != run && !(rec.Work == kamino.WorkProve && v.Name == rec.Version) {
			continue
		}
		c.held.Verdict = "version " + v.Name + " " + v.Bad
		break
	}
	if c.held.Verdict == "" || rec.Donor == "" {
		return nil
	}
	if n, err := c.engine.Cluster.Node(ctx, rec.Donor); err == nil { // otherwise only the ledger reports it
		c.warn(ctx, n, kamino.EventProofFailed, c.held.Verdict, nil)
	}
	return nil
}
