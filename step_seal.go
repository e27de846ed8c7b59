package kamino

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// guestHalt is how long a sealed machine is given to switch itself off before
// the provider is asked to.
const guestHalt = time.Minute

func (r *Run) sealOrder() SealOrder {
	order := SealOrder{Run: r.held.run, Policy: r.opts.SealPolicy}
	if order.Run == "" { // a plan and a doctor try it for a run that never begins
		order.Run = r.held.freshID()
	}
	if r.held.lease != nil {
		order.Nonce = r.held.lease.Record.Nonce
	}
	return order
}

// agentPod reads the pod in which the run does a task on a node. One of that name that somebody
// else made is an error.
func (r *Run) agentPod(ctx context.Context, n Node, task Task) (AgentPod, error) {
	pod, err := r.engine.Cluster.AgentPod(ctx, r.held.run, task)
	if err != nil {
		return AgentPod{}, err
	}
	return pod, pod.refuseForeign(n.Name, r.held.lease.Record.Nonce)
}

const sealTheDisk = "seal the disk"

// lookSeal waits for the receipt of this run and this boot. Without it nothing
// goes on: an unsealed disk is never snapshotted.
func (r *Run) lookSeal(ctx context.Context) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	if mark == nil || !mark.Sealing {
		r.empty.unasked = true
		next, err := r.remark(ActSealing, "record on the node that its disk is about to be sealed", n, mark, func(m *Mark) { m.Sealing = true })
		return next.announcing(ActSeal, sealTheDisk).noting(func(l *Lease) {
			l.Record.Sealing, l.Record.Policy = true, r.policySum()
			l.Record.AwaySince, l.Record.AwayEnds = r.engine.date(), time.Time{}
			l.Record.Disk = r.donor.instance.Disk
		}), err
	}
	if !n.Tainted(TaintBlock) {
		return r.remark(ActBlock, "block the node again with taint "+TaintBlock, n, mark, func(m *Mark) { m.Block = true })
	}
	if n.BootID != mark.BootID {
		return Next{}, fmt.Errorf("node %s has booted since the run began: its disk is not the sealed one", n.Name)
	}
	if receipt, ok := n.Receipt(); ok && receipt.Run == r.held.run {
		if err := r.checkReceipt(receipt); err != nil {
			return Next{}, err
		}
		return done("receipt " + receipt.Hash), nil
	}
	r.donor.watchedOn = r.engine.now()
	if why := n.SealFailure(r.held.run); why != "" {
		return Next{}, fmt.Errorf("the seal failed: %s", why)
	}
	var pod AgentPod
	if !r.empty.unasked {
		if pod, err = r.agentPod(ctx, n, TaskSeal); err != nil {
			return Next{}, fmt.Errorf("read the seal pod: %w", err)
		}
	}
	if pod.Failed {
		return Next{}, fmt.Errorf("the seal failed: %s", pod.Message)
	}
	if pod.Exists && n.Ready {
		return wait("the seal; its pod is " + pod.Message), nil
	}
	return r.lookSilent(ctx, n, pod.Exists)
}

// lookSilent asks the cloud about a donor that does not report: either it is on its way off with
// the receipt still to be seen, or it went off without one, or nobody has asked it yet.
func (r *Run) lookSilent(ctx context.Context, n Node, asked bool) (Next, error) {
	in, err := r.donor.readInstance(ctx)
	if err != nil {
		return Next{}, err
	}
	if in.Power == PowerOff {
		return r.lookUnreceipted(n)
	}
	if !asked && in.Power == PowerOn {
		if err := r.refuseServed(ctx); err != nil {
			return Next{}, err
		}
		if err := r.refuseSeal(ctx, n); err != nil {
			return Next{}, err
		}
		order := act(ActSeal, sealTheDisk, func(ctx context.Context) error {
			r.empty.unasked = false
			return r.engine.Cluster.StartAgent(ctx, n, TaskSeal, r.sealOrder())
		}).then("the seal", 0)
		if r.held.lease.Record.Policy != r.policySum() { // the process that marked the node brought another
			order = order.noting(func(l *Lease) { l.Record.Policy = r.policySum() })
		}
		return order, nil
	}
	return wait("the seal receipt (node not reporting)"), nil
}

// lookUnreceipted gives up a donor that is off and has no receipt. The agent tells the receipt
// before it switches the machine off, so whoever reads the node afterwards sees it, or it was not
// told; lookAge is for a write whose answer the agent did not get.
func (r *Run) lookUnreceipted(n Node) (Next, error) {
	now := r.engine.now()
	if r.offSince.IsZero() {
		r.offSince = now
	}
	if now.Sub(r.offSince) < lookAge {
		return wait("the seal receipt (donor is off)"), nil
	}
	return Next{}, fmt.Errorf("node %s switched off without a receipt of run %s: its disk is not sealed", n.Name, r.held.run)
}

