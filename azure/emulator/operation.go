package emulator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Families of operation URLs, as the services spell them (azure-sdk recordings).
const (
	computeFamily = "operations"
	diskFamily    = "DiskOperations"
	galleryFamily = "capsOperations"
)

// pending is an operation that a handler asks for.
type pending struct {
	family   string
	location string
	holds    []string // resources that refuse other writes until it ends
	latency  time.Duration
	// work calls Machines; the operation then ends when it returns, whatever the latency.
	work func(context.Context) error
	// early, if set, lets the operation end before its latency once it holds; see [Server.hasten].
	early func(*tx) bool
	// finish writes the effect; an error makes the operation fail.
	finish func(*tx) *apiError
	// fail writes what a failed operation leaves behind.
	fail func(*tx, *apiError)
}

// operation is a pending one that has begun.
type operation struct {
	pending
	id       string
	method   string
	target   string // path and query of the request that began it
	started  time.Time
	ended    time.Time
	duration time.Duration
	status   string
	err      *apiError
	stop     func()
	fault    *Fault // what it will lie about
	lied     int    // polls already answered by the fault
	over     bool   // failed while it was begun
}

// launch runs an operation without latency inside the call's transaction and
// returns nil, or registers it and marks what it holds.
func (s *Server) launch(c *call, p *pending) *operation {
	duration := s.scale(p.latency)
	lies := c.fault.onOperation()
	var over *apiError
	if duration == 0 && p.work == nil && !lies {
		if over = p.finish(c.t); over == nil {
			return nil
		}
		if p.fail != nil {
			p.fail(c.t, over)
		}
	}
	op := &operation{pending: *p, id: identifier(), method: c.r.Method, target: c.r.URL.RequestURI(), started: c.now,
		duration: duration, status: "InProgress"}
	if lies || c.fault != nil && c.fault.Kind == FalseSuccess {
		op.fault = c.fault
	}
	s.ops[op.id] = op
	if over != nil {
		op.over, op.status, op.err, op.ended = true, "Failed", over, c.now
		return op
	}
	for _, id := range p.holds {
		if r := c.t.edit(id); r != nil {
			r.op = op.id
		}
	}
	return op
}

// background begins an operation no request waits for. The caller holds the lock.
func (s *Server) background(p *pending) {
	op := &operation{pending: *p, id: identifier(), method: "-", started: s.Clock.Now(), duration: s.scale(p.latency), status: "InProgress"}
	s.ops[op.id] = op
	t := s.begin()
	for _, id := range p.holds {
		if r := t.edit(id); r != nil {
			r.op = op.id
		}
	}
	t.commit()
	s.schedule(op)
}

// schedule lets an operation end when its time has come. The caller holds the lock.
func (s *Server) schedule(op *operation) {
	if op.over {
		return
	}
	// What shall have no effect must not reach the machines either.
	idle := op.fault != nil && (op.fault.Kind == FalseSuccess || op.fault.Kind == FailOperation && !op.fault.Committed)
	if op.work != nil && !idle {
		go func() {
			if err := op.work(s.lifetime); err != nil || op.early == nil {
				s.complete(op, machineError(err))
				return
			}
			s.mu.Lock()
			op.stop = s.Clock.AfterFunc(op.duration, func() { s.complete(op, nil) })
			s.hasten(op.id)
			s.mu.Unlock()
			s.deliver()
		}()
		return
	}
	duration := op.duration
	if op.fault != nil && op.fault.Kind == SlowOperation {
		if op.fault.Duration < 0 {
			return // never ends
		}
		duration += op.fault.Duration
	}
	if duration == 0 {
		s.settle(op, nil)
		return
	}
	op.stop = s.Clock.AfterFunc(duration, func() { s.complete(op, nil) })
}

func machineError(err error) *apiError {
	if err == nil {
		return nil
	}
	return refuse(http.StatusConflict, "InternalExecutionError", "An internal execution error occurred: %v", err)
}

// complete ends an operation and tells the subscribers.
func (s *Server) complete(op *operation, err *apiError) {
	s.mu.Lock()
	s.settle(op, err)
	s.mu.Unlock()
	s.deliver()
}

// hasten ends an operation early where its condition holds. The caller holds the lock.
func (s *Server) hasten(id string) {
	if op := s.ops[id]; op != nil && op.early != nil && op.status == "InProgress" && op.early(s.begin()) {
		if op.stop != nil {
			op.stop()
		}
		s.settle(op, nil)
	}
}

// settle writes the end of an operation. The caller holds the lock.
func (s *Server) settle(op *operation, err *apiError) {
	if op.status != "InProgress" {
		return // preempted
	}
	t := s.begin()
	op.ended, op.status = t.now, "Succeeded"
	switch {
	case op.fault != nil && op.fault.Kind == FalseSuccess:
	case op.fault != nil && op.fault.Kind == FailOperation && err == nil:
		op.fakeFailure(t)
	default:
		if err == nil {
			err = op.finish(t)
		}
		if err != nil {
			op.status, op.err = "Failed", err
			if op.fail != nil {
				op.fail(t, err)
			}
		}
	}
	for _, id := range op.holds {
		if r := t.get(id); r != nil && r.op == op.id {
			t.edit(id).op = ""
		}
	}
	t.commit()
}

