package emulator

import (
	"net/http"
	"strings"
)

// kind is a resource type: how its requests are answered. A nil function means
// ARM does not serve it.
type kind struct {
	name   string // as ARM spells it: Microsoft.Compute/snapshots
	open   bool   // asks for no permission
	get    func(*call) reply
	list   func(*call) reply
	put    func(*call) reply
	patch  func(*call) reply
	delete func(*call) reply
	// reads and actions are GETs and POSTs on a trailing segment, by lower-case name.
	reads   map[string]func(*call) reply
	actions map[string]func(*call) reply
	// spelled is how ARM spells a trailing segment, for action names: poweroff is powerOff.
	spelled map[string]string
	// view turns a stored document into what a GET shows.
	view func(c *call, r *resource, shown object)
}

// route is a request path taken apart.
type route struct {
	subscription string
	group        string
	namespace    string
	types        []string
	names        []string
	provider     bool // the path has a providers segment
}

// parse splits a path such as
// /subscriptions/S/resourceGroups/G/providers/NS/type/name/type/name/tail.
func parse(path string) (route, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	var rt route
	if len(segments) < 2 || !fold(segments[0], "subscriptions") {
		return rt, false
	}
	rt.subscription, segments = segments[1], segments[2:]
	if len(segments) >= 2 && fold(segments[0], "resourceGroups") {
		rt.group, segments = segments[1], segments[2:]
	}
	if len(segments) >= 2 && fold(segments[0], "providers") {
		rt.provider, rt.namespace, segments = true, segments[1], segments[2:]
	}
	for i, segment := range segments {
		if segment == "" {
			return rt, false
		}
		if i%2 == 0 {
			rt.types = append(rt.types, segment)
		} else {
			rt.names = append(rt.names, segment)
		}
	}
	return rt, true
}

// target is the resource a request speaks of: kind, its names, and a trailing
// action or sub-resource.
type target struct {
	kind       *kind
	collection bool
	tail       string // lower case
	id         string // of the resource, or of the parent of a collection
}

// resolve finds the kind behind a route.
func (s *Server) resolve(rt route) (target, bool) {
	named := len(rt.names)
	if !rt.provider && rt.group != "" && len(rt.types) == 0 {
		return target{kind: s.kinds["resourcegroups"], id: rt.groupID()}, true
	}
	if !rt.provider && len(rt.types) == 0 {
		return target{kind: s.kinds["subscriptions"], id: "/subscriptions/" + rt.subscription}, true
	}
	chain := key(rt.namespace + "/" + strings.Join(rt.types[:named], "/"))
	if !rt.provider {
		chain = key(strings.Join(rt.types[:named], "/"))
	}
	if len(rt.types) == named {
		k := s.kinds[strings.TrimSuffix(chain, "/")]
		return target{kind: k, id: rt.id(k, named)}, k != nil
	}
	last := key(rt.types[named])
	if k := s.kinds[strings.TrimPrefix(strings.TrimSuffix(chain, "/")+"/"+last, "/")]; k != nil {
		return target{kind: k, collection: true, id: rt.id(k, named)}, true
	}
	k := s.kinds[strings.TrimSuffix(chain, "/")]
	return target{kind: k, tail: last, id: rt.id(k, named)}, k != nil
}

// id spells a resource ID with the kind's own spelling of its types and the
// caller's spelling of everything else.
func (rt route) id(k *kind, named int) string {
	id := "/subscriptions/" + rt.subscription
	if rt.group != "" {
		id += "/resourceGroups/" + rt.group
	}
	if k == nil || !rt.provider {
		return id
	}
	spelled := strings.Split(k.name, "/")
	id += "/providers/" + spelled[0]
	for i := range named {
		if i+1 < len(spelled) {
			id += "/" + spelled[i+1] + "/" + rt.names[i]
		}
	}
	return id
}

func (rt route) groupID() string {
	return "/subscriptions/" + rt.subscription + "/resourceGroups/" + rt.group
}

// handler picks the function that answers.
func (tg target) handler(method string) func(*call) reply {
	k := tg.kind
	switch {
	case tg.tail != "" && method == http.MethodGet:
		return k.reads[tg.tail]
	case tg.tail != "" && method == http.MethodPost:
		return k.actions[tg.tail]
	case tg.tail != "":
		return nil
	case tg.collection && method == http.MethodGet:
		return k.list
	case tg.collection:
		return nil
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		return k.get
	case http.MethodPut:
		return k.put
	case http.MethodPatch:
		return k.patch
	case http.MethodDelete:
		return k.delete
	}
	return nil
}

// action is the name of the permission a request needs
// (https://learn.microsoft.com/azure/role-based-access-control/permissions/compute).
func (tg target) action(method string) string {
	name := tg.kind.name
	if tg.tail != "" {
		tail := tg.tail
		if spelled := tg.kind.spelled[tail]; spelled != "" {
			tail = spelled
		}
		name += "/" + tail
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		return name + "/read"
	case http.MethodDelete:
		return name + "/delete"
	case http.MethodPost:
		return name + "/action"
	}
	return name + "/write"
}
