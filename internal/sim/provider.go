package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

type simPool struct {
	id       kamino.PoolID
	uid      string // "": its cloud has none
	capacity int
	image    string
	custom   string
	exts     []string

	protected map[string]string // of extensions

	revision int
	model    int       // the number of its present model
	busy     time.Time // applying a change until then
	refusals []kamino.Refusal
	owner    *kamino.Owner
	noZRS    int // 0 no trouble, 1 refused at once, 2 fails slowly
	joins    int
	most     int // the maximum of its capacity; 0: none
	// suspended: Kamino keeps it from evening out what is missing.
	suspended bool
	sticky    string // image of new machines until the model is written, where latest is not resolved anew

	byPerson  string // image that a person chose
	personRun string // while that run held the lease
}

type simArtifact struct {
	kamino.Artifact
	pool   kamino.PoolID
	hidden time.Time // 404 until then, just after create
	settle time.Time // a write of its flag has come to its end then, and counts
	shown  bool      // excluded, until then
	sick   sickness  // what is wrong with its clones
	proved bool      // a canary was asked for
}

const (
	groupID  = "/subscriptions/s/resourceGroups/rg"
	poolA    = kamino.PoolID(groupID + "/scaleSets/a")
	baseLTS  = "canonical:ubuntu:22_04-lts:latest"
	galleryA = "SIG_rg"
)

// addPool makes a pool whose model refers to the original image.
func (w *world) addPool(id kamino.PoolID, nodes int) *simPool {
	p := &simPool{id: id, capacity: nodes, image: baseLTS, custom: "bootstrap", exts: []string{"cse", "monitor"}, revision: w.next()}
	w.pools[id] = p
	for i := range nodes {
		w.addMachine(id, fmt.Sprintf("%s-%d", id.Name(), i), baseLTS)
	}
	return p
}

func artifactKey(pool kamino.PoolID, kind kamino.Kind, name string) string {
	return fmt.Sprintf("%s|%s|%s", pool.Name(), kind, name)
}

func artifactID(pool kamino.PoolID, kind kamino.Kind, name string) string {
	switch kind {
	case kamino.KindGallery:
		return groupID + "/galleries/" + name
	case kamino.KindDefinition:
		return groupID + "/galleries/" + galleryA + "/images/" + name
	case kamino.KindVersion:
		return groupID + "/galleries/" + galleryA + "/images/" + kamino.DefinitionName(pool.Name()) + "/versions/" + name
	}
	return groupID + "/snapshots/" + name
}

// addVersion puts an old version of ours into the gallery.
func (w *world) addVersion(pool kamino.PoolID, name string) *simArtifact {
	for _, a := range []kamino.Artifact{
		{Kind: kamino.KindGallery, Name: galleryA},
		{Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name()),
			Machine: kamino.Machine{Generation: "V2", Architecture: "x64", SecurityType: "Standard"}},
		{Kind: kamino.KindVersion, Name: name, Ready: true, Storage: kamino.StorageZRS,
			Tags: map[string]string{kamino.TagBuiltFrom: "old", kamino.TagReceipt: "sha256:old"}},
	} {
		a.ID, a.State, a.Percent, a.Created = artifactID(pool, a.Kind, a.Name), kamino.Succeeded, 100, w.now.AddDate(0, 0, -30)
		if key := artifactKey(pool, a.Kind, a.Name); w.artifacts[key] == nil {
			w.artifacts[key] = &simArtifact{Artifact: a, pool: pool}
		}
	}
	return w.artifacts[artifactKey(pool, kamino.KindVersion, name)]
}

