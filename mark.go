package kamino

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// markLimit is how long a rollback tries to mark versions. The model is written
// already then, and the ledger keeps what is not marked.
const markLimit = 5 * time.Minute

// marking is the part of a rollback that says which versions are good and bad.
type marking struct {
	plan   Rollback
	failed map[string]error // by version
}

// announce writes on the ledger what is not to be chosen, before any version is
// marked.
func (m marking) announce(l *Lease) {
	for _, name := range m.plan.Bad {
		if !slices.Contains(l.Ledger.RolledBack, name) {
			l.Ledger.RolledBack = append(slices.Clone(l.Ledger.RolledBack), name)
		}
	}
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack), func(n string) bool { return slices.Contains(m.plan.Good, n) })
}

// settle takes off the ledger what is marked by now.
func (m marking) settle(l *Lease) {
	l.Ledger.RolledBack = slices.DeleteFunc(slices.Clone(l.Ledger.RolledBack), func(n string) bool {
		_, failed := m.failed[n]
		return !failed && slices.Contains(m.plan.Bad, n)
	})
}

// look marks one version at a time. One that cannot be marked is passed over.
func (m marking) look(r *Run, ctx context.Context) (Next, error) {
	versions, err := r.Provider.Find(ctx, r.pool, Version, "")
	if err != nil {
		return Next{}, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	for _, v := range versions {
		bad, good := slices.Contains(m.plan.Bad, v.Name), slices.Contains(m.plan.Good, v.Name)
		word, tag := "bad", fmt.Sprintf("rolled back to %s at %s", m.plan.To, r.clock().Now().Format(time.RFC3339))
		if good {
			word, tag = "good", "" // an empty value removes the tag
		}
		_, failed := m.failed[v.Name]
		if failed || !bad && !good || bad && v.Tags[TagBad] != "" && v.Excluded || good && v.good() && !v.Excluded {
			continue
		}
		return act(ActMarkVersion, fmt.Sprintf("mark version %s as %s", v.Name, word), func(ctx context.Context) error {
			err := r.Provider.(Excluder).SetExcluded(ctx, r.pool, v, bad, map[string]string{TagBad: tag})
			if err != nil && !transient(err) && ctx.Err() == nil {
				m.failed[v.Name] = err
				return nil
			}
			return err
		}).of(v.Name).noting(m.announce), nil
	}
	return done("the versions are marked"), nil
}

// give fails all that could not be looked at to the end.
func (m marking) give(err error) {
	for _, name := range slices.Concat(m.plan.Bad, m.plan.Good) {
		if m.failed[name] == nil {
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
				Message: fmt.Sprintf("version %s was not marked, which the pool's ledger remembers; run the rollback again: %v", name, err)})
		}
	}
	return out
}
