package controller

import (
	"sync"
	"time"
)

// pace spreads the passes that read the cloud: so many a second. Nobody waits in a worker: who may
// not go yet has a turn, and comes again.
type pace struct {
	every time.Duration
	burst int

	mu    sync.Mutex
	next  time.Time            // the first turn that is free
	turns map[string]time.Time // by prototype
}

func newPace(perSecond float32, burst int) *pace {
	return &pace{every: time.Duration(float64(time.Second) / float64(perSecond)), burst: burst, turns: map[string]time.Time{}}
}

// wait is for how long a prototype has to; 0 for a turn that is taken by the call. What is urgent
// waits for nobody, and others wait for it.
func (p *pace) wait(name string, now time.Time, urgent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn, has := p.turns[name]
	if !has {
		turn = p.next
		if earliest := now.Add(-time.Duration(p.burst-1) * p.every); turn.Before(earliest) {
			turn = earliest
		}
		p.next = turn.Add(p.every)
	}
	if turn.After(now) && !urgent {
		p.turns[name] = turn
		return turn.Sub(now)
	}
	delete(p.turns, name)
	return 0
}

func (p *pace) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.turns, name)
}
