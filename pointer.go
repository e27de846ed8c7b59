package kamino

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Points says whether a model refers to the definition of versions, and not to one of them.
func Points(image string, versions []Artifact) bool {
	return slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.ID != "" && strings.EqualFold(DefinitionOf(v.ID), image) && !strings.EqualFold(v.ID, image)
	})
}

// Resolved is the version that a definition stands for: the newest that
// Succeeded and is not excluded.
func Resolved(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.State == Succeeded && !v.Excluded })
}

// MovedPin says whether somebody else has moved what the definition stands for: it is not the
// newest version that kamino offered. Where kamino never offered one, nothing is said.
func MovedPin(image string, versions []Artifact) *Pin {
	if !Points(image, versions) {
		return nil
	}
	for _, v := range versions {
		if v.State != Succeeded || v.Tags[TagOffer] != TagOfferOffered || v.Tags[TagBad] != "" && v.Excluded {
			continue
		}
		now := Resolved(versions)
		switch {
		case now == nil:
			return &Pin{Image: image, Wrote: v.ID}
		case now.Name == v.Name, now.Ours() && now.Tags[TagOffer] == "" && CompareVersions(now.Name, v.Name) > 0:
			return nil // the original made it
		}
		return &Pin{Image: now.ID, Wrote: v.ID}
	}
	return nil
}

// Promotion is a version that a definition was made to stand for.
type Promotion struct {
	Version string    `json:"version"`
	At      time.Time `json:"at,omitzero"` // when that was seen to be done; zero: not so far
	// Born is when the newest instance of then was created, by the cloud's clock: At is by that of
	// the machine that promoted, which may be behind.
	Born time.Time `json:"born,omitzero"`
}

// Stray is an instance that did not follow its pool's definition.
type Stray struct {
	Booted   string    `json:"booted"`   // the version that it was made of
	Promoted string    `json:"promoted"` // the one that the definition stood for
	At       time.Time `json:"at"`       // when that was promoted
	Born     time.Time `json:"born"`     // when the instance was created
}

func (s Stray) String() string {
	return fmt.Sprintf("an instance created at %s booted from version %s, although %s was promoted at %s",
		s.Born.UTC().Format(time.RFC3339), s.Booted, s.Promoted, s.At.UTC().Format(time.RFC3339))
}

const (
	// TagPointerUnreliable is the value of TagPointer.
	TagPointerUnreliable = "unreliable"
	// pointerSettles is how long after a promotion an instance may still boot from what was
	// promoted before. How long excludeFromLatest takes to count is published nowhere.
	pointerSettles = 10 * time.Minute
)

// astray judges a pointer by what booted from it: the first instance that was created
// pointerSettles or more after the last promotion. A later one that followed acquits it of what was
// created before: a person may have excluded the version for an hour meanwhile, and taken that
// back. That Azure resolves "latest" anew at each scale-out is what most users report
// (https://github.com/Azure/azure-rest-api-specs/issues/4446), and one did not see
// (https://github.com/Azure/azvmimagebuilder/issues/33): unverified.
func (l Ledger) astray(image string, versions []Artifact) *Stray {
	p, now := l.Promoted, Resolved(versions)
	if p == nil || p.At.IsZero() || now == nil || now.Name != p.Version || !Points(image, versions) {
		return nil
	}
	first := Stray{Promoted: p.Version, At: p.At}
	since := p.Born // when the last that followed was created
	if i := IndexOf(versions, p.Version); i >= 0 {
		for _, born := range versions[i].Births {
			if born.After(since) && !born.Before(p.At.Add(pointerSettles)) {
				since = born
			}
		}
	}
	for _, v := range versions {
		for _, born := range v.Births {
			if v.Name != p.Version && born.After(since) && !born.Before(p.At.Add(pointerSettles)) && (first.Born.IsZero() || born.Before(first.Born)) {
				first.Booted, first.Born = v.Name, born
			}
		}
	}
	if first.Born.IsZero() {
		return nil
	}
	return &first
}

// WhyStrayed is why a pool's definition is not believed: what is seen now, or was noted once, though
// the instance that showed it is gone.
func (l Ledger) WhyStrayed(image string, versions []Artifact) *Stray {
	if seen := l.astray(image, versions); seen != nil {
		return seen
	}
	return l.Strayed
}

// Pin is an image that somebody else has put into a model in which kamino had
// written one. It is left alone until somebody says otherwise.
type Pin struct {
	Image string `json:"image"` // that the model refers to
	Wrote string `json:"wrote"` // that kamino wrote last
	// Unsure: it is what stood there before that write, which nobody has seen to take effect, and
	// the pool was written since.
	Unsure bool `json:"unsure,omitempty"`
}

