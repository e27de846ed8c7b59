package kamino

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// provesCanary: the version is to be proved by a canary.
func (r *Run) provesCanary() bool {
	return r.proof.mode == ProveCanary && (!r.image.preBuilt || r.image.version.unproved() || r.work() == WorkProve)
}

// mayHaveCanary: the run, or one before it that did not see it gone, has asked for a canary, or
// would.
func (r *Run) mayHaveCanary() bool {
	_, _, ok := r.engine.prover()
	return ok && (r.held.lease != nil && r.held.lease.Record.Canary+r.held.lease.Ledger.Canary != "" || r.plan != nil && r.provesCanary())
}

// promotes: a version that passed is promoted by the run itself. No option of it lifts what was
// decided for the version, or for the run that it took over: a nightly Job has the same options as
// a person, but for one who names the version.
func (r *Run) promotes() bool {
	return r.work() == WorkProve || r.opts.Proof.Promote != PromoteManual && r.held.before.Promote != PromoteManual && !r.image.version.gated()
}

// leaves is promotes as the record tells it.
func (r *Run) leaves() PromoteMode {
	if r.promotes() {
		return ""
	}
	return PromoteManual
}

func (r *Run) canaryName() string { return CanaryName(r.pool.ID, r.held.run) }

// lookLaunch begins to make the canary. What ended runs left of theirs goes first.
func (r *Run) lookLaunch(ctx context.Context) (Next, error) {
	prover, _, _ := r.engine.prover()
	if r.proof.denied != nil {
		return r.concluded(ctx, ProofInconclusive, []Finding{{"cloud", ProofInconclusive, r.proof.denied.Error()}})
	}
	list, err := r.canaries(ctx)
	if err != nil {
		return Next{}, err
	}
	name := r.canaryName()
	if next, found := r.removeCanary(prover, list, func(c Canary) bool { return c.Name != name }); found {
		return next, nil
	}
	if next, found := r.removeUnlisted(prover, list); found && r.held.lease.Record.Canary != name {
		return next, nil
	}
	if i := slices.IndexFunc(list, func(c Canary) bool { return c.Name == name }); i >= 0 {
		if r.proof.sight.Launched.IsZero() { // else this process knows it by a clock that nobody sets
			r.proof.sight.Launched = r.held.lease.Record.CanarySince
		}
		return done(fmt.Sprintf("%s is %s", name, list[i].State)), nil
	}
	v := r.image.version
	if elapsed(r.image.readAt, r.engine.now()) > justNow { // else it was seen to be built, just now
		var next Next
		if v, next, err = r.provedVersion(ctx); err != nil || next.kind != nextDone {
			return next, err
		}
	}
	want := v.offering(offerProving)
	if !r.promotes() {
		want = want.gate()
	}
	if r.work() == WorkProve {
		want.Tags[TagProof] = proofWanted // what it passed before is of no account
	}
	if slices.ContainsFunc([]string{TagOffer, TagProof, TagPromote}, func(tag string) bool { return v.Tags[tag] != want.Tags[tag] }) {
		return r.writeVersion("record on version "+v.Name+" that it is being proved", want), nil
	}
	if err := r.refusePaused(ctx); err != nil {
		return Next{}, err
	}
	now := r.engine.date()
	order := CanaryOrder{Name: name, Version: v.ID, Run: r.held.run, Nonce: r.held.lease.Record.Nonce, Expires: now.Add(r.proofTime())}
	return act(ActLaunchCanary, fmt.Sprintf("start canary %s from version %s beside pool %s", name, v.Name, r.pool.Name), func(ctx context.Context) error {
		r.proof.listedAt, r.proof.sight.Launched = time.Time{}, r.engine.now()
		err := prover.LaunchCanary(ctx, r.pool, order)
		var silence *ThrottledError
		long := errors.As(err, &silence) && silence.After > createLimit // as if it took so long to make it
		if err != nil && (!transient(err) || long) && ctx.Err() == nil {
			r.proof.denied = err
			return nil
		}
		return err
	}).noting(func(l *Lease) { l.Record.Canary, l.Record.CanarySince = name, now }), nil
}

// proofTime is longer than any proof takes.
func (r *Run) proofTime() time.Duration {
	return createLimit + 3*max(r.opts.Proof.Budget, r.opts.Proof.For) + returnLimit
}

