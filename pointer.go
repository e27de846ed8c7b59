package kamino

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Points reports whether the image of a model is the definition of these versions, and not one
// version.
func Points(image string, versions []Version) bool {
	return slices.ContainsFunc(versions, func(v Version) bool {
		return v.ID != "" && strings.EqualFold(DefinitionOf(v.ID), image) && !strings.EqualFold(v.ID, image)
	})
}

// Resolved returns the version that a definition stands for: the newest that Succeeded and is not
// excluded from latest.
func Resolved(newestFirst []Version) *Version {
	return First(newestFirst, func(v Version) bool { return v.State == Succeeded && !v.Excluded })
}

// MovedPin returns a Pin if somebody else changed what the definition stands for: it is not the
// newest version that Kamino offered. If Kamino never offered a version, it returns nil.
func MovedPin(image string, versions []Version) *Pin {
	if !Points(image, versions) {
		return nil
	}
	for _, v := range versions {
		if v.State != Succeeded || v.Offer != TagOfferOffered || v.Bad != "" && v.Excluded {
			continue
		}
		now := Resolved(versions)
		switch {
		case now == nil:
			return &Pin{Image: image, Wrote: v.ID}
		case now.Name == v.Name, now.Ours() && now.Offer == "" && CompareVersions(now.Name, v.Name) > 0:
			return nil // the original script made it
		}
		return &Pin{Image: now.ID, Wrote: v.ID}
	}
	return nil
}

// Promotion is a version that a definition was promoted to.
type Promotion struct {
	Version string    `json:"version"`
	At      time.Time `json:"at,omitzero"` // when the promotion was seen to be done; zero: not yet
	// Born is when the newest instance of that moment was created, by the cloud's clock. At is by
	// the clock of the machine that promoted, which may be behind.
	Born time.Time `json:"born,omitzero"`
}

// Stray is an instance that did not follow its pool's definition.
type Stray struct {
	Booted   string    `json:"booted"`   // the version that it booted from
	Promoted string    `json:"promoted"` // the version that the definition stood for
	At       time.Time `json:"at"`       // when Promoted was promoted
	Born     time.Time `json:"born"`     // when the instance was created
}

func (s Stray) String() string {
	return fmt.Sprintf("an instance created at %s booted from version %s, although %s was promoted at %s",
		s.Born.UTC().Format(time.RFC3339), s.Booted, s.Promoted, s.At.UTC().Format(time.RFC3339))
}

// pointerSettles is how long after a promotion an instance may still boot from the former version.
// How long a change of excludeFromLatest takes to have an effect is not documented.
const pointerSettles = 10 * time.Minute

// astray returns the first instance that was created pointerSettles or more after the last
// promotion, if it did not follow the definition. A later instance that followed clears the earlier
// ones: a person may have excluded the version for an hour and taken that back. Most users report
// that Azure resolves "latest" at each scale-out
// (https://github.com/Azure/azure-rest-api-specs/issues/4446), one reports that it did not
// (https://github.com/Azure/azvmimagebuilder/issues/33): unverified.
func (l Ledger) astray(image string, versions []Version) *Stray {
	p, now := l.Promoted, Resolved(versions)
	if p == nil || p.At.IsZero() || now == nil || now.Name != p.Version || !Points(image, versions) {
		return nil
	}
	first := Stray{Promoted: p.Version, At: p.At}
	since := p.Born // when the last instance that followed was created
	if i := IndexOf(versions, p.Version); i >= 0 {
		for _, born := range versions[i].Births {
			if born.After(since) && !born.Before(p.At.Add(pointerSettles)) {
				since = born
			}
		}
	}
	for _, v := range versions {
		for _, born := range v.Births {
			if v.Name != p.Version && born.After(since) && !born.Before(p.At.Add(pointerSettles)) &&
				(first.Born.IsZero() || born.Before(first.Born)) {
				first.Booted, first.Born = v.Name, born
			}
		}
	}
	if first.Born.IsZero() {
		return nil
	}
	return &first
}

// WhyStrayed returns why a pool's definition is not trusted: an instance seen now, or the recorded
// one, though it may be gone.
func (l Ledger) WhyStrayed(image string, versions []Version) *Stray {
	if seen := l.astray(image, versions); seen != nil {
		return seen
	}
	return l.Strayed
}

