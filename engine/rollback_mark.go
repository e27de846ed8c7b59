package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// versionMarks are the marks of a rollback or a withdrawal: which versions are good and which are
// bad.
type versionMarks struct {
	plan   Rollback
	to     poolstate.Destination
	failed map[string]error     // by version
	marked map[string]bool      // by version: seen as planned
	away   map[string]time.Time // by version: since when it is not listed
	from   string               // what the definition stood for when the plan was made; "" for nothing
	born   time.Time            // see Promotion
	image  string               // image of the model when the plan was made
	making []string             // versions to mark that were being built when the plan was made
}

// markLimit is how long a rollback tries to mark versions. The model is written by then, and the
// ledger keeps the versions that are not marked.
const markLimit = 5 * time.Minute

func newVersionMarks(plan Rollback, t poolstate.Destination, o poolstate.State) versionMarks {
	m := versionMarks{plan: plan, to: t, failed: map[string]error{}, marked: map[string]bool{}, away: map[string]time.Time{},
		from: resolvedName(o.Versions), born: kamino.NewestBirth(o.Versions), image: o.Pool.Model.Image}
	for _, v := range o.Versions {
		if v.State == kamino.Creating && slices.Contains(plan.Bad, v.Name) {
			m.making = append(m.making, v.Name)
		}
	}
	return m
}

// limit is the limit of the step. If only marks are changed, they have as long as a model.
func (m versionMarks) limit() time.Duration {
	if m.to.Points {
		return workflow.DefaultLimit
	}
	return markLimit
}

// announce records on the ledger which versions must not be chosen, before any version is marked.
func (m versionMarks) announce(l *kamino.Lease, at time.Time) {
	for _, name := range m.plan.Bad {
		l.Ledger.NoteRolledBack(name)
	}
	m.distrustUnborn(l)
	for _, name := range m.making {
		l.Ledger.NoteUnbuilt(name)
	}
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack),
		func(n string) bool { return slices.Contains(m.plan.Good, n) })
	if m.to.Stays || m.plan.From == m.plan.To {
		return // the former promotion still holds
	}
	if w := l.Ledger.Withdrew; m.to.Why.Reason != "" {
		l.Ledger.Withdrew = &kamino.Withdrawal{Version: m.plan.From, To: m.plan.To, Reason: kamino.CutText(m.to.Why.Reason, kamino.MaxTag)}
	} else if m.to.Unnamed {
		l.Ledger.Withdrew = &kamino.Withdrawal{Version: m.plan.From, To: m.plan.To, Reason: "rolled back"}
	} else if w != nil && (w.To != m.plan.To || m.to.Verb == kamino.VerbRollback) {
		// otherwise auto-update would end the withdrawal's state
		l.Ledger.Withdrew = nil
	}
	if l.Ledger.Promoted = nil; m.to.Points {
		l.Ledger.Promoted = &kamino.Promotion{Version: m.plan.To, Born: m.born}
		l.Ledger.NoteStood(m.plan.From, at)
	}
}

// settle removes the marked versions from the ledger and keeps the others. If the nodes boot from
// the target, a mark of an earlier, interrupted rollback does not count against the target any
// more.
func (m versionMarks) settle(l *kamino.Lease, moved bool) {
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack), func(n string) bool {
		_, failed := m.failed[n]
		return !failed && slices.Contains(m.plan.Bad, n) || moved && !m.to.Stays && (n == m.plan.To || slices.Contains(m.plan.Good, n))
	})
	for _, name := range m.plan.Bad {
		if err := m.failed[name]; err != nil && (!m.to.Points || errors.Is(err, errNotListed) || errors.Is(err, errUnbuilt)) {
			l.Ledger.NoteRolledBack(name)
		}
		if errors.Is(m.failed[name], errUnbuilt) {
			l.Ledger.NoteUnbuilt(name)
		}
	}
	if moved { // otherwise it is there if it was announced
		m.distrustUnborn(l)
	}
	l.Ledger.Unbuilt = slices.DeleteFunc(slices.Clone(l.Ledger.Unbuilt), func(n string) bool {
		err, failed := m.failed[n]
		// it was complete, and not marked
		return !slices.Contains(l.Ledger.RolledBack, n) || failed && !errors.Is(err, errUnbuilt) && !errors.Is(err, errNotListed)
	})
}

