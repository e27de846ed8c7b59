package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"kamino.dev/kamino"
)

// backups is what etcd held at any time of what Kamino writes: leases, and annotations, labels and
// taints of nodes.
type backups struct {
	leases []storedLease
	nodes  []storedNode
	pods   []*storedPod
}

// storedPod was made at a time.
type storedPod struct {
	at, until time.Time
	pods      map[string]*simSealPod
	key       string
	pod       *simSealPod
	began     kamino.AgentPod
}

// lostPods notes that pods were deleted.
func (w *world) lostPods() {
	for _, s := range w.etcd.pods {
		if s.until.IsZero() && s.pods[s.key] != s.pod {
			s.until = w.now
		}
	}
}

type storedLease struct {
	at    time.Time
	lease kamino.Lease
}

type storedNode struct {
	at                  time.Time
	name, uid           string
	annotations, labels map[string]string
	taints              []kamino.Taint
}

func (w *world) backUpLease(l kamino.Lease) {
	w.etcd.leases = append(w.etcd.leases, storedLease{w.now, l})
}

func (w *world) backUpNode(n *simNode) {
	w.etcd.nodes = append(w.etcd.nodes, storedNode{w.now, n.Name, n.UID, maps.Clone(n.Annotations), maps.Clone(n.Labels),
		slices.Clone(n.Taints)})
}

// backUp begins the backups, before the first process.
func (w *world) backUp() {
	for _, l := range w.leases {
		w.backUpLease(l)
	}
	for _, n := range w.nodes {
		w.backUpNode(n)
	}
	w.born = w.now
}

// RestoreEtcd implements worlds.World.
func (w *world) RestoreEtcd() { w.restoreEtcd(w.born) }

// restoreEtcd gives leases and nodes back what they held at a time. Revisions go on growing, as
// after etcdutl snapshot restore --bump-revision
// (https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump).
func (w *world) restoreEtcd(to time.Time) {
	if w.leases[poolA].Holder != "" {
		w.hit(rivalEtcdRestored)
	}
	clear(w.leases)
	for _, s := range w.etcd.leases {
		if !s.at.After(to) {
			s.lease.Revision = strconv.Itoa(w.next())
			w.leases[s.lease.Pool] = s.lease
		}
	}
	for _, s := range w.etcd.nodes {
		if n := w.nodes[s.name]; n != nil && n.UID == s.uid && !s.at.After(to) {
			n.Annotations, n.Labels, n.Taints = maps.Clone(s.annotations), maps.Clone(s.labels), slices.Clone(s.taints)
		}
	}
	for name, n := range w.nodes {
		w.changeNode(n)
		w.audit.person(name)
	}
	clear(w.sealPods) // of which the backup knows nothing
	clear(w.surveys)
	clear(w.patches)
	for _, s := range w.etcd.pods {
		if s.at.After(to) || !s.until.IsZero() && !s.until.After(to) || !s.pod.ended.IsZero() && !s.pod.ended.After(to) {
			continue
		}
		again := *s.pod
		again.AgentPod, again.ended, again.again = s.began, time.Time{}, true
		s.pods[s.key] = &again
		if m := w.machineOf(w.nodes[again.node]); m != nil && m.Kubelet {
			w.happened("pod %s is there again", s.key)
			m.run(&again)
		}
	}
	w.audit.judge.LeaseDeleted(string(poolA), w.now)
	w.leaseDeleted = true
	w.happened("etcd is restored from a backup of %s", to.Format(time.TimeOnly))
}
