package emulator

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// FaultKind says how the server misbehaves.
type FaultKind string

// What a fault can do to the call it hits.
const (
	// Reply answers Status, Code, Message and RetryAfter; nothing is done.
	Reply FaultKind = "reply"
	// DropBefore closes the connection; nothing is done.
	DropBefore FaultKind = "drop-before"
	// DropAfter does it and closes the connection instead of answering.
	DropAfter FaultKind = "drop-after"
	// FalseFailure does it and answers Status, Code and Message (500 unless told).
	FalseFailure FaultKind = "false-failure"
	// FalseSuccess answers as if it were done, and does nothing; an operation ends Succeeded.
	FalseSuccess FaultKind = "false-success"
	// FailOperation lets the operation end as OperationStatus (Failed or Canceled)
	// with Code and Message; if Committed, its effect took place all the same.
	FailOperation FaultKind = "fail-operation"
	// SlowOperation adds Duration to the operation; negative: it never ends.
	SlowOperation FaultKind = "slow-operation"
	// Poll answers the first Count polls (1 unless told, negative: all) of the operation this
	// call begins with Status, Code and Message: 404 loses its URL, 403 forbids the poll.
	Poll FaultKind = "poll"
	// Stale, on a write: for Duration, reads and lists show what was there before it (404
	// just after a create). On a read or list: it shows the state of Duration ago, and with
	// Duration 0 the state before each resource's last change.
	Stale FaultKind = "stale"
	// Absent answers 404 ResourceNotFound, whatever is there: what a region answers that does
	// not know yet of a resource
	// (https://github.com/hashicorp/terraform-provider-azurerm/issues/18268).
	Absent FaultKind = "absent"
	// Blind answers 404 SubscriptionNotFound, as to credentials that see nothing.
	Blind FaultKind = "blind"
	// Empty answers a list without elements, whatever is there.
	Empty FaultKind = "empty"
	// Delay waits for Duration, negative: until the client gives up, and then goes on.
	Delay FaultKind = "delay"
	// Late answers Status, Code and Message, or closes the connection if Status is 0, and
	// does it Duration later.
	Late FaultKind = "late"
)

// Fault is one scripted misbehaviour. It hits calls whose method and path match:
// those from the Nth matching one (counted from 1; 0 means 1), Times of them in a
// row (0 means one, negative: all).
type Fault struct {
	ID     string `json:"id,omitempty"`     // given by AddFault unless set
	Method string `json:"method,omitempty"` // "" matches any
	// Path is a glob, case-insensitive, on the URL's path: * within a segment, ** across
	// segments. "" matches any.
	Path  string `json:"path,omitempty"`
	Nth   int    `json:"nth,omitempty"`
	Times int    `json:"times,omitempty"`
	// For is how long after its first hit it still acts; 0: without end.
	For  time.Duration `json:"for,omitempty"`
	Kind FaultKind     `json:"kind"`

	Status          int           `json:"status,omitempty"`
	Code            string        `json:"code,omitempty"`
	Message         string        `json:"message,omitempty"`
	RetryAfter      time.Duration `json:"retryAfter,omitempty"` // nanoseconds in JSON
	OperationStatus string        `json:"operationStatus,omitempty"`
	Committed       bool          `json:"committed,omitempty"`
	Count           int           `json:"count,omitempty"`
	Duration        time.Duration `json:"duration,omitempty"` // on the server's clock, not divided by Speed

	Seen  int       `json:"seen"` // calls that matched
	Hit   int       `json:"hit"`  // calls it acted on
	since time.Time // its first hit
}

// AddFault scripts a fault and returns its ID. The first matching fault acts.
func (s *Server) AddFault(f Fault) string {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faultSerial++
	if f.ID == "" {
		f.ID = fmt.Sprintf("fault-%d", s.faultSerial)
	}
	f.Seen, f.Hit = 0, 0
	s.faults = append(s.faults, &f)
	return f.ID
}

// RemoveFault forgets one fault, or all for "". Operations already begun keep theirs.
func (s *Server) RemoveFault(id string) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*Fault
	for _, f := range s.faults {
		if id != "" && f.ID != id {
			kept = append(kept, f)
		}
	}
	s.faults = kept
}

// Faults lists the scripted faults with how often each has hit.
func (s *Server) Faults() []Fault {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := []Fault{}
	for _, f := range s.faults {
		listed = append(listed, *f)
	}
	return listed
}

