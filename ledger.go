package kamino

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Boots are the boot times of a pool's last good canaries, newest first.
type Boots struct {
	Seconds []float64 `json:"seconds"` // from the machine's start to its Ready node
	// Phases are as in Timing, for canaries whose agent reported them.
	Phases []map[string]float64 `json:"phases,omitempty"`
	// Generic is the boot of a machine of the original image, Clone that of the newest canary; nil
	// if not recorded.
	Generic *Waterfall `json:"generic,omitempty"`
	Clone   *Waterfall `json:"clone,omitempty"`
}

// NoteBoot records the boot of a good canary: the seconds until it was Ready (0 if not known) and
// its phases.
func (l *Ledger) NoteBoot(seconds float64, t Timing, node string, at time.Time) {
	if seconds > 0 {
		l.Boots = keepNewest(seconds, l.Boots)
	}
	if phases := t.bounded().Phases; len(phases) > 0 {
		l.Phases = keepNewest(phases, l.Phases)
	}
	l.Clone = cmp.Or(t.Waterfall(node, at), l.Clone)
}

// KnownBoots returns the boots of canaries for the status; nil if none is known.
func (l Ledger) KnownBoots() *Boots {
	if len(l.Boots) == 0 && len(l.Phases) == 0 && l.Generic == nil {
		return nil
	}
	return &Boots{append([]float64{}, l.Boots...), l.Phases, l.Generic, l.Clone}
}

// WithFormer adds the deleted versions that had a name of their own. Instances that booted from
// such a version may still run, and would be taken for instances of a later version by that name.
// The same holds for a version that a rollback has left.
func (l Ledger) WithFormer(versions []Version) []Version {
	all, named := slices.Clone(versions), func(name string) Version { return ParseVersion(Artifact{Name: name}) }
	for _, p := range l.Past {
		if p.Failure == "" && !p.Interrupted {
			all = append(all, named(p.Version))
		}
		all = append(all, named(p.Withdrawn))
	}
	for _, u := range l.Unfit {
		all = append(all, named(u.Version))
	}
	for _, name := range l.RolledBack {
		all = append(all, named(name))
	}
	return all
}

// Sweepable reports whether a version is the remains of an interrupted run's build. A version older
// than any build is identified only by the run; the next update prunes it.
func (l Lease) Sweepable(v Version, now time.Time) bool {
	old := !v.Created.IsZero() && now.Sub(v.Created) > SnapshotLife
	failed := func(p PastRun) bool { return p.Failure != "" && p.Run == v.Run }
	known := v.Run != "" && (l.Holder == v.Run || slices.ContainsFunc(l.Ledger.Past, failed)) || slices.Contains(l.Ledger.Unbuilt, v.Name)
	return l.Ledger.FailedBuild(v) && (known || !old)
}

// FailedBuild reports whether a failed version is a failed build, as far as known. A failed write
// of tags makes a complete version look failed too, so a version stays if it has replicas, was
// finished once, is in use, or may be needed for a rollback.
func (l Ledger) FailedBuild(v Version) bool {
	finished := func(p PastRun) bool { return p.Failure == "" && p.Version == v.Name }
	needed := l.Former != nil && strings.EqualFold(l.Former.Image, v.ID)
	return v.Ours() && v.State == Failed && !v.Ready && !v.InModel && v.Instances == 0 && !needed &&
		v.Bad == "" && (!slices.Contains(l.RolledBack, v.Name) || slices.Contains(l.Unbuilt, v.Name)) &&
		!slices.ContainsFunc(l.Past, finished)
}

// Builds reports whether a version is still being built although the run that began it, in this
// ledger, has ended.
func (l Ledger) Builds(v Version) bool {
	return v.Ours() && v.State == Creating && slices.ContainsFunc(l.Past, func(p PastRun) bool { return p.Run == v.Run })
}

// NoteUnbuilt records a version that must not be chosen and whose build has not finished. No
// rollback needs it while it is not marked.
func (l *Ledger) NoteUnbuilt(name string) {
	if l.NoteRolledBack(name); name != "" && !slices.Contains(l.Unbuilt, name) {
		l.Unbuilt = append(slices.Clone(l.Unbuilt), name)
	}
}

// Leaves reports whether the model of a pool that refers to its definition needs no write: it names
// the definition, and no difference was left to be written.
func (l Ledger) Leaves(pool Pool, want Target, next NextImage) bool {
	return want.Reference == ByDefinition && l.Wrote != nil && l.Wrote.Whole && len(next.Diff) > 0 &&
		strings.EqualFold(l.Wrote.Image, pool.Model.Image) && strings.EqualFold(pool.Model.Image, next.Image)
}

// NoteSaved keeps a model that is about to be replaced. The first one that is no prototype is the
// original and stays it: the other fields of a later model may be a prototype's.
func (l *Ledger) NoteSaved(m SavedModel, prototype bool) {
	if l.Former == nil || !strings.EqualFold(l.Former.Image, m.Image) {
		l.Former = &m
	}
	if !prototype && l.Original == nil {
		l.Original = &m
	}
}

// NotePruned records a version that is deleted.
func (l *Ledger) NotePruned(v Version) {
	if slices.ContainsFunc(l.Unfit, func(u Unfit) bool { return u.Version == v.Name }) {
		return
	}
	tags := map[string]string{}
	for _, name := range []string{TagBad, TagBuiltFrom, TagBuiltAt, TagVM, TagPackages} {
		if text := v.Tags[name]; text != "" {
			tags[name] = text
		}
	}
	l.Unfit = keepNewest(Unfit{v.Name, tags}, l.Unfit)
}