// fakeFailure ends an operation as its fault says.
func (op *operation) fakeFailure(t *tx) {
	op.status, op.err = "Failed", op.fault.error()
	if op.fault.OperationStatus != "" {
		op.status = op.fault.OperationStatus
	}
	if op.fault.Committed {
		_ = op.finish(t) // the failure reported is the scripted one
	} else if op.fail != nil {
		op.fail(t, op.err)
	}
}

// preempt cancels the operation that holds a resource, as a newer operation on
// the same virtual machine does. What it wanted does not happen. An operation on
// several machines goes on for the others.
func (t *tx) preempt(id string) {
	r := t.get(id)
	if r == nil || r.op == "" {
		return
	}
	op := t.s.ops[r.op]
	t.edit(id).op = ""
	if op == nil || op.status != "InProgress" || len(op.holds) > 1 {
		return
	}
	if op.stop != nil {
		op.stop()
	}
	op.status, op.ended = "Canceled", t.now
	op.err = refuse(http.StatusConflict, "OperationPreempted", "Operation execution has been preempted by a more recent operation.")
}

// busy refuses a write on a resource an operation holds.
func busy(r *resource) *apiError {
	if r == nil || r.op == "" {
		return nil
	}
	return refuse(http.StatusConflict, "Conflict",
		"Conflict with concurrent request. Resource '%s' is being changed by another operation. Retry later.", r.name())
}

// announce puts the operation's URLs into a reply.
func (s *Server) announce(c *call, rep *reply, op *operation) {
	if rep.header == nil {
		rep.header = http.Header{}
	}
	if op.location == "" {
		op.location = "westeurope"
	}
	link := s.operationURL(c, op)
	rep.header.Set("Azure-AsyncOperation", link)
	if c.r.Method == http.MethodPost || c.r.Method == http.MethodDelete || op.family == diskFamily {
		rep.header.Set("Location", link+"&monitor=true")
	}
	s.pace(rep.header)
}

func (s *Server) operationURL(c *call, op *operation) string {
	return fmt.Sprintf("%s/subscriptions/%s/providers/Microsoft.Compute/locations/%s/%s/%s?p=%s&api-version=%s",
		s.base(c.r), c.rt.subscription, op.location, op.family, op.id, op.id[:8], c.r.URL.Query().Get("api-version"))
}

// pace tells the client when to ask again.
func (s *Server) pace(h http.Header) {
	interval := s.PollInterval
	if interval == 0 {
		interval = max(s.scale(time.Second), 10*time.Millisecond)
	}
	if interval < time.Second {
		// azcore and azure-core both prefer this header; seconds cannot say it.
		h.Set("retry-after-ms", fmt.Sprint(max(interval.Milliseconds(), 1)))
		interval = time.Second
	}
	h.Set("Retry-After", fmt.Sprint(int(interval.Round(time.Second)/time.Second)))
}

// base is scheme and host of the links in replies.
func (s *Server) base(r *http.Request) string {
	if s.BaseURL != "" {
		return strings.TrimSuffix(s.BaseURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// progress is how much of an operation is done, 0 to 100, by the clock.
func (s *Server) progress(id string, now time.Time) int {
	op := s.ops[id]
	if op == nil || op.status != "InProgress" {
		return 100
	}
	if op.duration == 0 {
		return 0
	}
	return max(0, min(99, int(100*now.Sub(op.started)/op.duration)))
}

// getOperation answers a poll, in either of its two forms.
func getOperation(c *call) reply {
	s := c.s
	op := s.ops[key(c.rt.names[len(c.rt.names)-1])]
	if op == nil {
		return failed(http.StatusNotFound, "NotFound", "The entity was not found.")
	}
	if f := op.fault; f != nil && f.Kind == Poll && (f.Count < 0 || op.lied < max(f.Count, 1)) {
		op.lied++
		return reply{err: f.error()}
	}
	monitor := c.r.URL.Query().Get("monitor") == "true"
	rep := reply{status: http.StatusOK, header: http.Header{}}
	if op.status == "InProgress" {
		s.pace(rep.header)
		if monitor {
			rep.status = http.StatusAccepted
			rep.header.Set("Location", s.base(c.r)+c.r.URL.RequestURI())
			return rep
		}
	}
	if monitor {
		if op.err != nil {
			return reply{err: op.err}
		}
		if op.method != http.MethodPost {
			rep.status = http.StatusNoContent
		}
		return rep
	}
	body := object{"name": op.id, "startTime": stamp(op.started), "status": op.status}
	if op.status == "InProgress" {
		body["percentComplete"] = s.progress(op.id, c.now)
	} else {
		body["endTime"] = stamp(op.ended)
	}
	if op.err != nil {
		body["error"] = op.err.document()
	}
	rep.body = body
	return rep
}

// stamp writes a time as ARM does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.0000000Z07:00") }
