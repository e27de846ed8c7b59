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

// markLimit is how long a rollback tries to mark versions. The model is written
// already then, and the ledger keeps what is not marked.
const markLimit = 5 * time.Minute

// Verb is what changed a pool's next image without a new version.
type Verb string

// The verbs.
const (
	VerbPromote  Verb = "promote" // by a person, or by auto-update
	VerbWithdraw Verb = "withdraw"
	VerbRollback Verb = "rollback"
)

// marking is the part of a rollback that says which versions are good and bad.
type marking struct {
	plan   Rollback
	to     target
	failed map[string]error     // by version
	marked map[string]bool      // by version: seen to be as the plan wants it
	away   map[string]time.Time // by version: since when it is not listed
	from   string               // what the definition stood for when the plan was made; "" nothing
	born   time.Time            // see Promotion
	image  string               // that the model referred to when the plan was made
	making []string             // what is to be marked and was being built when the plan was made
}

func newMarking(plan Rollback, t target, o overview) marking {
	m := marking{plan: plan, to: t, failed: map[string]error{}, marked: map[string]bool{}, away: map[string]time.Time{},
		from: resolvedName(o.versions), born: newestBirth(o.versions), image: o.pool.Model.Image}
	for _, v := range o.versions {
		if v.State == Creating && slices.Contains(plan.Bad, v.Name) {
			m.making = append(m.making, v.Name)
		}
	}
	return m
}

// limit is that of the step. Where the marks are what is rolled back, they have as long as a model.
func (m marking) limit() time.Duration {
	if m.to.points {
		return defaultLimit
	}
	return markLimit
}

// announce writes on the ledger what is not to be chosen, before any version is
// marked.
func (m marking) announce(l *Lease, at time.Time) {
	for _, name := range m.plan.Bad {
		l.Ledger.rolledBack(name)
	}
	m.distrustUnborn(l)
	for _, name := range m.making {
		l.Ledger.unbuilt(name)
	}
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack), func(n string) bool { return slices.Contains(m.plan.Good, n) })
	if m.to.stays || m.plan.From == m.plan.To {
		return // what was promoted is so still
	}
	if w := l.Ledger.Withdrew; m.to.why.Reason != "" {
		l.Ledger.Withdrew = &Withdrawal{m.plan.From, m.plan.To, cutText(m.to.why.Reason, maxTag)}
	} else if m.to.unnamed {
		l.Ledger.Withdrew = &Withdrawal{m.plan.From, m.plan.To, "rolled back"}
	} else if w != nil && (w.To != m.plan.To || m.to.verb == VerbRollback) { // else auto-update ends that one
		l.Ledger.Withdrew = nil
	}
	if l.Ledger.Promoted = nil; m.to.points {
		l.Ledger.Promoted = &Promotion{Version: m.plan.To, Born: m.born}
		l.Ledger.stood(m.plan.From, at)
	}
}

// settle takes off the ledger what is marked by now, and keeps there what is not. Where the nodes
// boot from the target, no earlier rollback, which ended too early, speaks against it any more.
func (m marking) settle(l *Lease, moved bool) {
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack), func(n string) bool {
		_, failed := m.failed[n]
		return !failed && slices.Contains(m.plan.Bad, n) || moved && !m.to.stays && (n == m.plan.To || slices.Contains(m.plan.Good, n))
	})
	for _, name := range m.plan.Bad {
		if err := m.failed[name]; err != nil && (!m.to.points || errors.Is(err, errNotListed) || errors.Is(err, errUnbuilt)) {
			l.Ledger.rolledBack(name)
		}
		if errors.Is(m.failed[name], errUnbuilt) {
			l.Ledger.unbuilt(name)
		}
	}
	if moved { // else it stands there if it was announced
		m.distrustUnborn(l)
	}
	l.Ledger.Unbuilt = slices.DeleteFunc(slices.Clone(l.Ledger.Unbuilt), func(n string) bool {
		err, failed := m.failed[n]
		return !slices.Contains(l.Ledger.RolledBack, n) || failed && !errors.Is(err, errUnbuilt) && !errors.Is(err, errNotListed) // it was whole, and not marked
	})
}

// distrustUnborn writes on the ledger what ended runs may have begun, and no list shows yet.
func (m marking) distrustUnborn(l *Lease) {
	for _, name := range m.to.unborn {
		l.Ledger.unbuilt(name)
	}
}

