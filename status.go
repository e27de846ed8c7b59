package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// Behind is nil where the next node boots from no version that tells.
	Behind *Behind `json:"nextBehind,omitempty"`

	Versions []VersionStatus `json:"versions"`
	// Strayed: an instance did not follow the image definition that the model names, or named; so
	// the model is written by version.
	Strayed *Stray  `json:"strayed,omitempty"`
	Owner   *Owner  `json:"owner,omitempty"`  // of the model, if somebody else writes it
	Models  *Models `json:"models,omitempty"` // nil where nothing is known, or there is no limit
	// Pinned: somebody else chose the image of the model.
	Pinned *Pin `json:"pinned,omitempty"`

	RollbackTarget string `json:"rollbackTarget,omitempty"` // a version, or "original"
	// RollbackNamed: a rollback has to name it: new nodes boot from what another went back to.
	RollbackNamed bool        `json:"rollbackNeedsName,omitempty"`
	Unfinished    *Unfinished `json:"unfinishedRun,omitempty"`
	// Configs are what the nodes tell of their NodeConfig; nodes without the agent tell nothing.
	Configs []NodeConfig `json:"nodeConfigs,omitempty"`
	// Blocked are nodes that patches left blocked.
	Blocked     []BlockedNode `json:"blockedNodes,omitempty"`
	Runs        []PastRun     `json:"runs,omitempty"`     // the last ones, newest first
	Boots       *Boots        `json:"boots,omitempty"`    // nil where none is known
	Canaries    []Canary      `json:"canaries,omitempty"` // that exist, of any run
	Refusals    []Refusal     `json:"refusals,omitempty"`
	Paused      string        `json:"paused,omitempty"` // why runs and promotions are held in the whole cluster
	PausedBy    string        `json:"pausedBy,omitempty"`
	PausedSince time.Time     `json:"pausedSince,omitzero"`
	// NextRuns are what starts runs of the pool; nil where nobody asked.
	NextRuns []NextRun `json:"nextRuns,omitempty"`
	Error    string    `json:"error,omitempty"` // why the pool could not be read
	Hints    []string  `json:"hints,omitempty"` // what to do about that
}

// Kept is the withdrawal of the next image that a watch of its nodes wanted, and that could not be
// made; nil where there is none, or the image was promoted since.
func (s PoolStatus) Kept() *PastRun { return kept(s.Runs, s.Next) }

// NotReady tells why the next image was to be withdrawn, and was not; "" where there is no Kept.
func (s PoolStatus) NotReady() string {
	past := s.Kept()
	if past == nil {
		return ""
	}
	return Plain(fmt.Sprintf("version %s %s; %s; if it is good all the same: %s", s.Next, past.Reason, past.Failure, HowToPromote(s.Name, s.Next)))
}

// NextRun is the next run of something in the cluster that starts runs, such as a CronJob.
type NextRun struct {
	By string     `json:"by,omitempty"` // a NodePrototype or a CronJob; "" where they could not be read
	At *time.Time `json:"at,omitempty"` // not before; nil where that is not known, or there is none
	// Latest says that one starts at At at the latest: then the image is too old, and before that
	// as soon as a node is patched.
	Latest bool   `json:"latest,omitempty"`
	When   string `json:"when,omitempty"` // its window or schedule
	Why    string `json:"why,omitempty"`  // why not now
}

// VersionStatus is an image version with its lineage.
type VersionStatus struct {
	Name      string `json:"name"`
	State     State  `json:"state"`
	Life      Life   `json:"life"`
	Percent   int    `json:"percent"`
	Ready     bool   `json:"ready"`
	Failure   string `json:"failure,omitempty"`
	BuiltFrom string `json:"builtFrom,omitempty"`
	BuiltAt   string `json:"builtAt,omitempty"` // RFC 3339, UTC; what the tag says where that is no time
	Run       string `json:"run,omitempty"`
	Parent    string `json:"parent,omitempty"` // the image that the donor came from
	Bad       string `json:"bad,omitempty"`    // why it was withdrawn
	Proof     string `json:"proof,omitempty"`  // how the proof of a hidden one ended; "abandoned": its run did
	// BadAncestor is a withdrawn version that a donor of this one's line came from.
	BadAncestor string `json:"badAncestor,omitempty"`
	Policy      string `json:"policy,omitempty"` // SHA-256 of the seal policy
	// Unknown are the files on the image that nothing explains; nil where nobody
	// looked.
	Unknown  *UnknownFiles `json:"unknown,omitempty"`
	Excluded bool          `json:"excluded,omitempty"`
	// Outnumbered is a version of an earlier day whose name counts as later: a
	// program that knows no YYYY.MM.DDNN made this one.
	Outnumbered string `json:"outnumberedBy,omitempty"`
	// OfFormer: it was made of an earlier pool of this pool's name.
	OfFormer bool `json:"ofFormerPool,omitempty"`
	// Unaccepted: the bootstrap of the model, which somebody else writes, was not accepted for it.
	Unaccepted bool `json:"bootstrapUnaccepted,omitempty"`
	InModel    bool `json:"inModel"`
	Instances  int  `json:"instances"` // made from it
}

