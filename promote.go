package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// PromoteOptions are what a person decides about a promotion.
type PromoteOptions struct {
	Pool           string // name or ID
	Version        string // "": the newest that has passed its proof
	DryRun         bool
	ImageReference ImageReference // ByVersion: by its name; "": as by a run that nobody told
	AdoptModel     bool           // replaces an image that somebody else has put into the model
	// AcceptUnsealed takes a version without a seal receipt, as one that somebody else made.
	AcceptUnsealed bool
	// Proof, where set, is what the version goes through first. One that fails is withdrawn.
	Proof         *Proving
	PendingReboot []Signal // see Options
}

// PromoteVersion makes a hidden version what the pool's next instance boots from, as a run does
// that proved it. A withdrawn version can only be used again by a rollback that names it.
// Repeated, it changes nothing.
func (e *Engine) PromoteVersion(ctx context.Context, opts PromoteOptions) (Rollback, error) {
	if err := opts.validate(); err != nil {
		return Rollback{}, err
	}
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, nil)
	if err != nil {
		return Rollback{}, err
	}
	if err := e.refusePaused(ctx); err != nil {
		return Rollback{}, err
	}
	t := target{points: opts.ImageReference != ByVersion && o.follows(""), verb: VerbPromote}
	for i, v := range o.versions {
		if opts.Version == "" && (v.waiting() || o.halfway(v)) || CompareVersions(v.Name, opts.Version) == 0 && opts.Version != "" {
			t.version = &o.versions[i]
			break
		}
	}
	now := o.next()
	if t.version == nil && opts.Version == "" && opts.Proof == nil && now != nil && now.Name == o.versions[0].Name && now.Tags[TagReceipt] != "" {
		t.version = now // it was promoted already: typed again
	}
	switch v := t.version; {
	case v == nil && opts.Version == "":
		return Rollback{}, WithHint(fmt.Errorf("pool %s has no version that passed its proof and waits", o.pool.Name), "%s", o.howToName())
	case v == nil:
		return Rollback{}, WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.pool.Name), "kamino status lists them")
	case v.Tags[TagBad] != "":
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s is withdrawn: %s", v.Name, o.pool.Name, v.Tags[TagBad]),
			"to use it all the same: kamino rollback --pool %s --to %s", o.pool.Name, v.Name)
	case v.unaccepted() && o.pool.Owner != nil && opts.Version == "":
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s was left hidden: its instances would run the bootstrap of the model, which %s writes", v.Name, o.pool.Name, o.pool.Owner.Name),
			"%s offers it", HowToPromote(o.pool.Name, v.Name))
	case v.Tags[TagReceipt] == "" && !opts.AcceptUnsealed:
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s has no seal receipt: its disk may hold the identity and the secrets of node %s",
			v.Name, o.pool.Name, cmp.Or(v.Tags[TagBuiltFrom], "unknown")), "to use it all the same: --accept-unsealed, with --prove canary to prove it first")
	}
	promoted := now != nil && now.Name == t.version.Name && (opts.Proof == nil || now.Tags[TagProof] == proofPassed)
	if err := o.provable(*t.version); err != nil && !promoted {
		return Rollback{}, err
	}
	if pin := o.pin(); pin != nil && !opts.AdoptModel {
		return Rollback{}, &RefusedError{Subject: "pool " + o.pool.Name, Refusals: []Refusal{pin.refusal(o.pool)}}
	}
	t.adopts = opts.AdoptModel
	if v := t.version; v.unaccepted() && opts.Version != "" && e.livesIn(Definition) && (o.pool.Owner != nil || points(o.pool.Model.Image, o.versions)) {
		t.points, t.offered = true, true // naming it accepts its bootstrap; the model stays its owner's
	}
	if err := e.comeToPoint(ctx, &o, &t, opts.ImageReference); err != nil {
		return Rollback{}, err
	}
	if err := e.bootable(ctx, o, t, opts.DryRun || opts.Proof != nil); err != nil && (opts.Proof == nil || opts.DryRun) { // else the proof waits
		return Rollback{}, err
	}
	switch {
	case opts.Proof != nil && !promoted:
		return e.proveNamed(ctx, o, t, opts)
	case opts.Proof != nil && o.lease.Ledger.Canary != "" && !opts.DryRun:
		if err := e.retireLeft(ctx, o); err != nil {
			return Rollback{}, err
		}
	}
	return e.point(ctx, o, t, nil, opts.DryRun)
}

const noVersionYet = "the pool has no version yet: kamino update --target-node NODE makes one"