// lastSegment is the name at the end of an ID with slashes.
func lastSegment(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// versions lists the versions of a pool, newest first, with their users.
func (w *world) versions(pool kamino.PoolID) []kamino.Artifact {
	var out []kamino.Artifact
	next, users := w.bootsFrom(w.pools[pool]), w.users()
	for _, a := range w.artifacts {
		if a.pool != pool || a.Kind != kamino.KindVersion || w.now.Before(a.hidden) {
			continue
		}
		out = append(out, a.shows(next, users))
	}
	slices.SortFunc(out, func(a, b kamino.Artifact) int { return kamino.CompareVersions(b.Name, a.Name) })
	return out
}

// users tells when machines booted from each image.
func (w *world) users() map[string][]time.Time {
	out := map[string][]time.Time{}
	for _, m := range w.machines {
		out[m.Image] = append(out[m.Image], m.born)
	}
	return out
}

// shows is an artifact as it is read, with who uses it.
func (a *simArtifact) shows(next string, users map[string][]time.Time) kamino.Artifact {
	v := a.Artifact
	v.Tags = maps.Clone(a.Tags)
	v.InModel, v.Births, v.Instances = strings.EqualFold(next, v.ID), users[v.ID], len(users[v.ID])
	return v
}

// simProvider is the provider as one process sees it.
type simProvider struct{ p *proc }

func (p *proc) provider() kamino.Provider {
	if p.w.replaces {
		return factoryProvider{simProvider{p}}
	}
	return simProvider{p}
}

func (s simProvider) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	pool, _, ok := strings.Cut(strings.TrimPrefix(string(id), "azure://"), "/virtualMachines/")
	if !ok {
		return "", fmt.Errorf("instance %q: %w", id, kamino.ErrUnsupported)
	}
	return kamino.PoolID(pool), nil
}

func (s simProvider) Pool(ctx context.Context, id kamino.PoolID) (out kamino.Pool, err error) {
	w := s.p.w
	err = s.p.call(ctx, call{method: "Pool", subject: id.Name()}, func(f *fault) error {
		p := w.pools[id]
		if p == nil || f.is(worlds.Absent) {
			return fmt.Errorf("pool %s: %w", id, kamino.ErrNotFound)
		}
		out = kamino.Pool{ID: id, UID: p.uid, Name: id.Name(), Group: "rg", Location: "west", Gallery: galleryA, Capacity: p.capacity,
			Model: kamino.Model{Image: p.image}, Revision: p.revisionText(), Stamp: p.revisionText(), Updating: w.now.Before(p.busy),
			Refusals: p.refusals, Owner: p.owner}
		if p.owner != nil && lastSegment(p.image) != kamino.DefinitionName(p.id.Name()) {
			out.Refusals = append(slices.Clone(out.Refusals), kamino.Refusal{Code: kamino.CodeOwned, Why: "its owner writes the model",
				Do: "--image-only", Allow: kamino.AllowImageOnly})
		}
		for _, e := range p.exts {
			out.Model.Extensions = append(out.Model.Extensions, kamino.Extension{Name: e})
		}
		out.Model.Saved, _ = json.Marshal(p.document())
		return nil
	})
	return out, err
}

func (s simProvider) Instance(ctx context.Context, id kamino.InstanceID) (out kamino.Instance, err error) {
	err = s.p.call(ctx, call{method: "Instance", subject: lastSegment(string(id))}, func(f *fault) error {
		m := s.p.w.machines[id]
		if m == nil || f.is(worlds.Absent) || f.is(worlds.Unread) || s.p.w.vanishing() {
			return fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
		}
		out = m.Instance
		s.p.seenVM[id], s.p.seenOff[id] = m.VMID, m.Power == kamino.PowerOff
		return nil
	})
	return out, err
}

func (s simProvider) Instances(ctx context.Context, pool kamino.Pool) (out []kamino.InstanceID, err error) {
	err = s.p.call(ctx, call{method: "Instances", subject: pool.Name, list: true}, func(f *fault) error {
		if s.p.w.pools[pool.ID] == nil || f.is(worlds.Absent) {
			return fmt.Errorf("list instances of pool %s: %w", pool.Name, kamino.ErrUnavailable)
		}
		out = nil
		for id, m := range s.p.w.machines {
			if m.Pool == pool.ID && !f.is(worlds.Empty) && !s.p.w.vanishing() {
				out = append(out, id)
			}
		}
		return nil
	})
	return out, err
}

