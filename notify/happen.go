// Package notify reports what happened to a pool: as events of its NodePrototype, and to webhooks.
// What happened is derived from the status of the pool, so that
// each process finds the same.
package notify

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// Reasons, as events say them; those on nodes are the engine's (kamino.EventProofFailed). The
// alerts of charts/kamino have the same names.
const (
	RunFailed = kamino.EventRunFailed
	Withdrawn = "KaminoWithdrawn"
	DonorAway = kamino.EventDonorAway
	Promoted  = "KaminoPromoted"
	Refused   = "KaminoRefused"
)

// AwayLimit is after how long a donor that is not back is told of; the alert has the same.
const AwayLimit = time.Hour

// Happening is what is told once.
type Happening struct {
	Key     string // the same for whoever sees the same happening
	Reason  string
	Warning bool
	Quiet   bool // nobody is told outside of the cluster
	Pool    string
	At      time.Time // zero: it is so now
	Text    string    // what happened
	Type    string    // what to type
}

// Title is the subject of a message.
func (h Happening) Title() string { return strings.TrimSuffix("Kamino: pool "+h.Pool, ": pool ") }

// Message is what an event or a person gets.
func (h Happening) Message() string {
	if h.Type == "" {
		return h.Text
	}
	return h.Text + `. Type "` + h.Type + `"`
}

// longest is how much of a reason is told, so that what to type still fits into an event.
const longest = 600

func cut(s string) string {
	if s = kamino.Plain(s); len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// Of are the happenings that the status of a pool tells of, the oldest first. A donor that is away
// for longer than a limit is one.
func Of(s poolstate.PoolStatus, now time.Time, limit time.Duration) (all []Happening) {
	look := "kamino status --pool " + s.Name + " -o wide"
	add := func(h Happening) {
		h.Pool, h.Type = s.Name, cmp.Or(h.Type, look)
		all = append(all, h)
	}
	all = append(all, ofRuns(s, look)...)
	slices.Reverse(all) // the ledger begins with the newest
	if past := s.Kept(); past != nil {
		add(Happening{Key: "unfit/" + s.Next, Reason: kamino.EventProofFailed, Warning: true, At: past.Ended, Text: unfit(s)})
	}
	if u := s.Unfinished; u != nil && !u.Away().IsZero() && now.Sub(u.Away()) >= limit {
		add(Happening{Key: "away/" + u.Run + "/" + u.Donor, Reason: DonorAway, Warning: true, Type: "kamino restore --pool " + s.Name,
			Text: fmt.Sprintf("donor %s of pool %s has been away since %s and is not back: run %s is at step %s", u.Donor, s.Name,
				u.Away().UTC().Format(time.RFC3339), u.Run, cmp.Or(u.Step, "lock"))})
	}
	for _, r := range s.Refusals {
		text := cut(r.String())
		add(Happening{Key: "refused/" + sum(text), Reason: Refused, Warning: true, Quiet: true, Text: "pool " + s.Name + " is refused: " +
			text, Type: "kamino plan --pool " + s.Name})
	}
	return all
}

// ofRuns are those of the ledger, the newest first. A run that failed and was followed by one that
// did not is history. What is next is told when nobody holds the pool: a promotion writes the
// ledger at its end.
func ofRuns(s poolstate.PoolStatus, look string) (all []Happening) {
	promoted, succeeded := false, false
	for _, past := range s.Runs {
		h := Happening{Pool: s.Name, At: past.Ended, Type: look}
		switch {
		case past.Failure != "" && (past.Verb != "" || past.Interrupted || succeeded): // whoever typed it knows; it is given back
			continue
		case past.Failure != "":
			h.Warning, h.Key = true, "failed/"+past.Run
			h.Reason, h.Text = failed(s.Name, past)
		case past.Verb == kamino.VerbWithdraw || past.Verb == kamino.VerbRollback:
			promoted = true // what is next is so by this, and not by what came before
			h.Warning, h.Key, h.Reason = true, "withdrawn/"+past.Run, Withdrawn
			h.Text = fmt.Sprintf("version %s of pool %s was withdrawn", cmp.Or(past.Withdrawn, "that was next"), s.Name)
			if past.Reason != "" {
				h.Text += ": " + cut(past.Reason)
			}
			if past.Pointed != "" {
				h.Text += "; new nodes boot from " + past.Pointed
			}
		case !promoted && s.Unfinished == nil && s.Next != "" && (past.Version == s.Next || past.Pointed == s.Next):
			promoted, succeeded = true, true
			h.Key, h.Reason, h.Type = "promoted/"+s.Next, Promoted, ""
			h.Text = fmt.Sprintf("version %s is what new nodes of pool %s boot from", s.Next, s.Name)
			if past.Donor != "" {
				h.Text += ", made from node " + past.Donor
			}
		default:
			succeeded = succeeded || past.Work == ""
			continue
		}
		all = append(all, h)
	}
	return all
}

func failed(pool string, past kamino.PastRun) (reason, text string) {
	reason, text = RunFailed, fmt.Sprintf("run %s of pool %s failed: %s", past.Run, pool, cut(past.Failure))
	switch past.Proof {
	case kamino.ProofFailed:
		reason = kamino.EventProofFailed
	case kamino.ProofInconclusive:
		reason = kamino.EventProofInconclusive
	}
	if past.Work == kamino.WorkPatch {
		reason, text = kamino.EventPatchFailed, fmt.Sprintf("the patch of node %s of pool %s failed: %s", past.Donor, pool,
			cut(past.Failure))
	}
	return reason, text
}

// Failure is that of a run which no ledger tells of.
func Failure(run, pool string, at time.Time, err error) Happening {
	text, look := "a run failed: ", "kamino status"
	if pool != "" {
		text, look = "a run of pool "+pool+" failed: ", "kamino status --pool "+pool+" -o wide"
	}
	return Happening{Key: "failed/" + cmp.Or(run, fmt.Sprint(at.Unix())), Reason: RunFailed, Warning: true, Pool: pool, At: at,
		Text: text + said(err, longest-len(text)), Type: look}
}

// unfit tells that new nodes of what is next are not Ready, and why it was not withdrawn.
func unfit(s poolstate.PoolStatus) string {
	past := s.Kept()
	return cut(fmt.Sprintf("new nodes of pool %s boot from version %s and are not Ready: %s; %s", s.Name, s.Next,
		past.Reason, past.Failure))
}

// said is what an error says, and its hint where there is room.
func said(err error, room int) string {
	text := cut(err.Error())
	if hint := kamino.Hint(err); hint != "" && len(text)+len(hint) < room {
		text += "; " + cut(hint)
	}
	return text
}

func sum(s string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return fmt.Sprintf("%016x", h.Sum64())
}