// Status reads what is there of all pools, or of those named. A pool that
// cannot be read says so in its Error, which is joined to the error returned.
func (e *Engine) Status(ctx context.Context, pools []string, lastPatch []Signal) ([]PoolStatus, error) {
	all, _, err := e.overviews(Looking(ctx), pools)
	if err != nil {
		return nil, err
	}
	out := make([]PoolStatus, 0, len(all))
	var errs []error
	paused, _ := e.Paused(ctx) // who may not read it is told by a run
	for i, o := range all {
		out = append(out, o.status(e.now(), lastPatch))
		out[i].Paused, out[i].PausedBy, out[i].PausedSince = paused.Reason, paused.By, paused.Since
		errs = append(errs, o.err)
	}
	e.addLacks(ctx, all, out)
	return out, errors.Join(errs...)
}

func (o overview) status(now time.Time, signals []Signal) PoolStatus {
	s := PoolStatus{
		Pool: o.id, Name: o.id.Name(), Gallery: o.pool.Gallery, Model: o.pool.Model.Image, Capacity: o.pool.Capacity,
		Nodes: len(o.nodes), Canaries: o.canaries, Refusals: o.pool.Refusals, Versions: []VersionStatus{},
	}
	if o.pool.Name != "" {
		s.Name = o.pool.Name
	}
	for _, n := range o.nodes {
		if n.Ready {
			s.Ready++
		}
	}
	s.Configs = o.configs()
	s.Unfinished, s.Blocked, s.Runs, s.Boots = o.unfinished(now), o.blocked(), o.lease.Ledger.Past, o.lease.Ledger.knownBoots()
	if o.err != nil {
		s.Error, s.Hints = o.err.Error(), Advice(o.err)
		return s
	}
	if o.definition {
		s.Definition = DefinitionName(o.pool.Name)
	}
	for _, v := range o.versions {
		status := versionStatus(v)
		if status.Life == LifeProving && !o.proves(v, now) {
			status.Life, status.Proof = LifeHidden, proofAbandoned
		}
		unaccepted := v.unaccepted() && o.pool.Owner != nil
		if unaccepted && status.Life == LifeWaiting {
			status.Life = LifeHidden
		}
		status.Unaccepted = unaccepted && status.Life == LifeHidden
		status.BadAncestor = badAncestor(v, o.versions)
		if by := v.outnumbered(o.versions); by != nil {
			status.Outnumbered = by.Name
		}
		status.OfFormer = v.OfFormer
		s.Versions = append(s.Versions, status)
	}
	s.Pinned, s.Models, s.Strayed, s.Owner, s.RollbackTarget = o.pin(), o.models(), o.strayed(), o.pool.Owner, o.defaultTarget().name()
	s.RollbackNamed = s.RollbackTarget != "" && o.lease.Ledger.Withdrew.left(o.next()) != ""
	o.nextStatus(&s, now, signals)
	return s
}

