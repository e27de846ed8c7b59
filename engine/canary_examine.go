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

// examineLimit is how long a patched node may take to be healthy, from when it is Ready.
const examineLimit = 10 * time.Minute

// lookExamine watches the canary until the checks have a verdict, and writes the verdict on the
// version.
func (r *Run) lookExamine(ctx context.Context) (workflow.Next, error) {
	if r.proof.error != nil {
		return r.concluded(ctx, r.proof.error.Outcome, r.proof.error.Findings)
	}
	if !r.proof.passed {
		out, findings, err := r.examine(ctx)
		s := r.proof.sight
		switch {
		case err != nil:
			return workflow.Next{}, err
		case out == kamino.ProofFailed || out == kamino.ProofInconclusive:
			return r.concluded(ctx, out, findings)
		case r.wantsProbe():
			return r.probe(ctx, s.Node.Node)
		case out == kamino.ProofWaits:
			return waitProof(findings[0]), nil
		}
		r.proof.passed, r.proof.findings = true, findings
	}
	v, next, err := r.provedVersion(ctx)
	if err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	r.image.version, r.image.readAt = v, r.engine.now()
	if v.Tags[kamino.TagProof] == kamino.TagProofPassed {
		return workflow.Done("passed; Ready in " + r.proof.sight.Boot().Round(time.Second).String()), nil
	}
	if v = v.Offering(kamino.TagOfferHidden); !r.promotes() {
		v = v.Gate()
	}
	v.Tags[kamino.TagProof] = kamino.TagProofPassed
	next = r.writeVersion("record on version "+v.Name+" that it passed its proof", v)
	s := r.proof.sight
	report, told := s.Node.Report(s.Nonce)
	baked, watched := s.Baked()
	if !s.Ready.IsZero() && (s.Exact || told) {
		took := 0.0 // seen too late to measure; the phases are the node's own report
		if s.Exact {
			took = s.Boot().Seconds()
		}
		next = next.Noting(func(l *kamino.Lease) {
			if l.Ledger.NoteBoot(took, report.Timing, s.Node.Name, r.engine.date()); watched {
				l.Ledger.NoteBaked(baked)
			}
		})
	}
	return next, nil
}

// wantsProbe reports whether the operator's probe has to be started now.
func (r *Run) wantsProbe() bool {
	s := r.proof.sight
	return r.opts.Proof.Probe != nil && !slices.Contains(r.opts.Proof.Without, "probe") && s.There() && !s.Probe.Started
}

// probeNonce returns the nonce of the probe that this run started or is about to start; "" if there
// is none.
func (r *Run) probeNonce() string {
	if p := r.held.Lease.Record.Probe; p != nil && p.Run == r.held.Run {
		return p.Nonce
	}
	return ""
}

func (r *Run) probe(ctx context.Context, n kamino.Node) (workflow.Next, error) {
	_, examiner, _ := r.engine.prover()
	namespace, err := examiner.ProbeNamespace(r.opts.Proof.Probe)
	if err != nil {
		return workflow.Next{}, err
	}
	mine := kamino.Probed{Run: r.held.Run, Namespace: namespace, Nonce: r.probeNonce()}
	if left := r.held.Lease.Record.Probe; left != nil && *left != mine { // the lease has room for one probe
		if err := r.removeProbe(ctx); err != nil {
			return workflow.Next{}, err
		}
		mine.Nonce = ""
	}
	if mine.Nonce == "" {
		mine.Nonce = rand.Text()
	}
	return workflow.Act(kamino.ActProbe, "start the operator's probe on node "+n.Name, func(ctx context.Context) error {
		r.proof.whole = time.Time{} // an observation from before the probe was started does not show it
		return examiner.StartProbe(ctx, mine, n, r.opts.Proof.Probe)
	}).Then("the probe", 0).Noting(func(l *kamino.Lease) { l.Record.Probe = &mine }), nil
}

