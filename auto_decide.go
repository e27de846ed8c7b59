package kamino

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// decide judges one pool: does it need a new prototype, why, and from which
// node. It is a pure function of what was read, of the options and of the time.
func (o overview) decide(opts AutoOptions, now time.Time) PoolPlan {
	p := PoolPlan{
		Pool: o.id, Name: o.id.Name(), Action: DoNothing, Model: o.pool.Model.Image,
		Why: []Verdict{}, Held: []Verdict{}, Candidates: []Candidate{},
	}
	if o.err != nil {
		p.hold("error", "%v", o.err)
		return p
	}
	p.Name, p.Models = o.pool.Name, o.models()
	good := o.promotable(opts)
	if good != nil {
		p.Image = good.Name
	}
	rules := opts.Rules
	rules.Image, rules.Bad = newestImage(o.versions), badVersions(o.versions, o.lease.Ledger)
	p.Candidates = Select(o.nodes, rules, now)
	if opts.Patch != nil {
		for _, c := range ranked(SelectPatch(o.nodes, *opts.Patch, now)) {
			p.Patches = append(p.Patches, c.Node)
		}
	}
	switch {
	case o.lease.Holder != "":
		o.decideUnfinished(&p)
	case len(o.taken()) > 0:
		n := o.taken()[0]
		mark, _ := n.claim(o.id) // taken has read it
		p.Action = DoFinish
		p.because("unfinished", "run %s left node %s marked, and no run holds the pool", mark.Run, n.Name)
	case o.decideBuilding(&p, now), o.decideProof(&p, opts), o.decideFuture(&p, now):
	default:
		o.decideNeed(&p, opts, rules, now)
		o.decideModel(&p, good, opts)
	}
	o.decideNothing(&p, rules.Image, opts.Proof)
	if pin := o.pin(); pin != nil && p.Action == DoFinish {
		p.Donor = "" // what was taken is given back, the model stays
	} else if pin != nil {
		p.hold("pinned", "%s: kamino update --target-node NODE --adopt-model, or kamino rollback --pool %s --to VERSION", pin, o.pool.Name)
	}
	refusals := opts.unlifted(o.pool.Refusals)
	switch {
	case len(refusals) == 0 || p.Action == DoNothing:
	case p.Action == DoFinish:
		p.Donor = "" // what was taken is given back whatever the pool has become
	default:
		for _, r := range refusals {
			p.hold("refused", "%s", r)
		}
	}
	return p
}

// decideNothing says why nothing is needed, and what is left to a person then.
func (o overview) decideNothing(p *PoolPlan, image *Artifact, proof Proving) {
	if len(p.Why) > 0 {
		return
	}
	if v := newestGood(o.versions); v != nil && v.unaccepted() && o.pool.Owner != nil {
		p.because("model", "version %s is hidden", v.Name)
		p.hold("image-only", "its instances would run the bootstrap of the model, which %s writes; %s offers it", o.pool.Owner.Name, HowToPromote(o.pool.Name, v.Name))
		return
	} else if v != nil && v.hidden() && !v.mayPromote(proof) {
		p.because("unproved", "version %s is hidden and not proved", v.Name)
		p.hold("promote", "with --prove canary it is proved; %s accepts it unproved", HowToPromote(o.pool.Name, v.Name))
		return
	}
	word := ""
	if image.Tags[TagBad] != "" {
		word = ", which was withdrawn"
	}
	p.because("nothing", "no node was patched after image %s%s", image.Name, word)
}

func (o overview) decideUnfinished(p *PoolPlan) {
	rec := o.lease.Record
	p.Action = DoFinish
	if rec.Work == WorkPatch {
		p.because("unfinished", "patch run %s (process %s) has node %s since %s, at step %s; %s", o.lease.Holder, o.lease.Process,
			cmp.Or(rec.Donor, "none"), rec.Started.UTC().Format(time.RFC3339), cmp.Or(rec.Step, InLock), goesOn(rec.Donor))
	} else {
		p.because("unfinished", "run %s (process %s, donor %s) holds the pool at step %s", o.lease.Holder, o.lease.Process,
			cmp.Or(rec.Donor, "none"), cmp.Or(rec.Step, InLock))
	}
	if !rec.GivingBack && rec.Work == "" { // of a node that was being patched no image is made
		for _, n := range o.nodes {
			if n.Name == rec.Donor {
				p.Donor = rec.Donor
			}
		}
	}
}

