// Package providertest is the contract that every kamino.Provider passes. A
// provider's tests call Run with a way to begin a fresh world; nothing in here
// knows which provider it is.
package providertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// World is a provider with a pool to try it out on.
type World struct {
	Provider kamino.Provider
	// Donor is a running instance of a pool that nothing speaks against.
	Donor kamino.InstanceID
	// Pass lets time pass at the provider, so that what was begun can end.
	Pass func(time.Duration)

	// What clouds differ in, and the engine has to live with. Unconditional: writes carry no
	// condition, as the cloud knows none. Replaces: the factory replaces an instance that is off.
	Unconditional, Replaces bool

	// Edit changes the pool's recipe besides its image, as a person does months after a promotion,
	// and Recipe shows what it changed. Nil: the recipe is an image and nothing else.
	Edit   func()
	Recipe func() string
}

// Run tries the whole contract, each clause in a world of its own.
func Run(t *testing.T, begin func(t *testing.T) World) {
	clauses := []struct {
		name string
		try  func(*testing.T, *world)
	}{
		{"PoolOf refuses foreign IDs and is the pool's own ID", poolOf},
		{"Pool and Instance are read whole, and missing ones are ErrNotFound", reads},
		{"SetPower switches, and may be repeated", power},
		{"a donor that is off stays, unless the world says otherwise", stays},
		{"Find finds nothing without an error", findNothing},
		{"artifacts are made, repeated and deleted", artifacts},
		{"a version in use is not deleted", versionInUse},
		{"NextImage compares and writes nothing", nextImage},
		{"Promote makes a version the next image, once", promote},
		{"Promote gives a former image back", giveBack},
		{"a former image comes back, and the rest of the recipe stays", keepRecipe},
		{"a promotion on top of a rival's is refused", rival},
		{"SetCapacity is conditional", capacity},
		{"SetTags writes tags and nothing else", setTags},
		{"Withdraw and Promote move a version between withdrawn and offered", withdraw},
		{"a version that a rival changed between read and write is not offered", rivalOffer},
		{"Withdraw never leaves a pointer with nothing to resolve to", lastOne},
		{"Withdraw never moves a pool to a newer version", neverForward},
		{"a donor that nothing speaks against fits, before and after the definition is made", fits},
		{"Preflight says nothing against credentials that suffice", preflight},
		{"a cancelled context ends every call", cancelled},
	}
	for _, c := range clauses {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t)
			c.try(t, &world{World: w, t: t})
		})
	}
	proves(t, begin)
	holds(t, begin)
}

// world adds the words in which the clauses are written.
type world struct {
	World
	t *testing.T
}

func (w *world) ctx() context.Context { return w.t.Context() }

// eventually lets time pass until cond holds.
func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	for range 400 {
		if cond() {
			return
		}
		w.Pass(30 * time.Second)
	}
	w.t.Fatalf("never: %s", what)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pool() kamino.Pool {
	w.t.Helper()
	id, err := w.Provider.PoolOf(w.ctx(), w.Donor)
	w.must(err)
	p, err := w.Provider.Pool(w.ctx(), id)
	w.must(err)
	return p
}

func (w *world) instance() kamino.Instance {
	w.t.Helper()
	in, err := w.Provider.Instance(w.ctx(), w.Donor)
	w.must(err)
	return in
}

func (w *world) find(kind kamino.Kind, name string) []kamino.Artifact {
	w.t.Helper()
	found, err := w.Provider.Find(w.ctx(), w.pool(), kind, name)
	w.must(err)
	return found
}

// make creates an artifact and waits until it is ready.
func (w *world) make(a kamino.Artifact) kamino.Artifact {
	w.t.Helper()
	w.must(w.Provider.Create(w.ctx(), w.pool(), a))
	var got kamino.Artifact
	w.eventually(string(a.Kind)+" is ready", func() bool {
		found := w.find(a.Kind, a.Name)
		if len(found) != 1 {
			return false
		}
		got = found[0]
		if got.State == kamino.Failed {
			w.t.Fatalf("%s %s failed: %s", a.Kind, a.Name, got.Failure)
		}
		return got.State == kamino.Succeeded && got.Ready
	})
	return got
}

// home says whether versions live in artifacts of a kind here.
func (w *world) home(kind kamino.Kind) bool { return slices.Contains(w.Provider.Homes(), kind) }

