package crash

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// TestClockWakesOneAtATime: time stands still while anybody is busy, and those
// who sleep wake in the order of time.
func TestClockWakesOneAtATime(t *testing.T) {
	c := newClock(worldBegins)
	var mu sync.Mutex
	var seen []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what+" "+c.Now().Sub(worldBegins).String())
	}
	c.react = func() {}
	c.virtual.AfterFunc(90*time.Second, func() { note("timer") })
	var all sync.WaitGroup
	for name, steps := range map[string][]time.Duration{"a": {time.Minute, time.Hour}, "b": {2 * time.Minute, time.Minute}} {
		turn := c.enqueue()
		all.Go(func() {
			<-turn
			defer c.leave()
			for _, d := range steps {
				c.sleep(d)
				note(name)
			}
		})
	}
	c.kick()
	all.Wait()
	if want := []string{"a 1m0s", "timer 1m30s", "b 2m0s", "b 3m0s", "a 1h1m0s"}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
	c.pass(time.Hour)
	if got := c.Now().Sub(worldBegins); got != 121*time.Minute {
		t.Errorf("the clock shows %s", got)
	}
}