// distrustUnborn records on the ledger the versions that interrupted runs may have begun and no
// list shows yet.
func (m versionMarks) distrustUnborn(l *kamino.Lease) {
	for _, name := range m.to.Unborn {
		l.Ledger.NoteUnbuilt(name)
	}
}

// errNotListed: a version that was listed when the command began stayed away for GoneAfter.
var errNotListed = errors.New("the list of versions does not show it any more")

// errUnbuilt: the version is still being built. No cloud changes a version before that ends, which
// may take an hour.
var errUnbuilt = errors.New("it is still being built")

// missed records that a version of the plan is not listed, as in an empty list, and reports whether
// to wait for it.
func (m versionMarks) missed(name string, now time.Time) bool {
	if m.away[name].IsZero() {
		m.away[name] = now
	}
	if now.Sub(m.away[name]) < kamino.GoneAfter {
		return true
	}
	m.failed[name] = errNotListed
	return false
}

// order returns the versions in the order of the writes: first the offers, then the withdrawals
// from the oldest to the newest. So the definition stands for the present image until the last
// write.
func (m versionMarks) order() []string {
	bad := slices.Clone(m.plan.Bad)
	slices.SortFunc(bad, kamino.CompareVersions)
	return slices.Concat(m.plan.Good, bad)
}

// look marks one version at a time. It skips a version that cannot be marked, unless only marks are
// changed.
func (m versionMarks) look(ctx context.Context, p *pointer) (workflow.Next, error) {
	versions, err := p.image.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if i := kamino.IndexOf(versions, m.plan.To); m.to.TakesUntried() && i >= 0 && versions[i].Untried() {
		return p.image.omit(versions[i]), nil
	}
	var before, away []string
	for _, name := range m.order() {
		i := kamino.IndexOf(versions, name)
		if _, failed := m.failed[name]; failed {
			continue
		} else if i < 0 {
			if m.missed(name, p.engine.now()) {
				away = append(away, name)
			}
			continue
		}
		delete(m.away, name)
		v := versions[i]
		if v.State == kamino.Creating {
			m.failed[name] = errUnbuilt
			continue
		}
		if m.to.WithdrawnSince(v) {
			return workflow.Next{}, p.withdrawnMeanwhile(v)
		}
		bad := slices.Contains(m.plan.Bad, name)
		if bad && v.Bad != "" && v.Excluded || !bad && !v.Withheld() {
			before, m.marked[name] = append(before, name), true
			continue
		}
		return m.write(ctx, p, v, versions, before)
	}
	if len(away) > 0 {
		return workflow.Wait("version " + strings.Join(away, ", ") + " (not listed; confirming that it was deleted)"), nil
	}
	if !m.to.Points {
		return workflow.Done("the versions are marked"), nil
	}
	if why, err := m.unsettled(ctx, p, before); why != "" || err != nil {
		return workflow.Wait(why), err
	}
	if now := resolvedName(versions); now != m.plan.To && !m.to.Stays {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf(
			"the image definition of pool %s now stands for %s, not for %s: somebody offered or excluded versions meanwhile",
			p.pool.Name, cmp.Or(now, "nothing"), m.plan.To), "run again")
	}
	return workflow.Done("the versions are marked"), nil
}

// write is the act that offers or withdraws a version of the plan, after those that were written
// before.
func (m versionMarks) write(ctx context.Context, p *pointer, v kamino.Version, versions []kamino.Version,
	before []string) (workflow.Next, error) {
	word, bad := "offer", slices.Contains(m.plan.Bad, v.Name)
	if bad {
		word = "withdraw"
	}
	if now := kamino.Resolved(versions); m.to.Points && bad && now != nil && now.Name == v.Name {
		if why, err := m.unsettled(ctx, p, before); why != "" || err != nil {
			return workflow.Wait(why), err
		}
	}
	if err := m.promotedMeanwhile(ctx, p, v, versions, bad); err != nil {
		return workflow.Next{}, err
	}
	if !bad && m.to.Points {
		if err := m.refusePaused(ctx, p); err != nil {
			return workflow.Next{}, err
		}
	}
	return workflow.Act(kamino.ActMarkVersion, word+" version "+v.Name, func(ctx context.Context) error {
		err := m.mark(ctx, p, v, bad)
		if err != nil && !m.to.Points && !kamino.Transient(err) && ctx.Err() == nil {
			m.failed[v.Name] = err
			return nil
		}
		return err
	}).Of(v.Name).Noting(func(l *kamino.Lease) { m.announce(l, p.engine.date()) }), nil
}

