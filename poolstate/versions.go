package poolstate

import (
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// promotable is the newest version that may become what the pool's new nodes boot from.
func (o State) promotable(opts kamino.AutoOptions) *kamino.Artifact {
	if o.Pool.Owner == nil {
		return kamino.Promotable(o.Versions, opts.Proof)
	}
	return kamino.Promotable(slices.DeleteFunc(slices.Clone(o.Versions), kamino.Artifact.Unaccepted), opts.Proof)
}

// Distrusted are the versions that a move to a target leaves as not to be
// chosen: all that are newer than it, and with the original all.
func (o State) Distrusted(t Destination) []kamino.Artifact {
	var out []kamino.Artifact
	for _, v := range o.Versions {
		unmarked := slices.Contains(o.Lease.Ledger.RolledBack, v.Name)
		shown := t.Points && v.State == kamino.Succeeded && !v.Excluded
		if (v.Good() && !v.OfFormer || unmarked || shown) && !v.Foreign() && t.before(v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// Making are the versions that a rollback leaves too, and that no other move does: they are newer
// than its target, and still being built.
func (o State) Making(t Destination) []kamino.Artifact {
	return slices.DeleteFunc(slices.Clone(o.Versions), func(v kamino.Artifact) bool {
		return v.State != kamino.Creating || !v.Ours() || slices.Contains(o.Lease.Ledger.RolledBack, v.Name) || !t.before(v.Name)
	})
}

// Unborn are what the pool's runs since the last that ended well were to make, which no list shows
// yet, and the ledger does not distrust so far. What points at a version, or patches a node, makes
// none and says nothing of those.
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

// before says whether a target comes before a version of a name.
func (t Destination) before(name string) bool {
	return name != "" && (t.Version == nil || kamino.CompareVersions(name, t.Version.Name) > 0)
}

// BegunBad are those of them that a rollback or a withdrawal, which ended too early, has decided
// against or marked, and that a pool which refers to the definition may boot from.
func (o State) BegunBad(t Destination) []kamino.Artifact {
	if !t.Points {
		return nil
	}
	return slices.DeleteFunc(o.Distrusted(t), kamino.Artifact.Good)
}

// BornBefore says whether some of the instances that boot from a version may be older than its
// promotion. No list tells which.
func (o State) BornBefore(v *kamino.Artifact) bool {
	since := o.PromotedAt(v)
	return since.IsZero() || slices.ContainsFunc(v.Births, func(born time.Time) bool { return born.Before(since) })
}

// PromotedAt is when a version became what the pool's next instance boots from; zero where nobody
// noted it.
func (o State) PromotedAt(v *kamino.Artifact) time.Time {
	l := o.Lease.Ledger
	if p := l.Promoted; p != nil && p.Version == v.Name {
		return p.At
	} else if w := l.Wrote; w != nil && strings.EqualFold(w.Image, v.ID) {
		return w.At
	}
	return time.Time{}
}