func (s simProvider) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "SetPower " + string(want), subject: lastSegment(string(id)), write: true}, func(f *fault) error {
		m := w.machines[id]
		if m == nil {
			return fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
		}
		s.p.auditPower(m, want)
		err := w.setPower(m, want, f.fails())
		w.happened("%s switches %s %s", s.p.name, m.Hostname, want)
		return err
	})
}

func (s simProvider) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) (out []kamino.Artifact, err error) {
	w := s.p.w
	err = s.p.call(ctx, call{method: "Find " + string(kind), subject: name, list: name == ""}, func(f *fault) error {
		switch {
		case name == "" && f.is(worlds.Absent):
			// What an adapter makes of a list that is 404 although its parent is there.
			return fmt.Errorf("list %s: %w", kind, kamino.ErrUnavailable)
		case f.is(worlds.Absent), f.is(worlds.Empty), w.vanishing():
			out = nil
		case name == "" && f.is(worlds.StaleRead) && w.staleList != nil:
			out = w.staleList
		case name == "":
			out, s.p.listed = w.versions(pool.ID), w.now
		default:
			if a := w.artifacts[artifactKey(pool.ID, kind, name)]; a != nil && !w.now.Before(a.hidden) {
				out = []kamino.Artifact{a.shows(w.bootsFrom(w.pools[a.pool]), w.users())}
				out[0].Ready = a.Ready && !w.now.Before(a.settle)
				if kind == kamino.KindDefinition && w.tagged {
					out[0] = out[0].WithTag(kamino.TagPointer, kamino.TagPointerUnreliable)
				}
			}
		}
		return nil
	})
	return out, err
}

func (s simProvider) Create(ctx context.Context, pool kamino.Pool, want kamino.Artifact) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "Create " + string(want.Kind), subject: want.Name, write: true, create: true}, func(f *fault) error {
		key := artifactKey(pool.ID, want.Kind, want.Name)
		if have := w.artifacts[key]; have != nil {
			if have.State == kamino.Deleting {
				return fmt.Errorf("create %s: %w", want.Name, kamino.ErrInProgress)
			}
			if have.State == kamino.Failed && (want.Kind == kamino.KindGallery || want.Kind == kamino.KindDefinition) {
				w.begin(key, pool.ID, want, f)
				return nil
			}
			if have.Tags[kamino.TagRun] != want.Tags[kamino.TagRun] {
				return fmt.Errorf("create %s: exists: %w", want.Name, kamino.ErrConflict)
			}
			return nil
		}
		if want.Kind == kamino.KindVersion && w.artifacts[artifactKey(pool.ID, kamino.KindSnapshot, lastSegment(want.Source))] == nil {
			return fmt.Errorf("source %s: %w", want.Source, kamino.ErrNotFound)
		}
		if want.Kind == kamino.KindSnapshot && !w.diskExists(want.Source) {
			return fmt.Errorf("disk %s: %w", want.Source, kamino.ErrNotFound)
		}
		s.p.auditCreate(pool.ID, want)
		if p := w.pools[pool.ID]; want.Kind == kamino.KindVersion && want.Storage != kamino.StorageLRS && p.noZRS == 1 {
			return fmt.Errorf("StorageAccountType 'Standard_ZRS' is not supported in region west")
		}
		w.staleList = w.versions(pool.ID)
		want.Tags = pool.Identify(want.Tags)
		if err := refuseTags(want.Tags); err != nil {
			return err
		}
		w.begin(key, pool.ID, want, f)
		w.happened("%s creates %s %s", s.p.name, want.Kind, want.Name)
		return nil
	})
}

// refuseTags is a cloud's answer to tags that it does not take, by the smaller limits of Azure and
// AWS (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources,
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html).
func refuseTags(tags map[string]string) error {
	for name, value := range tags {
		if utf8.RuneCountInString(name) > 128 || utf8.RuneCountInString(value) > 256 {
			return fmt.Errorf("tag %s with %d characters is too long", name, utf8.RuneCountInString(value))
		}
	}
	if len(tags) > 50 {
		return fmt.Errorf("%d tags are too many", len(tags))
	}
	return nil
}

