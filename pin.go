package kamino

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// WrittenModel is the image that kamino last wrote into a pool's model, or was
// about to write.
type WrittenModel struct {
	Image string    `json:"image"`
	At    time.Time `json:"at"`
	// Seen: a later read has shown it in the model.
	Seen bool `json:"seen,omitempty"`
}

// Pin is an image that somebody else has put into a model in which kamino had
// written one. It is left alone until somebody says otherwise.
type Pin struct {
	Image string `json:"image"` // that the model refers to
	Wrote string `json:"wrote"` // that kamino wrote last
}

// pin says whether somebody else chose the image of a model. A ledger without an
// entry says nothing, nor does any other field of the model; an image that stood
// there before a write which was never seen is explained by the interrupted run.
// Ledgers of earlier kaminos name the last version that was made.
func (l Ledger) pin(image string, versions []Artifact) *Pin {
	if w := l.Wrote; w != nil {
		undone := !w.Seen && l.Former != nil && strings.EqualFold(image, l.Former.Image)
		if undone || strings.EqualFold(image, w.Image) {
			return nil
		}
		return &Pin{image, w.Image}
	}
	made := slices.IndexFunc(l.Past, func(p PastRun) bool { return p.Failure == "" })
	if made < 0 || sameImage(latest(versions), image) {
		return nil
	}
	for _, v := range versions {
		if v.Name == l.Past[made].Version && v.good() && !sameImage(&v, image) {
			return &Pin{image, v.ID}
		}
	}
	return nil
}

// writing notes the image that is about to be written.
func (l *Ledger) writing(image string, now time.Time, seen bool) {
	l.Wrote = &WrittenModel{Image: image, At: now, Seen: seen}
}

// read notes the image that a read has shown in the model.
func (l *Ledger) read(image string) {
	if w := l.Wrote; w != nil && !w.Seen && strings.EqualFold(w.Image, image) {
		seen := *w
		seen.Seen = true
		l.Wrote = &seen
	}
}

// distrust shows the versions that were rolled back and could not be marked as
// those that could.
func (l Ledger) distrust(versions []Artifact) []Artifact {
	for i := range versions {
		if v := &versions[i]; v.Tags[TagBad] == "" && slices.Contains(l.RolledBack, v.Name) {
			v.Tags = maps.Clone(v.Tags)
			if v.Tags == nil {
				v.Tags = map[string]string{}
			}
			v.Tags[TagBad] = "rolled back; the version could not be marked"
		}
	}
	return versions
}

func (o overview) pin() *Pin { return o.lease.Ledger.pin(o.pool.Model.Image, o.versions) }

func (p Pin) refusal(pool Pool) Refusal {
	return Refusal{Code: "pinned", Field: "image of the model of pool " + pool.Name, Value: lastSegments(p.Image, 3),
		Why:   fmt.Sprintf("somebody chose it: kamino last wrote %s", lastSegments(p.Wrote, 3)),
		Do:    "leave it, or replace it with --adopt-model",
		Allow: allowAdopt}
}

func (p Pin) String() string {
	return fmt.Sprintf("somebody pinned the model to %s; kamino last wrote %s", lastSegments(p.Image, 3), lastSegments(p.Wrote, 3))
}

const allowAdopt = "adopt-model"

// refusePinned refuses a pool whose image somebody else chose.
func (r *Run) refusePinned(versions []Artifact) error {
	pin := r.lease.Ledger.pin(r.pool.Model.Image, versions)
	if pin == nil {
		return nil
	}
	if list := r.unlifted([]Refusal{pin.refusal(r.pool)}); len(list) > 0 {
		return &RefusedError{Subject: "pool " + r.pool.Name, Refusals: list}
	}
	return nil
}