// unsettled returns what to wait for before the version that the definition stands for is
// withdrawn: the target must be offered, and the earlier writes must be complete. Otherwise the
// next node would boot from a third version, or from none.
func (m versionMarks) unsettled(ctx context.Context, p *pointer, before []string) (why string, err error) {
	if m.plan.To != "" { // otherwise the definition stands for nothing, and will not change
		before = append([]string{m.plan.To}, before...)
	}
	for _, name := range before {
		v, err := p.engine.readVersion(ctx, p.pool, name)
		offered := !slices.Contains(m.plan.Bad, name)
		switch {
		case err != nil:
			return "", err
		case v == nil && offered, offered && v.State != kamino.Succeeded:
			return "", fmt.Errorf("version %s is gone: nothing is withdrawn", name)
		case v != nil && (!v.Ready || v.Excluded == offered):
			return "the change of version " + name, nil
		}
	}
	return "", nil
}

// mark offers a version, or withdraws it.
func (m versionMarks) mark(ctx context.Context, p *pointer, v kamino.Version, bad bool) error {
	if bad {
		why := m.to.Why
		if m.to.Saved != nil && !m.to.Unnamed && m.to.Verb == kamino.VerbRollback {
			why.Reason = kamino.SetAside + "rolled back to original at " + p.engine.date().Format(time.RFC3339)
		}
		why.Reason = cmp.Or(why.Reason, fmt.Sprintf("rolled back to %s at %s", m.plan.To, p.engine.date().Format(time.RFC3339)))
		if m.to.Why.Reason != "" && !m.to.Stays && v.Name != m.plan.From {
			why = kamino.Bad{Reason: "skipped when version " + m.plan.From + " was withdrawn: it has no seal receipt, or passed no proof"}
		}
		return p.engine.Provider.Withdraw(ctx, p.pool, v.Name, why)
	}
	want := m.to.Spec()
	want.Seen = &v
	return p.engine.Provider.Promote(ctx, p.pool, want)
}

// give marks all unfinished versions as failed.
func (m versionMarks) give(err error) {
	for _, name := range slices.Concat(m.plan.Bad, m.plan.Good) {
		if m.failed[name] == nil && !m.marked[name] {
			m.failed[name] = err
		}
	}
}

// unmarked returns the versions that could not be marked, in the order of the plan.
func (m versionMarks) unmarked(p *pointer) (out []Unmarked) {
	for _, name := range slices.Concat(m.plan.Bad, m.plan.Good) {
		if err := m.failed[name]; err != nil {
			out = append(out, Unmarked{name, err.Error()})
			p.tell(kamino.Event{Kind: kamino.EventWarning, Step: kamino.StepMark, Percent: -1,
				Message: fmt.Sprintf("version %s was not marked; the pool's ledger remembers it, run the rollback again: %v", name, err)})
		}
	}
	return out
}

// unmoved returns an error if the model or the definition changed since the plan was made, before
// the lease was taken: somebody has promoted another version.
func (m versionMarks) unmoved(ctx context.Context, p *pointer, pool kamino.Pool) error {
	if !m.to.Points || m.to.Comes != "" {
		now, there := pool.Model.Image, m.to.Version != nil && strings.EqualFold(pool.Model.Image, m.to.Version.ID)
		if there || strings.EqualFold(now, m.image) || p.result.Changed && (!m.to.Points || p.ownImage(pool)) {
			return nil
		}
		return kamino.WithHint(fmt.Errorf("the model of pool %s now refers to %s, not to %s: nothing is changed",
			pool.Name, kamino.LastSegments(now, 3), kamino.LastSegments(m.image, 3)), "run again")
	}
	versions, err := p.image.versions(ctx)
	if err != nil {
		return err
	}
	if now := resolvedName(versions); now != m.from && now != m.plan.To {
		return kamino.WithHint(fmt.Errorf("the image definition of pool %s now stands for %s, not for %s: nothing is changed",
			p.pool.Name, cmp.Or(now, "nothing"), cmp.Or(m.from, "nothing")), "run again")
	}
	return nil
}

// errPromoted: somebody promoted a version that another person decided against.
var errPromoted = errors.New("somebody has promoted it meanwhile")

