package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// examineLimit is how long a patched node may take to be healthy, from when it is Ready.
const examineLimit = 10 * time.Minute

// warn writes an event on a node that a person should look at, with what to type.
func (c *common) warn(ctx context.Context, n kamino.Node, reason, what string, err error) {
	rec, ok := c.engine.Cluster.(kamino.Recorder)
	if !ok || n.Name == "" {
		return
	}
	typed := "kamino status --pool " + c.pool.ID.Name() + " -o wide"
	if reason == kamino.EventDonorAway {
		typed = "kamino restore --pool " + c.pool.ID.Name()
	}
	if hint := kamino.Hint(err); hint != "" && len(what)+len(hint) < 600 { // what to type must fit in
		what += "; " + hint
	}
	rec.Record(ctx, n, c.held.Run, reason, kamino.CutText(kamino.Plain(what), 800)+`. Type "`+typed+`"`)
}

// said returns the doubts that were reported.
func (c *common) said() (texts []string) {
	for _, d := range c.doubts {
		texts = append(texts, d.String())
	}
	return texts
}

// doubt reports once what could not be found out.
func (c *common) doubt(step, what string) { c.doubtAll(step, []kamino.Warning{{Found: what}}) }

func (c *common) doubtAll(step string, doubts []kamino.Warning) {
	for _, d := range doubts {
		if slices.Contains(c.doubts, d) {
			continue
		}
		c.doubts = append(c.doubts, d)
		c.tell(kamino.Event{Kind: kamino.EventWarning, Step: step, Percent: -1, Message: d.String()})
	}
}

// work returns the kind of the run.
func (c *common) work() kamino.Work {
	switch {
	case c.opts.Patch != nil:
		return kamino.WorkPatch
	case c.opts.Version != "":
		return kamino.WorkProve
	}
	return ""
}

// refusePaused refuses while the cluster is paused. It does not ask again before the API server
// allows it.
func (c *common) refusePaused(ctx context.Context) error {
	now := c.engine.now()
	if left := c.pauseAsked.Sub(now); left > 0 {
		return &kamino.ThrottledError{After: left, Err: errors.New("read whether runs are paused: too many requests before")}
	}
	c.pauseAsked = now
	err := c.engine.refusePaused(ctx)
	if throttled := (*kamino.ThrottledError)(nil); errors.As(err, &throttled) {
		c.pauseAsked = now.Add(throttled.After)
	}
	if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) && c.held.Lease != nil {
		refused.Subject = "the rest of run " + c.held.Run
		ends := "the run ends and gives back what it took"
		if c.verb == kamino.VerbPromote {
			refused.Subject, ends = "the promotion", "nothing more is changed"
		}
		refused.Refusals[0].Do = ends + ": kamino resume, then the same command again"
	}
	return err
}

const (
	// returnLimit is how long a run tries to bring the donor back before it notifies a person.
	returnLimit = time.Hour
	// buildLimit is how long the build and replication of a version may take.
	buildLimit = 6 * time.Hour
	// proofLimit is how long a run waits for a canary's node, whatever the boot budget.
	proofLimit = 3 * time.Hour
	// patchLimit is the limit of the step; the agent has its own limit for the package manager.
	patchLimit = 5 * time.Hour
)

// Step is a step of a run.
type Step = workflow.Step

// proves reports whether versions of this run are proved.
func (c *common) proves() bool {
	_, looks := c.engine.Cluster.(kamino.Examiner)
	return looks && c.mode != kamino.ProveNone
}

// common is what all parts of a run share: the options, the lock of the pool, and the result.
type common struct {
	engine *Engine
	opts   kamino.Options
	holds  *holds
	runner workflow.Runner
	verb   kamino.Verb // what the run does in place of an update; "" for an update

	pauseAsked time.Time // when the stop switch was last read

	pool   kamino.Pool
	held   lock.Lock        // the lock of the pool
	mode   kamino.ProveMode // how the version is proved; "" until it is decided
	plan   *poolstate.Plan  // set in a dry run
	result Result
	doubts []kamino.Warning // reported as warnings already
}

func (c *common) tell(ev kamino.Event) {
	ev.Pool, ev.Run = c.pool.Name, c.held.Run
	c.engine.report(ev)
}

func (c *common) exec(ctx context.Context, steps []Step) error { return c.runner.Exec(ctx, steps) }

// hold is something that a run has taken and must restore, worded for people.
type hold struct {
	what  string
	until string // the step that restores it; "": only the release of the lease does
}

// holds is what a run holds now. Runs that restore in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what an adopted run holds until its steps have reported more.
var adoptedHold = hold{"resources of its previous process, possibly the donor", kamino.StepReturn}

// takes records what a step takes, once it has acted, or has found it done by the previous process.
func (c *common) takes(s Step) {
	if c.held.Adopted && s.Name == kamino.StepLock {
		c.holds.add(adoptedHold)
	}
	if s.Takes != "" {
		c.holds.add(hold{s.Takes, s.Until})
	}
	c.tellHolds()
}

// passed removes what a finished step restores, and calls DonorBack if the donor is back.
func (c *common) passed(s Step) {
	c.holds.drop(func(h hold) bool { return h.until == s.Name || h.until == s.Ends })
	c.tellHolds()
	if s.DonorBack && c.engine.DonorBack != nil {
		c.engine.DonorBack(c.pool.ID)
	}
}

// release releases the lease, and with it what only the release restores.
func (c *common) release(ctx context.Context, note func(*kamino.Lease)) error {
	if err := c.held.Release(ctx, note); err != nil {
		return err
	}
	c.holds.list = slices.DeleteFunc(c.holds.list, func(one hold) bool { return one.until == "" })
	c.tellHolds()
	return nil
}

func (h *holds) add(one hold) {
	if !slices.Contains(h.list, one) {
		h.list = append(h.list, one)
	}
}

func (h *holds) drop(over func(hold) bool) {
	h.list = slices.DeleteFunc(h.list, func(one hold) bool { return one.until != "" && over(one) })
}

func (c *common) tellHolds() {
	if c.engine == nil || c.engine.Holds == nil {
		return
	}
	what := make([]string, len(c.holds.list))
	for i, h := range c.holds.list {
		what[i] = h.what
	}
	c.engine.Holds(c.pool.ID, what)
}