// howToName is the hint where no version is named, and none is meant.
func (o overview) howToName() string {
	if len(o.versions) == 0 {
		return noVersionYet
	}
	return "name one with --version: kamino status lists them"
}

// WithdrawOptions are what a person decides about taking a version back.
type WithdrawOptions struct {
	Pool    string // name or ID
	Version string // "": the one that the next node would boot from
	Reason  string // stands on the version
	DryRun  bool
	nodes   bool // Bad.Nodes
}

// WithdrawVersion takes a version back, for good until a person names it again. Where it is what
// the pool's next instance boots from, the good version before it takes its place; without one
// nothing is changed. Another one is marked only. Repeated, it changes nothing; see Withdrawal.
func (e *Engine) WithdrawVersion(ctx context.Context, opts WithdrawOptions) (Rollback, error) {
	if strings.TrimSpace(opts.Reason) == "" {
		return Rollback{}, WithHint(errors.New("no reason given"), "--reason TEXT is recorded on the version")
	}
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, nil)
	if err != nil {
		return Rollback{}, err
	}
	now, i := o.next(), indexOf(o.versions, opts.Version)
	switch {
	case opts.Version == "" && now == nil:
		return Rollback{}, WithHint(fmt.Errorf("new nodes of pool %s boot from %s, which is not a version", o.pool.Name, lastSegments(o.pool.Model.Image, 3)), "%s", o.howToName())
	case opts.Version == "":
		same, err := o.lease.Ledger.Withdrew.again(now.Name, opts)
		if err != nil {
			return Rollback{}, err
		} else if i = indexOf(o.versions, same); i < 0 { // it was pruned since
			return Rollback{Pool: o.id, Name: o.pool.Name, From: now.Name, To: now.Name, GivenBack: o.givenBack}, nil
		}
	case i < 0:
		return Rollback{}, WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.pool.Name), "kamino status lists them")
	}
	v := o.versions[i]
	t := target{version: now, points: o.follows(""), stays: now == nil || now.Name != v.Name, verb: VerbWithdraw, why: Bad{opts.Reason, opts.nodes}}
	if !t.stays {
		if t.version = o.fallback(); t.version == nil {
			return Rollback{}, o.noFallback(fmt.Errorf("pool %s has no good version before %s: nothing is withdrawn", o.pool.Name, v.Name))
		}
	}
	var bad []Artifact
	if v.Tags[TagBad] == "" || slices.Contains(o.lease.Ledger.RolledBack, v.Name) {
		bad = append(bad, v)
	}
	if !t.stays {
		bad = append(bad, o.passedOver(t)...)
	}
	back, err := e.point(ctx, o, t, bad, opts.DryRun)
	back.Descendants = descendants(v.Name, o.versions)
	return back, err
}

// fallback is the version that takes the place of one that is withdrawn: as defaultTarget, but none
// that promote refuses.
func (o overview) fallback() *Artifact {
	now := o.next()
	for i, v := range o.versions {
		if now != nil && CompareVersions(v.Name, now.Name) < 0 && v.standsIn(o.pool) && v.Unlike(now.Machine) == "" {
			return &o.versions[i]
		}
	}
	return nil
}

// passedOver are the versions between that a definition would stand for instead.
func (o overview) passedOver(t target) []Artifact {
	return slices.DeleteFunc(o.distrusted(t), func(v Artifact) bool {
		return !t.points || v.Excluded || CompareVersions(v.Name, o.next().Name) >= 0
	})
}

// noFallback tells what to do where no version can take the place of one that is bad.
func (o overview) noFallback(err error) error {
	if t := o.defaultTarget(); t.version != nil && t.version.Tags[TagReceipt] == "" {
		return WithHint(err, "new nodes still boot from it; version %s has no seal receipt, and its disk may hold the identity and the secrets of node %s: kamino rollback --pool %s --to %[1]s uses it all the same",
			t.name(), cmp.Or(t.version.Tags[TagBuiltFrom], "unknown"), o.pool.Name)
	}
	return WithHint(err, "new nodes still boot from it; kamino rollback --pool %s --to original goes back to the model from before; --dry-run shows first which of your settings that needs", o.pool.Name)
}

// Watching is how auto-update watches the nodes that come from a new version.
type Watching struct {
	For   time.Duration // 0: not at all
	Proof Proving       // whose budget counts from the first sight of a machine that runs
}

// watched is a pool whose next image a run of this process has changed.
type watched struct {
	pool    PoolID
	version string
	began   time.Time // no later than the version was promoted, where that is known
	looked  time.Time // last
	born    newborns
	elders  map[InstanceID]bool // instances that boot from another version, or are older
	doubts  []string            // that were told
	failed  error               // the withdrawal, or why it could not be made so far
	kept    bool                // that it could not was told
	over    bool
}

