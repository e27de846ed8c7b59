package poolstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/selection"
)

// Decide judges one pool: whether it needs a new image, why, and from which donor. It is a pure
// function.
func (o State) Decide(opts kamino.AutoOptions, now time.Time) PoolPlan {
	p := PoolPlan{
		Pool: o.ID, Name: o.ID.Name(), Action: DoNothing, Model: o.Pool.Model.Image,
		Why: []kamino.Verdict{}, Held: []kamino.Verdict{}, Candidates: []kamino.Candidate{},
	}
	if o.Err != nil {
		p.Hold(kamino.CodeError, "%v", o.Err)
		return p
	}
	p.Name, p.Models = o.Pool.Name, o.models()
	good := o.promotable(opts)
	if good != nil {
		p.Image = good.Name
	}
	rules := opts.Rules
	rules.Image, rules.Bad = kamino.NewestImage(o.Versions), kamino.BadVersions(o.Versions, o.Lease.Ledger)
	p.Candidates = selection.Select(o.Nodes, rules, now)
	if opts.Patch != nil {
		for _, c := range Ranked(selection.SelectPatch(o.Nodes, *opts.Patch, now)) {
			p.Patches = append(p.Patches, c.Node)
		}
	}
	switch {
	case o.Lease.Holder != "":
		o.decideUnfinished(&p)
	case len(o.Taken()) > 0:
		n := o.Taken()[0]
		mark, _ := n.Claimed(o.ID) // Taken has checked it
		p.Action = DoFinish
		p.because(kamino.CodeUnfinished, "run %s is unfinished: node %s is still marked", mark.Run, n.Name)
	case o.decideBuilding(&p, now), o.decideProof(&p, opts), o.decideFuture(&p, now):
	default:
		o.decideNeed(&p, opts, rules, now)
		o.decideModel(&p, good, opts)
	}
	o.decideNothing(&p, rules.Image, opts.Proof)
	if pin := o.Pin(); pin != nil && p.Action == DoFinish {
		p.Donor = "" // what the run took is restored, the model is not changed
	} else if pin != nil {
		p.Hold(kamino.CodePinned, "%s: kamino update --target-node NODE --adopt-model, or kamino rollback --pool %s --to VERSION",
			pin, o.Pool.Name)
	}
	refusals := opts.Unlifted(o.Pool.Refusals)
	switch {
	case len(refusals) == 0 || p.Action == DoNothing:
	case p.Action == DoFinish:
		p.Donor = "" // what the run took is restored, whatever the pool has become
	default:
		for _, r := range refusals {
			p.Hold(kamino.CodeRefused, "%s", r)
		}
	}
	return p
}

// decideNothing explains why nothing is needed, and what is left to a person.
func (o State) decideNothing(p *PoolPlan, image *kamino.Version, proof kamino.Proving) {
	if len(p.Why) > 0 {
		return
	}
	if v := kamino.NewestGood(o.Versions); v != nil && v.Unaccepted && o.Pool.Owner != nil {
		p.because(kamino.CodeModel, "version %s is hidden", v.Name)
		p.Hold(kamino.CodeImageOnly, "its instances would run the bootstrap of the model, which %s writes; %s offers it", o.Pool.Owner.Name,
			HowToPromote(o.Pool.Name, v.Name))
		return
	} else if v != nil && v.Hidden() && !v.MayPromote(proof) {
		p.because(kamino.CodeUnproved, "version %s is hidden and not proved", v.Name)
		p.Hold(kamino.CodePromote, "with --prove canary it is proved; %s accepts it unproved", HowToPromote(o.Pool.Name, v.Name))
		return
	}
	word := ""
	if image.Bad != "" {
		word = ", which was withdrawn"
	}
	p.because("nothing", "no node was patched after image %s%s", image.Name, word)
}

func (o State) decideUnfinished(p *PoolPlan) {
	rec := o.Lease.Record
	p.Action = DoFinish
	if rec.Work == kamino.WorkPatch {
		p.because(kamino.CodeUnfinished, "patch run %s (process %s) has had node %s since %s, at step %s; %s",
			o.Lease.Holder, o.Lease.Process,
			cmp.Or(rec.Donor, "none"), rec.Started.UTC().Format(time.RFC3339), cmp.Or(rec.Step, kamino.StepLock), kamino.GoesOn(rec.Donor))
	} else {
		p.because(kamino.CodeUnfinished, "run %s (process %s, donor %s) holds the pool at step %s", o.Lease.Holder, o.Lease.Process,
			cmp.Or(rec.Donor, "none"), cmp.Or(rec.Step, kamino.StepLock))
	}
	if !rec.GivingBack && rec.Work == "" { // no image is made of a node that was being patched
		for _, n := range o.Nodes {
			if n.Name == rec.Donor {
				p.Donor = rec.Donor
			}
		}
	}
}

