package kamino

import "sync"

// inTurn calls do for 0 to n-1, each with an engine of its own: those that are urgent all at once, and beside them the others, as
// many at a time as readers. It returns when all have ended.
func (e *Engine) inTurn(n int, urgent func(int) bool, do func(*Engine, int)) {
	var now, later []int
	for i := range n {
		if urgent(i) {
			now = append(now, i)
		} else {
			later = append(later, i)
		}
	}
	var mu sync.Mutex
	next := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(later) == 0 {
			return 0, false
		}
		i, later = later[0], later[1:]
		return i, true
	}
	e.beside(len(now)+min(len(later), readers), func(e *Engine, worker int) {
		if worker < len(now) {
			do(e, now[worker])
			return
		}
		for i, ok := next(); ok; i, ok = next() {
			do(e, i)
		}
	})
}

// beside calls body n times side by side and returns when all have ended.
func (e *Engine) beside(n int, body func(*Engine, int)) {
	if e.Threads != nil {
		e.Threads(n, body)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { body(e, i) })
	}
	wg.Wait()
}