// decideBuilding finds a version that an interrupted run left being built. The
// run that waits for it takes no donor away.
func (o overview) decideBuilding(p *PoolPlan, now time.Time) bool {
	for _, v := range o.versions {
		if !v.ofDay(now) || v.State != Creating || !v.Ours() || v.Tags[TagBad] != "" {
			continue
		}
		p.because("unfinished", "version %s is being built (%d%%)", v.Name, v.Percent)
		if v.Tags[TagReceipt] == "" {
			p.hold("no-receipt", "version %s has no seal receipt: it was not built by kamino", v.Name)
			return true
		}
		for _, n := range o.nodes {
			if n.Name == v.Tags[TagBuiltFrom] && n.blocked() == nil {
				p.Action, p.Donor = DoUpdate, n.Name
			}
		}
		if best := ranked(p.Candidates); p.Donor == "" && len(best) > 0 {
			p.Action, p.Donor = DoUpdate, best[0].Node
		}
		return true
	}
	return false
}

// decideFuture finds a version of a later day, which a run under a wrong clock made. Until that day
// no node was patched after it, and no run may build a version.
func (o overview) decideFuture(p *PoolPlan, now time.Time) bool {
	v := first(o.versions, func(v Artifact) bool { return v.afterDay(now) })
	if v == nil {
		return false
	}
	p.because("future", "version %s was made under a clock that was ahead: this clock says %s", v.Name, now.UTC().Format(time.RFC3339))
	p.hold("future", "set the clock of this machine; if it is right, go back with kamino rollback --pool %s, then delete version %s", o.pool.Name, v.Name)
	return true
}

// decideProof finds a version that waits for its proof, or for a person to promote it.
func (o overview) decideProof(p *PoolPlan, opts AutoOptions) bool {
	v := newestGood(o.versions)
	switch {
	case v == nil || !v.hidden() || v.mayPromote(opts.Proof):
		return false
	case v.waiting():
		p.because("waiting", "version %s passed its proof", v.Name)
		p.hold("promote", "version %s waits to be promoted: %s", v.Name, HowToPromote(o.pool.Name, v.Name))
		return true
	case opts.Proof.Mode == ProveNone && opts.Proof.Promote == PromoteManual, opts.Proof.Mode != ProveCanary && v.gated():
		p.because("waiting", "version %s is hidden, and no proof is required before its promotion", v.Name)
		p.hold("promote", "version %s waits to be promoted: %s", v.Name, HowToPromote(o.pool.Name, v.Name))
		return true
	case opts.Proof.Mode == ProveNone, opts.Today == TodayAgain, v.Tags[TagReceipt] == "":
		return false // another one may be made
	}
	p.because("unproved", "version %s is hidden and not proved", v.Name)
	if !o.decideStandIn(p, v) {
		p.hold("too-few-candidates", "no node represents the pool: its donor %s is not Ready", v.Tags[TagBuiltFrom])
	}
	return true
}

// decideStandIn updates by way of a node that stands for the pool: none is taken away.
func (o overview) decideStandIn(p *PoolPlan, v *Artifact) bool {
	names := []string{v.Tags[TagBuiltFrom]}
	for _, c := range ranked(p.Candidates) {
		names = append(names, c.Node)
	}
	for _, name := range names {
		if slices.ContainsFunc(o.nodes, func(n Node) bool { return n.Name == name && n.Ready }) {
			p.Action, p.Donor = DoUpdate, name
			return true
		}
	}
	return false
}

// decideNeed finds out whether a new image is needed, and whether enough nodes
// could be its donor.
func (o overview) decideNeed(p *PoolPlan, opts AutoOptions, rules Rules, now time.Time) {
	image := rules.Image
	if image == nil {
		p.because("no-image", "the pool has no image version yet")
	} else {
		o.decidePatches(p, rules, now)
		if built, ok := image.built(); ok && opts.MaxImageAge > 0 && now.Sub(built.Time) > opts.MaxImageAge {
			p.because("age", "image %s is %.1f days old, more than %.1f", image.Name, days(now.Sub(built.Time)), days(opts.MaxImageAge))
			if len(ranked(p.Candidates)) < opts.MinCandidates {
				rules.AnyPatch = true
				p.Candidates = Select(o.nodes, rules, now)
			}
		}
	}
	if len(p.Why) == 0 {
		return
	}
	best := ranked(p.Candidates)
	if len(best) < opts.MinCandidates {
		p.hold("too-few-candidates", "%d candidates found, at least %d required", len(best), opts.MinCandidates)
		return
	}
	p.Action, p.Donor = DoUpdate, best[0].Node
	if v := newestOfDay(o.versions, now); v != nil && (v.whole() || v.Tags[TagBad] != "") && opts.Today != TodayAgain {
		state := "exists already"
		if v.Tags[TagBad] != "" {
			state = "was " + v.Tags[TagBad]
		}
		p.hold("today", "version %s %s, and only one is made per day; %s", v.Name, state, hintAgain)
	}
}