// decideBuilding finds a version whose build an interrupted run began. The run that waits for it
// takes no donor.
func (o State) decideBuilding(p *PoolPlan, now time.Time) bool {
	for _, v := range o.Versions {
		if !v.OfDay(now) || v.State != kamino.Creating || !v.Ours() || v.Bad != "" {
			continue
		}
		p.because(kamino.CodeUnfinished, "version %s is being built (%d%%)", v.Name, v.Percent)
		if v.Receipt == "" {
			p.Hold(kamino.CodeNoReceipt, "version %s has no seal receipt: it was not built by kamino", v.Name)
			return true
		}
		for _, n := range o.Nodes {
			if n.Name == v.Donor && n.Blocked() == nil {
				p.Action, p.Donor = DoUpdate, n.Name
			}
		}
		if best := Ranked(p.Candidates); p.Donor == "" && len(best) > 0 {
			p.Action, p.Donor = DoUpdate, best[0].Node
		}
		return true
	}
	return false
}

// decideFuture finds a version of a later day, made by a run with a wrong clock. Until that day no
// node counts as patched after it, and no run may build a version.
func (o State) decideFuture(p *PoolPlan, now time.Time) bool {
	v := kamino.First(o.Versions, func(v kamino.Version) bool { return v.AfterDay(now) })
	if v == nil {
		return false
	}
	p.because(kamino.CodeFuture, "version %s was made by a run whose clock was ahead: this clock says %s", v.Name,
		now.UTC().Format(time.RFC3339))
	p.Hold(kamino.CodeFuture, "set the clock of this machine; if it is right, go back with kamino rollback --pool %s, then delete version %s", o.Pool.Name, v.Name)
	return true
}

// decideProof finds a version that waits for its proof, or for a person's promotion.
func (o State) decideProof(p *PoolPlan, opts kamino.AutoOptions) bool {
	v := kamino.NewestGood(o.Versions)
	switch {
	case v == nil || !v.Hidden() || v.MayPromote(opts.Proof):
		return false
	case v.Phase == kamino.PhaseWaiting:
		p.because(kamino.CodeWaiting, "version %s passed its proof", v.Name)
		p.Hold(kamino.CodePromote, "version %s waits to be promoted: %s", v.Name, HowToPromote(o.Pool.Name, v.Name))
		return true
	case opts.Proof.Mode == kamino.ProveNone && opts.Proof.Promote == kamino.PromoteManual,
		opts.Proof.Mode != kamino.ProveCanary && v.Gated:
		p.because(kamino.CodeWaiting, "version %s is hidden, and no proof is required before its promotion", v.Name)
		p.Hold(kamino.CodePromote, "version %s waits to be promoted: %s", v.Name, HowToPromote(o.Pool.Name, v.Name))
		return true
	case opts.Proof.Mode == kamino.ProveNone, opts.Today == kamino.TodayAgain, v.Receipt == "":
		return false // another version may be made
	}
	p.because(kamino.CodeUnproved, "version %s is hidden and not proved", v.Name)
	if !o.decideStandIn(p, v) {
		p.Hold(kamino.CodeTooFew, "its donor %s is not Ready", v.Donor)
	}
	return true
}

// decideStandIn plans an update of a version that exists: a node is named for the run, but none is
// taken.
func (o State) decideStandIn(p *PoolPlan, v *kamino.Version) bool {
	names := []string{v.Donor}
	for _, c := range Ranked(p.Candidates) {
		names = append(names, c.Node)
	}
	for _, name := range names {
		if slices.ContainsFunc(o.Nodes, func(n kamino.Node) bool { return n.Name == name && n.Ready }) {
			p.Action, p.Donor = DoUpdate, name
			return true
		}
	}
	return false
}