func (w *world) off() kamino.Instance {
	w.t.Helper()
	w.hold()
	w.must(w.Provider.SetPower(w.ctx(), w.Donor, kamino.PowerOff))
	w.eventually("the instance is off", func() bool { return w.instance().Power == kamino.PowerOff })
	return w.instance()
}

var tags = map[string]string{kamino.TagBuiltFrom: "node", kamino.TagRun: "run-1", kamino.TagReceipt: "sha256:00"}

// version makes everything that a version needs, and the version.
func (w *world) version(names ...string) []kamino.Artifact {
	w.t.Helper()
	in, pool := w.off(), w.pool()
	homes := map[kamino.Kind]string{kamino.KindGallery: pool.Gallery, kamino.KindDefinition: kamino.DefinitionName(pool.Name)}
	for _, kind := range w.Provider.Homes() {
		w.make(kamino.Artifact{Kind: kind, Name: homes[kind],
			Machine: kamino.Machine{Generation: in.Generation, Architecture: "x64", SecurityType: in.SecurityType}})
	}
	snapshot := w.make(kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: in.Disk,
		Machine: kamino.Machine{Generation: in.Generation, Architecture: "x64", SecurityType: in.SecurityType}, Tags: tags})
	if !strings.EqualFold(snapshot.Source, in.Disk) { // it is compared with the disk that was sealed
		w.t.Errorf("snapshot %s says that it is of %q, not of %q", snapshot.Name, snapshot.Source, in.Disk)
	}
	var out []kamino.Artifact
	for _, name := range names {
		out = append(out, w.make(kamino.Artifact{Kind: kamino.KindVersion, Name: name, Source: snapshot.ID, Tags: tags}))
	}
	return out
}

func poolOf(t *testing.T, w *world) {
	for _, id := range []kamino.InstanceID{"", "nonsense", "elsewhere:///zone/instance"} {
		if _, err := w.Provider.PoolOf(w.ctx(), id); !errors.Is(err, kamino.ErrUnsupported) {
			t.Errorf("PoolOf(%q) = %v, want ErrUnsupported", id, err)
		}
	}
	if p, in := w.pool(), w.instance(); p.ID != in.Pool {
		t.Errorf("PoolOf says %s, the instance %s", p.ID, in.Pool)
	}
}

func reads(t *testing.T, w *world) {
	p, in := w.pool(), w.instance()
	if p.Name == "" || p.Location == "" || w.home(kamino.KindGallery) && (p.Group == "" || p.Gallery == "") || p.Capacity < 1 ||
		p.Model.Image == "" || len(p.Model.Saved) == 0 {
		t.Errorf("pool lacks something: %+v", p)
	}
	if len(p.Refusals)+len(in.Refusals) > 0 {
		t.Errorf("refused: %v %v", p.Refusals, in.Refusals)
	}
	if in.Disk == "" || w.home(kamino.KindDefinition) && (in.VMID == "" || in.Generation == "" || in.SecurityType == "") ||
		in.Power != kamino.PowerOn {
		t.Errorf("instance lacks something: %+v", in)
	}
	ids, err := w.Provider.Instances(w.ctx(), p)
	if n := slices.IndexFunc(ids, func(id kamino.InstanceID) bool { return strings.EqualFold(string(id), string(w.Donor)) }); err != nil ||
		n < 0 || len(ids) < p.Capacity {
		t.Errorf("the pool of %d instances lists %v, %v; want %s among them", p.Capacity, ids, err, w.Donor)
	}
	gone := p
	gone.ID, gone.Name = gone.ID+"-gone", gone.Name+"-gone"
	if ids, err := w.Provider.Instances(w.ctx(), gone); err == nil || errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("a list that cannot be read is %v, %v", ids, err)
	}
	if _, err := w.Provider.Pool(w.ctx(), p.ID+"-gone"); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("pool that is gone: %v, want ErrNotFound", err)
	}
	if _, err := w.Provider.Instance(w.ctx(), w.Donor+"99999"); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("instance that is gone: %v, want ErrNotFound", err)
	}
}

func power(t *testing.T, w *world) {
	before := w.off()
	w.must(w.Provider.SetPower(w.ctx(), w.Donor, kamino.PowerOff))
	w.eventually("off again", func() bool { return w.instance().Power == kamino.PowerOff })
	for range 2 {
		w.must(w.Provider.SetPower(w.ctx(), w.Donor, kamino.PowerOn))
		w.eventually("the instance runs", func() bool { return w.instance().Power == kamino.PowerOn })
	}
	if after := w.instance(); after.VMID != before.VMID || after.Disk != before.Disk {
		t.Errorf("another machine came back: %+v, was %+v", after, before)
	}
}

