package kamino

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Life is how far a version has come on its way to a pool's nodes, as its tags tell.
type Life string

// The states of a version's life.
const (
	LifeBuilding  Life = "building"
	LifeHidden    Life = "hidden"    // not offered, and not proved
	LifeProving   Life = "proving"   // a canary boots from it
	LifeWaiting   Life = "waiting"   // passed, and waits for kamino promote
	LifePromoted  Life = "promoted"  // offered, now or once
	LifeWithdrawn Life = "withdrawn" // never chosen again, but by its name
	LifeFailed    Life = "failed"    // its build
)

func (a Artifact) life() Life {
	switch {
	case a.State == Failed, a.State == Deleting:
		return LifeFailed
	case a.Tags[TagBad] != "", a.Tags[TagOffer] == offerWithdrawn:
		return LifeWithdrawn
	case a.State == Creating, !a.Ready && a.hidden():
		return LifeBuilding
	case a.waiting():
		return LifeWaiting
	case a.Tags[TagOffer] == offerProving:
		return LifeProving
	case a.hidden():
		return LifeHidden
	}
	return LifePromoted
}

// badAncestor is the nearest version in the line of a version that was withdrawn; "" when there is
// none. The line is told by TagParent: gallery paths that end in versions/NAME.
func badAncestor(v Artifact, all []Artifact) string {
	for range all { // a line that bites its tail ends, too
		parent := lastSegment(v.Tags[TagParent])
		i := indexOf(all, parent)
		if i < 0 || !strings.Contains(v.Tags[TagParent], "versions/") {
			return ""
		}
		if v = all[i]; v.Tags[TagBad] != "" {
			return v.Name
		}
	}
	return ""
}

func indexOf(versions []Artifact, name string) int {
	for i, v := range versions {
		if v.Name == name {
			return i
		}
	}
	return -1
}

// descendants are the versions whose line goes back to a version.
func descendants(of string, all []Artifact) (names []string) {
	for _, v := range all {
		at := v
		for range all {
			i := indexOf(all, lastSegment(at.Tags[TagParent]))
			if i < 0 || !strings.Contains(at.Tags[TagParent], "versions/") {
				break
			}
			if at = all[i]; at.Name == of {
				names = append(names, v.Name)
				break
			}
		}
	}
	return names
}

// PromoteOptions are what a person decides about a promotion.
type PromoteOptions struct {
	Pool    string // name or ID
	Version string // "": the newest that has passed its proof
	DryRun  bool
}

// PromoteVersion makes a hidden version what the pool's next instance boots from, as a run does
// that proved it. A version that is withdrawn returns by a rollback to its name only. Repeated, it
// changes nothing.
func (e *Engine) PromoteVersion(ctx context.Context, opts PromoteOptions) (Rollback, error) {
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun)
	if err != nil {
		return Rollback{}, err
	}
	if err := e.refusePaused(ctx); err != nil {
		return Rollback{}, err
	}
	t := target{points: points(o.pool.Model.Image, o.versions)}
	for i, v := range o.versions {
		if opts.Version == "" && v.waiting() || CompareVersions(v.Name, opts.Version) == 0 && opts.Version != "" {
			t.version = &o.versions[i]
			break
		}
	}
	switch v := t.version; {
	case v == nil && opts.Version == "":
		return Rollback{}, WithHint(fmt.Errorf("pool %s has no version that passed its proof and waits", o.pool.Name), "name one with --version: kamino status lists them")
	case v == nil:
		return Rollback{}, WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.pool.Name), "kamino status lists them")
	case v.Tags[TagBad] != "":
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s is withdrawn: %s", v.Name, o.pool.Name, v.Tags[TagBad]),
			"to use it all the same: kamino rollback --pool %s --to %s", o.pool.Name, v.Name)
	case v.Tags[TagReceipt] == "":
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s has no receipt of a seal: its disk may hold the identity and the secrets of node %s",
			v.Name, o.pool.Name, firstWord(v.Tags[TagBuiltFrom], "unknown")), "to use it all the same: kamino rollback --pool %s --to %s", o.pool.Name, v.Name)
	}
	if now := o.next(); now != nil && CompareVersions(now.Name, t.version.Name) > 0 {
		return Rollback{}, WithHint(fmt.Errorf("version %s of pool %s is older than %s, which new nodes boot from", t.version.Name, o.pool.Name, now.Name),
			"kamino rollback --pool %s --to %s goes back to it", o.pool.Name, t.version.Name)
	}
	if err := e.bootable(ctx, o, t); err != nil {
		return Rollback{}, err
	}
	return e.point(ctx, o, t, nil, opts.DryRun)
}

