package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/poolstate"
)

// Health is the result of a check.
type Health string

// The results of a check. Only CheckFailed would stop a run.
const (
	CheckPassed Health = "ok"
	CheckWarned Health = "warning" // could not be found out, or prevents a run only at the moment
	CheckFailed Health = "failed"
)

// Check is one requirement of a run, with what was found.
type Check struct {
	Name  string `json:"check"`
	Pool  string `json:"pool,omitempty"`
	Node  string `json:"node,omitempty"`
	State Health `json:"result"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what to type or change next
}

// Doctor makes the checks of a run and changes nothing: with the named donor, or for each pool with
// its best candidate. Problems are in the checks; the error is for options that no run would
// accept.
func (e *Engine) Doctor(ctx context.Context, opts kamino.AutoOptions, donor string) ([]Check, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if donor != "" {
		opts.Donor = donor
		if err := opts.Options.Validate(); err != nil {
			return nil, err
		}
	}
	e, ctx = e.planning(), kamino.Looking(ctx)
	d := &doctor{Run: newRun(e, opts.Options)}
	d.check("cloud", "credentials work, and allow what a run does", func() error { return d.checkCredentials(ctx) })
	d.check("cluster", "prepared, and allows what a run does", func() error { return d.checkCluster(ctx) })
	var paused *kamino.RefusedError
	if errors.As(e.refusePaused(ctx), &paused) { // the run reports if it may not read the pause
		d.failed(string(kamino.CodePaused), paused)
	}
	if donor != "" {
		return append(d.checks, doctorRun(ctx, e, opts.Options)...), nil
	}
	pools, _, err := e.overviews(ctx, opts.Pools)
	if err != nil {
		d.failed("pools", err)
	} else if len(pools) == 0 {
		d.add(Check{Name: "pools", State: CheckFailed, Found: "no node of this cluster belongs to a pool",
			Do: "check spec.providerID: kubectl get nodes -o yaml"})
	}
	for _, o := range pools {
		d.checks = append(d.checks, doctorPool(ctx, e, o, opts)...)
	}
	return d.checks, nil
}

// doctorPool makes the checks of a pool with its best candidate.
func doctorPool(ctx context.Context, e *Engine, o poolstate.State, opts kamino.AutoOptions) []Check {
	d := &doctor{Run: newRun(e, opts.Options)}
	d.pool = kamino.Pool{ID: o.ID, Name: o.ID.Name()}
	if o.Err != nil {
		d.failed("pool", o.Err)
		return d.checks
	}
	for _, b := range o.Blocked() {
		d.checks = append(d.checks, Check{Name: "patch", Pool: d.pool.Name, Node: b.Node, State: CheckWarned,
			Found: "blocked " + b.String(), Do: b.Do()})
	}
	p := o.Decide(opts, e.now())
	best := poolstate.Ranked(p.Candidates)
	if len(best) == 0 {
		d.checkLease(ctx)
		d.add(Check{Name: "donor", State: CheckWarned, Found: fmt.Sprintf("none of %d nodes is a candidate now: the other checks need one",
			len(p.Candidates)),
			Do: fmt.Sprintf("kamino plan --pool %s shows why; kamino doctor --target-node NODE checks a node of your choice", d.pool.Name)})
		return d.checks
	}
	return append(d.checks, doctorRun(ctx, e, p.RunOf(opts, best[0].Node))...)
}

// doctorRun makes the checks of a run with a donor, in the order of the run.
func doctorRun(ctx context.Context, e *Engine, opts kamino.Options) []Check {
	d := &doctor{Run: newRun(e, opts)}
	d.plan, d.donor.node.Name = &poolstate.Plan{}, opts.Donor
	if !d.check("donor", "can be used, and so can its pool", func() error { _, err := d.lookValidate(ctx); return err }) {
		if err := d.dry.planLease(ctx); err == nil && d.plan.Unfinished != nil {
			refused := d.checks
			d.checks = nil
			d.checkLease(ctx) // first, because that run may be the cause of the others
			d.checks = append(d.checks, refused...)
		}
		return d.checks
	}
	if !d.checkLease(ctx) {
		return d.checks
	}
	if d.plan.Unfinished = d.held.Lease.Unfinished(d.engine.now()); d.dry.adopts() {
		d.checks[0].Found = "taken by run " + d.held.Lease.Holder + ", with which an update of it continues"
	}
	d.check("model", "can be pointed at the new image", func() error { return d.dry.planWorld(ctx) })
	for _, r := range d.plan.Refusals {
		d.refused(r)
	}
	for _, name := range peekable {
		if found, ok := d.dry.peeked[name]; ok {
			d.add(Check{Name: name, State: CheckPassed, Found: strings.TrimPrefix(found, nothingToDo)})
		}
	}
	if mark, err := d.donor.node.Claimed(d.pool.ID); mark != nil || err != nil {
		d.add(Check{Name: kamino.StepRehearse, State: CheckWarned, Found: "not tried: the node carries the mark of a run",
			Do: "kamino status shows that run"})
		return d.checks
	}
	d.check(kamino.StepRehearse, "drain and seal are possible",
		func() error { _, err := d.donor.rehearse(ctx, d.donor.sealOrder()); return err })
	return d.checks
}

// doctor collects the checks of a run that never begins.
type doctor struct {
	*Run
	checks []Check
}

func (d *doctor) add(c Check) {
	c.Pool, c.Node = d.pool.Name, d.donor.node.Name
	d.checks = append(d.checks, c)
}

// check adds the result of look, and a warning for each doubt.
func (d *doctor) check(name, fine string, look func() error) (passed bool) {
	doubts := len(d.doubts)
	err := look()
	if err != nil {
		d.failed(name, err)
	} else {
		d.add(Check{Name: name, State: CheckPassed, Found: fine})
	}
	for _, doubt := range d.doubts[doubts:] {
		d.add(Check{Name: name, State: CheckWarned, Found: doubt.Found,
			Do: cmp.Or(doubt.Do, "nothing: the run continues, and reports this too")})
	}
	return err == nil
}

func (d *doctor) failed(name string, err error) {
	var refused *kamino.RefusedError
	if errors.As(err, &refused) {
		for _, r := range refused.Refusals {
			d.refused(r)
		}
		return
	}
	do := "see docs/operations.md if this message appears again"
	if errors.Is(err, kamino.ErrForbidden) {
		do = "grant what the message names: docs/azure-role.json, docs/aws-policy.json, and kamino init for the cluster"
	}
	d.add(Check{Name: name, State: CheckFailed, Found: err.Error(), Do: kamino.AdviceOr(err, do)})
}

func (d *doctor) refused(r kamino.Refusal) {
	found := r.Why
	if r.Field != "" {
		found = fmt.Sprintf("%s is %q: %s", r.Field, r.Value, r.Why)
	}
	if slices.Contains(peekable, string(r.Code)) {
		found = r.Why
	}
	d.add(Check{Name: string(r.Code), State: CheckFailed, Found: found, Do: r.Do})
}

// checkLease reads the lease. A run that holds it is no fault, but prevents another run.
func (d *doctor) checkLease(ctx context.Context) (passed bool) {
	lease, err := d.engine.Cluster.Lease(ctx, d.pool.ID)
	if err != nil {
		d.failed("lease", fmt.Errorf("read lease of pool %s: %w", d.pool.Name, err))
		return false
	}
	d.held.Lease = &lease
	u := lease.Unfinished(d.engine.now())
	if u == nil {
		d.add(Check{Name: "lease", State: CheckPassed, Found: "free"})
		return true
	}
	who, do := fmt.Sprintf("run %s (process %s)", u.Run, u.Process), "kamino restore gives back what it took"
	if u.Work == kamino.WorkPatch {
		who = fmt.Sprintf("patch run %s (process %s), which has had node %s since %s, at step %s,", u.Run, u.Process, u.Donor,
			u.Started.UTC().Format(time.RFC3339), u.Step)
		do = kamino.GoesOn(u.Donor)
	}
	left := " has ended and left the lease"
	if since := u.Away(); !since.IsZero() {
		left += fmt.Sprintf("; node %s may be off since %s", u.Donor, since.UTC().Format(time.RFC3339))
		if u.Work != kamino.WorkPatch {
			do = fmt.Sprintf("kamino update --target-node %s finishes it, %s", u.Donor, do)
		}
	}
	if u.Alive {
		d.add(Check{Name: "lease", State: CheckWarned, Found: who + " is at work", Do: "wait for it to end; " + lock.HowToEnd(u.Process)})
	} else {
		d.add(Check{Name: "lease", State: CheckWarned, Found: who + left, Do: do})
	}
	return true
}

// PackageDiff compares the packages of a running node with those of the next node of its pool.
type PackageDiff struct {
	Node    string               `json:"node"`
	Pool    string               `json:"pool"`
	Version string               `json:"nextVersion"`
	Same    int                  `json:"same"`
	Differs []PackageDrift       `json:"differs"`
	Missing []kamino.CachedImage `json:"imagesNotCached"` // images of the node that the next one would have to pull
}

// PackageDrift is a package that differs. Several versions of a package (kernels) are joined by
// commas; "" means not installed.
type PackageDrift struct {
	Name string `json:"name"`
	Arch string `json:"architecture,omitempty"`
	Next string `json:"next,omitempty"`
	Node string `json:"node,omitempty"`
}

// PackageDiff reads a node's packages by a pod, and compares them with those of the pool's next
// image. It leaves the node as it was.
func (e *Engine) PackageDiff(ctx context.Context, name string) (out PackageDiff, err error) {
	shelf, ok := e.Cluster.(kamino.PackageStore)
	if !ok {
		return out, fmt.Errorf("compare packages: %w", kamino.ErrUnsupported)
	}
	n, err := e.namedNode(ctx, name)
	if err != nil {
		return out, err
	}
	id, err := e.namedPool(ctx, n)
	if err != nil {
		return out, err
	}
	all, _, err := e.overviews(ctx, []string{string(id)})
	if err != nil {
		return out, err
	}
	next := all[0].Next()
	switch {
	case all[0].Err != nil:
		return out, all[0].Err
	case next == nil:
		return out, kamino.WithHint(fmt.Errorf("compare packages: the next node of pool %s boots from an image that is not a prototype, whose packages are unknown", id.Name()),
			"kamino update --target-node %s makes a version; kamino promote --pool %s takes one that waits", name, id.Name())
	}
	list, err := shelf.List(ctx, next.Run)
	if errors.Is(err, kamino.ErrNotFound) {
		return out, kamino.WithHint(fmt.Errorf("compare packages: no package list of version %s is kept", next.Name),
			"the next update keeps one")
	} else if err != nil {
		return out, fmt.Errorf("read the packages of version %s: %w", next.Name, err)
	}
	have, err := askPackages(ctx, e, shelf, n)
	if err != nil {
		return out, err
	}
	out = PackageDiff{Node: name, Pool: id.Name(), Version: next.Name}
	out.Same, out.Differs = comparePackages(list.Packages, have)
	out.Missing = list.Lacks(n)
	return out, nil
}

// packagesEnded is how long another process's pod must have ended before it counts as left behind.
// A live process reads the list and removes the pod within seconds.
const packagesEnded = 10 * time.Second

// askPackages reads a node's list by a pod, and removes the pod. Processes that ask the same node
// take turns: the pod's name is the node's, and each process recognizes its own pod by the nonce.
func askPackages(ctx context.Context, e *Engine, shelf kamino.PackageStore, n kamino.Node) (list []string, err error) {
	switch mark, merr := n.Mark(); {
	case merr != nil:
		return nil, merr
	case mark != nil:
		return nil, fmt.Errorf("node %s is the donor of run %s: its packages can be read when it is back", n.Name, mark.Run)
	case !n.Ready:
		return nil, fmt.Errorf("node %s is not Ready: no pod can read its packages", n.Name)
	}
	sum := sha256.Sum256([]byte(n.UID))
	order, asked := kamino.SealOrder{Run: "diff-" + hex.EncodeToString(sum[:4]), Nonce: rand.Text()}, false
	defer func() {
		if !asked {
			return
		}
		// Also after a signal, which has ended ctx.
		back, cancel := e.clock().WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if ferr := shelf.ForgetPackages(back, n, order); ferr != nil && !errors.Is(ferr, kamino.ErrNotFound) {
			err = errors.Join(err, fmt.Errorf("clean up after reading the packages of node %s: %w", n.Name, ferr))
		}
	}()
	var seen kamino.AgentPod // a pod of another process that has ended
	var ended time.Time
	for began := e.now(); ; {
		pod, err := e.Cluster.AgentPod(ctx, order.Run, kamino.TaskPackages)
		if err != nil {
			return nil, fmt.Errorf("read the pod that lists the packages: %w", err)
		}
		others := pod.Exists && pod.Nonce != order.Nonce
		if !others || pod.Nonce != seen.Nonce || !pod.Done && !pod.Failed {
			seen, ended = pod, e.now()
		}
		switch {
		case !pod.Exists, others && e.now().Sub(ended) >= packagesEnded:
			asked = true
			if err := shelf.AskPackages(ctx, n, order); err != nil {
				return nil, fmt.Errorf("read packages of node %s: %w", n.Name, err)
			}
		case !others:
			now, err := e.Cluster.Node(ctx, n.Name)
			if err != nil {
				return nil, fmt.Errorf("read node %s: %w", n.Name, err)
			}
			if list, ok := now.Packages(order.Run, order.Nonce); ok {
				return list, nil
			}
			if pod.Failed {
				return nil, fmt.Errorf("node %s did not report its packages: %s", n.Name, pod.Message)
			}
		}
		switch late := e.now().Sub(began) > packagesLimit; {
		case late && others:
			return nil, kamino.WithHint(fmt.Errorf("read packages of node %s: another process has been reading them for %s, by pod %s",
				n.Name, packagesLimit, pod.Name),
				"run the command again; if no other process reads them: kubectl delete pod -n %s", strings.Replace(pod.Name, "/", " ", 1))
		case late:
			return nil, fmt.Errorf("node %s did not report its packages within %s; the pod is %s", n.Name, packagesLimit,
				cmp.Or(pod.Message, "not there"))
		}
		if err := e.clock().Sleep(ctx, packagesPause); err != nil {
			return nil, err
		}
	}
}

// comparePackages compares two lists by name and architecture.
func comparePackages(next, node []string) (same int, differs []PackageDrift) {
	all := map[PackageDrift][2][]string{}
	for side, list := range [][]string{next, node} {
		for _, line := range list {
			name, rest, _ := strings.Cut(line, " ")
			version, arch, _ := strings.Cut(rest, " ")
			both := all[PackageDrift{Name: name, Arch: arch}]
			both[side] = append(both[side], version)
			all[PackageDrift{Name: name, Arch: arch}] = both
		}
	}
	differs = []PackageDrift{}
	for _, p := range slices.SortedFunc(maps.Keys(all), func(a, b PackageDrift) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Arch, b.Arch))
	}) {
		both := all[p]
		if slices.Equal(both[0], both[1]) {
			same++
			continue
		}
		p.Next, p.Node = strings.Join(both[0], ","), strings.Join(both[1], ",")
		differs = append(differs, p)
	}
	return same, differs
}