// decideNeed finds out whether a new image is needed, and whether enough nodes could be its donor.
func (o State) decideNeed(p *PoolPlan, opts kamino.AutoOptions, rules kamino.Rules, now time.Time) {
	image := rules.Image
	if image == nil {
		p.because(kamino.CodeNoImage, "the pool has no image version yet")
	} else {
		o.decidePatches(p, rules, now)
		if built, ok := image.Built(); ok && opts.MaxImageAge > 0 && now.Sub(built.Time) > opts.MaxImageAge {
			p.because(kamino.CodeAge, "image %s is %.1f days old, more than %.1f", image.Name, days(now.Sub(built.Time)),
				days(opts.MaxImageAge))
			if len(Ranked(p.Candidates)) < opts.MinCandidates {
				rules.AnyPatch = true
				p.Candidates = selection.Select(o.Nodes, rules, now)
			}
		}
	}
	if len(p.Why) == 0 {
		return
	}
	best := Ranked(p.Candidates)
	if len(best) < opts.MinCandidates {
		p.Hold(kamino.CodeTooFew, "%d candidates found, at least %d required", len(best), opts.MinCandidates)
		return
	}
	p.Action, p.Donor = DoUpdate, best[0].Node
	if v := kamino.NewestOfDay(o.Versions, now); v != nil && (v.Whole() || v.Bad != "") && opts.Today != kamino.TodayAgain {
		state := "exists already"
		if v.Bad != "" {
			state = "was " + v.Bad
		}
		p.Hold(kamino.CodeToday, "version %s %s, and only one is made per day: the next is made tomorrow; %s", v.Name, state, HintAgain)
	}
}

func (o State) decidePatches(p *PoolPlan, rules kamino.Rules, now time.Time) {
	newest, known := newestPatch(o.Nodes, rules.LastPatch, now)
	built, ok := rules.Image.Built()
	if !known || !ok || !newest.Later(built) {
		return
	}
	word := "image " + rules.Image.Name
	if !rules.Image.Good() {
		word += ", which was withdrawn,"
	}
	p.because(kamino.CodePatches, "nodes were patched at %s, after %s of %s", newest, word, built)
}

// decideModel compares the model with the newest good version. If somebody changed the model's
// image after the first promotion, the model is left alone.
func (o State) decideModel(p *PoolPlan, good *kamino.Version, opts kamino.AutoOptions) {
	pointing, follows := kamino.Points(o.Pool.Model.Image, o.Versions), o.Follows()
	stands := kamino.Resolved(o.Versions)
	switch {
	case opts.ImageOnly:
		p.decideOffer(good)
		return
	case good == nil,
		follows == pointing && !pointing && kamino.SameImage(good, o.Pool.Model.Image),
		follows == pointing && pointing && stands != nil && stands.Name == good.Name:
		return
	case follows != pointing:
		p.because("pointer", "%s", o.Strayed())
	case pointing && stands != nil:
		p.because(kamino.CodeModel, "the image definition stands for %s, not for %s", stands.Name, good.Name)
	default:
		p.because(kamino.CodeModel, "the model refers to %s, not to %s", kamino.LastSegments(o.Pool.Model.Image, 3), good.Name)
	}
	own := pointing || o.names(good)
	if !own && o.forgot(good) {
		p.Hold(kamino.CodeForeignModel, "the lease of this pool records no run that made %s: it was deleted, or the cluster was recreated; kamino update --target-node NODE makes another image, kamino rollback --pool %s --to %s uses this one",
			good.Name, o.Pool.Name, good.Name)
		return
	}
	if p.Action == DoUpdate {
		return
	}
	if l := o.Lease.Ledger; !own && !l.Unwritten(o.Pool) && (l.Original != nil || good.Run == "") {
		why := "the image was set by someone else"
		if l.Undone(o.Pool.Model.Image) {
			why = "the image may have been set back after an interrupted write"
		}
		p.Hold(kamino.CodeForeignModel, "%s; kamino rollback --pool %s --to %s replaces it", why, o.Pool.Name, good.Name)
		return
	}
	if good.Receipt == "" {
		p.Hold(kamino.CodeNoReceipt, "version %s has no seal receipt; kamino rollback --pool %s --to %s uses it anyway", good.Name,
			o.Pool.Name, good.Name)
		return
	}
	// An image exists, so nothing has to be built.
	p.Action, p.Donor, p.Held = DoModel, "", []kamino.Verdict{}
}