func (o overview) decidePatches(p *PoolPlan, rules Rules, now time.Time) {
	newest, known := newestPatch(o.nodes, rules.LastPatch, now)
	built, ok := rules.Image.built()
	if !known || !ok || !newest.after(built) {
		return
	}
	word := "image " + rules.Image.Name
	if !rules.Image.good() {
		word += ", which was withdrawn,"
	}
	p.because("patches", "nodes were patched at %s, after %s of %s", newest, word, built)
}

// decideModel compares the model with the newest good image. A model that
// somebody set to an image of their own after the first prototype is theirs.
func (o overview) decideModel(p *PoolPlan, good *Artifact, opts AutoOptions) {
	pointing, follows := points(o.pool.Model.Image, o.versions), o.follows(opts.ImageReference)
	stands := resolved(o.versions)
	switch {
	case opts.ImageOnly:
		p.decideOffer(good)
		return
	case good == nil,
		follows == pointing && !pointing && sameImage(good, o.pool.Model.Image),
		follows == pointing && pointing && stands != nil && stands.Name == good.Name:
		return
	case follows != pointing:
		p.because("pointer", "%s", o.strayed())
	case pointing && stands != nil:
		p.because("model", "the image definition stands for %s, not for %s", stands.Name, good.Name)
	default:
		p.because("model", "the model refers to %s, not to %s", lastSegments(o.pool.Model.Image, 3), good.Name)
	}
	own := pointing || o.names(good)
	if !own && o.forgot(good) {
		p.hold("foreign-model", "the lease of this pool records no run that made %s: it was deleted, or the cluster was recreated; kamino update --target-node NODE makes another image, kamino rollback --pool %s --to %s uses this one",
			good.Name, o.pool.Name, good.Name)
		return
	}
	if p.Action == DoUpdate {
		return
	}
	if l := o.lease.Ledger; !own && !l.unwritten(o.pool) && (l.Original != nil || good.Tags[TagRun] == "") {
		why := "the image was set by someone else"
		if l.undone(o.pool.Model.Image) {
			why = "a run ended while it wrote the model, and somebody may have set the image back since"
		}
		p.hold("foreign-model", "%s; kamino rollback --pool %s --to %s replaces it", why, o.pool.Name, good.Name)
		return
	}
	if good.Tags[TagReceipt] == "" {
		p.hold("no-receipt", "version %s has no seal receipt; kamino rollback --pool %s --to %s uses it all the same", good.Name, o.pool.Name, good.Name)
		return
	}
	// Nothing has to be built for it.
	p.Action, p.Donor, p.Held = DoModel, "", []Verdict{}
}

// names says whether the model names a version of the pool. Where versions do not live in a
// definition, as on AWS, one that may have been set back is nobody's: see undone.
func (o overview) names(good *Artifact) bool {
	image := o.pool.Model.Image
	return strings.HasPrefix(strings.ToLower(image), strings.ToLower(definitionOf(good.ID))+"/") ||
		!o.lease.Ledger.undone(image) && slices.ContainsFunc(o.versions, func(v Artifact) bool { return sameImage(&v, image) })
}

// forgot says whether a run made a version of which the pool's lease knows nothing. Whose the model
// is then, a person has to say: the disk may join another cluster of the same names.
func (o overview) forgot(v *Artifact) bool {
	l := o.lease.Ledger
	return l.Original == nil && l.Wrote == nil && v.Tags[TagRun] != "" &&
		!slices.ContainsFunc(l.Past, func(p PastRun) bool { return p.Version == v.Name || p.Pointed == v.Name })
}

