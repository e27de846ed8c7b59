package worlds

import (
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// World is what others can do to a world. A verb whose object is no more does nothing.
type World interface {
	Update(donor string) // somebody runs kamino update
	Restore()            // somebody runs kamino restore

	DeleteMachine(node string)  // the VM, at the cloud
	ReplaceMachine(node string) // by another VM under the same ID and name
	// SwapDisk puts another OS disk into a machine, once that is off, as a swap of disks or a reimage
	// by a person does. The former disk is kept, at no machine.
	SwapDisk(node string)
	StartMachine(node string) // where it is off
	ScaleDown(node string)    // as cluster-autoscaler does: taint, wait, delete; not where it may not
	DeleteNode(node string)   // the object; a kubelet that runs registers it again
	// EditNode is a person's kubectl. edit says whether there was anything to change.
	EditNode(node string, edit func(*kamino.Node) bool)
	// PutBack writes back what a node has of Kamino now, each half minute until somebody mends it, as
	// GitOps does which has annotations, labels and taints of nodes in its files ([PutBack]).
	PutBack(node string)
	SetFate(node string, f Fate)
	HoldPods(node string) // by a disruption budget that yields no more
	Reboot(node string)   // of a node that is Ready
	// BindVolume binds a claim to a volume on the node's own disk, as a pod that comes there does;
	// not where the node is blocked.
	BindVolume(node string)
	// PodComesBack puts a pod on the node that tolerates every taint, and another one whenever
	// that is evicted: the node is the emptiest.
	PodComesBack(node string)
	// Conflict lets every eviction be answered with 409 for a while, as a webhook does during a
	// failover, or a budget that changes all the time.
	Conflict(d time.Duration)
	// LimitPods keeps every new pod out of Kamino's namespace until somebody mends it.
	LimitPods(by PodLimit)
	// Forge is a kubelet that writes a mark of a run that never was, and falls silent.
	Forge(node string)
	DeletePods() // those that Kamino has made, by a person
	// Squat puts pods and a probe of somebody else, which have succeeded, under the names that the
	// present run's have. They are pinned to a node that does not exist.
	Squat()

	SetImage()              // a person's, in the pool's model
	Exclude()               // the newest good version from latest, by a person
	Resize(by int)          // as an autoscaler does
	Size() int              // of the pool, as its cloud has it
	Refuse()                // the pool becomes one that must not be touched
	Own()                   // the pool's recipe has an owner, who writes it back
	CutAPI(d time.Duration) // the API server is away
	// SlowWrites lets each write of Kubernetes take that long from now on, and succeed.
	SlowWrites(d time.Duration)
	DeleteLease() // of the pool, by a person
	// FullLease fills the pool's lease with annotations of others, but for so many bytes.
	FullLease(room int)
	RestoreEtcd()       // from a backup of before the run: leases, marks and taints; the cloud stays as it is
	DeleteSnapshot()    // of the pool, by a person
	Script(node string) // the original script has made the pool's snapshot of the node's disk
	Revoke()            // every right at the cloud
	Lock()              // nothing can be deleted in the cloud
	Deny()              // a policy denies snapshots and galleries, and what is in them

	After(d time.Duration, do func())
}

// Rival is what others do just before a call of a run.
type Rival struct {
	Name   string
	Column string // of the fault matrix; "" where only chance draws it
	// Act is what happens; other is another node of the donor's pool.
	Act    func(w World, donor, other string)
	Freeze time.Duration // for how long the run's process is frozen, its call under way
	// Suspend is for how long its machine is suspended when the call has taken effect, before the
	// reply is there: neither its deadlines nor its monotonic clock go on meanwhile.
	Suspend time.Duration
	Jump    time.Duration // by how much somebody sets its machine's clock
	Slow    int           // how many times as long each of its calls takes from now on; 0: as before
	// Unharmed: the run must end well all the same.
	Unharmed bool
	// Same: once mended, the end must be that of an undisturbed run.
	Same bool
	// Later is how long afterwards the command is run again. A canary that no lease records is kept
	// until it expires.
	Later time.Duration
	// Rows, if set, are those of the fault matrix where it can matter.
	Rows []string
}

// PodLimit is what keeps new pods out of a namespace: the field of the refusal that names it.
type PodLimit string

// What keeps pods out.
const (
	LimitQuota  PodLimit = "resourcequota"
	LimitRange  PodLimit = "limitrange" // whose minimum is more than pods of Kamino ask for
	LimitPolicy PodLimit = "namespace"  // a policy that adds to pods what Kamino never writes
)

// PodLimits lists them all.
func PodLimits() []PodLimit { return []PodLimit{LimitQuota, LimitRange, LimitPolicy} }

// NoNode is the name of a node that no world has.
const NoNode = "nobody"

// Frozen is longer than any lease lasts, and than a run takes to be adopted.
const Frozen = 4 * time.Minute

// expired is longer than any canary lives.
const expired = 3 * time.Hour

// Rivals lists them all.
func Rivals() []Rival {
	return slices.Concat(otherRuns, clocks, persons, powers, fates)
}

func update(w World, donor, _ string)      { w.Update(donor) }
func updateOther(w World, _, other string) { w.Update(other) }
func restore(w World, _, _ string)         { w.Restore() }
func nothing(World, string, string)        {}

func onDonor(verb func(World, string)) func(World, string, string) {
	return func(w World, donor, _ string) { verb(w, donor) }
}

func edit(change func(*kamino.Node) bool) func(World, string, string) {
	return onDonor(func(w World, donor string) { w.EditNode(donor, change) })
}

func fated(f Fate) func(World, string, string) {
	return onDonor(func(w World, donor string) { w.SetFate(donor, f) })
}

func limited(by PodLimit) func(World, string, string) {
	return func(w World, _, _ string) { w.LimitPods(by) }
}

// podRows are the rows of the fault matrix in which pods are tried or made.
var podRows = []string{"S0", "S2", "S4", "S5"}

func cordon(n *kamino.Node) bool   { n.Unschedulable = true; return true }
func uncordon(n *kamino.Node) bool { n.Unschedulable = false; return true }

var otherRuns = []Rival{
	{Name: "a second kamino, same donor", Column: "8", Same: true, Act: update},
	{Name: "a second kamino, other donor", Column: "8", Act: updateOther},
	{Name: "a second kamino while this process is frozen", Column: "8", Act: updateOther, Freeze: Frozen},
	{Name: "a second kamino, same donor, while this process is frozen", Column: "8", Same: true, Act: update, Freeze: Frozen},
	{Name: "a restore while this process is frozen", Column: "8", Same: true, Act: restore, Freeze: Frozen},
	{Name: "a restore", Column: "8", Same: true, Act: restore},
	{Name: "this process is frozen for a while", Column: "8", Same: true, Act: nothing, Freeze: Frozen},
	{Name: "this process is frozen for a moment", Column: "8", Same: true, Act: nothing, Freeze: 20 * time.Second},
}

// clocks are what becomes of the time of the run's own process.
var clocks = []Rival{
	{Name: "this machine's clock is set forward an hour", Column: "13", Same: true, Unharmed: true, Act: nothing, Jump: time.Hour},
	{Name: "this machine's clock is set back an hour", Column: "13", Same: true, Unharmed: true, Act: nothing, Jump: -time.Hour},
	{Name: "a second kamino, and this machine's clock is set back an hour", Column: "13", Unharmed: true,
		Act: updateOther, Jump: -time.Hour},
	{Name: "this machine is suspended", Column: "8", Same: true, Act: nothing, Suspend: Frozen},
	{Name: "a second kamino, other donor, while this machine is suspended", Column: "8", Act: updateOther, Suspend: Frozen},
	{Name: "a restore while this machine is suspended", Column: "8", Same: true, Act: restore, Suspend: Frozen},
	{Name: "this machine is slow", Column: "12", Same: true, Unharmed: true, Act: nothing, Slow: 10},
}

// powers are what those do who have more rights than Kamino.
var powers = []Rival{
	{Name: "every right at the cloud is taken away", Column: "14", Act: func(w World, _, _ string) { w.Revoke() }},
	{Name: "nothing can be deleted in the cloud", Column: "14", Unharmed: true, Act: func(w World, _, _ string) { w.Lock() }},
	{Name: "a policy denies what makes an image", Column: "14", Act: func(w World, _, _ string) { w.Deny() }},
	{Name: "the pool becomes one that must not be touched", Column: "11", Act: func(w World, _, _ string) { w.Refuse() }},
	{Name: "the pool's recipe gets an owner", Column: "11", Act: func(w World, _, _ string) { w.Own() }},
	{Name: "kured reboots the donor", Column: "9", Act: onDonor(kured)},
	{Name: "the original script takes another donor", Column: "8", Act: func(w World, _, other string) {
		w.EditNode(other, cordon)
		w.Script(other)
	}},
	{Name: "the original script has a snapshot of the donor", Column: "8", Act: onDonor(World.Script)},
	{Name: "somebody else's pods have the names of the run's", Column: "11", Act: func(w World, _, _ string) { w.Squat() }},
	{Name: "a quota keeps pods out of Kamino's namespace", Column: "15", Same: true, Rows: podRows, Act: limited(LimitQuota)},
	{Name: "a limit range keeps pods out of Kamino's namespace", Column: "15", Same: true, Rows: podRows, Act: limited(LimitRange)},
	{Name: "a policy changes the pods of Kamino's namespace", Column: "15", Same: true, Rows: podRows, Act: limited(LimitPolicy)},
	{Name: "a node forges a mark", Column: "11", Act: func(w World, _, other string) { w.Forge(other) }},
}

// kured cordons a node, reboots it, and uncordons it (https://kured.dev/docs).
func kured(w World, node string) {
	w.EditNode(node, func(n *kamino.Node) bool {
		n.Annotations[kamino.KuredPendingReboot.Annotation] = "2026-03-10T10:00:00Z"
		return cordon(n)
	})
	w.After(30*time.Second, func() { w.Reboot(node) })
	w.After(2*time.Minute, func() {
		w.EditNode(node, func(n *kamino.Node) bool {
			delete(n.Annotations, kamino.KuredPendingReboot.Annotation)
			return uncordon(n)
		})
	})
}

// PutBack lets a world put back what a node has of Kamino now, until the function says that it is
// mended.
func PutBack(w World, node string, mended func() bool) {
	then, found := possession{}, false
	w.EditNode(node, func(n *kamino.Node) bool {
		then, found = possessionOf(n), true
		return false
	})
	if !found { // there is no such node
		return
	}
	var put func(rounds int)
	put = func(rounds int) {
		if rounds == 0 || mended() {
			return
		}
		w.EditNode(node, func(n *kamino.Node) bool {
			if possessionOf(n).equal(then) {
				return false
			}
			then.put(n)
			return true
		})
		w.After(30*time.Second, func() { put(rounds - 1) })
	}
	w.After(time.Second, func() { put(10) })
}

// possession is what a node has of Kamino.
type possession struct {
	annotations, labels map[string]string
	blocks              []kamino.Taint
}

func ofKamino(key, _ string) bool {
	return key == kamino.AnnotationProtect || strings.HasPrefix(key, "kamino.")
}

func isBlock(t kamino.Taint) bool { return t.Key == kamino.TaintBlock }

func possessionOf(n *kamino.Node) possession {
	only := func(all map[string]string) map[string]string {
		kept := maps.Clone(all)
		maps.DeleteFunc(kept, func(key, value string) bool { return !ofKamino(key, value) })
		return kept
	}
	return possession{only(n.Annotations), only(n.Labels),
		slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return !isBlock(t) })}
}

