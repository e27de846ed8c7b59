package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// donorView is what a run knows of its donor, and how freshly.
type donorView struct {
	engine *Engine

	node     Node
	read     bool      // node was read since the last act and the last pause
	readAt   time.Time // when node was read; zero once something was done to it
	instance Instance
	seenAt   time.Time // when instance was read; zero since the last act and the last pause
	// watchedOn is when the donor was last seen on, without a gap in which it could
	// have gone off and been started again since before it was sealed.
	watchedOn time.Time
	// unjudged: it was marked when it was validated, and not all was asked of it.
	unjudged bool
}

// readNode reads the donor again and makes sure that it still is the machine
// that the run began with, and that no other run has it.
func (v *donorView) readNode(ctx context.Context, run string) (Node, *Mark, error) {
	n, err := v.rereadNode(ctx)
	if err != nil {
		return n, nil, fmt.Errorf("read node %s: %w", v.node.Name, err)
	}
	mark, err := n.Mark()
	if err != nil {
		return n, nil, err
	}
	if !SameVM(n.SystemUUID, v.instance.VMID) {
		return n, mark, fmt.Errorf("donor lost: node %s now runs on VM %s, the run began with VM %s",
			n.Name, n.SystemUUID, v.instance.VMID)
	}
	if mark != nil && mark.Run != run {
		return n, mark, fmt.Errorf("donor lost: node %s is marked by run %s", n.Name, mark.Run)
	}
	v.sawNode(n)
	return n, mark, nil
}

// recentNode is readNode where a node that was read within lookAge will do: where
// nothing is waited for that the node itself would show.
func (v *donorView) recentNode(ctx context.Context, run string) (Node, *Mark, error) {
	v.read = v.recent()
	return v.readNode(ctx, run)
}

// sawNode remembers the donor's node as it was just read. What was read before
// the pause keeps its age.
func (v *donorView) sawNode(n Node) {
	if !v.read {
		v.readAt = v.engine.now()
	}
	v.node, v.read = n, true
}

// rereadNode reads the donor's node. What one step has just read the next one
// need not read again, as long as nothing was done and little time has passed.
func (v *donorView) rereadNode(ctx context.Context) (Node, error) {
	if v.read = v.read && v.recent(); v.read {
		return v.node, nil
	}
	return v.engine.Cluster.Node(ctx, v.node.Name)
}

func (v *donorView) recent() bool { return elapsed(v.readAt, v.engine.now()) < lookAge }

// readInstance reads the donor's VM again, with the same care.
func (v *donorView) readInstance(ctx context.Context) (Instance, error) {
	in, err := v.engine.Provider.Instance(ctx, v.instance.ID)
	if err != nil {
		return in, fmt.Errorf("read instance %s: %w", v.instance.ID, err)
	}
	if in = in.as(v.instance.VMID); !SameVM(in.VMID, v.instance.VMID) {
		return in, fmt.Errorf("donor lost: instance %s is now VM %s, the run began with VM %s", in.ID, in.VMID, v.instance.VMID)
	}
	return v.sawInstance(in), nil
}

// sawInstance remembers the donor's instance as it was just read.
func (v *donorView) sawInstance(in Instance) Instance {
	in.Architecture = cmp.Or(in.Architecture, v.instance.Architecture)
	v.instance, v.seenAt = in, v.engine.now()
	return in
}

// instanceNow is readInstance, unless the step before has just done that.
func (v *donorView) instanceNow(ctx context.Context) (Instance, error) {
	if elapsed(v.seenAt, v.engine.now()) <= justNow {
		return v.instance, nil
	}
	return v.readInstance(ctx)
}

// asShown is an instance as the cloud shows it, another VM's too, or the donor's as the step before
// has just read it.
func (v *donorView) asShown(ctx context.Context, id InstanceID) (Instance, error) {
	if id == v.instance.ID && elapsed(v.seenAt, v.engine.now()) <= justNow {
		return v.instance, nil
	}
	v.seenAt = time.Time{} // until the caller is sure that it is the donor (sawShown)
	return v.engine.Provider.Instance(ctx, id)
}

// sawShown is sawInstance for what asShown has read, and not for what it remembered.
func (v *donorView) sawShown(in Instance) Instance {
	if v.seenAt.IsZero() {
		return v.sawInstance(in)
	}
	return in
}

