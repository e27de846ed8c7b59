package emulator

import (
	"sort"
	"time"
)

// ChangeKind says what happened to a resource.
type ChangeKind string

// The kinds of change.
const (
	Created ChangeKind = "created"
	Updated ChangeKind = "updated"
	Deleted ChangeKind = "deleted"
)

// Change is one committed change of one resource. Old and New are ARM documents
// as the server keeps them (an instance's carries properties.instanceView); they
// are shared and must not be modified. Old is nil for created, New for deleted.
type Change struct {
	Seq  int
	Time time.Time
	Kind ChangeKind
	ID   string
	Old  map[string]any
	New  map[string]any
}

// Subscribe calls f for every change committed from now on, in order, one at a
// time, without the server's lock: f may call the server. A change is delivered
// before the reply of the request that caused it is written, unless another
// goroutine is delivering at that moment. cancel stops the calls.
func (s *Server) Subscribe(f func(Change)) (cancel func()) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscriberSerial++
	serial := s.subscriberSerial
	s.subscribers[serial] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, serial)
	}
}

// deliver empties the queue of changes. One goroutine delivers at a time; a
// subscriber that causes further changes finds them delivered after it returns.
func (s *Server) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delivering {
		return
	}
	s.delivering = true
	for len(s.queue) > 0 {
		change := s.queue[0]
		s.queue = s.queue[1:]
		serials := make([]int, 0, len(s.subscribers))
		for serial := range s.subscribers {
			serials = append(serials, serial)
		}
		sort.Ints(serials)
		for _, serial := range serials {
			if f := s.subscribers[serial]; f != nil {
				s.mu.Unlock()
				f(change)
				s.mu.Lock()
			}
		}
	}
	s.delivering = false
}

// alter runs a transaction of the server's own and delivers what it changed.
func (s *Server) alter(f func(*tx)) {
	s.mu.Lock()
	t := s.begin()
	f(t)
	t.commit()
	s.mu.Unlock()
	s.deliver()
}