func (w *world) vanishing() bool { return w.now.Before(w.vanished) }

func (w *world) diskExists(disk string) bool {
	for _, m := range w.machines {
		if m.Disk == disk {
			return true
		}
	}
	return w.detachedDisks[disk]
}

// begin plays the creation of an artifact.
func (w *world) begin(key string, pool kamino.PoolID, want kamino.Artifact, f *fault) {
	a := &simArtifact{Artifact: want, pool: pool}
	a.ID, a.State, a.Created, a.Tags = artifactID(pool, want.Kind, want.Name), kamino.Creating, w.now, maps.Clone(want.Tags)
	if want.Kind == kamino.KindVersion && a.Storage == "" {
		a.Storage = kamino.StorageZRS
	}
	if f.is(worlds.LateCreate) {
		a.hidden = w.now.Add(30 * time.Second)
	}
	if want.Kind == kamino.KindVersion && w.sick != noQuota {
		a.sick = w.sick
	}
	w.artifacts[key] = a
	failed := ""
	if f.fails() {
		failed = "the operation ended Failed"
	}
	if want.Kind == kamino.KindVersion && a.Storage == kamino.StorageZRS && w.pools[pool].noZRS == 2 {
		failed = "Storage account type Standard_ZRS is not supported here"
	}
	takes := map[kamino.Kind]time.Duration{kamino.KindGallery: 5 * time.Second, kamino.KindDefinition: 5 * time.Second,
		kamino.KindSnapshot: 10 * time.Second, kamino.KindVersion: buildTime}[want.Kind]
	ready := map[kamino.Kind]time.Duration{kamino.KindSnapshot: copyTime, kamino.KindVersion: 2 * time.Minute}[want.Kind]
	present := func() bool { return w.artifacts[key] == a && a.State != kamino.Deleting }
	w.after(takes, func() {
		if !present() {
			return
		}
		if a.State == kamino.Failed {
			return
		}
		if failed != "" {
			a.State, a.Failure = kamino.Failed, failed
			w.happened("%s %s failed", a.Kind, a.Name)
			return
		}
		a.State = kamino.Succeeded
		w.happened("%s %s is Succeeded", a.Kind, a.Name)
		w.after(ready, func() {
			if present() && a.State == kamino.Succeeded {
				a.Ready, a.Percent = true, 100
				w.happened("%s %s is ready", a.Kind, a.Name)
			}
		})
	})
}

func (s simProvider) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "Delete " + string(a.Kind), subject: a.Name, write: true, deletes: true}, func(f *fault) error {
		key := artifactKey(pool.ID, a.Kind, a.Name)
		have := w.artifacts[key]
		if have == nil || have.State == kamino.Deleting {
			return nil
		}
		if v := have.shows(w.bootsFrom(w.pools[have.pool]), w.users()); a.Kind == kamino.KindVersion && (v.InModel || v.Instances > 0) {
			return fmt.Errorf("delete version %s: %w", a.Name, kamino.ErrInUse)
		}
		if a.Kind == kamino.KindVersion && have.State == kamino.Creating {
			return fmt.Errorf("delete version %s: %w", a.Name, kamino.ErrInProgress)
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.DeleteArtifact, Pool: string(pool.ID), Kind: kinds[have.Kind],
			Target: have.ID})
		w.staleList = w.versions(pool.ID)
		was := have.State
		have.State = kamino.Deleting
		w.happened("%s deletes %s %s", s.p.name, a.Kind, a.Name)
		w.after(deleteTime, func() {
			if f.fails() {
				have.State = was
				return
			}
			delete(w.artifacts, key)
			w.happened("%s %s is gone", a.Kind, a.Name)
		})
		return nil
	})
}

func (simProvider) Homes() []kamino.Kind {
	return []kamino.Kind{kamino.KindGallery, kamino.KindDefinition}
}
