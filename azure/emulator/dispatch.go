package emulator

import (
	"encoding/json"
	"net/http"
	"strings"
)

// answer routes a request and runs it in one transaction.
func (s *Server) answer(c *call) reply {
	if rep, done := s.answerElsewhere(c); done {
		return rep
	}
	if err := s.authenticate(c); err != nil {
		return reply{err: err, header: http.Header{"Www-Authenticate": {
			`Bearer authorization_uri="` + s.base(c.r) + `/adfs", error="invalid_token", error_description="The authentication failed."`}}}
	}
	if c.r.URL.Query().Get("api-version") == "" {
		return failed(http.StatusBadRequest, "MissingApiVersionParameter",
			"The api-version query parameter (?api-version=) is required for all requests.")
	}
	if len(c.raw) > 0 && c.r.Method != http.MethodGet {
		if err := json.Unmarshal(c.raw, &c.body); err != nil {
			return failed(http.StatusBadRequest, "InvalidRequestContent",
				"The request content was invalid and could not be deserialized: '%s'.", err)
		}
	}
	return s.run(c)
}

// run executes a request whose sender is known.
func (s *Server) run(c *call) reply {
	path := strings.ReplaceAll(strings.TrimSuffix(c.r.URL.Path, "/"), "//", "/") // az resource show writes two
	if fold(path, "/subscriptions") {
		c.target = target{kind: s.kinds["subscriptions"], collection: true}
	} else {
		rt, ok := parse(path)
		if ok {
			c.rt = rt
			c.target, ok = s.resolve(rt)
		}
		if !ok {
			return failed(http.StatusNotFound, "ResourceNotFound", "The resource '%s' could not be found: no such provider path.", path)
		}
	}
	handle := c.target.handler(c.r.Method)
	if handle == nil {
		return failed(http.StatusNotFound, "ResourceNotFound", "The path '%s' does not support method '%s'.", path, c.r.Method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.Clock.Now()
	c.t = s.begin()
	if err := c.exists(); err != nil {
		return reply{err: err}
	}
	if err := c.authorize(); err != nil {
		return reply{err: err}
	}
	if err := c.sized(); err != nil {
		return reply{err: err}
	}
	rep := handle(c)
	if rep.err != nil {
		return rep
	}
	return s.conclude(c, rep)
}

// exists checks the subscription and the resource group of a path.
func (c *call) exists() *apiError {
	if c.rt.subscription == "" {
		return nil
	}
	if c.t.get("/subscriptions/"+c.rt.subscription) == nil {
		return refuse(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", c.rt.subscription)
	}
	if c.rt.group != "" && c.rt.provider && c.t.get(c.rt.groupID()) == nil {
		return refuse(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", c.rt.group)
	}
	return nil
}

// conclude commits a handled request, begins its operation and completes the reply.
func (s *Server) conclude(c *call, rep reply) reply {
	var op *operation
	if rep.op != nil {
		op = s.launch(c, rep.op)
	}
	if rep.op != nil && op == nil && rep.status == http.StatusAccepted {
		rep.status = http.StatusOK // over already
	}
	if rep.shows != "" {
		if r := c.t.get(rep.shows); r != nil {
			rep.body = c.render(r)
		}
	}
	if c.fault == nil || c.fault.Kind != FalseSuccess {
		c.lagBehind()
		c.t.commit()
	}
	if op != nil {
		s.announce(c, &rep, op)
		s.schedule(op)
	}
	return rep
}

// lagBehind makes reads of what this transaction changes show the former state for a while.
func (c *call) lagBehind() {
	if c.fault == nil || c.fault.Kind != Stale || c.r.Method == http.MethodGet {
		return
	}
	for _, path := range c.t.order {
		c.s.store.lag[path] = lag{until: c.now.Add(c.fault.Duration), shown: c.s.store.current[path]}
	}
}

// seen is what a read is shown of a resource: its present state unless a fault
// lets the reader see a former one.
func (c *call) seen(r *resource, path string) *resource {
	st := &c.s.store
	if l, ok := st.lag[path]; ok {
		if !c.now.Before(l.until) {
			delete(st.lag, path)
		} else if l.reads == nil {
			return l.shown
		} else if *l.reads++; *l.reads%2 == 0 {
			return l.shown
		}
	}
	if c.fault == nil || c.fault.Kind != Stale {
		return r
	}
	past := st.history[path]
	if c.fault.Duration == 0 { // before the last change
		if len(past) < 2 {
			return nil
		}
		return past[len(past)-2].resource
	}
	limit := c.now.Add(-c.fault.Duration)
	for i := len(past) - 1; i >= 0; i-- {
		if !past[i].at.After(limit) {
			return past[i].resource
		}
	}
	return nil
}

// read is what a GET sees at a path; nil where it sees nothing.
func (c *call) read(id string) *resource { return c.seen(c.t.get(id), key(id)) }

// readAll is what a list sees below a path.
func (c *call) readAll(parent string, k *kind) []*resource {
	prefix := key(parent) + "/"
	var found []*resource
	for path, versions := range c.s.store.history {
		if !strings.HasPrefix(path, prefix) {
			continue
		}
		r := c.seen(c.s.store.current[path], path)
		if r != nil && r.kind == k && versions != nil {
			found = append(found, r)
		}
	}
	sortResources(found)
	return found
}

// render is a resource as a GET shows it: in the resource group spelling of the caller.
func (c *call) render(r *resource) object {
	shown := clone(r.doc)
	id := r.id
	if c.rt.group != "" {
		if rt, ok := parse(id); ok && fold(rt.group, c.rt.group) {
			id = strings.Replace(id, "/resourceGroups/"+rt.group+"/", "/resourceGroups/"+c.rt.group+"/", 1)
		}
	}
	shown["id"] = id
	if r.kind.view != nil {
		r.kind.view(c, r, shown)
	}
	return shown
}