// provedVersion reads the version that is being proved, and waits for what is written of it.
func (r *Run) provedVersion(ctx context.Context) (Artifact, Next, error) {
	found, err := r.engine.Provider.Find(ctx, r.pool, Version, r.image.version.Name)
	if err != nil {
		return Artifact{}, Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 {
		return Artifact{}, Next{}, fmt.Errorf("version %s is gone: there is nothing to prove", r.image.version.Name)
	}
	v := found[0]
	if err := r.unswapped(v); err != nil {
		return v, Next{}, err
	}
	switch {
	case v.Tags[TagBad] != "" && v.Tags[TagBad] != r.bad().Reason:
		return v, Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Tags[TagBad])
	case v.State == Failed && v.whole():
		return v, r.writeVersion("write the tags of version "+v.Name+" again: that failed", v), nil
	case v.State == Failed:
		return v, Next{}, fmt.Errorf("version %s is %s: it is not proved", v.Name, v.State)
	case v.State != Succeeded || !v.Ready:
		return v, waitPercent("the change of version "+v.Name, v.Percent), nil
	}
	return v, done(v.Name), nil
}

// writeVersion is the act that writes the tags of a version.
func (r *Run) writeVersion(what string, v Artifact) Next {
	return act(ActMarkVersion, what, func(ctx context.Context) error {
		r.image.readAt = time.Time{}
		return r.engine.Provider.SetTags(ctx, r.pool, v)
	}).of(v.Name)
}

// waitProof waits for what a check is not content with yet.
func waitProof(f Finding) Next { return wait("the proof (" + f.String() + ")") }

// lookJoin waits for the canary's node and lets it take part: cordoned, and without the taint that
// it registered with.
func (r *Run) lookJoin(ctx context.Context) (Next, error) {
	out, findings, err := r.examine(ctx)
	n := r.proof.sight.Node.Node
	switch {
	case err != nil:
		return Next{}, err
	case out == ProofFailed || out == ProofInconclusive:
		return r.concluded(ctx, out, findings)
	case n.UID == "" || !SameVM(n.SystemUUID, r.proof.sight.vm()):
		return waitProof(findings[0]), nil
	case n.Unschedulable && !n.Tainted(TaintCanary):
		r.proof.whole = time.Time{} // what was read before it took part is no evidence for it
		return done("node " + n.Name + " joined, cordoned"), nil
	}
	_, examiner, _ := r.engine.prover()
	return act(ActAdmitCanary, "cordon node "+n.Name+" and remove taint "+TaintCanary, func(ctx context.Context) error {
		return examiner.AdmitCanary(ctx, n)
	}), nil
}

// lookExamine watches the canary until the table has a verdict, and writes it on the version.
func (r *Run) lookExamine(ctx context.Context) (Next, error) {
	if r.proof.error != nil {
		return r.concluded(ctx, r.proof.error.Outcome, r.proof.error.Findings)
	}
	if !r.proof.passed {
		out, findings, err := r.examine(ctx)
		s := r.proof.sight
		switch {
		case err != nil:
			return Next{}, err
		case out == ProofFailed || out == ProofInconclusive:
			return r.concluded(ctx, out, findings)
		case r.wantsProbe():
			return r.probe(ctx, s.Node.Node)
		case out == ProofWaits:
			return waitProof(findings[0]), nil
		}
		r.proof.passed, r.proof.findings = true, findings
	}
	v, next, err := r.provedVersion(ctx)
	if err != nil || next.kind != nextDone {
		return next, err
	}
	r.image.version, r.image.readAt = v, r.engine.now()
	if v.Tags[TagProof] == proofPassed {
		return done("passed; Ready in " + r.proof.sight.boot().Round(time.Second).String()), nil
	}
	if v = v.offering(offerHidden); !r.promotes() {
		v = v.gate()
	}
	v.Tags[TagProof] = proofPassed
	next = r.writeVersion("record on version "+v.Name+" that it passed its proof", v)
	s := r.proof.sight
	report, told := s.Node.Report(s.Nonce)
	baked, watched := s.baked()
	if !s.Ready.IsZero() && (s.Exact || told) {
		took := 0.0 // seen too late to tell; the phases are the node's own word
		if s.Exact {
			took = s.boot().Seconds()
		}
		next = next.noting(func(l *Lease) {
			if l.Ledger.booted(took, report.Timing, s.Node.Name, r.engine.date()); watched {
				l.Ledger.baked(baked)
			}
		})
	}
	return next, nil
}