// checkReceipt says what is wrong with a receipt that names this run: a kubelet
// may write any annotation of its own node, at any time.
func (r *Run) checkReceipt(receipt Receipt) error {
	switch nonce := r.held.lease.Record.Nonce; {
	case !SameVM(receipt.VMID, r.donor.instance.VMID):
		return fmt.Errorf("receipt of run %s comes from VM %s, not from the donor's %s", r.held.run, receipt.VMID, r.donor.instance.VMID)
	case receipt.Nonce != nonce:
		return WithHint(fmt.Errorf("receipt of run %s on node %s does not repeat the nonce of the run: the agent that was asked did not write it", r.held.run, r.donor.node.Name),
			"the pool's image stays as it is; find out who wrote annotation %s before you use this node again", AnnotationReceipt)
	case receipt.Policy != r.held.lease.Record.Policy:
		return WithHint(fmt.Errorf("receipt of run %s on node %s names seal policy %q, and the run brought %q", r.held.run, r.donor.node.Name, receipt.Policy, r.held.lease.Record.Policy),
			"the pool's image stays as it is; the seal pod's image must be of this version: see --image")
	}
	return r.refuseSame(receipt)
}

// refuseSame refuses a disk with the packages of one whose image was withdrawn: another image of it
// would be as bad. Where the digest of either is not known, nothing is refused.
func (r *Run) refuseSame(receipt Receipt) error {
	if v := r.sameAs(receipt.PackageDigest, receipt.VMID); v != nil {
		same := v.refuseSame(r.donor.node.Name)
		return WithHint(fmt.Errorf("node %s cannot be the donor: %s", r.donor.node.Name, same.Why), "%s", same.Do) // no refusal: the donor was away
	}
	return nil
}

// asker is a Cluster that asks nodes for their packages, as a Shelf does.
type asker interface {
	AskPackages(ctx context.Context, node Node, order SealOrder) error
}

// lookPackages makes sure, before a pod is evicted, that the donor is not as it was when a version
// was made of it that is withdrawn. Where it does not tell, the receipt will.
func (r *Run) lookPackages(ctx context.Context, n Node) (Next, error) {
	shelf, ok := r.engine.Cluster.(asker)
	bad := r.withdrawnOf(r.donor.instance.VMID)
	if !ok || bad == nil || r.empty.listed {
		return done("no withdrawn version was made of it"), nil
	}
	if !r.empty.listing {
		return act(ActSurvey, "ask the node for its packages: version "+bad.Name+", which is withdrawn, was made of it", func(ctx context.Context) error {
			err := shelf.AskPackages(ctx, n, r.sealOrder())
			if refused := (*RefusedError)(nil); errors.As(err, &refused) {
				r.untold(refused.Error())
				return nil
			}
			r.empty.listing = r.empty.listing || err == nil
			return err
		}).then("the node's packages", 0), nil
	}
	n, err := r.engine.Cluster.Node(ctx, n.Name)
	if err != nil {
		return Next{}, fmt.Errorf("read node %s: %w", n.Name, err)
	}
	pod, err := r.agentPod(ctx, n, TaskPackages)
	if err != nil {
		return Next{}, fmt.Errorf("read the pod that lists the packages: %w", err)
	}
	list, told := n.packages(r.held.run, r.held.lease.Record.Nonce)
	switch {
	case told && pod.Exists, pod.Failed, r.runner.Spent() > packagesLimit:
		return act(ActUnseal, "remove the pod that listed the packages", func(ctx context.Context) error {
			if !told {
				r.untold("node " + n.Name + " did not report its packages: " + pod.Message)
			}
			return r.engine.Cluster.RemoveAgents(ctx, r.held.run, []Task{TaskPackages})
		}), nil
	case told:
		r.empty.listed = true
		if v := r.sameAs(packageDigest(list), r.donor.instance.VMID); v != nil {
			return Next{}, &RefusedError{Subject: "node " + n.Name, Refusals: []Refusal{v.refuseSame(n.Name)}}
		}
		return done("other packages than those of a withdrawn version"), nil
	}
	return wait("the node's packages; the pod is " + pod.Message), nil
}

func (r *Run) untold(why string) {
	r.empty.listed = true
	r.held.warn(why + "; whether its packages are those of a withdrawn version is checked after the drain")
}

