package poolstate

import (
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// promotable returns the newest version that may become the pool's next image.
func (o State) promotable(opts kamino.AutoOptions) *kamino.Version {
	if o.Pool.Owner == nil {
		return kamino.Promotable(o.Versions, opts.Proof)
	}
	return kamino.Promotable(slices.DeleteFunc(slices.Clone(o.Versions), func(v kamino.Version) bool { return v.Unaccepted }), opts.Proof)
}

// Distrusted returns the versions that must not be chosen after a rollback or a withdrawal: all
// versions newer than the target, and every version if the target is the original model.
func (o State) Distrusted(t Destination) []kamino.Version {
	var out []kamino.Version
	for _, v := range o.Versions {
		unmarked := slices.Contains(o.Lease.Ledger.RolledBack, v.Name)
		shown := t.Points && v.State == kamino.Succeeded && !v.Excluded
		if (v.Good() && !v.OfFormer || unmarked || shown) && !v.Foreign() && t.before(v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// Making returns the versions newer than a rollback's target that are still being built. Only a
// rollback rejects them.
func (o State) Making(t Destination) []kamino.Version {
	return slices.DeleteFunc(slices.Clone(o.Versions), func(v kamino.Version) bool {
		return v.State != kamino.Creating || !v.Ours() || slices.Contains(o.Lease.Ledger.RolledBack, v.Name) || !t.before(v.Name)
	})
}

// Unborn returns the versions that interrupted runs since the last successful one were to make,
// that no list shows yet, and that the ledger does not reject. Runs that promote a version or patch
// a node make none.
func (o State) Unborn(t Destination) (names []string) {
	for _, p := range o.Lease.Ledger.Past {
		switch {
		case p.Pointed != "", p.Work == kamino.WorkPatch:
		case p.Failure == "":
			return names
		case t.before(p.Version) && kamino.IndexOf(o.Versions, p.Version) < 0 && !slices.Contains(o.Lease.Ledger.RolledBack, p.Version):
			names = append(names, p.Version)
		}
	}
	return names
}

// before reports whether a target is older than a version of this name.
func (t Destination) before(name string) bool {
	return name != "" && (t.Version == nil || kamino.CompareVersions(name, t.Version.Name) > 0)
}

// BegunBad returns the versions that an interrupted rollback or withdrawal has rejected or marked,
// and that a pool which refers to its definition may still boot from.
func (o State) BegunBad(t Destination) []kamino.Version {
	if !t.Points {
		return nil
	}
	return slices.DeleteFunc(o.Distrusted(t), kamino.Version.Good)
}

// BornBefore reports whether some instances of a version may be older than its promotion. No list
// shows which.
func (o State) BornBefore(v *kamino.Version) bool {
	since := o.PromotedAt(v)
	return since.IsZero() || slices.ContainsFunc(v.Births, func(born time.Time) bool { return born.Before(since) })
}

// PromotedAt returns when a version became the pool's next image; zero if nobody recorded it.
func (o State) PromotedAt(v *kamino.Version) time.Time {
	l := o.Lease.Ledger
	if p := l.Promoted; p != nil && p.Version == v.Name {
		return p.At
	} else if w := l.Wrote; w != nil && strings.EqualFold(w.Image, v.ID) {
		return w.At
	}
	return time.Time{}
}
