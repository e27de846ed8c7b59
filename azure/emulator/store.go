package emulator

import (
	"sort"
	"strings"
	"time"
)

// resource is one document and what ARM knows about it but does not show. It is
// never changed once committed: a transaction edits a copy.
type resource struct {
	id      string
	kind    *kind
	doc     object
	etag    int
	op      string // the operation that holds it, or ""
	created time.Time

	hidden  bool              // exists, but GET answers 404: OS disks of Uniform instances
	files   map[string]string // content, on disks, snapshots and image versions
	custom  string            // customData, base64; ARM never returns it
	user    string            // userData, base64; returned only with $expand=userData
	secrets map[string]object // protectedSettings by lower-case extension name
	facts   object            // whatever else is remembered; shown in /_emulator/state
}

func key(id string) string { return strings.ToLower(strings.TrimSuffix(id, "/")) }

func (r *resource) copy() *resource {
	copied := *r
	copied.doc = clone(r.doc)
	copied.facts = clone(r.facts)
	copied.secrets = make(map[string]object, len(r.secrets))
	for name, secret := range r.secrets {
		copied.secrets[name] = secret
	}
	return &copied
}

// state is the resource's provisioningState.
func (r *resource) state() string { return text(r.doc, "properties", "provisioningState") }

func (r *resource) setState(state string) { set(r.doc, state, "properties", "provisioningState") }

func (r *resource) name() string { return nameOf(r.id) }

func nameOf(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

func (r *resource) location() string { return text(r.doc, "location") }

// version is one committed state of a resource; nil resource means absent.
type version struct {
	at       time.Time
	resource *resource
}

// store keeps every document under its lower-case path, with its history.
type store struct {
	current map[string]*resource
	history map[string][]version
	lag     map[string]lag
	changes int
}

// lag hides the present state of a path until a time (fault "stale"), or from every second read
// (DeleteEcho).
type lag struct {
	until time.Time
	shown *resource
	reads *int // so far, where every second one is told the truth
}

// tx collects what one request or one operation changes; nothing is visible
// before commit.
type tx struct {
	s      *Server
	now    time.Time
	writes map[string]*resource
	order  []string
	after  []*pending // operations to begin once this is committed
}

func (s *Server) begin() *tx {
	return &tx{s: s, now: s.Clock.Now(), writes: map[string]*resource{}}
}

// get reads a resource; nil where there is none.
func (t *tx) get(id string) *resource {
	path := key(id)
	if r, ok := t.writes[path]; ok {
		return r
	}
	return t.s.store.current[path]
}

// edit returns a copy that will be written.
func (t *tx) edit(id string) *resource {
	path := key(id)
	if r, ok := t.writes[path]; ok {
		return r
	}
	r := t.s.store.current[path]
	if r == nil {
		return nil
	}
	return t.put(r.copy())
}

// put writes a resource.
func (t *tx) put(r *resource) *resource {
	t.write(key(r.id), r)
	return r
}

// remove deletes a resource.
func (t *tx) remove(id string) { t.write(key(id), nil) }

func (t *tx) write(path string, r *resource) {
	if _, ok := t.writes[path]; !ok {
		t.order = append(t.order, path)
	}
	t.writes[path] = r
}

// children lists resources of a kind below a path (at any depth), in natural order.
func (t *tx) children(parent string, k *kind) []*resource {
	prefix := key(parent) + "/"
	var found []*resource
	for path, r := range t.s.store.current {
		if _, written := t.writes[path]; !written && r.kind == k && strings.HasPrefix(path, prefix) {
			found = append(found, r)
		}
	}
	for path, r := range t.writes {
		if r != nil && r.kind == k && strings.HasPrefix(path, prefix) {
			found = append(found, r)
		}
	}
	sortResources(found)
	return found
}

func sortResources(found []*resource) {
	sort.Slice(found, func(i, j int) bool { return natural(key(found[i].id), key(found[j].id)) })
}

// natural orders by length of the last name first, so that instance 10 follows instance 9.
func natural(a, b string) bool {
	i, j := strings.LastIndexByte(a, '/'), strings.LastIndexByte(b, '/')
	if a[:i] != b[:j] {
		return a[:i] < b[:j]
	}
	a, b = a[i+1:], b[j+1:]
	if digits(a) && digits(b) && len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// commit makes the transaction visible and queues its changes for the subscribers.
// The caller holds the server's lock and calls deliver after releasing it.
func (t *tx) commit() {
	st := &t.s.store
	for _, path := range t.order {
		old, next := st.current[path], t.writes[path]
		if old == nil && next == nil {
			continue
		}
		st.changes++
		change := Change{Seq: st.changes, Time: t.now}
		switch {
		case next == nil:
			delete(st.current, path)
			t.echo(path, old)
			change.Kind, change.ID, change.Old = Deleted, old.id, old.doc
		case old == nil:
			st.current[path] = next
			change.Kind, change.ID, change.New = Created, next.id, next.doc
		default:
			st.current[path] = next
			change.Kind, change.ID, change.Old, change.New = Updated, next.id, old.doc, next.doc
		}
		st.history[path] = append(st.history[path], version{at: t.now, resource: next})
		t.s.queue = append(t.s.queue, change)
	}
	after := t.after
	t.writes, t.order, t.after = map[string]*resource{}, nil, nil
	for _, p := range after {
		t.s.background(p)
	}
}

// echo lets a version that is gone flicker.
func (t *tx) echo(path string, old *resource) {
	if t.s.DeleteEcho > 0 && old.kind.name == imageVersions {
		t.s.store.lag[path] = lag{until: t.now.Add(t.s.DeleteEcho), shown: old, reads: new(int)}
	}
}