func (p possession) equal(o possession) bool {
	return maps.Equal(p.annotations, o.annotations) && maps.Equal(p.labels, o.labels) && slices.Equal(p.blocks, o.blocks)
}

// put writes all of it on a node, and nothing else of Kamino.
func (p possession) put(n *kamino.Node) {
	with := func(all, ours map[string]string) map[string]string {
		out := maps.Clone(all)
		if out == nil {
			out = map[string]string{}
		}
		maps.DeleteFunc(out, ofKamino)
		maps.Copy(out, ours)
		return out
	}
	n.Annotations, n.Labels = with(n.Annotations, p.annotations), with(n.Labels, p.labels)
	n.Taints = append(slices.DeleteFunc(slices.Clone(n.Taints), isBlock), p.blocks...)
}

// cachedScaler is cluster-autoscaler on AWS: its sizes of groups are up to a minute old, and it sets
// them absolutely (aws_manager.go in k8s.io/autoscaler). For a pod without a place it sets what it
// knows and one more. What was not needed for ten minutes it takes away again.
func cachedScaler(w World, _, _ string) {
	known := w.Size()
	w.After(time.Minute, func() {
		grown := known + 1 - w.Size()
		if grown <= 0 {
			return
		}
		w.Resize(grown)
		w.After(10*time.Minute, func() { w.Resize(-grown) })
	})
}

