package emulator

import (
	"encoding/json"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Entry is one request in the log, back doors not included.
type Entry struct {
	Seq             int             `json:"seq"`
	Time            time.Time       `json:"time"`        // of this machine
	VirtualTime     time.Time       `json:"virtualTime"` // of the server's clock
	Method          string          `json:"method"`
	Path            string          `json:"path"`
	Query           string          `json:"query,omitempty"`
	APIVersion      string          `json:"apiVersion,omitempty"`
	Status          int             `json:"status"` // 0: the connection was dropped, or no answer yet
	Body            json.RawMessage `json:"body,omitempty"`
	IfMatch         string          `json:"ifMatch,omitempty"`
	CorrelationID   string          `json:"correlationId"`
	ClientRequestID string          `json:"clientRequestId,omitempty"`
	UserAgent       string          `json:"userAgent,omitempty"`
	Fault           string          `json:"fault,omitempty"` // ID of the fault that acted on it
}

// Requests is the log of requests with a sequence number above since.
func (s *Server) Requests(since int) []Entry {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := []Entry{}
	for _, e := range s.requests {
		if e.Seq > since {
			listed = append(listed, *e)
		}
	}
	return listed
}

// Document is a committed ARM document by ID, or nil. It is the caller's copy.
func (s *Server) Document(id string) map[string]any {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.store.current[key(id)]; r != nil {
		return clone(r.doc)
	}
	return nil
}

// Put keeps a document under an ID as it is, whatever ARM would say: for what a
// test needs and cannot be written by anybody. The type must be one that is served.
func (s *Server) Put(id string, doc map[string]any) {
	s.start()
	s.alter(func(t *tx) {
		k := s.kinds[key(typeOf(id))]
		r := t.put(&resource{id: id, kind: k, created: t.now, doc: clone(doc), facts: object{}})
		r.doc["id"], r.doc["name"], r.doc["type"] = r.id, r.name(), k.name
		r.setState("Succeeded")
	})
}

// Change merges a JSON document into a resource, whatever ARM would say: what
// somebody has done to it since its instances were made.
func (s *Server) Change(id, document string) {
	s.start()
	s.alter(func(t *tx) {
		var change object
		if err := json.Unmarshal([]byte(document), &change); err != nil {
			s.logger().Error("change", "id", id, "error", err)
			return
		}
		r := t.edit(id)
		r.doc = merge(r.doc, change)
		r.touch()
	})
}

// SwapDisk gives an instance another OS disk, on which nothing is: as a person does who swaps it. The
// former disk is kept, and is attached to nothing.
func (s *Server) SwapDisk(instance string) {
	s.start()
	s.alter(func(t *tx) {
		r := t.edit(instance)
		if r == nil || t.get(text(r.facts, "disk")) == nil {
			return
		}
		old := t.edit(text(r.facts, "disk"))
		fresh := old.copy()
		name := old.name() + "_" + strings.ReplaceAll(identifier(), "-", "")
		fresh.id, fresh.files, fresh.created = strings.TrimSuffix(old.id, old.name())+name, map[string]string{}, t.now
		fresh.doc["id"], fresh.doc["name"] = fresh.id, name
		set(fresh.doc, identifier(), "properties", "uniqueId")
		set(fresh.doc, stamp(t.now), "properties", "timeCreated")
		t.put(fresh)
		delete(old.doc, "managedBy")
		delete(old.facts, "instance")
		set(old.doc, "Unattached", "properties", "diskState")
		set(r.doc, fresh.id, "properties", "storageProfile", "osDisk", "managedDisk", "id")
		set(r.doc, name, "properties", "storageProfile", "osDisk", "name")
		r.facts["disk"] = fresh.id
		r.touch()
	})
}

// StateEntry is one resource with what ARM does not show of it.
type StateEntry struct {
	ID             string            `json:"id"`
	Type           string            `json:"type"`
	Document       map[string]any    `json:"document"`
	Hidden         bool              `json:"hidden,omitempty"`
	Operation      string            `json:"operation,omitempty"`
	CustomDataHash string            `json:"customDataHash,omitempty"`
	UserDataHash   string            `json:"userDataHash,omitempty"`
	Protected      []string          `json:"protectedSettings,omitempty"` // extensions that have them
	Files          map[string]string `json:"files,omitempty"`
	Facts          map[string]any    `json:"facts,omitempty"`
}

// State lists every resource, ordered by ID.
func (s *Server) State() []StateEntry {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := []StateEntry{}
	for _, r := range s.store.current {
		e := StateEntry{ID: r.id, Type: r.kind.name, Document: clone(r.doc), Hidden: r.hidden, Operation: r.op,
			CustomDataHash: hash(r.custom),
			UserDataHash:   hash(r.user), Files: copyFiles(r.files), Facts: clone(r.facts)}
		for name := range r.secrets {
			e.Protected = append(e.Protected, name)
		}
		sort.Strings(e.Protected)
		listed = append(listed, e)
	}
	sort.Slice(listed, func(i, j int) bool { return natural(key(listed[i].ID), key(listed[j].ID)) })
	return listed
}

// OperationEntry is one asynchronous operation.
type OperationEntry struct {
	ID      string    `json:"id"`
	Request string    `json:"request"`
	Status  string    `json:"status"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Error   string    `json:"error,omitempty"`
}

func (s *Server) operations() []OperationEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := []OperationEntry{}
	for _, op := range s.ops {
		e := OperationEntry{ID: op.id, Request: op.method + " " + op.target, Status: op.status, Started: op.started, Ended: op.ended}
		if op.err != nil {
			e.Error = op.err.Error()
		}
		listed = append(listed, e)
	}
	sort.Slice(listed, func(i, j int) bool {
		if listed[i].Started.Equal(listed[j].Started) {
			return listed[i].ID < listed[j].ID
		}
		return listed[i].Started.Before(listed[j].Started)
	})
	return listed
}

// backDoor serves what ARM does not have. It needs no token.
func (s *Server) backDoor(w http.ResponseWriter, r *http.Request) {
	where, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/_emulator/"), "/")
	switch {
	case where == "state" && r.Method == http.MethodGet:
		show(w, map[string]any{"time": s.Clock.Now(), "resources": s.State(), "operations": s.operations()})
	case where == "log" && r.Method == http.MethodGet:
		since, _ := strconv.Atoi(r.URL.Query().Get("since"))
		show(w, s.Requests(since))
	case where == "faults" && r.Method == http.MethodGet:
		show(w, s.Faults())
	case where == "faults" && r.Method == http.MethodDelete:
		s.RemoveFault(rest)
		w.WriteHeader(http.StatusNoContent)
	case where == "faults" && r.Method == http.MethodPost:
		var f Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil || f.Kind == "" {
			http.Error(w, "a fault is a JSON object with at least a kind", http.StatusBadRequest)
			return
		}
		show(w, map[string]string{"id": s.AddFault(f)})
	case where == "console" && r.Method == http.MethodGet:
		_, _ = w.Write([]byte(s.console("/" + rest))) // the reader may have gone away
	case where == "disks" && (r.Method == http.MethodGet || r.Method == http.MethodPatch):
		s.diskDoor(w, r, "/"+rest)
	default:
		http.NotFound(w, r)
	}
}

// diskDoor reads a disk, or writes files on it: PATCH {"path": "text"}, null removes.
func (s *Server) diskDoor(w http.ResponseWriter, r *http.Request, id string) {
	if r.Method == http.MethodPatch {
		var change map[string]*string
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			http.Error(w, "a change is a JSON object of path and text: "+err.Error(), http.StatusBadRequest)
			return
		}
		err := s.WriteDisk(id, func(files map[string]string) {
			for path, content := range change {
				if content == nil {
					delete(files, path)
				} else {
					files[path] = *content
				}
			}
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
	}
	files, err := s.ReadDisk(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	show(w, files)
}

func show(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
