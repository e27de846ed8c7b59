package labtest

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Clock goes as the wall clock does, and a test puts it on: what waits for hours waits no longer.
// It is an emulator's, its nodes' and, by Serve, that of programs of crash.BuildKamino; the control
// plane keeps the machine's own.
type Clock struct {
	mu      sync.Mutex
	ahead   time.Duration
	moves   int // how often it was put on
	waiting map[*waiter]bool
}

type waiter struct {
	until time.Time
	timer *time.Timer
	sleep bool // of a program
	moves int  // when it began
}

// Now implements emulator.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time { return time.Now().UTC().Add(c.ahead) }

// AfterFunc implements emulator.Clock.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func()) { return c.after(d, false, f) }

func (c *Clock) after(d time.Duration, sleep bool, f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{until: c.now().Add(d), sleep: sleep, moves: c.moves}
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, w)
	}
	w.timer = time.AfterFunc(d, func() { forget(); f() })
	if c.waiting == nil {
		c.waiting = map[*waiter]bool{}
	}
	c.waiting[w] = true
	return func() { w.timer.Stop(); forget() }
}

// Advance puts the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	c.moves++
	for w := range c.waiting {
		if w.timer.Stop() { // else it has gone off
			w.timer.Reset(w.until.Sub(c.now()))
		}
	}
}

// Asleep says whether a program that went to sleep since the clock was last put on will sleep for
// at least d yet: what it had to do then is done.
func (c *Clock) Asleep(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.waiting {
		if w.sleep && w.moves == c.moves && w.until.Sub(c.now()) >= d {
			return true
		}
	}
	return false
}

// Serve answers programs until the test ends, and returns what their environment must name.
func (c *Clock) Serve(t *testing.T) (environment map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clock.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.Now().Format(time.RFC3339Nano)) })
	mux.HandleFunc("/sleep", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.URL.Query().Get("for"))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		over := make(chan struct{})
		stop := c.after(d, true, func() { close(over) })
		defer stop()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return map[string]string{"KAMINO_LAB_CLOCK": path}
}
