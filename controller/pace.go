package controller

import (
	"sync"
	"time"
)

// pace limits how many passes a second read the cloud. No worker waits: a prototype that has to
// wait gets a turn, and its pass is requeued.
type pace struct {
	every time.Duration
	burst int

	mu    sync.Mutex
	next  time.Time            // the first free turn
	turns map[string]time.Time // turns by prototype
}

func newPace(perSecond float32, burst int) *pace {
	return &pace{every: time.Duration(float64(time.Second) / float64(perSecond)), burst: burst, turns: map[string]time.Time{}}
}

// wait returns how long a prototype has to wait; 0 if this call takes its turn. An urgent prototype
// does not wait, and others wait longer for it.
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
