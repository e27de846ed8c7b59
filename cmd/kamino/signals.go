package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// untilSignal ends the context at the first SIGINT, SIGTERM or SIGHUP, so that the engine restores
// what it took. At the second SIGINT or SIGTERM it prints what is left and ends the process at
// once.
//
// SIGHUP, which means that the terminal is gone, counts only once: shell, kernel and systemd each
// send one. SIGTERMs within a second count as one. If SIGHUP was ignored before (nohup), it stays
// ignored. SIGPIPE, which would end the process when nobody reads its log any more, is caught and
// ignored.
func (a *app) untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, unread := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(unread, syscall.SIGPIPE)
	go a.obey(ctx, signals, cancel)
	return ctx, func() {
		signal.Stop(signals)
		signal.Stop(unread)
		cancel()
	}
}

// together is the time within which several SIGTERMs count as one. GNU timeout sends one to its
// child and at once another to the process group, of which the child is a member
// (https://github.com/coreutils/coreutils/blob/master/src/timeout.c, cleanup).
const together = time.Second

// obey waits for the signals. It outlives ctx, because the second signal comes after the first has
// ended it.
func (a *app) obey(ctx context.Context, signals <-chan os.Signal, cancel func()) {
	var s os.Signal
	select {
	case s = <-signals:
		cancel()
		a.say(s)
	case <-ctx.Done():
		return
	}
	var term time.Time // the last one that counted
	for asked := 0; ; s = <-signals {
		switch s {
		case syscall.SIGHUP:
		case syscall.SIGTERM:
			if now := a.clock.Now(); term.IsZero() || now.Sub(term) >= together {
				asked, term = asked+1, now
			}
		default:
			asked++
		}
		if asked == 2 {
			break
		}
	}
	a.complain("aborted by a second signal", a.left.lines(), []string{"kamino restore"})
	a.exit(exitAbandoned)
}

// say prints what the first signal does, on a line that the progress does not overwrite.
func (a *app) say(s os.Signal) {
	text := fmt.Sprintf("%s: giving back what the run took; press Ctrl-C again to quit immediately", s)
	if l := a.live.Load(); l != nil {
		l.stand(text)
		return
	}
	if !a.JSON {
		text = "\n" + text
	}
	a.tell(slog.LevelWarn, text)
}