// unbuilt notes a version that is not to be chosen and is still being built, or about to be: no
// rollback needs it as long as it is not marked.
func (l *Ledger) unbuilt(name string) {
	if l.rolledBack(name); name != "" && !slices.Contains(l.Unbuilt, name) {
		l.Unbuilt = append(slices.Clone(l.Unbuilt), name)
	}
}

// errNotListed: a version that was listed when the command began stayed away for goneAfter.
var errNotListed = errors.New("the list of versions does not show it any more")

// errUnbuilt: no cloud takes a change of a version before it is built, which may take an hour.
var errUnbuilt = errors.New("it is still being built")

// missed notes a version of the plan that is not listed, as in a list that came back empty, and
// says whether it is waited for.
func (m marking) missed(name string, now time.Time) bool {
	if m.away[name].IsZero() {
		m.away[name] = now
	}
	if now.Sub(m.away[name]) < goneAfter {
		return true
	}
	m.failed[name] = errNotListed
	return false
}

// order is that of the plan's writes: what is offered comes first, and what is withdrawn from the
// oldest to the newest. So a definition stands for the newest of them, the present image, until the
// last write.
func (m marking) order() []string {
	bad := slices.Clone(m.plan.Bad)
	slices.SortFunc(bad, CompareVersions)
	return slices.Concat(m.plan.Good, bad)
}

// look marks one version at a time. One that cannot be marked is passed over, except where the
// marks are what is rolled back.
func (m marking) look(r *Run, ctx context.Context) (Next, error) {
	versions, err := r.versions(ctx)
	if err != nil {
		return Next{}, err
	}
	if i := indexOf(versions, m.plan.To); m.to.takesUntried() && i >= 0 && versions[i].untried() {
		return r.omit(versions[i]), nil
	}
	var before, away []string
	for _, name := range m.order() {
		i := indexOf(versions, name)
		if _, failed := m.failed[name]; failed {
			continue
		} else if i < 0 {
			if m.missed(name, r.engine.now()) {
				away = append(away, name)
			}
			continue
		}
		delete(m.away, name)
		v := versions[i]
		if v.State == Creating {
			m.failed[name] = errUnbuilt
			continue
		}
		if m.to.withdrawnSince(v) {
			return Next{}, r.withdrawnMeanwhile(v)
		}
		bad := slices.Contains(m.plan.Bad, name)
		if bad && v.Tags[TagBad] != "" && v.Excluded || !bad && !v.Withheld() {
			before, m.marked[name] = append(before, name), true
			continue
		}
		return m.write(ctx, r, v, versions, before)
	}
	if len(away) > 0 {
		return wait("version " + strings.Join(away, ", ") + ", which is not listed, to be found or to be confirmed gone"), nil
	}
	if !m.to.points {
		return done("the versions are marked"), nil
	}
	if why, err := m.unsettled(ctx, r, before); why != "" || err != nil {
		return wait(why), err
	}
	if now := resolvedName(versions); now != m.plan.To && !m.to.stays {
		return Next{}, WithHint(fmt.Errorf("the image definition of pool %s now stands for %s, not for %s: somebody offered or excluded versions meanwhile",
			r.pool.Name, cmp.Or(now, "nothing"), m.plan.To), "run again")
	}
	return done("the versions are marked"), nil
}

// write is the act that offers a version of the plan, or withdraws it, after those that were
// written before.
func (m marking) write(ctx context.Context, r *Run, v Artifact, versions []Artifact, before []string) (Next, error) {
	word, bad := "offer", slices.Contains(m.plan.Bad, v.Name)
	if bad {
		word = "withdraw"
	}
	if now := resolved(versions); m.to.points && bad && now != nil && now.Name == v.Name {
		if why, err := m.unsettled(ctx, r, before); why != "" || err != nil {
			return wait(why), err
		}
	}
	if err := m.promotedMeanwhile(ctx, r, v, versions, bad); err != nil {
		return Next{}, err
	}
	if !bad && m.to.points {
		if err := m.refusePaused(ctx, r); err != nil {
			return Next{}, err
		}
	}
	return act(ActMarkVersion, word+" version "+v.Name, func(ctx context.Context) error {
		err := m.mark(ctx, r, v, bad)
		if err != nil && !m.to.points && !transient(err) && ctx.Err() == nil {
			m.failed[v.Name] = err
			return nil
		}
		return err
	}).of(v.Name).noting(func(l *Lease) { m.announce(l, r.engine.date()) }), nil
}

