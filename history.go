package kamino

import (
	"errors"
	"slices"
	"time"
)

// passed puts a run that has ended in front of the past ones.
func (l *Ledger) passed(p PastRun) {
	l.Past = append([]PastRun{p}, l.Past...)
	l.Past = l.Past[:min(len(l.Past), maxPast)]
}

// failed notes the run of a record that comes to its end without success. What
// holds a pool without a donor, as a restore does, is no run.
func (l *Ledger) failed(run string, rec Record, now time.Time) {
	if run == "" || rec.Donor == "" {
		return
	}
	if rec.FailedAt == "" {
		rec.FailedAt = rec.Step
	}
	l.passed(PastRun{Run: run, Donor: rec.Donor, Version: rec.Version, Ended: now, Seconds: now.Sub(rec.Started).Seconds(), AwaySeconds: rec.away().Seconds(),
		Failure: cutText(firstWord(rec.Failure, processEnded+rec.FailedAt), maxFailure), Step: rec.FailedAt})
}

// away is how long the donor was away, as far as processes noted it.
func (r Record) away() time.Duration {
	if r.AwaySince.IsZero() || r.AwayEnds.IsZero() {
		return 0
	}
	return r.AwayEnds.Sub(r.AwaySince)
}

// asFound is a record with the step at which an adopted run was found: what gives
// it back writes steps of its own.
func (r *Run) asFound(rec Record) Record {
	if rec.FailedAt == "" {
		rec.FailedAt = r.before.Step
	}
	return rec
}

const (
	processEnded = "its process ended at step "
	// maxFailure is how many characters of a failure the ledger keeps: annotations
	// of an object hold 256 KiB together.
	maxFailure = 400
)

func cutText(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// failedStep is the step that an error of a run comes from.
func failedStep(err error) string {
	var s *StepError
	if errors.As(err, &s) {
		return s.Step
	}
	return ""
}

// expected is how long a run takes here: the medians of those that ended well.
func (l Ledger) expected() (run, away float64) {
	var runs, aways []float64
	for _, p := range l.Past {
		if p.Failure == "" && p.AwaySeconds > 0 {
			runs, aways = append(runs, p.Seconds), append(aways, p.AwaySeconds)
		}
	}
	return median(runs), median(aways)
}

// median is the value in the middle, of two the mean; 0 of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Unfinished is a run that holds a pool, or one that left a marked node and no lease.
type Unfinished struct {
	Run     string `json:"run"`
	Process string `json:"process"` // "" when nobody holds the pool
	Record
	// Heartbeat is when its process last wrote the lease, by that process's clock,
	// and Silence how many seconds ago that is by ours.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Silence   float64   `json:"heartbeatAgeSeconds,omitempty"`
	// Alive: the silence is no longer than a run that works may be silent.
	Alive bool `json:"alive"`
}

// aliveFor is how long ago the last heartbeat of a run may be that is told to be
// alive. Whether a run may be taken over is never decided by it, as clocks differ:
// see lookLock.
const aliveFor = LeaseDuration

// unfinished is the run that holds the lease; nil when none does.
func (l Lease) unfinished(now time.Time) *Unfinished {
	if l.Holder == "" {
		return nil
	}
	u := &Unfinished{Run: l.Holder, Process: l.Process, Record: l.Record, Heartbeat: l.Renewed}
	if !l.Renewed.IsZero() {
		silence := max(now.Sub(l.Renewed), 0)
		u.Silence, u.Alive = silence.Round(time.Second).Seconds(), silence <= aliveFor
	}
	return u
}