// unfinished is the run that holds the pool or, where nobody does, the one that left a marked node.
func (o overview) unfinished(now time.Time) *Unfinished {
	if u := o.lease.Unfinished(now); u != nil {
		return u
	}
	for _, n := range o.taken() {
		if mark, err := n.claim(o.id); err == nil && mark != nil {
			rec := Record{Donor: n.Name, Instance: mark.Instance, VMID: mark.VMID, Sealing: mark.Sealing, Work: mark.Work, Started: mark.Since}
			if mark.Sealing { // since when it is off was told by the lease alone, which is gone
				rec.AwaySince = mark.Since
			}
			return &Unfinished{Run: mark.Run, Record: rec}
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
	s.Next, s.Behind = next.Name, o.behind(*next, now, signals)
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

// days rounds to tenths of a day.
func days(d time.Duration) float64 {
	return float64(max(d, 0).Round(144*time.Minute)/(144*time.Minute)) / 10
}

func versionStatus(v Artifact) VersionStatus {
	if v.Ready { // lists carry no percentage
		v.Percent = 100
	}
	return VersionStatus{
		Name: v.Name, State: v.State, Life: v.life(), Proof: v.Tags[TagProof], Percent: v.Percent, Ready: v.Ready, Failure: v.Failure,
		BuiltFrom: v.Tags[TagBuiltFrom], BuiltAt: builtAt(v), Run: v.Tags[TagRun],
		Parent: strings.TrimPrefix(v.Tags[TagParent], "/"), Bad: v.Tags[TagBad],
		Excluded: v.Excluded, InModel: v.InModel, Instances: v.Instances,
		Policy: v.Tags[TagPolicy], Unknown: unknownFiles(v.Tags),
	}
}

// overview is what one reading of the world tells about a pool. It is read in
// bulk: the nodes and the leases of the cluster with one list each, the pool and
// its versions with one read each, and nothing per node.
type overview struct {
	id         PoolID
	pool       Pool
	nodes      []Node
	versions   []Artifact // newest first
	canaries   []Canary   // beside the pool, of any run; what cannot be listed is none
	definition bool
	tagged     bool // the definition is unreliable, where that was read: see heed
	lease      Lease
	gone       bool // the pool does not exist any more
	givenBack  []Left
	awaits     bool // a version that an ended run was building is built still
	err        error
}

// readers bounds how many pools are read at the same time, so that a service
// with limits per minute is not flooded.
const readers = 8

// overviews reads all pools, or those of the given names. Pools are known by
// their nodes and by their leases. It returns the nodes of the whole cluster
// too.
func (e *Engine) overviews(ctx context.Context, names []string) ([]overview, []Node, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	byID := map[PoolID]*overview{}
	get := func(id PoolID) *overview {
		if byID[id] == nil {
			byID[id] = &overview{id: id, lease: Lease{Pool: id}}
		}
		return byID[id]
	}
	for _, n := range twins(nodes) {
		id, err := e.poolOf(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		if id != "" && !id.ofCanary() {
			o := get(id)
			o.nodes = append(o.nodes, n)
		}
	}
	leases, err := e.Cluster.Leases(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range leases {
		get(l.Pool).lease = l
	}
	chosen, err := choosePools(byID, names)
	if err != nil {
		return nil, nil, err
	}
	e.readAll(ctx, chosen)
	chosen = slices.DeleteFunc(chosen, func(o *overview) bool {
		return o.gone && len(o.nodes) == 0 && o.lease.Holder == "" && len(names) == 0
	})
	out := make([]overview, len(chosen))
	for i, o := range chosen {
		o.versions = o.lease.Ledger.distrust(o.versions)
		out[i] = *o
	}
	return out, nodes, nil
}

// choosePools picks pools by name or ID, all when there are no names, and sorts
// them.
func choosePools(all map[PoolID]*overview, names []string) ([]*overview, error) {
	var chosen []*overview
	var known []string
	for id, o := range all {
		known = append(known, id.Name())
		if len(names) == 0 || slices.ContainsFunc(names, id.is) {
			chosen = append(chosen, o)
		}
	}
	slices.Sort(known)
	for _, name := range names {
		n := 0
		for _, o := range chosen {
			if o.id.is(name) {
				n++
			}
		}
		switch {
		case n == 0 && len(known) == 0:
			return nil, WithHint(fmt.Errorf("pool %q is unknown: no node of this cluster belongs to a pool", name), "check spec.providerID: kubectl get nodes -o yaml")
		case n == 0:
			return nil, WithHint(fmt.Errorf("pool %q is unknown: no node belongs to it", name), "the pools are %s", strings.Join(known, ", "))
		case n > 1:
			return nil, WithHint(fmt.Errorf("pool %q is ambiguous: %d pools have that name", name, n), "give the whole ID")
		}
	}
	slices.SortFunc(chosen, func(a, b *overview) int { return strings.Compare(string(a.id), string(b.id)) })
	return chosen, nil
}

// onePool reads the pool that a person named, and gives back first what an ended run of it left.
func (e *Engine) onePool(ctx context.Context, name string, dryRun bool, leaves func(Artifact) bool) (overview, error) {
	if name == "" {
		return overview{}, WithHint(errors.New("no pool named"), "name it with --pool; kamino status lists the pools")
	}
	all, _, err := e.overviews(ctx, []string{name})
	if err != nil {
		return overview{}, err
	}
	o := all[0]
	switch {
	case o.err != nil && dryRun:
		return o, o.err
	case o.err != nil:
		return o, e.clearUnread(ctx, o)
	case !dryRun:
		back, err := e.clear(ctx, o, RestoreOptions{leaves: leaves})
		if len(back) > 0 && err == nil { // the version that was being built then is there by now
			if all, _, err = e.overviews(ctx, []string{name}); err == nil {
				o, err = all[0], all[0].err
			}
		}
		if o.givenBack = back; err != nil {
			return o, err
		}
		o.awaits = leaves != nil && slices.ContainsFunc(o.versions, o.lease.Ledger.builds)
	}
	return o, e.heed(ctx, &o)
}

// is compares a pool with a name or an ID that a user typed.
func (p PoolID) is(name string) bool {
	return strings.EqualFold(p.Name(), name) || strings.EqualFold(string(p), name)
}

// readAll fills in what each pool's own reads tell.
func (e *Engine) readAll(ctx context.Context, pools []*overview) {
	e.inTurn(len(pools), noneUrgent, func(own *Engine, i int) { pools[i].err = own.readOne(ctx, pools[i]) })
}

func (e *Engine) readOne(ctx context.Context, o *overview) (err error) {
	if o.lease.Err != nil {
		if len(o.nodes) == 0 { // a pool that is no more needs no lease
			_, err = e.Provider.Pool(ctx, o.id)
			o.gone = errors.Is(err, ErrNotFound)
		}
		return fmt.Errorf("read lease of pool %s: %w", o.id.Name(), o.lease.Err)
	}
	if o.pool, err = e.Provider.Pool(ctx, o.id); errors.Is(err, ErrNotFound) {
		if o.gone = true; o.lease.Holder != "" || len(o.taken()) > 0 {
			return hintPool(fmt.Errorf("read pool %s: %w", o.id.Name(), err), o.id)
		}
		return WithHint(fmt.Errorf("read pool %s: %w", o.id.Name(), err), "if it was deleted for good, delete the Node objects that it left: kubectl delete node")
	} else if err != nil {
		return hintPool(fmt.Errorf("read pool %s: %w", o.id.Name(), err), o.id)
	}
	if o.versions, err = e.Provider.Find(ctx, o.pool, Version, ""); err != nil {
		return fmt.Errorf("list image versions of pool %s: %w", o.pool.Name, err)
	}
	if prover, _, ok := e.prover(); ok {
		o.canaries, _ = prover.Canaries(ctx, o.pool) // restore tells why not
	}
	lives := e.livesIn(Definition)
	if o.definition = lives && len(o.versions) > 0; lives && !o.definition {
		found, err := e.Provider.Find(ctx, o.pool, Definition, DefinitionName(o.pool.Name))
		if err != nil {
			return fmt.Errorf("read the image definition of pool %s: %w", o.pool.Name, err)
		}
		o.definition = len(found) > 0
	}
	return nil
}

// donorAway: an ended run had a donor of the pool sealed, as far as lease and marks tell.
func (o overview) donorAway() bool {
	if o.lease.Record.Sealing {
		return true
	}
	return slices.ContainsFunc(o.taken(), func(n Node) bool { mark, err := n.claim(o.id); return err == nil && mark != nil && mark.Sealing })
}

// taken lists the nodes of the pool that runs have.
func (o overview) taken() []Node {
	var out []Node
	for _, n := range o.nodes {
		if mark, err := n.taken(o.id, o.lease); err == nil && mark != nil {
			out = append(out, n)
		}
	}
	return out
}

// next is the version that the next node would boot from; nil when the model
// does not refer to any of them.
func (o overview) next() *Artifact {
	image := o.pool.Model.Image
	if v := first(o.versions, func(v Artifact) bool { return v.ID != "" && strings.EqualFold(v.ID, image) }); v != nil {
		return v
	}
	if len(o.versions) > 0 && strings.EqualFold(definitionOf(o.versions[0].ID), image) {
		return resolved(o.versions)
	}
	return nil
}