// promotedMeanwhile keeps a version from being marked bad if new nodes boot from it now and did not
// when that was decided.
func (m versionMarks) promotedMeanwhile(ctx context.Context, p *pointer, v kamino.Version, versions []kamino.Version, bad bool) error {
	boots := m.to.Points && m.to.Stays && m.from != v.Name && resolvedName(versions) == v.Name
	if bad && !m.to.Points {
		pool, err := p.poolNow(ctx)
		if err != nil {
			return err
		}
		boots = strings.EqualFold(pool.Model.Image, v.ID)
	}
	if !bad || !boots {
		return nil
	}
	return kamino.WithHint(fmt.Errorf("new nodes of pool %s boot from version %s, which is not withdrawn: %w", p.pool.Name, v.Name,
		errPromoted), "run again")
}

// refusePaused reads the stop switch again before the write, because the first read is old by then.
func (m versionMarks) refusePaused(ctx context.Context, p *pointer) error {
	if m.to.Verb != kamino.VerbPromote {
		return nil
	}
	return p.refusePaused(ctx)
}

func (m versionMarks) lookTarget(ctx context.Context, p *pointer, t poolstate.Destination, stray *kamino.Stray) (workflow.Next, error) {
	var seen *kamino.Version
	if t.Version != nil {
		found, err := p.engine.readVersion(ctx, p.pool, t.Version.Name)
		if err != nil {
			return workflow.Next{}, err
		} else if found == nil || !found.Whole() {
			return workflow.Next{}, fmt.Errorf("version %s is gone: the model is not changed", t.Version.Name)
		}
		seen = &p.held.Lease.Ledger.Distrust([]kamino.Version{*found})[0]
		switch v := *seen; {
		case t.WithdrawnSince(v):
			return workflow.Next{}, p.withdrawnMeanwhile(v)
		case t.Nobody != nil && !v.MayPromote(*t.Nobody):
			return workflow.Next{}, fmt.Errorf("version %s was hidden or excluded meanwhile: the model is not changed", v.Name)
		}
		if !seen.Ready {
			return workflow.WaitPercent("the replication of version "+t.Version.Name, seen.Percent), nil
		}
	}
	if next, err := p.distrust(ctx, stray); err != nil || next.Kind == workflow.NextAct {
		return next, err
	}
	pool, err := p.poolNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if err := m.unmoved(ctx, p, pool); err != nil {
		return workflow.Next{}, err
	}
	want := t.Spec()
	if t.Comes != "" {
		want.Seen = seen // the model is written after the offer
	}
	next, err := p.promote(ctx, pool, want)
	if err == nil && next.Kind == workflow.NextAct {
		err = m.refusePaused(ctx, p)
	}
	if save := next.Note; save != nil {
		next.Note = func(l *kamino.Lease) {
			save(l)
			m.announce(l, p.engine.date())
		}
	}
	return next, err
}

// awaitBuilds waits, once new nodes boot from the target, for a version that an interrupted run was
// building, and marks it, or deletes it if it failed. Errors are left for the next run. It returns
// what to record when the lease is released.
func (m versionMarks) awaitBuilds(ctx context.Context, r *Run) func(*kamino.Lease) {
	l := r.held.Lease.Ledger
	mark := func(ctx context.Context) (workflow.Next, error) { return m.look(ctx, &r.pointer) }
	err := r.exec(ctx, []Step{{Name: kamino.StepFailedVersion, Does: "wait for the version that an interrupted run was building",
		Look: r.restore.lookSweep, Patient: true, Limit: workflow.Unlimited}})
	if err == nil {
		// A failed version is deleted and need not be marked.
		built := func(name string, err error) bool {
			return errors.Is(err, errUnbuilt) && kamino.IndexOf(r.image.listed, name) >= 0
		}
		maps.DeleteFunc(m.failed, built)
		err = r.exec(ctx, []Step{
			{Name: kamino.StepMark, Does: "mark the version that was being built", Patient: true, Limit: markLimit, Look: mark},
			{Name: kamino.StepClean, Does: "delete the snapshot", Look: r.build.lookClean, Patient: true},
		})
	}
	if err != nil {
		r.result.Warnings = append(r.result.Warnings, err.Error())
		m.give(err)
	} else {
		maps.DeleteFunc(m.failed, func(_ string, err error) bool { return errors.Is(err, errUnbuilt) })
	}
	return func(now *kamino.Lease) {
		now.Ledger.Promoted, now.Ledger.Stood = l.Promoted, l.Stood // the mark did not change that
		m.settle(now, true)
	}
}