// unsettled makes sure, before the version is withdrawn that the definition stands for, that the
// target is offered and the writes before have come to their end: else the next node would boot
// from a third one, or from none.
func (m marking) unsettled(ctx context.Context, r *Run, before []string) (why string, err error) {
	if m.plan.To != "" { // else the definition stands for nothing, and goes on doing so
		before = append([]string{m.plan.To}, before...)
	}
	for _, name := range before {
		found, err := r.engine.Provider.Find(ctx, r.pool, Version, name)
		if err != nil {
			return "", fmt.Errorf("read version %s: %w", name, err)
		}
		offered := !slices.Contains(m.plan.Bad, name)
		switch {
		case len(found) == 0 && offered, offered && found[0].State != Succeeded:
			return "", fmt.Errorf("version %s is gone: nothing is withdrawn", name)
		case len(found) > 0 && (!found[0].Ready || found[0].Excluded == offered):
			return "the change of version " + name, nil
		}
	}
	return "", nil
}

// mark offers a version, or withdraws it.
func (m marking) mark(ctx context.Context, r *Run, v Artifact, bad bool) error {
	if bad {
		why := m.to.why
		if m.to.saved != nil && !m.to.unnamed && m.to.verb == VerbRollback {
			why.Reason = setAside + "rolled back to original at " + r.engine.date().Format(time.RFC3339)
		}
		why.Reason = cmp.Or(why.Reason, fmt.Sprintf("rolled back to %s at %s", m.plan.To, r.engine.date().Format(time.RFC3339)))
		if m.to.why.Reason != "" && !m.to.stays && v.Name != m.plan.From {
			why = Bad{Reason: "skipped when version " + m.plan.From + " was withdrawn: it has no seal receipt, or passed no proof"}
		}
		return r.engine.Provider.Withdraw(ctx, r.pool, v.Name, why)
	}
	want := m.to.spec()
	want.Seen = &v
	return r.engine.Provider.Promote(ctx, r.pool, want)
}

// give fails all that could not be looked at to the end.
func (m marking) give(err error) {
	for _, name := range slices.Concat(m.plan.Bad, m.plan.Good) {
		if m.failed[name] == nil && !m.marked[name] {
			m.failed[name] = err
		}
	}
}

// unmarked tells what could not be marked, in the order of the plan.
func (m marking) unmarked(r *Run) (out []Unmarked) {
	for _, name := range slices.Concat(m.plan.Bad, m.plan.Good) {
		if err := m.failed[name]; err != nil {
			out = append(out, Unmarked{name, err.Error()})
			r.tell(Event{Kind: Warned, Step: InMark, Percent: -1,
				Message: fmt.Sprintf("version %s was not marked; the pool's ledger remembers it, run the rollback again: %v", name, err)})
		}
	}
	return out
}

// unmoved makes sure that the plan, which was made before the lease was taken, is of what the model
// refers to, and the definition stands for: nobody else has promoted another version since.
func (m marking) unmoved(ctx context.Context, r *Run, pool Pool) error {
	if !m.to.points || m.to.comes != "" {
		now, there := pool.Model.Image, m.to.version != nil && strings.EqualFold(pool.Model.Image, m.to.version.ID)
		if there || strings.EqualFold(now, m.image) || r.result.Changed && (!m.to.points || r.ownImage(pool)) {
			return nil
		}
		return WithHint(fmt.Errorf("the model of pool %s now refers to %s, not to %s: nothing is changed",
			pool.Name, lastSegments(now, 3), lastSegments(m.image, 3)), "run again")
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return err
	}
	if now := resolvedName(versions); now != m.from && now != m.plan.To {
		return WithHint(fmt.Errorf("the image definition of pool %s now stands for %s, not for %s: nothing is changed",
			r.pool.Name, cmp.Or(now, "nothing"), cmp.Or(m.from, "nothing")), "run again")
	}
	return nil
}

// errPromoted: somebody made a version what new nodes boot from, which another has decided against.
var errPromoted = errors.New("somebody has promoted it meanwhile")

