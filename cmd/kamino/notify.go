package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/notify"
	"kamino.dev/kamino/poolstate"
)

// notifyFlag is --notify-file: the services that are notified of what a command did.
type notifyFlag struct {
	file string
	to   *notify.Notifier
}

func (n *notifyFlag) add(f *pflag.FlagSet) {
	f.StringVar(&n.file, "notify-file", "", "`file` with https URLs of webhooks, one a line: they get a JSON message about promotions, failures, withdrawals and donors that are not back")
}

// open reads the file, so that an error in it shows before anything is done.
func (n *notifyFlag) open(clock kamino.Clock) (err error) {
	if n.file != "" {
		n.to, err = notify.Open(n.file, clock)
	}
	return err
}

// tellTime limits the notification of all services at the end of a command.
const tellTime = 20 * time.Second

// tell notifies services of what happened to pools since a time, according to their ledgers, also
// if the command was told to end. A failure that no ledger has is sent with the error.
func (n *notifyFlag) tell(ctx context.Context, a *app, e *engine.Engine, pools []string, since time.Time, failed error) {
	if n.to == nil {
		return
	}
	ctx, cancel := a.clock.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	var all []notify.Happening
	if len(pools) > 0 {
		statuses, err := e.Status(ctx, pools, nil)
		if err != nil {
			a.global.Log.Warn("read what to notify of", "error", err)
		}
		for _, s := range statuses {
			all = append(all, happened(s, e.Process, a.clock.Now(), since)...)
		}
	}
	bad := false
	for _, h := range all {
		bad = bad || h.Warning
	}
	if held := (*kamino.HeldError)(nil); failed != nil && !bad && !errors.As(failed, &held) && !errors.Is(failed, context.Canceled) {
		pool := ""
		if len(pools) > 0 {
			pool = kamino.PoolID(pools[0]).Name()
		}
		all = append(all, notify.Failure("", pool, a.clock.Now(), failed))
	}
	for _, h := range all {
		if err := n.to.Send(ctx, h); err != nil {
			a.global.Log.Warn("a notification was not delivered", "reason", h.Reason, "error", err, "hint", kamino.Hint(err))
		}
	}
}

// happened returns the happenings since a command began. A donor that this process or an ended one
// left away is reported at once, because the next run may be late.
func happened(s poolstate.PoolStatus, process string, now, since time.Time) (out []notify.Happening) {
	limit := notify.AwayLimit
	if u := s.Unfinished; u != nil && (u.Process == process || !u.Alive) {
		limit = 0
	}
	for _, h := range notify.Of(s, now, limit) {
		if !h.Quiet && (h.At.IsZero() || !h.At.Before(since)) {
			out = append(out, h)
		}
	}
	return out
}