// stays: the engine switches a donor off for minutes. Where the factory replaces what is off, that
// is what Hold is for.
func stays(t *testing.T, w *world) {
	before := w.instance()
	w.must(w.Provider.SetPower(w.ctx(), w.Donor, kamino.PowerOff))
	w.Pass(time.Hour)
	after, err := w.Provider.Instance(w.ctx(), w.Donor)
	replaced := errors.Is(err, kamino.ErrNotFound) || err == nil && after.VMID != before.VMID
	if err != nil && !replaced || replaced != w.Replaces {
		t.Errorf("after an hour off the donor is %+v, %v; the world says that it is replaced: %t", after, err, w.Replaces)
	}
}

func findNothing(t *testing.T, w *world) {
	pool := w.pool()
	for kind, name := range map[kamino.Kind]string{
		kamino.KindGallery: pool.Gallery, kamino.KindDefinition: kamino.DefinitionName(pool.Name),
		kamino.KindSnapshot: kamino.SnapshotName(pool.Name), kamino.KindVersion: "2026.01.02",
	} {
		if kind != kamino.KindSnapshot && kind != kamino.KindVersion && !w.home(kind) {
			continue
		}
		if found := w.find(kind, name); len(found) != 0 {
			t.Errorf("%s %s: found %v", kind, name, found)
		}
	}
	if found := w.find(kamino.KindVersion, ""); len(found) != 0 {
		t.Errorf("versions: found %v", found)
	}
}

func artifacts(t *testing.T, w *world) {
	made := w.version("2026.1.2", "2026.10.1", "2026.9.30")
	if w.home(kamino.KindGallery) {
		w.must(w.Provider.Create(w.ctx(), w.pool(), kamino.Artifact{Kind: kamino.KindGallery, Name: w.pool().Gallery}))
	}
	var order []string
	for _, v := range w.find(kamino.KindVersion, "") {
		order = append(order, v.Name)
		if kamino.ParseVersion(v).Run != "run-1" || v.Created.IsZero() {
			t.Errorf("version %s lost something: %+v", v.Name, v)
		}
	}
	if len(order) != 3 || order[0] != "2026.10.1" || order[1] != "2026.9.30" || order[2] != "2026.1.2" {
		t.Errorf("versions in order %v, want newest first by number", order)
	}
	if w.home(kamino.KindGallery) && (made[0].Replica != 3 || made[0].Storage == "") {
		t.Errorf("version was not made as wanted: %+v", made[0])
	}
	for _, kind := range []kamino.Kind{kamino.KindVersion, kamino.KindSnapshot} {
		name := "2026.1.2"
		if kind == kamino.KindSnapshot {
			name = kamino.SnapshotName(w.pool().Name)
		}
		w.must(w.Provider.Delete(w.ctx(), w.pool(), kamino.Artifact{Kind: kind, Name: name}))
		w.eventually(string(kind)+" is gone", func() bool { return len(w.find(kind, name)) == 0 })
		w.must(w.Provider.Delete(w.ctx(), w.pool(), kamino.Artifact{Kind: kind, Name: name}))
	}
}

// promote makes a target the next image, and waits until that shows.
func (w *world) promote(to kamino.Target) {
	w.t.Helper()
	w.must(w.Provider.Promote(w.ctx(), w.pool(), to))
	w.eventually("the target is the next image", func() bool { return !w.pool().Updating && len(w.next(to).Diff) == 0 })
}

func (w *world) next(to kamino.Target) kamino.NextImage {
	w.t.Helper()
	next, err := w.Provider.NextImage(w.ctx(), w.pool(), to)
	w.must(err)
	return next
}

func versionInUse(t *testing.T, w *world) {
	v := w.version("2026.1.2", "2026.1.3")
	w.promote(kamino.Target{Version: v[0].Name})
	if err := w.Provider.Delete(w.ctx(), w.pool(), v[0]); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("delete of the next image: %v, want ErrInUse", err)
	}
	for _, have := range w.find(kamino.KindVersion, "") {
		if want := have.Name == v[0].Name; have.InModel != want {
			t.Errorf("version %s: the next image %t, want %t", have.Name, have.InModel, want)
		}
	}
}