// stillOn says whether a machine that runs has run without a break since it was
// sealed. One that went off and was started again is sealed no more, and until
// its kubelet reports nothing else tells. Where nobody watched, it is believed
// for as long as a machine needs to go off; spent is how long it is asked already.
func (v *donorView) stillOn(spent time.Duration) bool {
	now := v.engine.now()
	if v.watchedOn.IsZero() || now.Sub(v.watchedOn) > watchGap {
		v.watchedOn = time.Time{}
		return spent < guestHalt
	}
	v.watchedOn = now
	return true
}

// watchGap is shorter than any machine needs to go off and on again.
const watchGap = LongestPoll + 2*time.Second

// goneAfter is how long something that is known to be there must be missing, from reads and from
// lists, before that is believed: a donor's instance, or a version. Microsoft's support names the
// replication between regions as the cause of 404s for resources that exist
// (https://github.com/hashicorp/terraform-provider-azurerm/issues/18268); for how long they last no
// source was found (unverified).
const goneAfter = 3 * time.Minute

// lookMissing decides what it means that the donor's instance was not found. It is gone only if its
// pool can be read and lists it no more, twice and goneAfter apart, and its node is not alive
// meanwhile.
func (r *Run) lookMissing(ctx context.Context, id InstanceID) (Next, error) {
	if r.back.poolGone {
		return done("the donor is gone with its pool"), nil
	}
	now := r.engine.now()
	first := r.back.missing.id != id
	if !first && now.Sub(r.back.missing.since) < goneAfter {
		return wait("the donor's instance, which is not found, to be found or to be confirmed gone"), nil
	}
	pool, err := r.engine.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return Next{}, hintPool(fmt.Errorf("read pool %s: %w", r.pool.Name, err), r.pool.ID)
	}
	listed, err := r.engine.Provider.Instances(ctx, pool)
	if err != nil {
		return Next{}, fmt.Errorf("list the instances of pool %s: %w", r.pool.Name, err)
	}
	switch {
	case slices.ContainsFunc(listed, id.same):
		r.back.missing = missing{}
		return wait("the donor's instance, which its pool lists, to be found"), nil
	case first:
		r.back.missing = missing{id, now}
		return wait("the donor's instance, which is not found, to be found or to be confirmed gone"), nil
	case r.donor.node.Ready && r.donor.node.runsOn(id):
		return wait("the donor's instance, which is not found although its node is Ready"), nil
	}
	if r.wasHeld() {
		r.doubtAll(InRelease, []Doubt{r.engine.holder().Lost(pool, id)})
	}
	return done("the donor is gone: its instance was deleted"), nil
}

// wasHeld says whether the donor was taken out of service, as its node or a lease of the run tells.
func (r *Run) wasHeld() bool {
	if !r.mayRelease() {
		return false
	}
	mark, err := r.donor.node.Mark()
	return err == nil && mark != nil && mark.Held || r.held.before.Held || r.held.lease != nil && r.held.lease.Record.Held
}

// missing is an instance that was neither found nor listed.
type missing struct {
	id    InstanceID
	since time.Time
}

func (id InstanceID) same(other InstanceID) bool { return strings.EqualFold(string(id), string(other)) }

// stranger tells why an instance may not be the machine of the donor, "" when it may. What a lease
// says about a donor is a claim, as a mark is: nothing is done to a machine of another pool, or to
// one that another node runs on.
func (r *Run) stranger(ctx context.Context, donor string, id InstanceID) (string, error) {
	if pool, err := r.engine.poolOf(ctx, Node{Name: donor, ProviderID: id}); err != nil {
		return "", err
	} else if pool != r.pool.ID {
		return fmt.Sprintf("instance %s does not belong to pool %s", id, r.pool.Name), nil
	}
	if r.donor.node.Name == donor && r.donor.node.runsOn(id) {
		return "", nil
	}
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if n.runsOn(id) && n.Name != donor {
			return fmt.Sprintf("instance %s is the machine of node %s, not of %s", id, n.Name, donor), nil
		}
	}
	return "", nil
}

