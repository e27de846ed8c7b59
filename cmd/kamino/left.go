package main

import (
	"fmt"
	"slices"
	"sync"

	"kamino.dev/kamino"
)

// leftovers is what the runs of this process hold, as the engine reports it.
type leftovers struct {
	mu   sync.Mutex
	runs map[kamino.PoolID][]string
}

func (l *leftovers) hold(pool kamino.PoolID, what []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[kamino.PoolID][]string{}
	}
	l.runs[pool] = what
}

// lines returns what each run holds.
func (l *leftovers) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for pool, held := range l.runs {
		for _, what := range held {
			out = append(out, fmt.Sprintf("pool %s: %s", pool.Name(), what))
		}
	}
	slices.Sort(out)
	return out
}