// onePool reads the pool that a person named, and gives back first what an ended run of it left.
func (e *Engine) onePool(ctx context.Context, name string, dryRun bool) (overview, error) {
	if name == "" {
		return overview{}, WithHint(errors.New("no pool named"), "name it with --pool; kamino status lists the pools")
	}
	all, _, err := e.overviews(ctx, []string{name})
	if err != nil {
		return overview{}, err
	}
	o := all[0]
	switch {
	case o.err != nil && dryRun:
		return o, o.err
	case o.err != nil:
		return o, e.clearUnread(ctx, o)
	case !dryRun:
		return o, e.clear(ctx, o)
	}
	return o, nil
}

// WithdrawOptions are what a person decides about taking a version back.
type WithdrawOptions struct {
	Pool    string // name or ID
	Version string // "": the one that the next node would boot from
	Reason  string // stands on the version
	DryRun  bool
}

// WithdrawVersion takes a version back, for good until a person names it again. Where it is what
// the pool's next instance boots from, the good version before it takes its place; without one
// nothing is changed. Repeated, it changes nothing.
func (e *Engine) WithdrawVersion(ctx context.Context, opts WithdrawOptions) (Rollback, error) {
	if strings.TrimSpace(opts.Reason) == "" {
		return Rollback{}, WithHint(errors.New("no reason given"), "--reason TEXT stands on the version for whoever looks at it next")
	}
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun)
	if err != nil {
		return Rollback{}, err
	}
	now, i := o.next(), indexOf(o.versions, opts.Version)
	switch {
	case opts.Version == "" && now == nil:
		return Rollback{}, WithHint(fmt.Errorf("pool %s boots from no version: %s", o.pool.Name, lastSegments(o.pool.Model.Image, 3)), "name one with --version: kamino status lists them")
	case opts.Version == "":
		i = indexOf(o.versions, now.Name)
	case i < 0:
		return Rollback{}, WithHint(fmt.Errorf("version %q of pool %s does not exist", opts.Version, o.pool.Name), "kamino status lists them")
	}
	v := o.versions[i]
	t := target{version: now, points: points(o.pool.Model.Image, o.versions), reason: opts.Reason}
	if now == nil || now.Name == v.Name {
		if t.version = o.defaultTarget().version; t.version == nil {
			return Rollback{}, WithHint(fmt.Errorf("pool %s has no good version before %s: nothing is withdrawn", o.pool.Name, v.Name),
				"new nodes go on booting from it; kamino rollback --pool %s --to original goes back to the model from before", o.pool.Name)
		}
	}
	var bad []Artifact
	if v.Tags[TagBad] == "" {
		bad = append(bad, v)
	}
	back, err := e.point(ctx, o, t, bad, opts.DryRun)
	back.Descendants = descendants(v.Name, o.versions)
	return back, err
}

// pauser is the cluster as one that knows the stop switch; nil when it knows none.
func (e *Engine) pauser() Examiner {
	examiner, _ := e.Cluster.(Examiner)
	return examiner
}

// Pause holds all new runs and promotions of the whole cluster; runs that work give back what they
// took and end. The reason stands on the namespace kamino-system. Resume takes it away.
func (e *Engine) Pause(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return WithHint(errors.New("no reason given"), "--reason TEXT tells everybody why nothing is done")
	}
	return e.setPaused(ctx, reason)
}

// Resume lets runs begin again.
func (e *Engine) Resume(ctx context.Context) error { return e.setPaused(ctx, "") }

func (e *Engine) setPaused(ctx context.Context, reason string) error {
	p := e.pauser()
	if p == nil {
		return fmt.Errorf("pause: %w", ErrUnsupported)
	}
	return p.Pause(ctx, reason)
}

// Paused is why new runs and promotions are held, "" when they are not.
func (e *Engine) Paused(ctx context.Context) (string, error) {
	p := e.pauser()
	if p == nil {
		return "", nil
	}
	return p.Paused(ctx)
}

// CodePaused is the code of the refusal of a run or a promotion while the cluster is paused.
const CodePaused = "paused"

func (e *Engine) refusePaused(ctx context.Context) error {
	reason, err := e.Paused(ctx)
	if err != nil {
		return fmt.Errorf("read whether runs are paused: %w", err)
	}
	if reason == "" {
		return nil
	}
	return &RefusedError{Subject: "the cluster", Refusals: []Refusal{{Code: CodePaused, Field: "annotation " + AnnotationPaused + " of namespace " + SystemNamespace,
		Value: reason, Why: "new runs and promotions are paused", Do: "kamino resume lets them begin again"}}}
}