// concluded writes the outcome of the proof on the version, and ends the run.
func (r *Run) concluded(ctx context.Context, out kamino.Outcome, findings []kamino.Finding) (workflow.Next, error) {
	if r.proof.error == nil {
		r.unproved(out, findings)
	}
	v, next, err := r.provedVersion(ctx)
	if err != nil || next.Kind != workflow.NextDone {
		return next, err
	}
	want := v.Offering(kamino.TagOfferHidden)
	want.Tags[kamino.TagProof] = kamino.CutText(string(out)+": "+r.proof.error.Reason(), kamino.MaxTag)
	switch {
	case out == kamino.ProofFailed && v.Tags[kamino.TagBad] == "":
		return workflow.Act(kamino.ActMarkVersion, "withdraw version "+v.Name+", which failed its proof", func(ctx context.Context) error {
			return r.engine.Provider.Withdraw(ctx, r.pool, v.Name, r.bad())
		}).Of(v.Name), nil
	case out != kamino.ProofFailed && (v.Tags[kamino.TagOffer] != want.Tags[kamino.TagOffer] || v.Tags[kamino.TagProof] != want.Tags[kamino.TagProof]):
		return r.writeVersion("record on version "+v.Name+" that its proof is inconclusive", want), nil
	}
	r.recordProof(ctx)
	if out == kamino.ProofFailed {
		return workflow.Next{}, kamino.WithHint(r.proof.error, "the pool's image stays as it is, and the version is never chosen again; kamino status shows more; if the check is wrong for this pool: --prove-without %s", findings[0].Check)
	}
	take := poolstate.HowToPromote(r.pool.Name, v.Name)
	if r.work() != kamino.WorkProve {
		return workflow.Next{}, kamino.WithHint(r.proof.error, "the version stays hidden, and the next run proves it again; %s accepts it unproved", take)
	}
	if v.Tags[kamino.TagReceipt] == "" {
		take += " --accept-unsealed"
	}
	return workflow.Next{}, kamino.WithHint(r.proof.error, "nothing was promoted or withdrawn: %s --prove canary proves it again, and without --prove it is accepted unproved", take)
}

// unproved records that the proof ended without a pass, and reports each finding. The error names
// only the first.
func (r *Run) unproved(out kamino.Outcome, findings []kamino.Finding) {
	r.proof.error = &kamino.ProofError{Version: r.image.version.Name, Outcome: out, Findings: findings}
	for _, f := range findings {
		r.tell(kamino.Event{Step: r.held.Step, Kind: kamino.EventWarning, Percent: -1, Message: fmt.Sprintf("proof of version %s: %s: %s", r.image.version.Name, f.Outcome, f)})
	}
}

// bad returns why the version is withdrawn; empty unless it failed.
func (r *Run) bad() kamino.Bad {
	if r.proof.error == nil || r.proof.error.Outcome != kamino.ProofFailed {
		return kamino.Bad{}
	}
	return badBy(r.proof.error)
}

// badBy returns the reason of a version whose nodes were found bad by a proof or by a watch.
func badBy(proof *kamino.ProofError) kamino.Bad {
	return kamino.Bad{Reason: kamino.CutText("failed its proof: "+proof.Reason(), kamino.MaxTag), Nodes: true}
}

// recordProof writes an event about the proof on the donor's node.
func (r *Run) recordProof(ctx context.Context) {
	reason := map[kamino.Outcome]string{kamino.ProofFailed: kamino.EventProofFailed, kamino.ProofInconclusive: kamino.EventProofInconclusive}[r.proof.error.Outcome]
	if r.donor.node.UID != "" {
		r.warn(ctx, r.donor.node, reason, r.proof.error.Error(), nil)
	}
}

// readVerdict finds out from the version's tags whether the version of an adopted run failed its
// proof, in case that run was killed after the withdrawal and before it recorded the verdict.
func (r *Run) readVerdict(ctx context.Context) error {
	run, rec := r.held.Run, r.held.Before
	if !r.held.Adopted || r.held.Lease.Record.Proof != "" || rec.Work == kamino.WorkPatch {
		return nil
	}
	versions, err := r.everListed(ctx)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.Tags[kamino.TagProof] != kamino.TagProofFailed || v.Tags[kamino.TagRun] != run && !(rec.Work == kamino.WorkProve && v.Name == rec.Version) {
			continue
		}
		r.held.Verdict = "version " + v.Name + " " + v.Tags[kamino.TagBad]
		break
	}
	if r.held.Verdict == "" || rec.Donor == "" {
		return nil
	}
	if n, err := r.engine.Cluster.Node(ctx, rec.Donor); err == nil { // otherwise only the ledger reports it
		r.warn(ctx, n, kamino.EventProofFailed, r.held.Verdict, nil)
	}
	return nil
}

// warn writes an event on a node that a person should look at, with what to type.
func (r *Run) warn(ctx context.Context, n kamino.Node, reason, what string, err error) {
	rec, ok := r.engine.Cluster.(kamino.Recorder)
	if !ok || n.Name == "" {
		return
	}
	typed := "kamino status --pool " + r.pool.ID.Name() + " -o wide"
	if reason == kamino.EventDonorAway {
		typed = "kamino restore --pool " + r.pool.ID.Name()
	}
	if hint := kamino.Hint(err); hint != "" && len(what)+len(hint) < 600 { // what to type must fit in
		what += "; " + hint
	}
	rec.Record(ctx, n, r.held.Run, reason, kamino.CutText(kamino.Plain(what), 800)+`. Type "`+typed+`"`)
}