// Pin is an image that somebody else wrote into a model which Kamino had written. Kamino leaves it
// alone until an option or a person allows otherwise.
type Pin struct {
	Image string `json:"image"` // the image that the model refers to
	Wrote string `json:"wrote"` // the image that Kamino wrote last
	// Unsure: Image is what stood in the model before a write of Kamino's that nobody has seen take
	// effect, and the pool was written since.
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
		return fmt.Sprintf("a run ended while it wrote %s into the model, and somebody may have set %s again since",
			LastSegments(p.Wrote, 3), LastSegments(p.Image, 3))
	}
	return "it was set by someone else: kamino last wrote " + LastSegments(p.Wrote, 3)
}

// Refusal is the refusal to replace a pinned image.
func (p Pin) Refusal(pool Pool) Refusal {
	return Refusal{Code: CodePinned, Field: "image of the model of pool " + pool.Name, Value: LastSegments(p.Image, 3),
		Why:   p.why(),
		Do:    "keep it, or replace it with --adopt-model",
		Allow: AllowAdopt}
}

// pin returns a Pin if somebody else chose the image of a model. It returns nil if the ledger has
// no write, because no other field of a model is evidence. The image that stood there before an
// unseen write is explained by the interrupted run, unless the pool was written since. If Kamino
// wrote nothing so far, the last version that was made counts.
func (l Ledger) pin(pool Pool, versions []Version) *Pin {
	image := pool.Model.Image
	if pin := MovedPin(image, versions); pin != nil {
		return pin
	}
	if Points(image, versions) {
		return nil // no person chose a version
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
		// a hidden version was never written into the model
		if v.Name == l.Past[made].Version && v.Good() && !v.Hidden() && !SameImage(&v, image) {
			return &Pin{Image: image, Wrote: v.ID}
		}
	}
	return nil
}

// Undone reports whether a model still has the image that stood there before an unseen write, whose
// run ended first.
func (l Ledger) Undone(image string) bool {
	return l.Wrote != nil && !l.Wrote.Seen && l.Former != nil && strings.EqualFold(image, l.Former.Image)
}

// Unwritten reports whether the unseen write never happened: it was refused, or nobody has written
// the pool since. Otherwise a person may have reverted it, which is a choice.
func (l Ledger) Unwritten(pool Pool) bool {
	return l.Undone(pool.Model.Image) && (l.Wrote.Refused || pool.Stamp != "" && pool.Stamp == l.Wrote.Stamp)
}

// mayBeUndone reports whether somebody may have reverted the unseen write, because the pool was
// written since. It is false where the provider has no stamps.
func (l Ledger) mayBeUndone(pool Pool) bool {
	return l.Undone(pool.Model.Image) && pool.Stamp != "" && !l.Unwritten(pool)
}

// Pinned returns the pin of a pool. An image that the recipe's owner wrote is not a pin.
func (l Ledger) Pinned(pool Pool, versions []Version) *Pin {
	if pool.Owner != nil {
		return MovedPin(pool.Model.Image, versions)
	}
	return l.pin(pool, versions)
}

// The names of the options that override a refusal.
const (
	AllowAdopt     = "adopt-model"
	AllowImageOnly = "image-only"
	AllowSpot      = "allow-spot"
)

// NotePromoted records that the promotion of a version was seen to be done.
func (l *Ledger) NotePromoted(version string, now time.Time) {
	if p := l.Promoted; p != nil && p.Version == version && p.At.IsZero() {
		l.Promoted = &Promotion{Version: version, At: now, Born: p.Born}
	}
}

// NoteStood records what the definition of a pool stood for, if that is not recorded yet.
func (l *Ledger) NoteStood(version string, at time.Time) {
	if l.Stood == nil && version != "" {
		l.Stood = &Promotion{Version: version, At: at}
	}
}

// Sticks reports whether the pool may boot from a version although its definition now stands for
// another: no instance was seen that followed.
func (l Ledger) Sticks(version string, versions []Version) bool {
	return l.Stood != nil && l.Stood.Version == version && !slices.ContainsFunc(versions, func(v Version) bool {
		return v.Name != version && slices.ContainsFunc(v.Births, l.Stood.At.Add(pointerSettles).Before)
	})
}
