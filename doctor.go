package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Health is the result of a check.
type Health string

// The results. Only CheckFailed would stop a run.
const (
	CheckPassed Health = "ok"
	CheckWarned Health = "warning" // could not be found out, or is in the way at the moment only
	CheckFailed Health = "failed"
)

// Check is one thing that a run needs, and what was found.
type Check struct {
	Name  string `json:"check"`
	Pool  string `json:"pool,omitempty"`
	Node  string `json:"node,omitempty"`
	State Health `json:"result"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what to type or change next
}

// Doctor makes the checks of a run and changes nothing: with the named donor, or for
// each pool with its best candidate. What is wrong is among the checks; the error is for
// options that no run would accept.
func (e *Engine) Doctor(ctx context.Context, opts AutoOptions, donor string) ([]Check, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if donor != "" {
		named := opts.Options
		if named.Donor = donor; named.Validate() != nil {
			return nil, named.Validate()
		}
	}
	e = e.planning()
	d := &doctor{Run: e.newRun(opts.Options)}
	d.check("cloud", "credentials work, and allow what a run does", func() error { return d.checkCredentials(ctx) })
	d.check("cluster", "prepared, and allows what a run does", func() error { return d.checkCluster(ctx) })
	var paused *RefusedError
	if errors.As(e.refusePaused(ctx), &paused) { // who may not read it is told by the run
		d.failed(CodePaused, paused)
	}
	if donor != "" {
		run := opts.Options
		run.Donor = donor
		return append(d.checks, e.doctorRun(ctx, run)...), nil
	}
	pools, _, err := e.overviews(ctx, opts.Pools)
	if err != nil {
		d.failed("pools", err)
	} else if len(pools) == 0 {
		d.add(Check{Name: "pools", State: CheckFailed, Found: "no node of this cluster belongs to a pool",
			Do: "look at spec.providerID: kubectl get nodes -o yaml"})
	}
	for _, o := range pools {
		d.checks = append(d.checks, e.doctorPool(ctx, o, opts)...)
	}
	return d.checks, nil
}

// doctorPool makes the checks of a pool with its best candidate.
func (e *Engine) doctorPool(ctx context.Context, o overview, opts AutoOptions) []Check {
	d := &doctor{Run: e.newRun(opts.Options)}
	d.pool = Pool{ID: o.id, Name: o.id.Name()}
	if o.err != nil {
		d.failed("pool", o.err)
		return d.checks
	}
	p := o.decide(opts, e.now())
	best := ranked(p.Candidates)
	if len(best) == 0 {
		d.add(Check{Name: "donor", State: CheckWarned, Found: fmt.Sprintf("none of %d nodes is a candidate now: the other checks need one", len(p.Candidates)),
			Do: fmt.Sprintf("kamino plan --pool %s tells why; kamino doctor --target-node NODE checks a node of your choice", d.pool.Name)})
		return d.checks
	}
	return e.doctorRun(ctx, opts.runOf(best[0].Node, p))
}

// doctorRun makes the checks of a run with a donor, in the order of the run.
func (e *Engine) doctorRun(ctx context.Context, opts Options) []Check {
	d := &doctor{Run: e.newRun(opts)}
	d.plan, d.donor.node.Name = &Plan{}, opts.Donor
	if !d.check("donor", "can be used, and so can its pool", func() error { _, err := d.lookValidate(ctx); return err }) {
		return d.checks
	}
	if !d.checkLease(ctx) {
		return d.checks
	}
	d.check("model", "can be pointed at the new image", func() error { return d.planWorld(ctx) })
	for _, r := range d.plan.Refusals {
		d.refused(r)
	}
	for _, name := range peekable {
		if found, ok := d.peeked[name]; ok {
			d.add(Check{Name: name, State: CheckPassed, Found: found})
		}
	}
	if mark, err := d.donor.node.claim(d.pool.ID); mark != nil || err != nil {
		d.add(Check{Name: "rehearse", State: CheckWarned, Found: "not tried: the node carries the mark of a run", Do: "kamino status shows that run"})
		return d.checks
	}
	d.check("rehearse", "drain and seal are possible", func() error { _, err := d.rehearse(ctx, d.sealOrder()); return err })
	return d.checks
}

// doctor collects checks of one run that never begins.
type doctor struct {
	*Run
	checks []Check
}

func (d *doctor) add(c Check) {
	c.Pool, c.Node = d.pool.Name, d.donor.node.Name
	d.checks = append(d.checks, c)
}

// check adds what look found, and a warning for each doubt that it had.
func (d *doctor) check(name, fine string, look func() error) (passed bool) {
	doubts := len(d.doubts)
	err := look()
	if err != nil {
		d.failed(name, err)
	} else {
		d.add(Check{Name: name, State: CheckPassed, Found: fine})
	}
	for _, doubt := range d.doubts[doubts:] {
		d.add(Check{Name: name, State: CheckWarned, Found: doubt})
	}
	return err == nil
}

func (d *doctor) failed(name string, err error) {
	var refused *RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refusals {
			d.refused(r)
		}
		return
	}
	d.add(Check{Name: name, State: CheckFailed, Found: err.Error(), Do: Hint(err)})
}

func (d *doctor) refused(r Refusal) {
	found := r.Why
	if r.Field != "" {
		found = fmt.Sprintf("%s is %q: %s", r.Field, r.Value, r.Why)
	}
	if slices.Contains(peekable, r.Code) {
		found = r.Why
	}
	d.add(Check{Name: r.Code, State: CheckFailed, Found: found, Do: r.Do})
}

// checkLease reads the lease. A run that has it is no fault, but stands in the way.
func (d *doctor) checkLease(ctx context.Context) (passed bool) {
	lease, err := d.engine.Cluster.Lease(ctx, d.pool.ID)
	if err != nil {
		d.failed("lease", fmt.Errorf("read lease of pool %s: %w", d.pool.Name, err))
		return false
	}
	d.held.lease = &lease
	switch u := lease.unfinished(d.engine.now()); {
	case u == nil:
		d.add(Check{Name: "lease", State: CheckPassed, Found: "free"})
	case u.Alive:
		d.add(Check{Name: "lease", State: CheckWarned, Found: fmt.Sprintf("run %s (process %s) is at work", u.Run, u.Process), Do: "wait for it to end; kamino status shows it"})
	default:
		d.add(Check{Name: "lease", State: CheckWarned, Found: fmt.Sprintf("run %s (process %s) has ended and left the lease", u.Run, u.Process),
			Do: "kamino restore gives back what it took"})
	}
	return true
}
