package kamino

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// PoolStatus is what is there of a pool and its images.
type PoolStatus struct {
	Pool       PoolID `json:"pool"`
	Name       string `json:"name"`
	Gallery    string `json:"gallery,omitempty"`
	Definition string `json:"definition,omitempty"` // "" when there is none
	Model      string `json:"model"`                // the image that the model refers to
	Capacity   int    `json:"capacity"`
	Nodes      int    `json:"nodes"`
	Ready      int    `json:"ready"`

	// Next is the version that the next node would boot from; "" when the model
	// refers to no version of the pool.
	Next        string     `json:"nextVersion,omitempty"`
	NextBuilt   *time.Time `json:"nextBuiltAt,omitempty"`
	NextAgeDays *float64   `json:"nextAgeDays,omitempty"`
	// Patched is the newest patch that a node of the pool tells of, and
	// MissesDays how many days of patches the next node would miss.
	Patched    string   `json:"patched,omitempty"`
	MissesDays *float64 `json:"nextMissesDays,omitempty"`

	Versions []VersionStatus `json:"versions"`
	// Pinned: somebody else chose the image of the model.
	Pinned *Pin `json:"pinned,omitempty"`

	RollbackTarget string      `json:"rollbackTarget,omitempty"` // a version, or "original"
	Unfinished     *Unfinished `json:"unfinishedRun,omitempty"`
	Runs           []PastRun   `json:"runs,omitempty"` // the last ones, newest first
	Refusals       []Refusal   `json:"refusals,omitempty"`
	Error          string      `json:"error,omitempty"` // why the pool could not be read
}

// VersionStatus is an image version with its lineage.
type VersionStatus struct {
	Name      string `json:"name"`
	State     State  `json:"state"`
	Percent   int    `json:"percent"`
	Ready     bool   `json:"ready"`
	Failure   string `json:"failure,omitempty"`
	BuiltFrom string `json:"builtFrom,omitempty"`
	BuiltAt   string `json:"builtAt,omitempty"`
	Run       string `json:"run,omitempty"`
	Parent    string `json:"parent,omitempty"` // the image that the donor came from
	Bad       string `json:"bad,omitempty"`    // why it was rolled back
	Policy    string `json:"policy,omitempty"` // SHA-256 of the seal policy
	// Unknown are the files on the image that nothing explains; nil where nobody
	// looked.
	Unknown  *UnknownFiles `json:"unknown,omitempty"`
	Excluded bool          `json:"excluded,omitempty"`
	// Outnumbered is a version of an earlier day whose name counts as later: a
	// program that knows no YYYY.MM.DDNN made this one.
	Outnumbered string `json:"outnumberedBy,omitempty"`
	InModel     bool   `json:"inModel"`
	Instances   int    `json:"instances"` // made from it
}

// Status reads what is there of all pools, or of those named. A pool that
// cannot be read says so in its Error, which is joined to the error returned.
func (e *Engine) Status(ctx context.Context, pools []string, lastPatch []Signal) ([]PoolStatus, error) {
	all, _, err := e.overviews(ctx, pools)
	if err != nil {
		return nil, err
	}
	out := make([]PoolStatus, 0, len(all))
	var errs []error
	for _, o := range all {
		out = append(out, o.status(e.clock().Now(), lastPatch))
		errs = append(errs, o.err)
	}
	return out, errors.Join(errs...)
}

func (o overview) status(now time.Time, signals []Signal) PoolStatus {
	s := PoolStatus{
		Pool: o.id, Name: o.id.Name(), Gallery: o.pool.Gallery, Model: o.pool.Model.Image, Capacity: o.pool.Capacity,
		Nodes: len(o.nodes), Refusals: o.pool.Refusals, Versions: []VersionStatus{},
	}
	if o.pool.Name != "" {
		s.Name = o.pool.Name
	}
	for _, n := range o.nodes {
		if n.Ready {
			s.Ready++
		}
	}
	s.Unfinished, s.Runs = o.unfinished(now), o.lease.Ledger.Past
	if o.err != nil {
		s.Error = o.err.Error()
		return s
	}
	if o.definition {
		s.Definition = DefinitionName(o.pool.Name)
	}
	for _, v := range o.versions {
		status := versionStatus(v)
		if by := v.outnumbered(o.versions); by != nil {
			status.Outnumbered = by.Name
		}
		s.Versions = append(s.Versions, status)
	}
	s.Pinned = o.pin()
	s.RollbackTarget = o.defaultTarget().name()
	o.nextStatus(&s, now, signals)
	return s
}

// unfinished is the run that holds the pool or, where nobody does, the one that a marked node was left by.
func (o overview) unfinished(now time.Time) *Unfinished {
	if u := o.lease.unfinished(now); u != nil {
		return u
	}
	for _, n := range o.taken() {
		if mark, err := n.claim(o.id); err == nil && mark != nil {
			return &Unfinished{Run: mark.Run, Record: Record{Donor: n.Name, Instance: mark.Instance, VMID: mark.VMID, Sealing: mark.Sealing}}
		}
	}
	return nil
}

// nextStatus tells how old the image of the next node would be.
func (o overview) nextStatus(s *PoolStatus, now time.Time, signals []Signal) {
	patched, known := newestPatch(o.nodes, signals, now)
	if known {
		s.Patched = patched.String()
	}
	next := o.next()
	if next == nil {
		return
	}
	s.Next = next.Name
	built, ok := next.built()
	if !ok {
		return
	}
	age := days(now.Sub(built.Time))
	s.NextBuilt, s.NextAgeDays = &built.Time, &age
	if known {
		misses := 0.0
		if patched.after(built) {
			misses = days(patched.Sub(built.Time))
		}
		s.MissesDays = &misses
	}
}

// newestPatch is the latest patch that any node tells of, leaving out those
// that are yet to come.
func newestPatch(nodes []Node, signals []Signal, now time.Time) (newest stamp, known bool) {
	for _, n := range nodes {
		at, found, _ := lastPatch(n, signals)
		if found && !at.day().After(now.Add(24*time.Hour)) && (!known || at.after(newest)) {
			newest, known = at, true
		}
	}
	return newest, known
}

// days rounds to tenths of a day.
func days(d time.Duration) float64 {
	return float64(max(d, 0).Round(144*time.Minute)/(144*time.Minute)) / 10
}

func versionStatus(v Artifact) VersionStatus {
	if v.Ready { // lists carry no percentage
		v.Percent = 100
	}
	return VersionStatus{
		Name: v.Name, State: v.State, Percent: v.Percent, Ready: v.Ready, Failure: v.Failure,
		BuiltFrom: v.Tags[TagBuiltFrom], BuiltAt: v.Tags[TagBuiltAt], Run: v.Tags[TagRun],
		Parent: strings.TrimPrefix(v.Tags[TagParent], "/"), Bad: v.Tags[TagBad],
		Excluded: v.Excluded, InModel: v.InModel, Instances: v.Instances,
		Policy: v.Tags[TagPolicy], Unknown: unknownFiles(v.Tags),
	}
}

// unknownFiles reads what tags tell; nil when they tell nothing.
func unknownFiles(tags map[string]string) *UnknownFiles {
	n, err := strconv.Atoi(tags[TagUnknown])
	if err != nil || n < 0 {
		return nil
	}
	return &UnknownFiles{Mode: tags[TagUnknownMode], Count: n, Digest: tags[TagUnknownDigest]}
}