func nextImage(t *testing.T, w *world) {
	v := w.version("2026.1.2")
	before := w.pool()
	to := kamino.Target{Version: v[0].Name}
	next := w.next(to)
	if len(next.Diff) == 0 || !strings.EqualFold(next.Image, v[0].ID) {
		t.Errorf("a new image is %+v", next)
	}
	if after := w.pool(); after.Revision != before.Revision || after.Model.Image != before.Model.Image {
		t.Errorf("who asks for the next image changes the pool from %+v to %+v", before, after)
	}
	if _, err := w.Provider.NextImage(w.ctx(), before, kamino.Target{}); err == nil {
		t.Error("a target that names nothing is none")
	}
}

func promote(t *testing.T, w *world) {
	v := w.version("2026.1.2")
	stale, to := w.pool(), kamino.Target{Version: v[0].Name}
	w.promote(to)
	now := w.pool()
	if now.Capacity != stale.Capacity || now.Model.Image != w.next(to).Image {
		t.Errorf("from %+v the pool became %+v", stale, now)
	}
	w.must(w.Provider.Promote(w.ctx(), now, to)) // nothing to do
	if after := w.pool(); after.Revision != now.Revision {
		t.Errorf("a promotion of what is promoted wrote revision %s after %s", after.Revision, now.Revision)
	}
}

func giveBack(t *testing.T, w *world) {
	before := w.pool()
	v := w.version("2026.1.2")
	w.promote(kamino.Target{Version: v[0].Name})
	w.promote(kamino.Target{Former: before.Model.Saved})
	now := w.pool()
	if now.Model.Image != before.Model.Image || len(now.Model.Extensions) != len(before.Model.Extensions) {
		t.Errorf("model is %+v, was %+v", now.Model, before.Model)
	}
}

// keepRecipe: a saved recipe is months old. Its image comes back, and what people have changed
// since stays.
func keepRecipe(t *testing.T, w *world) {
	if w.Edit == nil {
		t.Skip("the recipe is an image and nothing else")
	}
	before, unedited := w.pool(), w.Recipe()
	v := w.version("2026.1.2")
	w.promote(kamino.Target{Version: v[0].Name})
	w.Edit()
	was := w.Recipe()
	w.promote(kamino.Target{Former: before.Model.Saved})
	if now := w.pool().Model.Image; now != before.Model.Image {
		t.Errorf("the next image is %s, want %s", now, before.Model.Image)
	}
	if now := w.Recipe(); now != was || was == unedited {
		t.Errorf("the recipe was %s at first and %s when it was edited, and is %s", unedited, was, now)
	}
}

// rival promotes with what was read before somebody else promoted. Where the cloud knows no
// condition the clause is weaker: the last write wins, and whoever reads sees whose it was.
func rival(t *testing.T, w *world) {
	v := w.version("2026.1.2", "2026.1.3")
	stale, mine, theirs := w.pool(), kamino.Target{Version: v[1].Name}, kamino.Target{Version: v[0].Name}
	w.promote(theirs)
	err := w.Provider.Promote(w.ctx(), stale, mine)
	won := theirs
	if w.Unconditional {
		w.must(err)
		won = mine
	} else if !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("promotion with a stale revision: %v, want ErrConflict", err)
	}
	w.eventually("a read shows whose write stands", func() bool { return !w.pool().Updating && len(w.next(won).Diff) == 0 })
}

func capacity(t *testing.T, w *world) {
	before := w.pool()
	err := w.Provider.SetCapacity(w.ctx(), before, before.Capacity+1)
	if errors.Is(err, kamino.ErrUnsupported) {
		return
	}
	w.must(err)
	w.eventually("the capacity is there", func() bool { p := w.pool(); return !p.Updating && p.Capacity == before.Capacity+1 })
	if err := w.Provider.SetCapacity(w.ctx(), before, before.Capacity+2); !errors.Is(err, kamino.ErrConflict) && !w.Unconditional {
		t.Errorf("scale-out with a stale revision: %v, want ErrConflict", err)
	}
}

func setTags(t *testing.T, w *world) {
	v := w.version("2026.1.2")[0]
	homes := map[kamino.Kind]string{kamino.KindVersion: v.Name}
	if w.home(kamino.KindDefinition) {
		homes[kamino.KindDefinition] = kamino.DefinitionName(w.pool().Name)
	}
	for kind, name := range homes {
		before := w.find(kind, name)[0]
		tagged := before
		tagged.Tags = maps.Clone(before.Tags)
		if tagged.Tags == nil {
			tagged.Tags = map[string]string{}
		}
		tagged.Tags[kamino.TagOffer], tagged.Excluded = "proving", !before.Excluded
		w.must(w.Provider.SetTags(w.ctx(), w.pool(), tagged))
		w.eventually("the tags are there", func() bool {
			got := w.find(kind, name)
			return len(got) == 1 && got[0].Ready && maps.Equal(got[0].Tags, tagged.Tags)
		})
		if now := w.find(kind, name)[0]; now.Excluded != before.Excluded || now.Storage != before.Storage || now.Machine != before.Machine {
			t.Errorf("tags have changed the %s from %+v to %+v", kind, before, now)
		}
	}
	setTagsOfWithdrawn(t, w, v)
}