// names reports whether the model names a version of the pool. Where versions have no definition,
// as on AWS, the model may have been set back by anybody; such a version does not count (see
// Undone).
func (o State) names(good *kamino.Version) bool {
	image := o.Pool.Model.Image
	return strings.HasPrefix(strings.ToLower(image), strings.ToLower(kamino.DefinitionOf(good.ID))+"/") ||
		!o.Lease.Ledger.Undone(image) && slices.ContainsFunc(o.Versions, func(v kamino.Version) bool { return kamino.SameImage(&v, image) })
}

// forgot reports whether a run made a version that the pool's lease does not know. Then a person
// has to decide about the model: the disk may join another cluster of the same names.
func (o State) forgot(v *kamino.Version) bool {
	l := o.Lease.Ledger
	return l.Original == nil && l.Wrote == nil && v.Run != "" &&
		!slices.ContainsFunc(l.Past, func(p kamino.PastRun) bool { return p.Version == v.Name || p.Pointed == v.Name })
}

// decideOffer is decideModel for a model that Kamino does not write: a version can only be offered,
// by a person who names it.
func (p *PoolPlan) decideOffer(good *kamino.Version) {
	if good == nil || !good.Hidden() || p.Action == DoUpdate {
		return
	}
	p.because(kamino.CodeModel, "version %s is hidden", good.Name)
	p.Hold(kamino.CodeImageOnly, "its instances would run the model's own bootstrap; %s offers it", HowToPromote(p.Name, good.Name))
}

// NewNodes are the observed instances of a pool that boot from a version.
type NewNodes map[kamino.InstanceID]*NewNode

// NewNode is an observed instance of NewNodes, from the time when it was first listed.
type NewNode struct {
	kamino.Instance           // as it was last read
	Seen            time.Time // when it was first listed
	on              time.Time // since when it runs while others do well; zero: it does not
	ran             time.Time // the last look in which it ran and others did well
	Off             bool      // it did not run in the last look
	gone            time.Time // since when its pool does not list it; zero: it is listed
	Ready           bool
	Late            bool
}

// lost reports whether an instance that is gone counts as late: it was no spot instance, and it ran
// for long enough (half the budget, and one and a half times the pool's usual boot).
//
// Not every instance that is gone counts: a scale-in of nodes that boot, or a wave of spot evictions,
// would withdraw a good image permanently. But an Auto Scaling group replaces an instance whose status
// checks fail (https://docs.aws.amazon.com/autoscaling/ec2/userguide/health-checks-overview.html;
// after how many minutes is unverified), as do instance repair on Azure and people, so each clone of
// a bad image may be gone before its budget ends. A node of a good image is Ready long before half
// the budget. The reason is not asked of the cloud: DescribeScalingActivities gives English
// sentences and needs one more right, and Azure's activity log has no entry for each instance.
// Clones that are replaced within the first half of the budget, and pools of spot instances, cannot
// be judged; the watch warns of them.
func (n NewNode) lost(long time.Duration) bool {
	return !kamino.Spot(n.Refusals) && !n.on.IsZero() && n.ran.Sub(n.on) >= long
}

// InOrder returns the instances by when they were first seen, then by number.
func (b NewNodes) InOrder() []kamino.InstanceID {
	return slices.SortedFunc(maps.Keys(b), func(x, y kamino.InstanceID) int {
		return cmp.Or(b[x].Seen.Compare(b[y].Seen), cmp.Compare(len(x), len(y)), cmp.Compare(x, y))
	})
}

// TooMany reports whether so many nodes were not Ready within the budget that their image is to
// blame: two of the first three, or more than a fifth of at least five. It is a pure function.
func (b NewNodes) TooMany() (late, of int, bad bool) {
	first := 0
	for i, id := range b.InOrder() {
		n := b[id]
		if n.Ready || n.Late {
			of++
		}
		if n.Late {
			late++
		}
		if n.Late && i < 3 {
			first++
		}
	}
	return late, of, first >= 2 || of >= 5 && 5*late > of
}

