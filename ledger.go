package kamino

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Boots are those of a pool's last good canaries, newest first.
type Boots struct {
	Seconds []float64 `json:"seconds"` // from a machine that runs to its Ready node
	// Phases are as Timing's, of those whose agent told.
	Phases []map[string]float64 `json:"phases,omitempty"`
	// Generic is the boot of a machine of the original image, Clone that of the newest canary; nil
	// where none is recorded.
	Generic *Waterfall `json:"generic,omitempty"`
	Clone   *Waterfall `json:"clone,omitempty"`
}

// NoteBoot notes how many seconds a good canary took to be Ready, 0 where that is not known, and the
// phases of its boot.
func (l *Ledger) NoteBoot(seconds float64, t Timing, node string, at time.Time) {
	if seconds > 0 {
		l.Boots = keepNewest(seconds, l.Boots)
	}
	if phases := t.bounded().Phases; len(phases) > 0 {
		l.Phases = keepNewest(phases, l.Phases)
	}
	l.Clone = cmp.Or(t.Waterfall(node, at), l.Clone)
}

// KnownBoots are the boots of canaries, for the status; nil where none is known.
func (l Ledger) KnownBoots() *Boots {
	if len(l.Boots) == 0 && len(l.Phases) == 0 && l.Generic == nil {
		return nil
	}
	return &Boots{append([]float64{}, l.Boots...), l.Phases, l.Generic, l.Clone}
}

// WithFormer adds to versions those that are no more and had a name of their own: instances that booted
// from one may still run, and would be taken for the first ones of another by that name. So would
// another one be for one that a rollback has left.
func (l Ledger) WithFormer(versions []Artifact) []Artifact {
	all := slices.Clone(versions)
	for _, p := range l.Past {
		if p.Failure == "" && !p.Interrupted {
			all = append(all, Artifact{Name: p.Version})
		}
		all = append(all, Artifact{Name: p.Withdrawn})
	}
	for _, u := range l.Unfit {
		all = append(all, Artifact{Name: u.Version})
	}
	for _, name := range l.RolledBack {
		all = append(all, Artifact{Name: name})
	}
	return all
}

// Sweepable says whether a version is what an interrupted run left of a build. Of one that is older
// than any build, only the run tells; the next update prunes it.
func (l Lease) Sweepable(v Artifact, now time.Time) bool {
	old := !v.Created.IsZero() && now.Sub(v.Created) > SnapshotLife
	failed := func(p PastRun) bool { return p.Failure != "" && p.Run == v.Tags[TagRun] }
	known := v.Tags[TagRun] != "" && (l.Holder == v.Tags[TagRun] || slices.ContainsFunc(l.Ledger.Past, failed)) || slices.Contains(l.Ledger.Unbuilt, v.Name)
	return l.Ledger.FailedBuild(v) && (known || !old)
}

// FailedBuild says whether a version that has failed is that of a build, as far as can be told. A
// write of its tags that failed makes a whole one look so too: what has replicas or was finished
// once, what anybody uses, and what a rollback may need stay.
func (l Ledger) FailedBuild(v Artifact) bool {
	finished := func(p PastRun) bool { return p.Failure == "" && p.Version == v.Name }
	needed := l.Former != nil && strings.EqualFold(l.Former.Image, v.ID)
	return v.Ours() && v.State == Failed && !v.Ready && !v.InModel && v.Instances == 0 && !needed &&
		v.Tags[TagBad] == "" && (!slices.Contains(l.RolledBack, v.Name) || slices.Contains(l.Unbuilt, v.Name)) && !slices.ContainsFunc(l.Past, finished)
}

// Builds says whether a version is still being built that a run of the ledger began, which ended.
func (l Ledger) Builds(v Artifact) bool {
	return v.Ours() && v.State == Creating && slices.ContainsFunc(l.Past, func(p PastRun) bool { return p.Run == v.Tags[TagRun] })
}

// NoteUnbuilt notes a version that is not to be chosen and is still being built, or about to be: no
// rollback needs it as long as it is not marked.
func (l *Ledger) NoteUnbuilt(name string) {
	if l.NoteRolledBack(name); name != "" && !slices.Contains(l.Unbuilt, name) {
		l.Unbuilt = append(slices.Clone(l.Unbuilt), name)
	}
}

// Leaves says whether a model differs in nothing that a pool needs which refers to its definition:
// it names that still, and nothing was left to be written once.
func (l Ledger) Leaves(pool Pool, want Target, next NextImage) bool {
	return want.Reference == ByDefinition && l.Wrote != nil && l.Wrote.Whole && len(next.Diff) > 0 &&
		strings.EqualFold(l.Wrote.Image, pool.Model.Image) && strings.EqualFold(pool.Model.Image, next.Image)
}

// NoteSaved keeps a model that is about to be replaced. The first that is no prototype is the
// original and stays it: of later ones nobody knows whether their other fields are not a
// prototype's.
func (l *Ledger) NoteSaved(m SavedModel, prototype bool) {
	if l.Former == nil || !strings.EqualFold(l.Former.Image, m.Image) {
		l.Former = &m
	}
	if !prototype && l.Original == nil {
		l.Original = &m
	}
}

// NotePruned notes a version that is deleted.
func (l *Ledger) NotePruned(v Artifact) {
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