// withdrawnOf is the newest withdrawn version that was made of a machine and tells its packages.
func (r *Run) withdrawnOf(vm string) *Artifact {
	return first(r.image.bad, func(v Artifact) bool { return v.Tags[TagPackages] != "" && SameVM(v.Tags[TagVM], vm) })
}

// sameAs is the withdrawn version that was made of the same packages on the same machine.
func (r *Run) sameAs(digest, vm string) *Artifact {
	return first(r.image.bad, func(v Artifact) bool {
		return digest != "" && v.Tags[TagPackages] == digest && SameVM(v.Tags[TagVM], vm)
	})
}

// refuseSame refuses to make another image of a disk as bad as that of the version.
func (a Artifact) refuseSame(node string) Refusal {
	return Refusal{Code: "bad-image", Why: fmt.Sprintf("it has the same packages as when version %s was made of it, which is withdrawn: %s", a.Name, Plain(a.Tags[TagBad])),
		Do: fmt.Sprintf("kamino patch --target-node %s, or choose another node: kamino plan ranks them", node)}
}

func (r *Run) lookStop(ctx context.Context) (Next, error) {
	if r.away.from.IsZero() && !(r.held.adopted && r.held.before.Sealing) { // else the process before this one knows
		r.away.from = r.engine.now()
	}
	in, err := r.donor.instanceNow(ctx)
	if err != nil {
		return Next{}, err
	}
	switch {
	case in.Power == PowerOff:
		return done("off"), nil
	case in.Power == PowerOn && !r.donor.stillOn(r.runner.Spent()):
		return Next{}, fmt.Errorf("node %s runs although its disk is sealed: %w", r.donor.node.Name, errStartedSince)
	case in.Power == PowerOn && r.runner.Spent() > guestHalt:
		return act(ActPowerOff, "switch the donor off", func(ctx context.Context) error {
			return r.engine.Provider.SetPower(ctx, in.ID, PowerOff)
		}), nil
	}
	return wait("the donor to switch itself off"), nil
}

// errStartedSince: nobody knows whether the disk is still as it was sealed.
var errStartedSince = errors.New("it may have been started again since")