// wantsProbe: the operator's probe has to be started, and can be.
func (r *Run) wantsProbe() bool {
	s := r.proof.sight
	return r.opts.Proof.Probe != nil && !slices.Contains(r.opts.Proof.Without, "probe") && s.there() && !s.Probe.Started
}

// probeNonce is that of the probe which this run has started, or is about to; "" when there is none.
func (r *Run) probeNonce() string {
	if p := r.held.lease.Record.Probe; p != nil && p.Run == r.held.run {
		return p.Nonce
	}
	return ""
}

func (r *Run) probe(ctx context.Context, n Node) (Next, error) {
	_, examiner, _ := r.engine.prover()
	namespace, err := examiner.ProbeNamespace(r.opts.Proof.Probe)
	if err != nil {
		return Next{}, err
	}
	mine := Probed{Run: r.held.run, Namespace: namespace, Nonce: r.probeNonce()}
	if left := r.held.lease.Record.Probe; left != nil && *left != mine { // only one is written down
		if err := r.removeProbe(ctx); err != nil {
			return Next{}, err
		}
		mine.Nonce = ""
	}
	if mine.Nonce == "" {
		mine.Nonce = rand.Text()
	}
	return act(ActProbe, "start the operator's probe on node "+n.Name, func(ctx context.Context) error {
		r.proof.whole = time.Time{} // what was read before it was started does not show it
		return examiner.StartProbe(ctx, mine, n, r.opts.Proof.Probe)
	}).then("the probe", 0).noting(func(l *Lease) { l.Record.Probe = &mine }), nil
}

// concluded writes on the version how its proof ended, and ends the run.
func (r *Run) concluded(ctx context.Context, out Outcome, findings []Finding) (Next, error) {
	if r.proof.error == nil {
		r.unproved(out, findings)
	}
	v, next, err := r.provedVersion(ctx)
	if err != nil || next.kind != nextDone {
		return next, err
	}
	want := v.offering(offerHidden)
	want.Tags[TagProof] = cutText(string(out)+": "+r.proof.error.reason(), maxTag)
	switch {
	case out == ProofFailed && v.Tags[TagBad] == "":
		return act(ActMarkVersion, "withdraw version "+v.Name+", which failed its proof", func(ctx context.Context) error {
			return r.engine.Provider.Withdraw(ctx, r.pool, v.Name, r.bad())
		}).of(v.Name), nil
	case out != ProofFailed && (v.Tags[TagOffer] != want.Tags[TagOffer] || v.Tags[TagProof] != want.Tags[TagProof]):
		return r.writeVersion("record on version "+v.Name+" that its proof is inconclusive", want), nil
	}
	r.recordProof(ctx)
	if out == ProofFailed {
		return Next{}, WithHint(r.proof.error, "the pool's image stays as it is, and the version is never chosen again; kamino status shows more; if the check is wrong for this pool: --prove-without %s", findings[0].Check)
	}
	take := HowToPromote(r.pool.Name, v.Name)
	if r.work() != WorkProve {
		return Next{}, WithHint(r.proof.error, "the version stays hidden, and the next run proves it again; %s accepts it unproved", take)
	}
	if v.Tags[TagReceipt] == "" {
		take += " --accept-unsealed"
	}
	return Next{}, WithHint(r.proof.error, "nothing was promoted or withdrawn: %s --prove canary proves it again, and without --prove it is accepted unproved", take)
}

// unproved keeps that the proof ended without a pass, and reports each finding: the error names only
// the first.
func (r *Run) unproved(out Outcome, findings []Finding) {
	r.proof.error = &ProofError{Version: r.image.version.Name, Outcome: out, Findings: findings}
	for _, f := range findings {
		r.tell(Event{Step: r.held.step, Kind: Warned, Percent: -1, Message: fmt.Sprintf("proof of version %s: %s: %s", r.image.version.Name, f.Outcome, f)})
	}
}

// maxTag bounds what is written into a tag: Azure takes 256 characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const maxTag = 250

// bad is why the version is withdrawn; nothing while it did not fail.
func (r *Run) bad() Bad {
	if r.proof.error == nil || r.proof.error.Outcome != ProofFailed {
		return Bad{}
	}
	return badBy(r.proof.error)
}

// badBy is a version whose nodes were found bad in a proof, or when they were watched.
func badBy(proof *ProofError) Bad {
	return Bad{cutText("failed its proof: "+proof.reason(), maxTag), true}
}