// setTagsOfWithdrawn: tags that were decided upon before a version was withdrawn do not undo that;
// nor does a write take off what others have tagged.
func setTagsOfWithdrawn(t *testing.T, w *world, seen kamino.Artifact) {
	seen = w.find(kamino.KindVersion, seen.Name)[0]
	others := seen
	others.Tags = maps.Clone(seen.Tags)
	others.Tags[kamino.TagProof] = "passed"
	w.must(w.Provider.SetTags(w.ctx(), w.pool(), others))
	w.eventually("the tag is there", func() bool {
		got := w.find(kamino.KindVersion, seen.Name)
		return len(got) == 1 && got[0].Ready && got[0].Tags[kamino.TagProof] == "passed"
	})
	w.must(w.Provider.SetTags(w.ctx(), w.pool(), seen)) // knows nothing of it
	w.eventually("the write has ended", func() bool {
		got := w.find(kamino.KindVersion, seen.Name)
		return len(got) == 1 && got[0].Ready
	})
	if got := w.find(kamino.KindVersion, seen.Name)[0]; got.Tags[kamino.TagProof] != "passed" {
		t.Errorf("a tag that the artifact does not name was removed: %v", got.Tags)
	}
	w.must(w.Provider.Withdraw(w.ctx(), w.pool(), seen.Name, kamino.Bad{Reason: "by a person"}))
	bad := w.offered(seen.Name, false)
	if err := w.Provider.SetTags(w.ctx(), w.pool(), seen); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("the tags of a version that was withdrawn meanwhile: %v, want ErrConflict", err)
	}
	if got := kamino.ParseVersion(w.find(kamino.KindVersion, seen.Name)[0]); got.Bad != bad.Bad || !got.Withheld() {
		t.Errorf("the withdrawal is lost: %v", got.Tags)
	}
}

// offered waits until a version is offered, or not.
func (w *world) offered(name string, want bool) kamino.Version {
	w.t.Helper()
	var v kamino.Version
	w.eventually("the version is offered, or not", func() bool {
		got := w.find(kamino.KindVersion, name)
		if len(got) == 1 {
			v = kamino.ParseVersion(got[0])
		}
		return len(got) == 1 && v.Ready && v.Withheld() != want
	})
	return v
}

func withdraw(t *testing.T, w *world) {
	made := w.version("2026.1.1", "2026.1.2")
	v, to := made[1], kamino.Target{Version: made[1].Name}
	w.promote(kamino.Target{Version: made[0].Name})
	for _, reason := range []string{"never Ready", "rolled back"} { // repeated, the last reason counts
		w.must(w.Provider.Withdraw(w.ctx(), w.pool(), v.Name, kamino.Bad{Reason: reason}))
		gone := w.offered(v.Name, false)
		w.eventually("the reason is there", func() bool {
			gone = kamino.ParseVersion(w.find(kamino.KindVersion, v.Name)[0])
			return gone.Bad == reason
		})
		if !gone.Excluded || gone.Offer != "withdrawn" || gone.Run != "run-1" {
			t.Errorf("withdrawn, the version is %+v", gone)
		}
	}
	if err := w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.9", kamino.Bad{Reason: "never made"}); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("withdraw a version that does not exist: %v, want ErrNotFound", err)
	}
	seen := kamino.ParseVersion(w.find(kamino.KindVersion, v.Name)[0])
	to.Seen = &seen
	w.promote(to)
	w.must(w.Provider.Promote(w.ctx(), w.pool(), to))
	now := w.offered(v.Name, true)
	if now.Offer != "offered" || now.Bad != "" || now.Storage != v.Storage || now.Replica != v.Replica {
		t.Errorf("promoted again, the version is %+v, was %+v", now, v)
	}
}