// replaced says whether an instance that was read is certainly another machine than that VM.
func replaced(in Instance, vm string) bool {
	_, now := vmID(in.VMID)
	_, then := vmID(vm)
	return now && then && !SameVM(in.VMID, vm)
}

// Holding is how an instance stands in its pool.
type Holding string

// How an instance stands.
const (
	InService Holding = "in service" // replaced as soon as it is off
	Held      Holding = "held"       // left alone, whatever its power
	Moving    Holding = "moving"     // becomes one of the two by itself
	// Remains: it is in service or gone, and something that Hold did to the pool is still to be
	// undone by Release.
	Remains Holding = "remains"
)

// Holder is a [Provider] whose pools replace an instance in service that is off, found by asking.
// One that is no Holder leaves such an instance alone.
type Holder interface {
	// Holding reads how an instance stands. ErrNotFound: the pool does not have it, and nothing
	// remains.
	Holding(context.Context, Pool, InstanceID) (Holding, error)
	// Hold begins to take an instance out of service without another one in its place, and keeps
	// the pool from making up for the gap by other means. What of that was so before is left.
	// ErrUnsupported: the pool would have too few instances.
	Hold(context.Context, Pool, InstanceID) error
	// Release begins to put an instance back in service and, once that is done, undoes what Hold
	// did to the pool. ErrInProgress: it does not run, so that it would be replaced.
	Release(context.Context, Pool, InstanceID) error
	// Lost tells what a pool may lack after an instance is gone that was held, and what to type. It
	// makes no call: whether others have changed the pool's capacity since, nobody can know.
	Lost(Pool, InstanceID) Doubt
}

// holder is the provider as one that holds instances; nil where no pool replaces what is off.
func (e *Engine) holder() Holder {
	holder, _ := e.asked().(Holder)
	return holder
}

// asked is the provider that is asked what it can do besides: a plan's memory can do nothing.
func (e *Engine) asked() Provider {
	if plan, ok := e.Provider.(*readOnce); ok {
		return plan.Provider
	}
	return e.Provider
}

func (r *Run) holdsDonor() bool { return r.mayRelease() && r.donorNeeded() }

func (r *Run) releasesDonor() bool { return r.mayRelease() && r.donorMarked() }

func (r *Run) mayRelease() bool { return r.engine.holder() != nil }

// holding reads how an instance stands in the pool, which is one that replaces what is off.
func (r *Run) holding(ctx context.Context, id InstanceID) (Holding, error) {
	how, err := r.engine.holder().Holding(ctx, r.pool, id)
	if err != nil {
		return how, fmt.Errorf("read the state of instance %s in pool %s: %w", id, r.pool.Name, err)
	}
	return how, nil
}

// refuseHeld refuses a donor that somebody else has taken out of service.
func (r *Run) refuseHeld(ctx context.Context) error {
	if !r.mayRelease() {
		return nil
	}
	how, err := r.holding(ctx, r.donor.instance.ID)
	if err != nil || how == InService || how == Remains {
		return err
	}
	return &RefusedError{Subject: "node " + r.donor.node.Name, Refusals: []Refusal{{Code: "held", Field: "state in pool " + r.pool.Name, Value: string(how),
		Why: "the donor's instance is not in service, and Kamino did not take it out", Do: "put it in service, or choose another node"}}}
}

// refuseServed ends a run whose donor somebody has put back in service before it is switched off:
// its pool would replace it.
func (r *Run) refuseServed(ctx context.Context) error {
	if !r.mayRelease() {
		return nil
	}
	how, err := r.holding(ctx, r.donor.instance.ID)
	if err != nil || how == Held {
		return err
	}
	return WithHint(fmt.Errorf("somebody has put instance %s back in service (%s): switched off, pool %s would replace it", r.donor.instance.ID, how, r.pool.Name),
		"find out what ends its Standby, then run the command again")
}

const holdTheDonor = "take the donor out of service"