// Saw records the instances and nodes of one look. An instance does not count if it does not run,
// if the cloud could not create it, if it was deleted before it ran for long, or while nothing
// shows that nodes can be Ready at all. It returns the instances that are gone and do not count.
func (b NewNodes) Saw(born []kamino.Instance, nodes []kamino.Node, now time.Time, budget, long time.Duration,
	fair func(zone string) bool) (lost []NewNode) {
	for _, in := range born {
		n := b[in.ID]
		if n == nil {
			n = &NewNode{Seen: now}
			b[in.ID] = n
		}
		in.Hostname = cmp.Or(in.Hostname, n.Hostname) // an instance that is being removed may have no name any more
		n.Instance, n.gone = in, time.Time{}
		for _, node := range nodes {
			n.Ready = n.Ready || node.Ready && node.RunsOn(in.ID) && kamino.SameVM(node.SystemUUID, in.WithVM(node.SystemUUID).VMID)
		}
		was, runs := n.Off, in.Power == kamino.PowerOn && in.Failure == ""
		n.Off = !runs
		switch {
		case !fair(in.Zone), !runs && !n.lost(long): // an instance that ran for long may be on its way out
			n.on = time.Time{}
		case runs && (was || n.on.IsZero()):
			n.on, n.ran = now, now
		case runs:
			n.ran = now
		}
		n.Late = runs && !n.Ready && !n.on.IsZero() && now.Sub(n.on) > budget
	}
	maps.DeleteFunc(b, func(id kamino.InstanceID, n *NewNode) bool {
		if n.Ready || n.Late || slices.ContainsFunc(born, func(in kamino.Instance) bool { return in.ID == id }) {
			return false
		}
		if n.gone.IsZero() {
			n.gone = now
		}
		if !fair(n.Zone) || !n.lost(long) {
			lost = append(lost, *n)
			return true
		}
		n.Late = now.Sub(n.gone) >= kamino.GoneAfter
		return false
	})
	slices.SortFunc(lost, func(x, y NewNode) int { return cmp.Compare(x.ID, y.ID) })
	return lost
}

// OthersFine reports whether most of the nodes of other versions are Ready, and one of them has
// reported it recently. Kubelets report at least every five minutes
// (https://kubernetes.io/docs/reference/node/node-status/#heartbeats).
func OthersFine(others []kamino.Node, now time.Time) bool {
	ready, heard := 0, false
	for _, n := range others {
		if n.Ready {
			ready++
			heard = heard || now.Sub(n.Heartbeat) < 6*time.Minute
		}
	}
	return heard && 2*ready > len(others)
}

// proves reports whether a canary of the version exists, or a live run is about to create or remove
// one.
func (o State) proves(v kamino.Version, now time.Time) bool {
	u := o.Lease.Unfinished(now)
	return u != nil && u.Alive && u.Version == v.Name ||
		slices.ContainsFunc(o.Canaries, func(c kamino.Canary) bool { return strings.EqualFold(c.Version, v.ID) })
}

// Provable returns why a version cannot be proved before new nodes boot from it.
func (o State) Provable(v kamino.Version) error {
	now := o.Next()
	switch {
	case v.Bad != "":
		return kamino.WithHint(fmt.Errorf("version %s of pool %s is withdrawn: %s", v.Name, o.Pool.Name, v.Bad),
			"to use it anyway: kamino rollback --pool %s --to %s", o.Pool.Name, v.Name)
	case now != nil && now.Name == v.Name:
		return kamino.WithHint(fmt.Errorf("new nodes of pool %s already boot from version %s: it can no longer be proved first",
			o.Pool.Name, v.Name),
			"go back to another one, or exclude this one from latest, and then prove it; kamino status lists the versions")
	case now != nil && kamino.CompareVersions(now.Name, v.Name) > 0:
		return kamino.WithHint(fmt.Errorf("version %s of pool %s is older than %s, which new nodes boot from", v.Name,
			o.Pool.Name, now.Name),
			"kamino rollback --pool %s --to %s goes back to it", o.Pool.Name, v.Name)
	}
	return nil
}

// Date adds the patch time to candidates. It does not influence which node is patched next.
func (o State) Date(list []kamino.Candidate) {
	for i := range list {
		at := slices.IndexFunc(o.Nodes, func(n kamino.Node) bool { return n.Name == list[i].Node })
		if at < 0 {
			continue
		}
		if patched, found, _ := selection.LastPatch(o.Nodes[at], kamino.AutoDefaults().Rules.LastPatch); found {
			list[i].Patched = patched.String()
		}
	}
}