var persons = []Rival{
	{Name: "the donor's VM is deleted", Column: "9", Act: onDonor(World.DeleteMachine)},
	{Name: "cluster-autoscaler deletes the donor", Column: "9", Act: onDonor(World.ScaleDown)},
	{Name: "the instance is replaced under the same name", Column: "9", Act: onDonor(World.ReplaceMachine)},
	{Name: "the instance is replaced while this process is frozen", Column: "9", Act: onDonor(World.ReplaceMachine), Freeze: time.Minute},
	{Name: "the node object is deleted", Column: "9", Act: onDonor(World.DeleteNode)},
	{Name: "a person cordons", Column: "11", Act: edit(cordon)},
	{Name: "a person uncordons", Column: "11", Same: true, Act: edit(uncordon)},
	{Name: "a person cordons and uncordons", Column: "11", Same: true, Act: onDonor(func(w World, donor string) {
		w.EditNode(donor, cordon)
		w.EditNode(donor, uncordon)
	})},
	{Name: "a person changes the model's image", Column: "11", Act: func(w World, _, _ string) { w.SetImage() }},
	{Name: "a person takes the newest version out of latest", Column: "11", Act: func(w World, _, _ string) { w.Exclude() }},
	{Name: "a person deletes the lease", Column: "11", Unharmed: true, Act: func(w World, _, _ string) { w.DeleteLease() }},
	{Name: "etcd is restored from a backup of before the run", Column: "11", Later: expired,
		Act: func(w World, _, _ string) { w.RestoreEtcd() }},
	{Name: "a restore after etcd was restored from a backup", Column: "11", Later: expired, Act: func(w World, _, _ string) {
		w.RestoreEtcd()
		w.Restore()
	}},
	{Name: "etcd is restored from a backup while this process is frozen", Column: "11", Later: expired,
		Act: func(w World, _, _ string) { w.RestoreEtcd() }, Freeze: time.Minute},
	{Name: "a person deletes the pods of the run", Column: "11", Same: true, Act: func(w World, _, _ string) { w.DeletePods() }},
	{Name: "a person deletes the snapshot", Column: "11", Same: true, Act: func(w World, _, _ string) { w.DeleteSnapshot() }},
	{Name: "an autoscaler takes a node out of the count", Column: "11", Act: func(w World, _, _ string) { w.Resize(-1) }},
	{Name: "an autoscaler adds a node", Column: "11", Act: func(w World, _, _ string) { w.Resize(1) }},
	{Name: "cluster-autoscaler sets a size that it knew a minute ago", Column: "11", Act: cachedScaler},
	{Name: "the OS disk of a donor that is off is replaced", Column: "9", Act: onDonor(World.SwapDisk)},
	{Name: "others fill the lease", Column: "11", Act: func(w World, _, _ string) { w.FullLease(64) }},
	{Name: "GitOps writes back what the donor had of Kamino", Column: "11", Same: true, Act: onDonor(World.PutBack)},
	{Name: "a budget never yields", Column: "12", Same: true, Rows: []string{"S0", "S3", "S4"}, Act: onDonor(World.HoldPods)},
	{Name: "a claim is bound to the donor's own disk", Column: "12", Rows: []string{"S0", "S2", "S3", "S4", "S5"},
		Act: onDonor(World.BindVolume)},
	{Name: "a pod that tolerates every taint comes back", Column: "12", Rows: []string{"S0", "S2", "S3", "S4", "S5"},
		Act: onDonor(World.PodComesBack)},
	{Name: "evictions are answered with 409", Column: "2", Same: true, Unharmed: true, Rows: []string{"S3", "S4"},
		Act: func(w World, _, _ string) { w.Conflict(2 * time.Minute) }},
	{Name: "the API is away for two minutes", Column: "3", Same: true, Act: func(w World, _, _ string) { w.CutAPI(2 * time.Minute) }},
	{Name: "each write of Kubernetes takes 12 s", Column: "12", Same: true, Unharmed: true,
		Act: func(w World, _, _ string) { w.SlowWrites(12 * time.Second) }},
	{Name: "each write of Kubernetes takes 29 s", Column: "12", Same: true,
		Act: func(w World, _, _ string) { w.SlowWrites(29 * time.Second) }},
	{Name: "a person removes our annotation", Column: "11", Same: true, Act: edit(func(n *kamino.Node) bool {
		mark, err := n.Mark()
		if err != nil || mark == nil {
			return false
		}
		if delete(n.Annotations, kamino.AnnotationProtect); mark.Protection != nil {
			n.Annotations[kamino.AnnotationProtect] = *mark.Protection
		}
		delete(n.Annotations, kamino.AnnotationRun)
		return true
	})},
	{Name: "a person removes our taint", Column: "11", Same: true, Act: edit(func(n *kamino.Node) bool {
		n.Taints = slices.DeleteFunc(n.Taints, func(t kamino.Taint) bool { return t.Key == kamino.TaintBlock })
		return true
	})},
	{Name: "a person starts the donor", Column: "11", Same: true, Act: onDonor(World.StartMachine)},
}