// Watch watches, for as long as told and without holding leases, the nodes that come from the
// versions which the given runs promoted, as long as the pools boot from them. A version of whose
// nodes too many are not Ready within the budget is withdrawn where a good one comes before it, and
// else told: an error either way.
func (e *Engine) Watch(ctx context.Context, results []PoolResult, w Watching) error {
	began := e.now()
	var pools []*watched
	var names []string
	for _, r := range results {
		if r.Result != nil && r.Result.Changed {
			pools = append(pools, &watched{pool: r.Pool, version: r.Result.Version, born: newborns{}})
			names = append(names, string(r.Pool))
		}
	}
	var ended error
	going := func(p *watched) bool { return !p.over }
	for ended == nil && slices.ContainsFunc(pools, going) && e.now().Sub(began) < w.For {
		all, nodes, err := e.overviews(ctx, names)
		if err != nil && !transient(err) {
			ended = err
			break
		}
		for _, o := range all {
			i := slices.IndexFunc(pools, func(p *watched) bool { return p.pool == o.id })
			e.watchOnce(ctx, pools[i], o, nodes, w.Proof)
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

// watchOnce makes one look at a pool. What cannot be read is read by the next.
func (e *Engine) watchOnce(ctx context.Context, p *watched, o overview, nodes []Node, proof Proving) {
	v, now, budget := o.next(), e.now(), proof.budget(o.lease.Ledger)
	if p.over || o.err == nil && (v == nil || v.Name != p.version) {
		return
	}
	born, err := []Instance(nil), o.err
	if err == nil {
		born, err = e.newborn(ctx, o.pool, v.ID, &p.elders)
	}
	if err != nil {
		if !transient(err) {
			e.doubt(p, o, "new nodes, which it cannot read: %v", err)
		}
		return
	}
	if p.began.IsZero() {
		if p.began = o.promotedAt(v); p.began.IsZero() {
			p.began = now
		}
	}
	if p.looked.IsZero() && o.bornBefore(v) {
		for _, in := range born {
			p.elders[in.ID] = true
		}
		born = nil
	}
	born = slices.DeleteFunc(born, func(in Instance) bool {
		if p.born[in.ID] != nil || !in.settled(nodes, now, budget) {
			return false
		}
		e.doubt(p, o, "node %s, which is not Ready and was older than %s when the watch first saw it", in.Hostname, budget)
		return true
	})
	others := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool {
		young := !n.Ready && !n.Created.Before(p.began) // it tells of no outage: it may be as bad as those
		ready := p.born[n.ProviderID] != nil && p.born[n.ProviderID].ready
		return young || ready || slices.ContainsFunc(born, func(in Instance) bool { return n.runsOn(in.ID) })
	})
	well, prompt := othersFine(others, now), p.looked.IsZero() || now.Sub(p.looked) < 3*watchPoll
	fair := func(zone string) bool { return well && prompt && !cutOff(zone, nodes, p.began) }
	p.looked = now
	// The last minute of a life is seen by no look, and one look alone tells of no time.
	long := max(budget/2, usually(o.lease.Ledger.Boots)*3/2, 2*watchPoll) - watchPoll
	if spot(o.pool.Refusals) {
		long = budget
		e.doubt(p, o, "new nodes that are spot instances and are gone before they are Ready")
	}
	lost := p.born.saw(born, nodes, now, budget, long, fair)
	e.doubtful(p, o, nodes, lost, now.Add(-budget), long, well)
	for id, n := range p.born {
		p.elders[id] = p.elders[id] || n.ready // nothing more is asked of it
	}
	late, of, bad := p.born.tooMany()
	if !bad || !e.blames(ctx, p, o) {
		return
	}
	p.failed = e.withdrawLate(ctx, p, o, late, of, budget)
	refused := (*RefusedError)(nil)
	p.over = !passing(p.failed) && !errors.As(p.failed, &refused) // else the next look tries again
}

// doubtful tells of new nodes that were not Ready and are not judged: those of a look that are
// gone, and those that are there since before a time, which is the budget ago.
func (e *Engine) doubtful(p *watched, o overview, nodes []Node, lost []newbornNode, before time.Time, long time.Duration, well bool) {
	for _, n := range lost {
		if n.Failure == "" { // else the cloud had not made it
			e.doubt(p, o, "node %s, whose machine is gone: that counts where it ran for %s while other nodes were Ready, and was no spot instance", n.Hostname, long)
		}
	}
	for _, id := range p.born.inOrder() {
		switch n := p.born[id]; {
		case n.ready, n.late, n.Failure != "", !n.seen.Before(before):
		case !well:
			e.doubt(p, o, "node %s: most other nodes of the cluster are not Ready, or none has reported for some minutes", n.Hostname)
		case cutOff(n.Zone, nodes, p.began):
			e.doubt(p, o, "node %s in zone %s: most nodes there that are older than the promotion are not Ready", n.Hostname, n.Zone)
		case n.off:
			e.doubt(p, o, "node %s, whose machine does not run", n.Hostname)
		}
	}
}

// doubt tells, once for each reason, of new nodes that say nothing of their image: that its version
// stays next means less then.
func (e *Engine) doubt(p *watched, o overview, format string, args ...any) {
	if slices.Contains(p.doubts, format) {
		return
	}
	p.doubts = append(p.doubts, format)
	pool := cmp.Or(o.pool.Name, o.id.Name())
	e.report(Event{Kind: Warned, Pool: pool, Step: InWatch, Percent: -1, Message: fmt.Sprintf("the watch of version %s cannot judge %s; if nodes of it do not come up: kamino withdraw --pool %s --version %[1]s --reason TEXT",
		p.version, fmt.Sprintf(format, args...), pool)})
}

// blames makes sure, of each node that is late, that other kubelets reach the API server and that
// it does not wait for a certificate which nobody approves. Where these credentials may not look,
// what the nodes told has to do.
func (e *Engine) blames(ctx context.Context, p *watched, o overview) bool {
	examiner, ok := e.Cluster.(Examiner)
	for _, id := range p.born.inOrder() { // a simulation that is played again asks the same
		n := p.born[id]
		if !ok || !n.late {
			continue
		}
		seen, err := examiner.Examine(ctx, ExamineOrder{Node: n.Hostname, Since: n.seen})
		switch s := (Sight{ClusterSight: seen}); {
		case errors.Is(err, ErrForbidden):
		case err != nil:
			return false // the next look tries again
		case s.Renewed.IsZero():
			e.doubt(p, o, "node %s: no other kubelet renews its lease", n.Hostname)
			return false
		case s.unheeded():
			e.doubt(p, o, "node %s: its certificate is denied, or not approved and no other is (kubectl get csr)", n.Hostname)
			return false
		case s.owed():
			e.doubt(p, o, "node %s: a DaemonSet's pod there waits for its image or for what else others owe it (kubectl get pods -A --field-selector spec.nodeName=%s)", n.Hostname, n.Hostname)
			return false
		}
	}
	return true
}

// passing says whether a version could not be withdrawn for what is over by itself: a cloud that
// does not answer, or another run.
func passing(err error) bool {
	held := (*HeldError)(nil)
	return transient(err) || errors.As(err, &held)
}

func (e *Engine) withdrawLate(ctx context.Context, p *watched, o overview, late, of int, budget time.Duration) error {
	version := p.version
	proof := &ProofError{Version: version, Outcome: ProofFailed, Findings: []Finding{{"watch", ProofFailed,
		fmt.Sprintf("%d of %d new nodes of pool %s were not Ready within %s", late, of, o.pool.Name, budget)}}}
	e.report(Event{Kind: Warned, Pool: o.pool.Name, Step: InWatch, Percent: -1, Message: proof.Error()})
	bad := badBy(proof)
	if _, err := e.WithdrawVersion(ctx, WithdrawOptions{Pool: string(o.id), Version: version, Reason: bad.Reason, nodes: bad.Nodes}); err != nil {
		proof.Kept = true
		if !p.kept && !passing(err) {
			p.kept = true
			e.report(Event{Kind: Warned, Pool: o.pool.Name, Step: InWatch, Percent: -1, Message: "version " + version + " was not withdrawn: " + err.Error()})
			why := cutText(strings.Join(append([]string{err.Error()}, Advice(err)...), ": "), maxFailure)
			err = errors.Join(err, e.underLease(ctx, o.pool, nil, func(l *Lease) {
				l.Ledger.passed(PastRun{Run: l.Holder, Ended: e.date(), Verb: VerbWithdraw, Withdrawn: version, Reason: bad.Reason, Step: InWatch, Failure: why})
			}))
		}
		return errors.Join(proof, fmt.Errorf("withdraw version %s: %w", version, err))
	}
	return WithHint(proof, "the version is withdrawn: kamino status shows what the pool's next node boots from")
}
