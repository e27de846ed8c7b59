package controller

import (
	"fmt"
	"testing"
	"time"
)

// TestPace: a hundred prototypes have their turns, none before and no two at once but the first;
// what is urgent does not wait.
func TestPace(t *testing.T) {
	const all, burst = 100, 8
	p := newPace(2, burst)
	var wait [all]time.Duration
	for i := range all {
		wait[i] = p.wait(fmt.Sprint(i), now, false)
		if want := max(0, time.Duration(i-burst+1)*time.Second/2); wait[i] != want {
			t.Errorf("%d waits for %s, want %s", i, wait[i], want)
		}
	}
	for i := burst; i < all; i++ {
		if left := p.wait(fmt.Sprint(i), now.Add(wait[i]-time.Millisecond), false); left != time.Millisecond {
			t.Errorf("%d too early waits for %s", i, left)
		}
		if left := p.wait(fmt.Sprint(i), now.Add(wait[i]), false); left != 0 {
			t.Errorf("%d in its turn waits for %s", i, left)
		}
	}
	if first, again := p.wait("x", now, false), p.wait("x", now, true); first == 0 || again != 0 {
		t.Errorf("what is urgent waits for %s, then %s", first, again)
	}
	if idle := p.wait("y", now.Add(time.Hour), false); idle != 0 {
		t.Errorf("after an hour without passes one waits for %s", idle)
	}
}