// AnnotationPaused on the namespace kamino-system is the stop switch; it holds the reason.
const AnnotationPaused = "kamino.dev/paused"

// pauseSeen is how seldom a run that works asks whether it is to end.
const pauseSeen = time.Minute

// heldUp ends a run that works when the cluster is paused. A switch that cannot be read stops
// nothing; what gives back goes on.
func (r *Run) heldUp(ctx context.Context, s Step) error {
	now := r.engine.now()
	if r.held.lease == nil || r.held.givingBack || s.Stubborn || !r.held.mine() || now.Sub(r.now.pauseAsked) < pauseSeen {
		return nil
	}
	r.now.pauseAsked = now
	var refused *RefusedError
	if err := r.engine.refusePaused(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// Watching is how auto-update watches the nodes that come from a new version.
type Watching struct {
	For    time.Duration // 0: not at all
	Budget time.Duration // from the first sight of an instance to its Ready node
}

// newborns is what was seen of the instances of a pool that boot from a version.
type newborns map[InstanceID]*newbornNode

type newbornNode struct {
	seen  time.Time // first
	ready bool      // its node was Ready within the budget
	late  bool
}

// tooMany says whether so many of the nodes are not Ready within the budget that their image is to
// blame: two of the first three, or more than a fifth of at least five. It is a pure function.
func (b newborns) tooMany() (late, of int, bad bool) {
	for _, n := range b {
		if n.ready || n.late {
			of++
		}
		if n.late {
			late++
		}
	}
	return late, of, of <= 3 && late >= 2 || of >= 5 && 5*late > of
}

// saw notes the instances and nodes of one look.
func (b newborns) saw(born []Instance, nodes []Node, now time.Time, budget time.Duration) {
	for _, in := range born {
		n := b[in.ID]
		if n == nil {
			n = &newbornNode{seen: now}
			b[in.ID] = n
		}
		for _, node := range nodes {
			n.ready = n.ready || node.Ready && node.runsOn(in.ID) && SameVM(node.SystemUUID, in.VMID)
		}
		n.late = !n.ready && now.Sub(n.seen) > budget
	}
}

// Watch watches the nodes that come from the versions that pools boot from, for as long as told,
// without holding their leases. A version of whose nodes too many are not Ready within the budget
// is withdrawn where a good one comes before it, and else told: an error either way.
func (e *Engine) Watch(ctx context.Context, pools []string, w Watching) error {
	began := e.now()
	seen, elders, over := map[PoolID]newborns{}, map[PoolID]map[InstanceID]bool{}, map[PoolID]bool{}
	var errs []error
	for w.For > 0 && e.now().Sub(began) < w.For {
		all, nodes, err := e.overviews(ctx, pools)
		if err != nil && !transient(err) {
			return errors.Join(append(errs, err)...)
		}
		for _, o := range all {
			v := o.next()
			if o.err != nil || over[o.id] || v == nil || v.Tags[TagRun] == "" || v.Instances == 0 {
				continue
			}
			mine := elders[o.id]
			born, err := e.newborn(ctx, o.pool, v.ID, &mine)
			if elders[o.id] = mine; err != nil {
				continue // the next look tells
			}
			if seen[o.id] == nil {
				seen[o.id] = newborns{}
			}
			seen[o.id].saw(born, nodes, e.now(), w.Budget)
			if late, of, bad := seen[o.id].tooMany(); bad {
				over[o.id] = true
				errs = append(errs, e.withdrawLate(ctx, o, v.Name, late, of, w.Budget))
			}
		}
		if err := e.clock().Sleep(ctx, watchPoll); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

const watchPoll = time.Minute

func (e *Engine) withdrawLate(ctx context.Context, o overview, version string, late, of int, budget time.Duration) error {
	proof := &ProofError{Version: version, Outcome: ProofFailed, Findings: []Finding{{"watch", ProofFailed,
		fmt.Sprintf("%d of %d new nodes of pool %s were not Ready within %s", late, of, o.pool.Name, budget)}}}
	e.report(Event{Kind: Warned, Pool: o.pool.Name, Step: InWatch, Percent: -1, Message: proof.Error()})
	if _, err := e.WithdrawVersion(ctx, WithdrawOptions{Pool: string(o.id), Version: version, Reason: cutText("failed its proof: "+proof.reason(), maxTag)}); err != nil {
		return errors.Join(proof, fmt.Errorf("withdraw version %s: %w", version, err))
	}
	return WithHint(proof, "the version is withdrawn: kamino status tells what the pool's next node boots from")
}