var fates = []Rival{
	{Name: "the node does not come back", Column: "12", Same: true, Rows: []string{"S5", "S6", "S7", "S8", "S9"}, Act: fated(NeverBoots)},
	{Name: "the donor is slow", Column: "12", Same: true, Unharmed: true, Rows: []string{"S2", "S4", "S5", "S6", "S8"}, Act: fated(Slow)},
	{Name: "the seal fails", Column: "5b", Same: true, Rows: []string{"S5"}, Act: fated(SealFails)},
	{Name: "the seal is taken back", Column: "5b", Same: true, Rows: []string{"S5"}, Act: fated(SealTakenBack)},
	{Name: "the seal hangs", Column: "12", Same: true, Rows: []string{"S5"}, Act: fated(SealHangs)},
	{Name: "the seal sends no receipt", Column: "4", Same: true, Rows: []string{"S5"}, Act: fated(SealIsMute)},
	{Name: "the node forges its receipt", Column: "5b", Same: true, Rows: []string{"S5"}, Act: fated(SealForged)},
	{Name: "the seal pod has no image", Column: "12", Same: true, Rows: []string{"S2", "S5"}, Act: fated(NoImage)},
	{Name: "the inventory refuses the disk", Column: "15", Same: true, Rows: []string{"S2"}, Act: fated(DiskIsRefused)},
	{Name: "there is no room for the inventory", Column: "15", Same: true, Rows: []string{"S2"}, Act: fated(NoRoom)},
}