// matchFault counts a call against every fault and returns the one that acts on it.
func (s *Server) matchFault(c *call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var acting *Fault
	for _, f := range s.faults {
		if f.Method != "" && !fold(f.Method, c.r.Method) || !glob(f.Path, c.r.URL.Path) {
			continue
		}
		f.Seen++
		first := max(f.Nth, 1)
		if f.Seen < first || f.Times >= 0 && f.Seen >= first+max(f.Times, 1) || acting != nil {
			continue
		}
		if f.Hit == 0 {
			f.since = c.now
		}
		if f.For > 0 && c.now.After(f.since.Add(f.For)) {
			continue
		}
		f.Hit++
		copied := *f
		acting = &copied
	}
	return acting
}

// glob matches a path without regard to case.
func glob(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	return globSegments(strings.Split(strings.Trim(key(pattern), "/"), "/"), strings.Split(strings.Trim(key(name), "/"), "/"))
}

func globSegments(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for i := 0; i <= len(name); i++ {
				if globSegments(pattern[1:], name[i:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		if ok, err := path.Match(pattern[0], name[0]); err != nil || !ok {
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}

// onOperation says whether a fault acts on the operation rather than on the call.
func (f *Fault) onOperation() bool {
	return f != nil && (f.Kind == FailOperation || f.Kind == SlowOperation || f.Kind == Poll)
}

// error is what a fault answers, with the texts the services use where none is given.
func (f *Fault) error() *apiError {
	e := &apiError{Status: f.Status, Code: f.Code, Message: f.Message, RetryAfter: f.RetryAfter}
	if e.Status == 0 {
		e.Status = http.StatusInternalServerError
	}
	if e.Code == "" {
		e.Code = map[int]string{
			http.StatusForbidden: "AuthorizationFailed", http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict",
			http.StatusPreconditionFailed: "PreconditionFailed", http.StatusTooManyRequests: "OperationNotAllowed",
		}[e.Status]
	}
	if e.Code == "" {
		e.Code = "InternalServerError"
	}
	if e.Message == "" {
		e.Message = "An internal error occurred. (scripted by " + f.ID + ")"
	}
	if e.Status == http.StatusTooManyRequests && e.Code == "OperationNotAllowed" {
		if f.Message == "" {
			e.Message = "The server rejected the request because too many requests have been received for this subscription."
		}
		e.Details = []apiError{{Code: "TooManyRequests", Target: "HighCostGet30Min",
			Message: `{"operationGroup":"HighCostGet30Min","startTime":"","endTime":"","allowedRequestCount":900,"measuredRequestCount":1157}`}}
	}
	return e
}

// beforehand acts before a call is looked at; false means it has been answered.
func (c *call) beforehand(w http.ResponseWriter) bool {
	f := c.fault
	if f == nil {
		return true
	}
	switch f.Kind {
	case Reply:
		c.write(w, reply{err: f.forbid(c)})
		return false
	case Absent:
		c.write(w, notFound(c, c.r.URL.Path))
		return false
	case Blind:
		c.write(w, failed(http.StatusNotFound, "SubscriptionNotFound", "The subscription could not be found. (scripted by %s)", f.ID))
		return false
	case Empty:
		c.write(w, reply{status: http.StatusOK, body: object{"value": []any{}}})
		return false
	case DropBefore:
		panic(http.ErrAbortHandler)
	case Delay:
		c.wait(f.Duration)
	case Late:
		s := c.s
		s.Clock.AfterFunc(f.Duration, func() { s.answer(c.again()); s.deliver() })
		if f.Status == 0 {
			panic(http.ErrAbortHandler)
		}
		c.write(w, reply{err: f.error()})
		return false
	}
	return true
}

// afterwards acts once a call is done and committed.
func (c *call) afterwards(rep *reply) {
	if c.fault == nil {
		return
	}
	switch c.fault.Kind {
	case DropAfter:
		panic(http.ErrAbortHandler)
	case FalseFailure:
		if rep.err == nil {
			*rep = reply{err: c.fault.error()}
		}
	}
}

// forbid names the action in a scripted 403, as the service would.
func (f *Fault) forbid(c *call) *apiError {
	e := f.error()
	if e.Code != "AuthorizationFailed" || f.Message != "" {
		return e
	}
	if rt, ok := parse(c.r.URL.Path); ok {
		if tg, ok := c.s.resolve(rt); ok {
			return forbidden(c.who, tg.action(c.r.Method), c.r.URL.Path)
		}
	}
	return e
}

// again is the same request for a second, later run.
func (c *call) again() *call {
	second := *c
	second.fault, second.body = nil, nil
	return &second
}

// wait blocks for a time on the server's clock, or until the client is gone.
func (c *call) wait(d time.Duration) {
	done := make(chan struct{})
	if d >= 0 {
		stop := c.s.Clock.AfterFunc(d, func() { close(done) })
		defer stop()
	}
	select {
	case <-done:
	case <-c.r.Context().Done():
	case <-c.s.lifetime.Done():
	}
}
