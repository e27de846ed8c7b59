// Package poolstate describes the state of a pool and decides what has to be done. A [State] is
// what was read of a pool; everything here follows from it and from the operator's options.
package poolstate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// configs returns the NodeConfig reports of the pool's nodes, by node name.
func (o State) configs() (all []kamino.NodeConfig) {
	for _, n := range o.Nodes {
		if c := n.Config(); c != nil {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b kamino.NodeConfig) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// FailedConfigs returns the nodes whose configuration failed.
func (s PoolStatus) FailedConfigs() (failed []kamino.NodeConfig) {
	for _, c := range s.Configs {
		if c.Failed() {
			failed = append(failed, c)
		}
	}
	return failed
}

// Pause returns the pause that holds runs and promotions.
func (s PoolStatus) Pause() kamino.Pause {
	return kamino.Pause{Reason: s.Paused, By: s.PausedBy, Since: s.PausedSince}
}

// Blocked lists the nodes that patches left blocked, except one that a run is patching again.
func (o State) Blocked() (out []kamino.BlockedNode) {
	for _, n := range o.Nodes {
		if b := n.Blocked(); b != nil && n.Annotations[kamino.AnnotationRun] == "" {
			out = append(out, *b)
		}
	}
	return out
}

// PoolStatus is the status of a pool and its images.
type PoolStatus struct {
	Pool       kamino.PoolID `json:"pool"`
	Name       string        `json:"name"`
	Gallery    string        `json:"gallery,omitempty"`
	Definition string        `json:"definition,omitempty"` // "" if there is none
	Model      string        `json:"model"`                // the image that the model refers to
	Capacity   int           `json:"capacity"`
	Nodes      int           `json:"nodes"`
	Ready      int           `json:"ready"`

	// Next is the version that the next node would boot from; "" if the model refers to no version
	// of the pool.
	Next        string     `json:"nextVersion,omitempty"`
	NextBuilt   *time.Time `json:"nextBuiltAt,omitempty"`
	NextAgeDays *float64   `json:"nextAgeDays,omitempty"`
	// Patched is the newest patch time of any node of the pool. MissesDays is how many days of
	// patches the next node would lack.
	Patched    string   `json:"patched,omitempty"`
	MissesDays *float64 `json:"nextMissesDays,omitempty"`

	// Behind compares the next node with a running one; nil if the next image is no version with a
	// description.
	Behind *Behind `json:"nextBehind,omitempty"`

	Versions []VersionStatus `json:"versions"`
	// Strayed: an instance did not follow the image definition that the model names, or named. So
	// the model is written by version.
	Strayed *kamino.Stray `json:"strayed,omitempty"`
	Owner   *kamino.Owner `json:"owner,omitempty"`  // the program that manages the model, if there is one
	Models  *Models       `json:"models,omitempty"` // nil if nothing is known, or if there is no limit
	// Pinned: somebody else chose the image of the model.
	Pinned *kamino.Pin `json:"pinned,omitempty"`

	RollbackTarget string `json:"rollbackTarget,omitempty"` // a version, or "original"
	// RollbackNamed: a rollback needs --to, because new nodes boot from the target of an earlier
	// rollback.
	RollbackNamed bool               `json:"rollbackNeedsName,omitempty"`
	Unfinished    *kamino.Unfinished `json:"unfinishedRun,omitempty"`
	// Configs are the NodeConfig reports of nodes; nodes without the agent have none.
	Configs []kamino.NodeConfig `json:"nodeConfigs,omitempty"`
	// Blocked are nodes that patches left blocked.
	Blocked     []kamino.BlockedNode `json:"blockedNodes,omitempty"`
	Runs        []kamino.PastRun     `json:"runs,omitempty"`     // the last ones, newest first
	Boots       *kamino.Boots        `json:"boots,omitempty"`    // nil if none is known
	Canaries    []kamino.Canary      `json:"canaries,omitempty"` // that exist, of any run
	Refusals    []kamino.Refusal     `json:"refusals,omitempty"`
	Paused      string               `json:"paused,omitempty"` // why runs and promotions are held in the whole cluster
	PausedBy    string               `json:"pausedBy,omitempty"`
	PausedSince time.Time            `json:"pausedSince,omitzero"`
	// NextRuns are the programs that start runs of the pool; nil if nobody asked.
	NextRuns []NextRun `json:"nextRuns,omitempty"`
	Error    string    `json:"error,omitempty"` // why the pool could not be read
	Hints    []string  `json:"hints,omitempty"` // what to do about Error
}

// Kept returns the withdrawal of the next image that a watch of its nodes wanted and could not
// make; nil if there is none, or if the image was promoted since.
func (s PoolStatus) Kept() *kamino.PastRun { return kamino.Kept(s.Runs, s.Next) }

// NotReady is why the next image was to be withdrawn and was not; "" without Kept.
func (s PoolStatus) NotReady() string {
	past := s.Kept()
	if past == nil {
		return ""
	}
	return kamino.Plain(fmt.Sprintf("version %s %s; %s; if the version is good nevertheless: %s", s.Next, past.Reason, past.Failure,
		HowToPromote(s.Name, s.Next)))
}

// NextRun is the next run of a program in the cluster that starts runs, such as a CronJob.
type NextRun struct {
	By string     `json:"by,omitempty"` // a NodePrototype or a CronJob; "" if they could not be read
	At *time.Time `json:"at,omitempty"` // earliest time; nil if not known, or if there is none
	// Latest: the run starts at At at the latest, because the image is then too old; it starts
	// earlier if a node is patched.
	Latest bool   `json:"latest,omitempty"`
	When   string `json:"when,omitempty"` // its window or schedule
	Why    string `json:"why,omitempty"`  // why it does not start now
}

// VersionStatus is an image version with its lineage.
type VersionStatus struct {
	Name      string       `json:"name"`
	State     kamino.State `json:"state"`
	Phase     kamino.Phase `json:"phase"`
	Percent   int          `json:"percent"`
	Ready     bool         `json:"ready"`
	Failure   string       `json:"failure,omitempty"`
	BuiltFrom string       `json:"builtFrom,omitempty"`
	BuiltAt   string       `json:"builtAt,omitempty"` // RFC 3339, UTC; the text of the tag if it is no time
	Run       string       `json:"run,omitempty"`
	Parent    string       `json:"parent,omitempty"` // the image that the donor booted from
	Bad       string       `json:"bad,omitempty"`    // why it was withdrawn
	Proof     string       `json:"proof,omitempty"`  // how the proof of a hidden version ended; "abandoned": its run ended first
	// BadAncestor is the nearest withdrawn ancestor of the version.
	BadAncestor string `json:"badAncestor,omitempty"`
	Policy      string `json:"policy,omitempty"` // SHA-256 of the seal policy
	// Unknown are the files on the image that nothing explains; nil if nobody looked.
	Unknown  *kamino.UnknownFiles `json:"unknown,omitempty"`
	Excluded bool                 `json:"excluded,omitempty"`
	// Outnumbered is a version of an earlier day whose name counts as later. This one was made by a
	// program that does not know YYYY.MM.DDNN.
	Outnumbered string `json:"outnumberedBy,omitempty"`
	// OfFormer: the version was made of an earlier pool with this pool's name.
	OfFormer bool `json:"ofFormerPool,omitempty"`
	// Unaccepted: nobody accepted the bootstrap of the model, which somebody else writes, for this
	// version.
	Unaccepted bool `json:"bootstrapUnaccepted,omitempty"`
	InModel    bool `json:"inModel"`
	Instances  int  `json:"instances"` // number of instances that booted from it
}

// Status returns the status of the pool.
func (o State) Status(now time.Time, signals []kamino.Signal) PoolStatus {
	s := PoolStatus{
		Pool: o.ID, Name: o.ID.Name(), Gallery: o.Pool.Gallery, Model: o.Pool.Model.Image, Capacity: o.Pool.Capacity,
		Nodes: len(o.Nodes), Canaries: o.Canaries, Refusals: o.Pool.Refusals, Versions: []VersionStatus{},
	}
	if o.Pool.Name != "" {
		s.Name = o.Pool.Name
	}
	for _, n := range o.Nodes {
		if n.Ready {
			s.Ready++
		}
	}
	s.Configs = o.configs()
	s.Unfinished, s.Blocked, s.Runs, s.Boots = o.Unfinished(now), o.Blocked(), o.Lease.Ledger.Past, o.Lease.Ledger.KnownBoots()
	if o.Err != nil {
		s.Error, s.Hints = o.Err.Error(), kamino.Advice(o.Err)
		return s
	}
	if o.Definition {
		s.Definition = kamino.DefinitionName(o.Pool.Name)
	}
	for _, v := range o.Versions {
		status := StatusOf(v)
		if status.Phase == kamino.PhaseProving && !o.proves(v, now) {
			status.Phase, status.Proof = kamino.PhaseHidden, kamino.TagProofAbandoned
		}
		unaccepted := v.Unaccepted && o.Pool.Owner != nil
		if unaccepted && status.Phase == kamino.PhaseWaiting {
			status.Phase = kamino.PhaseHidden
		}
		status.Unaccepted = unaccepted && status.Phase == kamino.PhaseHidden
		status.BadAncestor = kamino.BadAncestor(v, o.Versions)
		if by := v.Outnumbered(o.Versions); by != nil {
			status.Outnumbered = by.Name
		}
		status.OfFormer = v.OfFormer
		s.Versions = append(s.Versions, status)
	}
	s.Pinned, s.Models, s.Strayed, s.Owner, s.RollbackTarget = o.Pin(), o.models(), o.Strayed(), o.Pool.Owner, o.defaultTarget().Name()
	s.RollbackNamed = s.RollbackTarget != "" && o.Lease.Ledger.Withdrew.Left(o.Next()) != ""
	o.nextStatus(&s, now, signals)
	return s
}

// Unfinished returns the run that holds the pool, or the one that left a marked node.
func (o State) Unfinished(now time.Time) *kamino.Unfinished {
	if u := o.Lease.Unfinished(now); u != nil {
		return u
	}
	for _, n := range o.Taken() {
		if mark, err := n.Claimed(o.ID); err == nil && mark != nil {
			rec := kamino.Record{Donor: n.Name, Instance: mark.Instance, VMID: mark.VMID, Sealing: mark.Sealing, Work: mark.Work,
				Started: mark.Since}
			if mark.Sealing { // only the lease, which is gone, had the time since when it is off
				rec.AwaySince = mark.Since
			}
			return &kamino.Unfinished{Run: mark.Run, Record: rec}
		}
	}
	return nil
}

// nextStatus sets how old the image of the next node would be.
func (o State) nextStatus(s *PoolStatus, now time.Time, signals []kamino.Signal) {
	patched, known := newestPatch(o.Nodes, signals, now)
	if known {
		s.Patched = patched.String()
	}
	next := o.Next()
	if next == nil {
		return
	}
	s.Next, s.Behind = next.Name, o.behind(*next, now, signals)
	built, ok := next.Built()
	if !ok {
		return
	}
	age := days(now.Sub(built.Time))
	s.NextBuilt, s.NextAgeDays = &built.Time, &age
	if known {
		misses := 0.0
		if patched.Later(built) {
			misses = days(patched.Sub(built.Time))
		}
		s.MissesDays = &misses
	}
}

// days rounds to tenths of a day.
func days(d time.Duration) float64 {
	return float64(max(d, 0).Round(144*time.Minute)/(144*time.Minute)) / 10
}

// StatusOf returns the status of a version.
func StatusOf(v kamino.Version) VersionStatus {
	if v.Ready { // lists carry no percentage
		v.Percent = 100
	}
	return VersionStatus{
		Name: v.Name, State: v.State, Phase: v.Phase, Proof: v.Proof, Percent: v.Percent, Ready: v.Ready, Failure: v.Failure,
		BuiltFrom: v.Donor, BuiltAt: builtAt(v), Run: v.Run,
		Parent: strings.TrimPrefix(v.Parent, "/"), Bad: v.Bad,
		Excluded: v.Excluded, InModel: v.InModel, Instances: v.Instances,
		Policy: v.Policy, Unknown: v.Unknown,
	}
}

// State is what one reading of the cluster and the cloud shows of a pool. Nodes and leases are read
// with one list each, the pool and its versions with one read each, and nothing is read per node.
type State struct {
	ID         kamino.PoolID
	Pool       kamino.Pool
	Nodes      []kamino.Node
	Versions   []kamino.Version // newest first
	Canaries   []kamino.Canary  // beside the pool, of any run; none if they cannot be listed
	Definition bool
	Tagged     bool // the definition is tagged unreliable, if that was read: see heed
	Lease      kamino.Lease
	Gone       bool // the pool does not exist any more
	GivenBack  []Leftover
	Awaits     bool // a version that an interrupted run was building is still being built
	Err        error
}

// Readers is how many pools are read in parallel, because services limit calls per minute.
const Readers = 8

// ChoosePools picks pools by name or ID (all without names) and sorts them.
func ChoosePools(all map[kamino.PoolID]*State, names []string) ([]*State, error) {
	var chosen []*State
	var known []string
	for id, o := range all {
		known = append(known, id.Name())
		if len(names) == 0 || slices.ContainsFunc(names, id.Named) {
			chosen = append(chosen, o)
		}
	}
	slices.Sort(known)
	for _, name := range names {
		n := 0
		for _, o := range chosen {
			if o.ID.Named(name) {
				n++
			}
		}
		switch {
		case n == 0 && len(known) == 0:
			return nil, kamino.WithHint(fmt.Errorf("pool %q is unknown: no node of this cluster belongs to a pool", name),
				"check spec.providerID: kubectl get nodes -o yaml")
		case n == 0:
			return nil, kamino.WithHint(fmt.Errorf("pool %q is unknown: no node belongs to it", name), "the pools are %s",
				strings.Join(known, ", "))
		case n > 1:
			return nil, kamino.WithHint(fmt.Errorf("pool %q is ambiguous: %d pools have that name", name, n), "give the whole ID")
		}
	}
	slices.SortFunc(chosen, func(a, b *State) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return chosen, nil
}

// DonorAway reports whether an interrupted run had a donor of the pool sealed, as far as lease and
// marks show.
func (o State) DonorAway() bool {
	if o.Lease.Record.Sealing {
		return true
	}
	return slices.ContainsFunc(o.Taken(), func(n kamino.Node) bool {
		mark, err := n.Claimed(o.ID)
		return err == nil && mark != nil && mark.Sealing
	})
}

// Taken lists the nodes of the pool that runs have.
func (o State) Taken() []kamino.Node {
	var out []kamino.Node
	for _, n := range o.Nodes {
		if mark, err := n.OwnedBy(o.ID, o.Lease); err == nil && mark != nil {
			out = append(out, n)
		}
	}
	return out
}

// Next returns the version that the next node would boot from; nil if the model refers to no
// version.
func (o State) Next() *kamino.Version {
	image := o.Pool.Model.Image
	if v := kamino.First(o.Versions, func(v kamino.Version) bool { return v.ID != "" && strings.EqualFold(v.ID, image) }); v != nil {
		return v
	}
	if len(o.Versions) > 0 && strings.EqualFold(kamino.DefinitionOf(o.Versions[0].ID), image) {
		return kamino.Resolved(o.Versions)
	}
	return nil
}
