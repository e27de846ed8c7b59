package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"kamino.dev/kamino"
)

// untilSignal ends the context at the first SIGINT or SIGTERM, so that the
// engine gives back what it took. At the second it tells what is left and ends
// the process at once.
func (a *app) untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go a.obey(ctx, signals, cancel)
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

// obey waits for the signals. It outlives ctx on purpose: the second signal
// comes after the first has ended it.
func (a *app) obey(ctx context.Context, signals <-chan os.Signal, cancel func()) {
	select {
	case s := <-signals:
		cancel()
		a.say(s)
	case <-ctx.Done():
		return
	}
	<-signals
	fmt.Fprintln(a.Err, "Error: ended at once by a second signal")
	for _, line := range a.left.lines() {
		fmt.Fprintln(a.Err, "Left: "+line)
	}
	fmt.Fprintln(a.Err, "Hint: kamino restore")
	a.exit(exitAbandoned)
}

// say tells what the first signal does, on a line that the progress leaves alone.
func (a *app) say(s os.Signal) {
	text := fmt.Sprintf("%s: restoring the donor; press Ctrl-C again to quit immediately", s)
	if l := a.live.Load(); l != nil {
		l.stand(text)
		return
	}
	fmt.Fprintf(a.Err, "\n%s\n", text)
}

// leftovers follows the events of runs, to know what each still holds.
type leftovers struct {
	mu   sync.Mutex
	runs map[string][]string // pool -> what is held
}

func (l *leftovers) event(ev kamino.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string][]string{}
	}
	what, taken := map[string]string{
		"lock": "the lease", "protect": "the donor's protection", "drain": "the donor's block",
		"seal": "the donor sealed and perhaps off", "stop": "the donor off", "snapshot": "the snapshot", "image": "the image being built",
	}[ev.Step]
	switch {
	case taken && ev.Kind == kamino.StepActed && !slices.Contains(l.runs[ev.Pool], what):
		l.runs[ev.Pool] = append(l.runs[ev.Pool], what)
	case ev.Step == "return" && ev.Kind == kamino.StepDone:
		l.drop(ev.Pool, func(s string) bool { return len(s) > 9 && s[:9] == "the donor" })
	case ev.Step == "clean" && ev.Kind == kamino.StepDone:
		l.drop(ev.Pool, func(s string) bool { return s != "the lease" })
	}
}

func (l *leftovers) drop(pool string, gone func(string) bool) {
	l.runs[pool] = slices.DeleteFunc(l.runs[pool], gone)
}

// lines says what each run holds.
func (l *leftovers) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for pool, held := range l.runs {
		for _, what := range held {
			out = append(out, fmt.Sprintf("pool %s: %s", pool, what))
		}
	}
	slices.Sort(out)
	return out
}
