package emulator

import (
	"fmt"
	"net/http"
	"time"
)

// FaultKind says how the server misbehaves.
type FaultKind string

// What a fault can do to the call it hits.
const (
	// Reply answers Status, Code and Message; nothing is done.
	Reply FaultKind = "reply"
	// Throttled answers what the service answers to too many calls; nothing is done.
	Throttled FaultKind = "throttled"
	// DropBefore closes the connection; nothing is done.
	DropBefore FaultKind = "drop-before"
	// DropAfter does it and closes the connection instead of answering.
	DropAfter FaultKind = "drop-after"
	// FalseFailure does it and answers Status, Code and Message (500 InternalError unless told).
	FalseFailure FaultKind = "false-failure"
	// FalseSuccess answers as if it were done, and does nothing.
	FalseSuccess FaultKind = "false-success"
	// Fail lets what the call begins end badly: a snapshot in error, an image failed, an instance
	// stopped again. On the action group:Launch, the launch of an Auto Scaling group, Code and
	// Message are why it failed.
	Fail FaultKind = "fail"
	// Slow adds Duration to what the call begins.
	Slow FaultKind = "slow"
	// Stale, on a write: for Duration, reads show everything as it was before.
	Stale FaultKind = "stale"
	// Delay waits for Duration on the server's clock before the call is looked at.
	Delay FaultKind = "delay"
	// Late closes the connection and does the call Duration later.
	Late FaultKind = "late"
)

// launchAction is a group launching an instance, as faults name it.
const launchAction = "group:Launch"

// Fault is one scripted misbehaviour. It hits calls whose action matches: those from the Nth
// matching one (counted from 1; 0 means 1), Times of them in a row (0 means one, negative: all).
type Fault struct {
	ID       string // given by AddFault unless set
	Action   string // a pattern, as ec2:Describe*; "" matches any
	Nth      int
	Times    int
	Kind     FaultKind
	Status   int // 0: 500
	Code     string
	Message  string
	Duration time.Duration // on the server's clock, not divided by Speed

	Seen int // calls that matched
	Hit  int // calls it acted on
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

// RemoveFaults forgets all faults.
func (s *Server) RemoveFaults() {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Faults lists the scripted faults with how often each has hit.
func (s *Server) Faults() []Fault {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Fault
	for _, f := range s.faults {
		list = append(list, *f)
	}
	return list
}

func (s *Server) matchFault(action string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acting(action)
}

// acting counts an action against every fault and returns the one that acts on it.
func (s *Server) acting(action string) *Fault {
	var acting *Fault
	for _, f := range s.faults {
		if f.Action != "" && !like(f.Action, action) || f.Action == "" && action == launchAction {
			continue
		}
		f.Seen++
		first := max(f.Nth, 1)
		if f.Seen < first || f.Times >= 0 && f.Seen >= first+max(f.Times, 1) || acting != nil {
			continue
		}
		f.Hit++
		second := *f
		acting = &second
	}
	return acting
}

func (f *Fault) error() *apiError {
	e := &apiError{Status: f.Status, Code: f.Code, Message: f.Message}
	if e.Status == 0 {
		e.Status = http.StatusInternalServerError
	}
	if e.Code == "" {
		e.Code = "InternalError"
	}
	if e.Message == "" {
		e.Message = "An internal error has occurred (scripted by " + f.ID + ")"
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
		c.write(w, nil, f.error())
		return false
	case Throttled:
		c.write(w, nil, throttled(c.service))
		return false
	case DropBefore:
		panic(http.ErrAbortHandler)
	case Delay:
		c.wait(f.Duration)
	case Late:
		again := *c
		again.fault = nil
		c.s.Clock.AfterFunc(f.Duration, func() { _, _ = c.s.answer(&again) }) // nobody hears the answer
		panic(http.ErrAbortHandler)
	}
	return true
}

// afterwards acts once a call is done.
func (c *call) afterwards(out *object, err **apiError) {
	if c.fault == nil {
		return
	}
	switch c.fault.Kind {
	case DropAfter:
		panic(http.ErrAbortHandler)
	case FalseFailure:
		if *err == nil {
			*out, *err = nil, c.fault.error()
		}
	}
}

// slow is a latency with what a fault adds to it; Speed does not divide that.
func (c *call) slow(d time.Duration) time.Duration {
	if c.fault == nil || c.fault.Kind != Slow {
		return d
	}
	if c.s.Speed > 0 {
		return d + time.Duration(float64(c.fault.Duration)*c.s.Speed)
	}
	return d + c.fault.Duration
}

// fails says whether what a call begins ends badly.
func (c *call) fails() bool { return c.fault != nil && c.fault.Kind == Fail }

// wait blocks for a time on the server's clock, or until the client is gone.
func (c *call) wait(d time.Duration) {
	done := make(chan struct{})
	stop := c.s.Clock.AfterFunc(d, func() { close(done) })
	defer stop()
	select {
	case <-done:
	case <-c.r.Context().Done():
	}
}