func (r *Run) lookSnapshot(ctx context.Context) (Next, error) {
	name := SnapshotName(r.pool.Name)
	found, err := r.engine.Provider.Find(ctx, r.pool, Snapshot, name)
	if err != nil {
		return Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 {
		return r.takeSnapshot(ctx, name)
	}
	s := found[0]
	if s.Tags[TagRun] != r.held.run {
		return Next{}, fmt.Errorf("snapshot %s belongs to run %q, not to this one", name, s.Tags[TagRun])
	}
	if r.otherDisk(s.Source) {
		return act(ActDeleteSnapshot, "delete the snapshot: it is of disk "+lastSegment(s.Source)+", and the run sealed "+lastSegment(r.held.lease.Record.Disk), func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	}
	if s.State != Failed && !r.empty.rested {
		if next, err := r.lookRested(ctx, s); err != nil || next.kind == nextAct {
			return next, err
		}
	}
	switch {
	case s.State == Failed:
		return act(ActDeleteSnapshot, "delete the failed snapshot: "+s.Failure, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	case s.State == Succeeded && s.Ready:
		r.image.reused = &s
		return done("complete"), nil
	}
	return waitPercent("the copy of the disk", s.Percent), nil
}

// lookRested makes sure that nobody started the donor between the last look and
// the snapshot: no condition can be sent with the request.
func (r *Run) lookRested(ctx context.Context, s Artifact) (Next, error) {
	in, err := r.donor.readInstance(ctx)
	if err != nil {
		return Next{}, err
	}
	if in.Power != PowerOff {
		return act(ActDeleteSnapshot, "delete the snapshot: somebody started the donor meanwhile", func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	}
	r.empty.rested = true
	return done("at rest"), nil
}

// takeSnapshot checks once more, immediately before, that the disk is sealed
// and at rest.
func (r *Run) takeSnapshot(ctx context.Context, name string) (Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.run)
	if err != nil {
		return Next{}, err
	}
	receipt, ok := n.Receipt()
	if !ok || receipt.Run != r.held.run || mark == nil || n.BootID != mark.BootID {
		return Next{}, fmt.Errorf("refusing to snapshot: no seal receipt of run %s for the current boot of node %s", r.held.run, n.Name)
	}
	if err := r.checkReceipt(receipt); err != nil {
		return Next{}, err
	}
	in, err := r.donor.instanceNow(ctx)
	if err != nil {
		return Next{}, err
	}
	if in.Power != PowerOff {
		return Next{}, fmt.Errorf("refusing to snapshot: instance %s is %s, not off", in.ID, in.Power)
	}
	if r.otherDisk(in.Disk) {
		return Next{}, WithHint(fmt.Errorf("refusing to snapshot: instance %s has OS disk %s now, and run %s sealed %s: somebody replaced the disk while the machine was off",
			in.ID, lastSegment(in.Disk), r.held.run, lastSegment(r.held.lease.Record.Disk)),
			"the pool's image stays as it is; check who reimaged the machine or swapped its OS disk, then run the command again")
	}
	want := Artifact{
		Kind: Snapshot, Name: name, Source: in.Disk, Tags: r.tags(receipt),
		Machine: Machine{Generation: in.Generation, Architecture: in.Architecture, SecurityType: in.SecurityType},
	}
	return act(ActCreateSnapshot, "snapshot disk "+lastSegment(in.Disk), func(ctx context.Context) error {
		r.saveList(ctx, n, receipt)
		return r.engine.Provider.Create(ctx, r.pool, want)
	}).noting(func(l *Lease) {
		l.Ledger.Generic = cmp.Or(receipt.waterfall(n.Name, r.engine.date()), l.Ledger.Generic)
	}), nil
}

// otherDisk says whether a disk is another one than the run has sealed, as far as both are known. A
// reimage of a VM keeps its ID, its Node object and the receipt there. Whether one can leave the
// disk's ID as it was is unverified.
func (r *Run) otherDisk(disk string) bool {
	sealed := r.held.lease.Record.Disk
	return sealed != "" && disk != "" && !strings.EqualFold(sealed, disk)
}

// policySum is the SHA-256 in hex of the seal policy; empty without one.
func (r *Run) policySum() string {
	if len(r.opts.SealPolicy) == 0 {
		return ""
	}
	sum := sha256.Sum256(r.opts.SealPolicy)
	return hex.EncodeToString(sum[:])
}

func (r *Run) planSeal() string {
	if sum := r.policySum(); sum != "" {
		return "seal the donor's disk and wait for the receipt; seal policy sha256:" + sum[:12] + "…"
	}
	return "seal the donor's disk and wait for the receipt; unknown files refuse the seal (no seal policy)"
}

func (r *Run) tags(receipt Receipt) map[string]string {
	tags := map[string]string{
		TagBuiltFrom: r.donor.node.Name,
		TagBuiltAt:   r.engine.date().Format(BuiltAtFormat),
		TagRun:       r.held.run,
		TagEpoch:     fmt.Sprint(r.held.lease.Epoch),
		TagReceipt:   receipt.Hash,
		TagParent:    lastSegments(r.donor.instance.Image, 3),
		TagVM:        r.donor.instance.VMID,
	}
	if receipt.Policy != "" {
		tags[TagPolicy] = receipt.Policy
	}
	if keys := strings.Join(receipt.SSHKeys, " "); keys != "" {
		tags[TagSSHKeys] = keys
	}
	maps.Copy(tags, receipt.Freshness.tags(r.donor.node.Software))
	if u := receipt.Unknown; u != nil {
		tags[TagUnknown], tags[TagUnknownMode], tags[TagUnknownDigest] = fmt.Sprint(u.Count), u.Mode, u.Digest
	}
	for tag, value := range tags { // what the node wrote may be of any length
		tags[tag] = cutText(value, maxTag)
	}
	return tags
}

// SealFailure is why the node gave up the seal of a run; empty if it did not.
func (n Node) SealFailure(run string) string {
	var failure struct{ Run, Error string }
	if err := readPlain([]byte(n.Annotations[AnnotationSealFailure]), &failure); err != nil || failure.Run != run {
		return ""
	}
	return failure.Error
}

var patchTasks = []Task{TaskCheck, TaskPatch, TaskReboot, TaskLook}

// removeAgents deletes the pods that the run may have made.
func (r *Run) removeAgents(ctx context.Context) error {
	return r.engine.Cluster.RemoveAgents(ctx, r.held.run, agentTasks(r.patching(), r.held.givingBack))
}

// agentTasks are the tasks whose pods a run may have left, by whether it patches its node and
// whether it ended before its time.
func agentTasks(patches, ended bool) []Task {
	tasks := []Task{TaskSeal, TaskInventory} // of a patch, too: somebody else's may have the name
	switch {
	case patches:
		return append(tasks, patchTasks...)
	case ended: // between the question for the packages and the answer
		return append(tasks, TaskPackages)
	}
	return tasks
}