// rivalOffer: versions have no revision everywhere, so the clause is the weaker one. Promote reads
// and compares; what a rival writes after that read is overwritten.
func rivalOffer(t *testing.T, w *world) {
	w.version("2026.1.1", "2026.1.2")
	w.promote(kamino.Target{Version: "2026.1.2"})
	w.must(w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.2", kamino.Bad{Reason: "mine"}))
	seen := w.offered("2026.1.2", false)
	w.must(w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.2", kamino.Bad{Reason: "a rival's"}))
	w.eventually("the rival's reason is there", func() bool {
		return w.find(kamino.KindVersion,
			"2026.1.2")[0].Tags[kamino.TagBad] == "a rival's"
	})
	if err := w.Provider.Promote(w.ctx(), w.pool(), kamino.Target{Version: "2026.1.2", Seen: &seen}); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("promotion of a version that was changed meanwhile: %v, want ErrConflict", err)
	}
	if now := w.find(kamino.KindVersion, "2026.1.2")[0]; now.Tags[kamino.TagBad] != "a rival's" || !now.Excluded {
		t.Errorf("the rival's write is gone: %+v", now)
	}
}

// lastOne: where pools can refer to the definition, it always stands for something.
func lastOne(t *testing.T, w *world) {
	if !w.home(kamino.KindDefinition) {
		return // no pool points
	}
	w.version("2026.1.1", "2026.1.2")
	w.promote(kamino.Target{Version: "2026.1.1", Reference: kamino.ByDefinition})
	w.must(w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.2", kamino.Bad{Reason: "one is left"}))
	w.offered("2026.1.2", false)
	if err := w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.1", kamino.Bad{Reason: "none is left"}); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("withdraw the only version that the definition stands for: %v, want ErrInUse", err)
	}
	w.offered("2026.1.1", true)
	w.promote(kamino.Target{Version: "2026.1.1"})
	w.must(w.Provider.Withdraw(w.ctx(), w.pool(), "2026.1.1", kamino.Bad{Reason: "no pool points"}))
}

// neverForward: what a pool comes to by a withdrawal is a version that it had before, or none.
func neverForward(t *testing.T, w *world) {
	v := w.version("2026.1.1", "2026.1.2")
	to := kamino.Target{Version: v[0].Name, Reference: kamino.ByDefinition}
	w.eventually("the oldest is promoted", func() bool {
		err := w.Provider.Promote(w.ctx(), w.pool(), to)
		if err != nil && !errors.Is(err, kamino.ErrInProgress) && !errors.Is(err, kamino.ErrUnavailable) {
			w.must(err)
		}
		return err == nil && len(w.next(to).Diff) == 0
	})
	before := w.pool().Model.Image
	err := w.Provider.Withdraw(w.ctx(), w.pool(), v[0].Name, kamino.Bad{Reason: "a test"})
	if err != nil && !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("withdraw the oldest: %v", err)
	}
	for range 10 {
		if now := w.pool().Model.Image; !strings.EqualFold(now, before) {
			t.Fatalf("a withdrawal moved the pool from %s to %s", before, now)
		}
		w.Pass(time.Minute)
	}
}

func fits(t *testing.T, w *world) {
	w.version("2026.1.2")
	pool, in := w.pool(), w.instance()
	definitions := []*kamino.Artifact{nil}
	if w.home(kamino.KindDefinition) {
		definitions = append(definitions, &w.find(kamino.KindDefinition, kamino.DefinitionName(pool.Name))[0])
	}
	for _, d := range definitions {
		if refusals, _, err := w.Provider.Fit(w.ctx(), pool, in, d); err != nil || len(refusals) > 0 {
			t.Errorf("refused for %v, %v", refusals, err)
		}
	}
	if after := w.pool(); after.Revision != pool.Revision {
		t.Errorf("Fit has changed the pool from revision %s to %s", pool.Revision, after.Revision)
	}
}

func preflight(t *testing.T, w *world) {
	for range 2 {
		_, err := w.Provider.Preflight(w.ctx())
		w.must(err)
	}
}

func cancelled(t *testing.T, w *world) {
	pool := w.pool()
	ctx, cancel := context.WithCancel(w.ctx())
	cancel()
	if _, err := w.Provider.Pool(ctx, pool.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Pool: %v, want context.Canceled", err)
	}
	if err := w.Provider.SetPower(ctx, w.Donor, kamino.PowerOff); !errors.Is(err, context.Canceled) {
		t.Errorf("SetPower: %v, want context.Canceled", err)
	}
	if w.instance().Power != kamino.PowerOn {
		t.Error("a cancelled call took effect")
	}
}
