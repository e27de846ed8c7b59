package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/view"
)

// follow makes the engine report to the terminal, or to the log if there is none. The returned
// function ends the output.
func (a *app) follow(ctx context.Context, e *engine.Engine) func() {
	if f, ok := a.Err.(*os.File); ok && !a.JSON && term.IsTerminal(int(f.Fd())) && a.env("TERM") != "dumb" {
		l := &live{out: a.Err, clock: a.clock, width: func() int {
			w, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 80
			}
			return w
		}}
		e.Report, e.Holds = l.event, a.left.hold
		a.live.Store(l)
		end := l.run(time.Second)
		return func() { a.live.Store(nil); end() }
	}
	log := newEventLog(ctx, a.global.Log)
	e.Report, e.Holds = log.event, a.left.hold
	return func() {}
}

// live draws one line for each step. Lines of finished steps stay; those of running steps, one for
// each pool, are redrawn at the bottom. No line is wider than the terminal, so none wraps.
type live struct {
	out   io.Writer
	clock kamino.Clock
	width func() int

	mu      sync.Mutex
	running []*runningStep
	pools   map[string]bool
	drawn   []int // lengths of the lines at the bottom, as last drawn
}

// runningStep is the running step of one pool.
type runningStep struct {
	ev      kamino.Event // the last event
	started time.Time
}

// run redraws at every tick until the returned function is called.
func (l *live) run(every time.Duration) func() {
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for l.clock.Sleep(ctx, every) == nil {
			l.redraw()
		}
	}()
	return func() {
		stop()
		<-stopped
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running = nil
		l.draw(nil)
	}
}

func (l *live) redraw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw(nil)
}

// stand writes a line that stays.
func (l *live) stand(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw([]string{text})
}

func (l *live) event(ev kamino.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pools == nil {
		l.pools = map[string]bool{}
	}
	if ev.Pool != "" {
		l.pools[ev.Pool] = true
	}
	var standing []string
	switch ev.Kind {
	case kamino.EventDone:
		standing = []string{l.line(ev, ev.Elapsed, cmp.Or(ev.Message, "done"))}
	case kamino.EventFailed:
		standing = []string{l.line(ev, ev.Elapsed, "failed: "+ev.Message)}
	case kamino.EventRefused:
		standing = []string{l.line(ev, ev.Elapsed, "refused: "+ev.Message)}
	case kamino.EventGivingBack:
		standing = wrap(view.OneLine("giving back after: "+ev.Message), l.columns()-1)
	case kamino.EventWarning:
		standing = wrap(view.OneLine("warning: "+ev.Message), l.columns()-1)
	}
	l.place(ev)
	l.draw(standing)
}

// place updates the running step of the event's pool. The pool is not known before the step
// validate is done.
func (l *live) place(ev kamino.Event) {
	i := 0
	for i < len(l.running) && l.running[i].ev.Pool != ev.Pool && l.running[i].ev.Pool != "" {
		i++
	}
	over := ev.Kind == kamino.EventDone || ev.Kind == kamino.EventFailed || ev.Kind == kamino.EventRefused
	switch {
	case ev.Step == "" || ev.Kind == kamino.EventSkipped || ev.Kind == kamino.EventWarning:
	case over && i < len(l.running):
		l.running = append(l.running[:i], l.running[i+1:]...)
	case over:
	case i == len(l.running):
		l.running = append(l.running, &runningStep{ev: ev, started: ev.Time.Add(-ev.Elapsed)})
	default:
		l.running[i].ev, l.running[i].started = ev, ev.Time.Add(-ev.Elapsed)
	}
}

// columns is the width of the terminal; 80 if it is unknown.
func (l *live) columns() int {
	if w := l.width(); w > 0 {
		return max(w, 20)
	}
	return 80
}

// draw writes lines that stay above the running ones, and redraws these.
func (l *live) draw(standing []string) {
	width := l.columns()
	var b strings.Builder
	rows := 0
	for _, n := range l.drawn {
		// The terminal may have become narrower since; then lines wrapped.
		rows += max(1, (n+width-1)/width)
	}
	if rows > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", rows)
	}
	if rows > 0 || len(standing) > 0 {
		b.WriteString("\x1b[J")
	}
	for _, s := range standing {
		b.WriteString(view.Cut(s, width-1) + "\n")
	}
	l.drawn = l.drawn[:0]
	for _, r := range l.running {
		text := view.Cut(l.line(r.ev, l.clock.Now().Sub(r.started), told(r.ev)), width-1)
		l.drawn = append(l.drawn, len([]rune(text)))
		b.WriteString(text + "\n")
	}
	_, _ = io.WriteString(l.out, b.String())
}

// line returns "[ 8/20] drain 12s 42% message", with the pool first if there are several.
func (l *live) line(ev kamino.Event, elapsed time.Duration, message string) string {
	var b strings.Builder
	if len(l.pools) > 1 {
		fmt.Fprintf(&b, "%s ", ev.Pool)
	}
	if ev.Total > 0 {
		fmt.Fprintf(&b, "[%2d/%d] ", ev.Number, ev.Total)
	}
	fmt.Fprintf(&b, "%-10s %7s", ev.Step, view.ShortTime(elapsed))
	if ev.Percent >= 0 {
		fmt.Fprintf(&b, " %3d%%", ev.Percent)
	}
	return b.String() + "  " + message
}