// lookHold takes the donor out of service. That is written down first, on the node and on the
// lease: whoever finds it there gives it back.
func (r *Run) lookHold(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.recentNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if mark == nil || !mark.Held {
		next, err := r.remark(ActHolding, "record on the node that it is about to be taken out of service", n, mark, func(m *Mark) { m.Held, m.Block = true, true })
		return next.announcing(ActHold, holdTheDonor).noting(func(l *Lease) { l.Record.Held = true }), err
	}
	how, err := r.holding(ctx, r.donor.instance.ID)
	switch {
	case err != nil:
		return Next{}, err
	case how == Held:
		return r.lookCounted(mark), nil
	case how == Moving:
		return wait("the donor to be out of service"), nil
	}
	return act(ActHold, holdTheDonor, func(ctx context.Context) error { return r.engine.holder().Hold(ctx, r.pool, r.donor.instance.ID) }).
		then("the donor to be out of service", 0), nil
}

// recount is longer than cluster-autoscaler remembers the size of a group: for one minute it adds
// to what it knew, and sets the sum (refreshInterval in
// cluster-autoscaler/cloudprovider/aws/aws_manager.go of k8s.io/autoscaler). For the first evicted
// pod it would undo that the pool is one smaller. Where Options.Settle is 0, no autoscaler runs.
const recount = 70 * time.Second

// lookCounted waits until an autoscaler knows that the donor is out of service, before any pod is
// evicted.
func (r *Run) lookCounted(mark *Mark) Next {
	now := r.engine.now()
	if r.empty.held.IsZero() {
		r.empty.held = now
	}
	if waited := now.Sub(r.empty.held); r.opts.Settle > 0 && !mark.Sealing && waited < recount {
		return waitFor("cluster-autoscaler to read the pool's new size", recount-waited)
	}
	return done("out of service")
}

// lookRelease puts the donor back in service if a run took it out.
func (r *Run) lookRelease(ctx context.Context) (Next, error) {
	mark, gone, err := r.donorMark(ctx)
	if err != nil || gone != "" {
		return done(gone), err
	}
	if !r.back.forgotten && (mark == nil || !mark.Held) && !(r.held.mine() && r.held.lease.Record.Held) {
		return done("the donor was not taken out of service"), nil
	}
	return r.lookInService(ctx, r.donor.node, r.donor.instance.ID)
}

// lookInService puts an instance back in service, which has to run and whose node has to be Ready
// then.
func (r *Run) lookInService(ctx context.Context, n Node, id InstanceID) (Next, error) {
	if r.back.poolGone {
		return done("the donor is gone with its pool"), nil
	}
	if why, err := r.stranger(ctx, n.Name, id); err != nil || why != "" {
		return r.leftOff(why), err
	}
	how, err := r.holding(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return r.lookMissing(ctx, id)
	} else if err != nil {
		return Next{}, err
	}
	release := act(ActRelease, "put the donor back in service", func(ctx context.Context) error { return r.engine.holder().Release(ctx, r.pool, id) }).
		then("the donor to be in service", 0)
	switch how {
	case InService:
		return done("in service"), nil
	case Moving:
		return wait("the donor to be in service"), nil
	case Remains:
		return release, nil
	}
	in, err := r.donor.asShown(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return r.lookMissing(ctx, id)
	case err != nil:
		return Next{}, fmt.Errorf("read instance %s: %w", id, err)
	case in.Power == PowerBetween:
		return wait("the machine to start or to stop"), nil
	case in.Power == PowerOff:
		return act(ActPowerOn, startTheMachine, func(ctx context.Context) error { return r.engine.Provider.SetPower(ctx, id, PowerOn) }).
			then("the machine to start", 0), nil
	case n.UID != "" && n.runsOn(id) && !n.Ready:
		return wait("the node to become Ready"), nil
	}
	return release, nil
}

// lookOn starts the donor of the run that was adopted if it is off although it was given back.
func (r *Run) lookOn(ctx context.Context) (Next, error) {
	was := r.held.before
	next, err := r.lookPower(ctx, was.Donor, Instance{ID: was.Instance, VMID: was.VMID})
	if err != nil || next.kind != nextDone || !was.Held || !r.mayRelease() {
		return next, err
	}
	n, err := r.engine.Cluster.Node(ctx, was.Donor)
	if errors.Is(err, ErrNotFound) {
		n, err = Node{Name: was.Donor}, nil
	}
	if err != nil {
		return Next{}, fmt.Errorf("read node %s: %w", was.Donor, err)
	}
	return r.lookInService(ctx, n, was.Instance)
}