// promotedMeanwhile keeps a version from being marked as bad that new nodes boot from by now, and
// did not when that was decided.
func (m marking) promotedMeanwhile(ctx context.Context, r *Run, v Artifact, versions []Artifact, bad bool) error {
	boots := m.to.points && m.to.stays && m.from != v.Name && resolvedName(versions) == v.Name
	if bad && !m.to.points {
		pool, err := r.poolNow(ctx)
		if err != nil {
			return err
		}
		boots = strings.EqualFold(pool.Model.Image, v.ID)
	}
	if !bad || !boots {
		return nil
	}
	return WithHint(fmt.Errorf("new nodes of pool %s boot from version %s, which is not withdrawn: %w", r.pool.Name, v.Name, errPromoted), "run again")
}

// refusePaused asks once more before the write: whoever promotes has read the switch long ago.
func (m marking) refusePaused(ctx context.Context, r *Run) error {
	if m.to.verb != VerbPromote {
		return nil
	}
	return r.refusePaused(ctx)
}

// withdrawnMeanwhile: who names a version that is withdrawn already has read why, and wants it.
func (r *Run) withdrawnMeanwhile(v Artifact) error {
	return WithHint(fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Tags[TagBad]), "to use it all the same: kamino rollback --pool %s --to %s", r.pool.Name, v.Name)
}

func (r *Run) lookTarget(ctx context.Context, t target, m marking, stray *Stray) (Next, error) {
	var seen *Artifact
	if t.version != nil {
		found, err := r.engine.Provider.Find(ctx, r.pool, Version, t.version.Name)
		if err != nil {
			return Next{}, fmt.Errorf("read version %s: %w", t.version.Name, err)
		}
		if len(found) == 0 || !found[0].whole() {
			return Next{}, fmt.Errorf("version %s is gone: the model is not changed", t.version.Name)
		}
		switch v := r.held.lease.Ledger.distrust(found)[0]; {
		case t.withdrawnSince(v):
			return Next{}, r.withdrawnMeanwhile(v)
		case t.nobody != nil && !v.mayPromote(*t.nobody):
			return Next{}, fmt.Errorf("version %s was hidden or excluded meanwhile: the model is not changed", v.Name)
		}
		if seen = &found[0]; !seen.Ready {
			return waitPercent("the replication of version "+t.version.Name, seen.Percent), nil
		}
	}
	if next, err := r.distrust(ctx, stray); err != nil || next.kind == nextAct {
		return next, err
	}
	pool, err := r.poolNow(ctx)
	if err != nil {
		return Next{}, err
	}
	if err := m.unmoved(ctx, r, pool); err != nil {
		return Next{}, err
	}
	want := t.spec()
	if t.comes != "" {
		want.Seen = seen // the model comes after the offer
	}
	next, err := r.promote(ctx, pool, want)
	if err == nil && next.kind == nextAct {
		err = m.refusePaused(ctx, r)
	}
	if save := next.note; save != nil {
		next.note = func(l *Lease) {
			save(l)
			m.announce(l, r.engine.date())
		}
	}
	return next, err
}

// overviewNow reads what a choice of another image needs, under the lease.
func (r *Run) overviewNow(ctx context.Context) (overview, error) {
	pool, err := r.poolNow(ctx)
	if err != nil {
		return overview{}, err
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return overview{}, err
	}
	o := overview{id: pool.ID, pool: pool, versions: r.held.lease.Ledger.distrust(versions), lease: *r.held.lease}
	return o, r.engine.heed(ctx, &o)
}

// heed reads whether the definition that a pool refers to is tagged as unreliable: the ledger,
// which tells why, may have been deleted since.
func (e *Engine) heed(ctx context.Context, o *overview) error {
	if !points(o.pool.Model.Image, o.versions) {
		return nil
	}
	return e.readTag(ctx, o)
}

func (e *Engine) readTag(ctx context.Context, o *overview) error {
	found, err := e.Provider.Find(ctx, o.pool, Definition, DefinitionName(o.pool.Name))
	if err != nil {
		return fmt.Errorf("read the image definition of pool %s: %w", o.pool.Name, err)
	}
	o.tagged = len(found) > 0 && found[0].Tags[TagPointer] == pointerUnreliable
	return nil
}