func (p Pin) String() string {
	if p.Unsure {
		return p.why()
	}
	return fmt.Sprintf("somebody pinned the model to %s; kamino last wrote %s", LastSegments(p.Image, 3), LastSegments(p.Wrote, 3))
}

func (p Pin) why() string {
	if p.Unsure {
		return fmt.Sprintf("a run ended while it wrote %s into the model, and somebody may have set %s again since", LastSegments(p.Wrote, 3), LastSegments(p.Image, 3))
	}
	return "it was set by someone else: kamino last wrote " + LastSegments(p.Wrote, 3)
}

// Refusal refuses to replace an image that somebody chose.
func (p Pin) Refusal(pool Pool) Refusal {
	return Refusal{Code: "pinned", Field: "image of the model of pool " + pool.Name, Value: LastSegments(p.Image, 3),
		Why:   p.why(),
		Do:    "keep it, or replace it with --adopt-model",
		Allow: AllowAdopt}
}

// pin says whether somebody else chose the image of a model. A ledger without an
// entry says nothing, nor does any other field of the model; an image that stood
// there before a write which was never seen is explained by the interrupted run, unless the pool
// was written since. Where nothing was written so far, the last version that was made counts.
func (l Ledger) pin(pool Pool, versions []Artifact) *Pin {
	image := pool.Model.Image
	if pin := MovedPin(image, versions); pin != nil {
		return pin
	}
	if Points(image, versions) {
		return nil // nobody chose a version
	}
	if w := l.Wrote; w != nil {
		if l.Undone(image) && !l.mayBeUndone(pool) || strings.EqualFold(image, w.Image) {
			return nil
		}
		return &Pin{Image: image, Wrote: w.Image, Unsure: l.Undone(image)}
	}
	made := l.LastMade()
	if made < 0 || SameImage(Latest(versions), image) {
		return nil
	}
	for _, v := range versions {
		// One that is hidden was never written.
		if v.Name == l.Past[made].Version && v.Good() && !v.Hidden() && !SameImage(&v, image) {
			return &Pin{Image: image, Wrote: v.ID}
		}
	}
	return nil
}

// Undone says whether a model still has the image that stood there before a write which was never
// seen: the run that noted it ended first.
func (l Ledger) Undone(image string) bool {
	return l.Wrote != nil && !l.Wrote.Seen && l.Former != nil && strings.EqualFold(image, l.Former.Image)
}

// Unwritten says whether such a write never was: it was refused, or nobody at all has written the
// pool since. Else a person may have taken it back, which was a choice.
func (l Ledger) Unwritten(pool Pool) bool {
	return l.Undone(pool.Model.Image) && (l.Wrote.Refused || pool.Stamp != "" && pool.Stamp == l.Wrote.Stamp)
}

// mayBeUndone says whether somebody may have taken such a write back: the pool was written since.
// Where the provider has no stamps, nothing tells.
func (l Ledger) mayBeUndone(pool Pool) bool {
	return l.Undone(pool.Model.Image) && pool.Stamp != "" && !l.Unwritten(pool)
}

// Pinned is pin for a pool. What its owner puts into the recipe is nobody's choice of a version.
func (l Ledger) Pinned(pool Pool, versions []Artifact) *Pin {
	if pool.Owner != nil {
		return MovedPin(pool.Model.Image, versions)
	}
	return l.pin(pool, versions)
}

// What lifts a refusal: the name of an option.
const (
	AllowAdopt     = "adopt-model"
	allowImageOnly = "image-only"
)

// NotePromoted notes that a version which was to be promoted is.
func (l *Ledger) NotePromoted(version string, now time.Time) {
	if p := l.Promoted; p != nil && p.Version == version && p.At.IsZero() {
		l.Promoted = &Promotion{Version: version, At: now, Born: p.Born}
	}
}

// NoteStood notes what the definition of a pool stood for, where that is not known from before.
func (l *Ledger) NoteStood(version string, at time.Time) {
	if l.Stood == nil && version != "" {
		l.Stood = &Promotion{Version: version, At: at}
	}
}

// Sticks says whether the pool may boot from a version although its definition stands for another
// by now: no instance was seen that followed.
func (l Ledger) Sticks(version string, versions []Artifact) bool {
	return l.Stood != nil && l.Stood.Version == version && !slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.Name != version && slices.ContainsFunc(v.Births, l.Stood.At.Add(pointerSettles).Before)
	})
}