// decideOffer is decideModel where the model is not to be written: a version can only be offered, by
// a person who names it.
func (p *PoolPlan) decideOffer(good *Artifact) {
	if good == nil || !good.hidden() || p.Action == DoUpdate {
		return
	}
	p.because("model", "version %s is hidden", good.Name)
	p.hold("image-only", "its instances would run the model's own bootstrap; %s offers it", HowToPromote(p.Name, good.Name))
}

// newborns is what was seen of the instances of a pool that boot from a version.
type newborns map[InstanceID]*newbornNode

type newbornNode struct {
	Instance           // as it was last read
	seen     time.Time // first
	on       time.Time // since when it runs while others do well; zero: it does not
	ran      time.Time // when that was last so
	off      bool      // it does not run in the last look
	gone     time.Time // since when its pool lists it no more; zero: it does
	ready    bool
	late     bool
}

// lost says whether an instance that is gone was late all the same: whoever replaces nodes that do
// not come up, as a group with health checks does, may be faster than the budget
// (docs/notes/0038-newborns-that-are-replaced.md).
func (n newbornNode) lost(long time.Duration) bool {
	return !spot(n.Refusals) && !n.on.IsZero() && n.ran.Sub(n.on) >= long
}

// inOrder lists them as they were born, as far as can be told: those that were first seen together
// by their numbers.
func (b newborns) inOrder() []InstanceID {
	return slices.SortedFunc(maps.Keys(b), func(x, y InstanceID) int {
		return cmp.Or(b[x].seen.Compare(b[y].seen), cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

// tooMany says whether so many of the nodes are not Ready within the budget that their image is to
// blame: two of the first three, or more than a fifth of at least five. It is a pure function.
func (b newborns) tooMany() (late, of int, bad bool) {
	first := 0
	for i, id := range b.inOrder() {
		n := b[id]
		if n.ready || n.late {
			of++
		}
		if n.late {
			late++
		}
		if n.late && i < 3 {
			first++
		}
	}
	return late, of, first >= 2 || of >= 5 && 5*late > of
}

// saw notes the instances and nodes of one look. A machine that does not run, that the cloud could
// not make, or that was deleted before it ran for long says nothing of its image; nor does any
// while nothing shows that nodes can be Ready at all.
// It returns those that are gone and count for nothing.
func (b newborns) saw(born []Instance, nodes []Node, now time.Time, budget, long time.Duration, fair func(zone string) bool) (lost []newbornNode) {
	for _, in := range born {
		n := b[in.ID]
		if n == nil {
			n = &newbornNode{seen: now}
			b[in.ID] = n
		}
		in.Hostname = cmp.Or(in.Hostname, n.Hostname) // one that is on its way out may have none any more
		n.Instance, n.gone = in, time.Time{}
		for _, node := range nodes {
			n.ready = n.ready || node.Ready && node.runsOn(in.ID) && SameVM(node.SystemUUID, in.as(node.SystemUUID).VMID)
		}
		was, runs := n.off, in.Power == PowerOn && in.Failure == ""
		n.off = !runs
		switch {
		case !fair(in.Zone), !runs && !n.lost(long): // one that ran for long may be on its way out
			n.on = time.Time{}
		case runs && (was || n.on.IsZero()):
			n.on, n.ran = now, now
		case runs:
			n.ran = now
		}
		n.late = runs && !n.ready && !n.on.IsZero() && now.Sub(n.on) > budget
	}
	maps.DeleteFunc(b, func(id InstanceID, n *newbornNode) bool {
		if n.ready || n.late || slices.ContainsFunc(born, func(in Instance) bool { return in.ID == id }) {
			return false
		}
		if n.gone.IsZero() {
			n.gone = now
		}
		if !fair(n.Zone) || !n.lost(long) {
			lost = append(lost, *n)
			return true
		}
		n.late = now.Sub(n.gone) >= goneAfter
		return false
	})
	slices.SortFunc(lost, func(x, y newbornNode) int { return cmp.Compare(x.ID, y.ID) })
	return lost
}

// othersFine says whether most of the nodes that do not come from a version are Ready, and one of
// them has told so of late: kubelets do that every five minutes at least
// (https://kubernetes.io/docs/reference/node/node-status/#heartbeats).
func othersFine(others []Node, now time.Time) bool {
	ready, heard := 0, false
	for _, n := range others {
		if n.Ready {
			ready++
			heard = heard || now.Sub(n.Heartbeat) < 6*time.Minute
		}
	}
	return heard && 2*ready > len(others)
}