// recordProof leaves an event on the donor's node.
func (r *Run) recordProof(ctx context.Context) {
	reason := map[Outcome]string{ProofFailed: EventProofFailed, ProofInconclusive: EventProofInconclusive}[r.proof.error.Outcome]
	if r.donor.node.UID != "" {
		r.warn(ctx, r.donor.node, reason, r.proof.error.Error(), nil)
	}
}

// readVerdict finds out whether the version of an adopted run failed its proof, and the process
// ended between the withdrawal and the record of it: the version's tags tell.
func (r *Run) readVerdict(ctx context.Context) error {
	run, rec := r.held.run, r.held.before
	if !r.held.adopted || r.held.lease.Record.Proof != "" || rec.Work == WorkPatch {
		return nil
	}
	versions, err := r.everListed(ctx)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.Tags[TagProof] != proofFailed || v.Tags[TagRun] != run && !(rec.Work == WorkProve && v.Name == rec.Version) {
			continue
		}
		r.held.verdict = "version " + v.Name + " " + v.Tags[TagBad]
		break
	}
	if r.held.verdict == "" || rec.Donor == "" {
		return nil
	}
	if n, err := r.engine.Cluster.Node(ctx, rec.Donor); err == nil { // else it is told by the ledger alone
		r.warn(ctx, n, EventProofFailed, r.held.verdict, nil)
	}
	return nil
}

// warn leaves an event on a node that somebody should look at, and says what to type.
func (r *Run) warn(ctx context.Context, n Node, reason, what string, err error) {
	rec, ok := r.engine.Cluster.(Recorder)
	if !ok || n.Name == "" {
		return
	}
	typed := "kamino status --pool " + r.pool.ID.Name() + " -o wide"
	if reason == EventDonorAway {
		typed = "kamino restore --pool " + r.pool.ID.Name()
	}
	if hint := Hint(err); hint != "" && len(what)+len(hint) < 600 { // what to type must fit in
		what += "; " + hint
	}
	rec.Record(ctx, n, r.held.run, reason, cutText(Plain(what), 800)+`. Type "`+typed+`"`)
}

// lookRetire removes the canary, and then its Node object: the cloud controller manager would do
// that only when its cache runs out, after ten minutes
// (https://github.com/kubernetes-sigs/cloud-provider-azure, vmssCacheTTLInSeconds).
func (r *Run) lookRetire(ctx context.Context) (Next, error) {
	prover, examiner, _ := r.engine.prover()
	list, err := r.listCanaries(ctx)
	if err != nil {
		return Next{}, err
	}
	if next, found := r.removeCanary(prover, list, func(Canary) bool { return true }); found {
		return next, nil
	}
	if next, found := r.removeUnlisted(prover, list); found {
		return next, nil
	}
	// A list may lack what was only just made, and what is not there may be shown for a while.
	if r.proof.absent.IsZero() {
		r.proof.absent = r.engine.now()
	}
	gone := r.proof.leaves || r.proof.shown && len(r.proof.removed) > 0
	if left := lookAge - r.engine.now().Sub(r.proof.absent); !gone && left > 0 {
		return waitFor("any canary that the cloud lists late, for "+lookAge.String(), left), nil
	}
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if name, ok := r.canaryOfNode(ctx, n); ok && !lists(list, name) && (r.proof.removed[name] || r.knownCanary(name)) {
			return act(ActRemoveNode, "delete the Node object of canary "+n.Name, func(ctx context.Context) error {
				return examiner.RemoveNode(ctx, n)
			}).of(n.Name), nil
		}
	}
	if err := r.removeProbe(ctx); err != nil {
		return Next{}, err
	}
	r.held.retired = true
	return done("no canary is left"), nil
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

// proveAs proves in another way than this run was told, and says so.
func (r *Run) proveAs(ctx context.Context, mode ProveMode, why string) error {
	r.doubt(r.held.step, why)
	least, p := Defaults().Proof, &r.opts.Proof
	if p.Mode == ProveNone { // its limits were of no account
		p.Budget, p.For = max(p.Budget, least.Budget), max(p.For, least.For)
	}
	p.Mode, r.proof.mode = mode, ""
	return r.chooseProof(ctx)
}

// keepProof proves as the run was to that this one took over.
func (r *Run) keepProof(ctx context.Context) error {
	was := r.held.before.Prove
	if r.proof.mode != ProveNone || was == "" || was == ProveNone || r.held.before.Work != "" {
		return nil
	}
	return r.proveAs(ctx, was, "the run that was taken over began with --prove "+string(was)+": this one continues the same way")
}
