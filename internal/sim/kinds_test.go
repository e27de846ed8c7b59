package sim

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// imageKind is one thing that can be wrong with an image, or with what is around its canary.
type imageKind struct {
	name  string
	want  kamino.Outcome
	check string // that finds it; "" for good images
	tells string // part of the evidence

	sick  sickness
	node  func(*kamino.Node)               // how the canary's node differs
	seen  func(*kamino.ClusterObservation) // how what Kubernetes shows differs, once the node is there
	cloud func(*world, []kamino.Canary) []kamino.Canary
	world func(*world)
	probe bool // an operator's probe is wanted
	never bool // no node comes to be, so that no other check can pass
}

// reported changes the report of the canary's agent.
func reported(change func(*kamino.NodeReport)) func(*kamino.Node) {
	return func(n *kamino.Node) {
		var r kamino.NodeReport
		if json.Unmarshal([]byte(n.Annotations[kamino.AnnotationReport]), &r) != nil {
			return // not yet
		}
		change(&r)
		text, _ := json.Marshal(r)
		n.Annotations[kamino.AnnotationReport] = string(text)
	}
}

// imageKinds has at least one image for each check that must find it.
func imageKinds() []imageKind {
	const failed, unclear = kamino.ProofFailed, kamino.ProofInconclusive
	notReady := func(n *kamino.Node) { n.Ready = false }
	daemon := func(d kamino.DaemonPod) func(*kamino.ClusterObservation) {
		return func(o *kamino.ClusterObservation) {
			d.Set, d.Beside = "kube-system/agent", true
			o.Daemons = append(o.Daemons, d)
		}
	}
	probe := func(p kamino.ProbeState) func(*kamino.ClusterObservation) {
		return func(o *kamino.ClusterObservation) {
			p.Wanted, p.Started = true, o.Probe.Started
			o.Probe = p
		}
	}
	request := func(change func(*kamino.CertificateRequest)) func(*kamino.ClusterObservation) {
		var made time.Time
		return func(o *kamino.ClusterObservation) {
			if made.IsZero() {
				made = o.Renewed
			}
			r := kamino.CertificateRequest{Name: "csr-1", Signer: "kubernetes.io/kubelet-serving", Made: made}
			change(&r)
			o.Requests = append(o.Requests, r)
		}
	}
	all := func(change func(*kamino.Canary)) func(*world, []kamino.Canary) []kamino.Canary {
		return func(_ *world, list []kamino.Canary) []kamino.Canary {
			for i := range list {
				change(&list[i])
			}
			return list
		}
	}
	restarts := 0
	return []imageKind{
		{name: "no kubelet", want: failed, check: "ready", sick: mute, never: true},
		{name: "no runtime", want: failed, check: "ready", tells: "runtime is down", node: notReady, seen: func(o *kamino.ClusterObservation) { o.Node.NotReady = "container runtime is down" }},
		{name: "failing extension", want: failed, check: "cloud", tells: "VMExtensionProvisioningError", cloud: all(func(c *kamino.Canary) {
			if c.Power == kamino.PowerOn {
				c.State, c.Failure = kamino.Failed, "VMExtensionProvisioningError"
			}
		})},
		{name: "flapping kubelet", want: failed, check: "stable", sick: flaps},
		{name: "kubelet that starts anew", want: failed, check: "stable", seen: func(o *kamino.ClusterObservation) { o.Starts = 2 }},
		{name: "duplicate machine ID", want: failed, check: "identity", sick: twin},
		{name: "duplicate host name", want: failed, check: "identity", sick: mute, never: true, world: func(w *world) {
			w.scaled = func() {
				for _, c := range w.canaries {
					if w.nodes["a-2"].SystemUUID != c.VMID && c.VMID != "" {
						w.nodes["a-2"].SystemUUID = c.VMID
					}
				}
			}
		}},
		{name: "duplicate host key", want: failed, check: "identity", tells: "SSH host key", node: reported(func(r *kamino.NodeReport) { r.SSHKeys = []string{"SHA256:a-0"} })},
		{name: "not set apart", want: failed, check: "apart", node: func(n *kamino.Node) {
			n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintCanary })
		}},
		{name: "wrong labels", want: failed, check: "labels", node: func(n *kamino.Node) { n.Labels["agentpool"] = "b" }},
		{name: "a taint of its own", want: failed, check: "labels", node: func(n *kamino.Node) { n.Taints = append(n.Taints, kamino.Taint{Key: "x", Effect: "NoSchedule"}) }},
		{name: "half the memory", want: failed, check: "capacity", node: func(n *kamino.Node) { n.Labels[sizeLabel] = "m" }, seen: func(o *kamino.ClusterObservation) {
			o.Sibling.Labels = map[string]string{sizeLabel: "m"}
			o.Node.Memory /= 2
		}},
		{name: "full disk", want: failed, check: "pressure", node: func(n *kamino.Node) {
			n.Conditions = []kamino.Condition{{Type: "DiskPressure", Status: "True"}}
		}},
		{name: "clock an hour ahead", want: failed, check: "clock", seen: func(o *kamino.ClusterObservation) { o.Node.Pulse = o.Node.Pulse.Add(time.Hour) }},
		{name: "crashing DaemonSet", want: failed, check: "daemonsets", sick: lacking},
		{name: "DaemonSet that does not land", want: failed, check: "daemonsets", seen: daemon(kamino.DaemonPod{Unplaced: true})},
		{name: "slow boot", want: failed, check: "boot", tells: "phase Ready took", world: knowsBoots, node: reported(func(r *kamino.NodeReport) { r.Phases = map[string]float64{"kernel": 2, "Ready": 900} })},
		{name: "probe fails", want: failed, check: "probe", probe: true, seen: probe(kamino.ProbeState{Failed: true})},
		{name: "probe hangs", want: failed, check: "probe", probe: true, seen: probe(kamino.ProbeState{})},
		{name: "failed unit", want: failed, check: "units", node: reported(func(r *kamino.NodeReport) { r.FailedUnits = []string{"a.service"} })},
		{name: "flapping unit", want: failed, check: "units", tells: "collector.service", node: reported(func(r *kamino.NodeReport) {
			restarts++
			r.Restarts = map[string]int{"collector.service": restarts}
		})},
		{name: "certificate that is not approved", want: failed, check: "certificate", seen: request(func(r *kamino.CertificateRequest) { r.OthersApproved = true })},
		{name: "empty image cache", want: failed, check: "images", seen: func(o *kamino.ClusterObservation) { o.Node.Images = nil }},
		{name: "reboot pending", want: failed, check: "reboot", node: reported(func(r *kamino.NodeReport) { r.RebootPending = "/run/reboot-required" })},

		{name: "allocation", want: unclear, check: "cloud", cloud: all(func(c *kamino.Canary) { c.State, c.Failure, c.Blocked = kamino.Failed, "AllocationFailed", true })},
		{name: "quota", want: unclear, check: "cloud", sick: noQuota, never: true},
		{name: "evicted", want: unclear, check: "cloud", cloud: func(w *world, list []kamino.Canary) []kamino.Canary {
			return slices.DeleteFunc(list, func(c kamino.Canary) bool { return w.nodes[c.Hostname] != nil && w.nodes[c.Hostname].Unschedulable })
		}},
		{name: "registry", want: unclear, check: "daemonsets", seen: daemon(kamino.DaemonPod{Owed: true})},
		{name: "registry of the network plugin", want: unclear, check: "ready", tells: "wait for an image", node: notReady, seen: daemon(kamino.DaemonPod{Owed: true, Asked: true})},
		{name: "API server away", want: unclear, check: "ready", sick: mute, never: true, seen: func(o *kamino.ClusterObservation) { o.Renewed = time.Time{} }},
		{name: "certificate that is denied", want: unclear, check: "certificate", seen: request(func(r *kamino.CertificateRequest) { r.Denied = true })},
		{name: "probe's pull", want: unclear, check: "probe", probe: true, seen: probe(kamino.ProbeState{Owed: true})},
		{name: "other packages", want: unclear, check: "report", tells: "packages", world: func(w *world) { w.listed = true }, node: reported(func(r *kamino.NodeReport) { r.PackageDigest = "0123" })},
		{name: "silent agent", want: unclear, check: "report", node: func(n *kamino.Node) { delete(n.Annotations, kamino.AnnotationReport) }},

		{name: "good"},
		{name: "good, with a probe", probe: true},
		{name: "good, its boots known", world: knowsBoots},
		{name: "good, its packages known", world: func(w *world) { w.listed = true }},
	}
}

const sizeLabel = "node.kubernetes.io/instance-type"

// knowsBoots lets the pool know how long its canaries usually take.
func knowsBoots(w *world) {
	l := w.leases[poolA]
	l.Pool = poolA
	for range 3 {
		l.Ledger.NoteBoot(30, cloneBoot, "n", w.now)
	}
	w.leases[poolA] = l
}

// usual is what a canary and its sibling have alike.
func (k imageKind) usual(w *world) *tampering {
	node := func(n *kamino.Node) {
		if n.UID == "" {
			return
		}
		n.Labels = maps.Clone(n.Labels)
		if n.Labels["agentpool"] = "a"; k.node != nil && strings.HasPrefix(n.Name, "kamino-") {
			k.node(n)
		}
	}
	t := &tampering{node: node, examined: func(o *kamino.ClusterObservation) {
		for _, n := range []*kamino.NodeObservation{&o.Node, &o.Sibling} {
			n.CPU, n.Memory, n.MaxPods, n.Images = 4000, 16<<30, 110, []string{"pause", "proxy", "cni"}
			n.Versions, n.Own = map[string]string{"kubelet": "v1.36.3"}, map[string]string{"agentpool": "a"}
			node(&n.Node)
		}
		if k.seen != nil {
			k.seen(o)
		}
	}}
	if k.cloud != nil {
		t.canaries = func(list []kamino.Canary) []kamino.Canary { return k.cloud(w, list) }
	}
	return t
}

// prove makes an image of the kind, and puts it to the proof without some of the checks.
func (k imageKind) prove(without ...string) (*world, *proc) {
	w := aged(1)
	w.watchNext()
	if w.sick = k.sick; k.world != nil {
		k.world(w)
	}
	o := proving()
	o.Proof.Without = without
	if k.probe {
		o.Proof.Probe = []byte("a Job")
	}
	p := &proc{tune: k.usual(w).around}
	w.startUpdate(p, o)
	w.wait()
	return w, p
}

// TestKinds: each check refuses the images that it is for, before one is promoted, and nothing else
// does: without the check the same image is promoted. What cloud, registry or cluster are to blame
// for is not withdrawn. Good images pass.
func TestKinds(t *testing.T) {
	needed := map[string]bool{}
	for _, k := range imageKinds() {
		t.Run(k.name, func(t *testing.T) {
			w, p := k.prove()
			fresh, before := kamino.VersionName(w.now), []string{"2026.03.09"}
			var proof *kamino.ProofError
			switch v, got := w.version(fresh), w.turns(); {
			case k.want == "":
				if p.err != nil || !slices.Equal(got, append(before, fresh)) {
					t.Errorf("%v; the next instance boots from %v", p.err, got)
				}
			case !errors.As(p.err, &proof) || proof.Outcome != k.want || proof.Findings[0].Check != k.check || !strings.Contains(proof.Findings[0].Evidence, k.tells):
				t.Errorf("%v, want %s by %s with %q", p.err, k.want, k.check, k.tells)
			case !slices.Equal(got, before) || (v.Tags[kamino.TagBad] != "") != (k.want == kamino.ProofFailed):
				t.Errorf("%s, withdrawn for %q; the next instance boots from %v", k.want, v.Tags[kamino.TagBad], got)
			}
			w.sound(t)
			if k.want == "" || k.never {
				return
			}
			needed[k.check] = true
			if w, p = k.prove(k.check); p.err != nil || !slices.Contains(w.turns(), fresh) {
				t.Errorf("without check %s: %v, %+v; the next instance boots from %v", k.check, p.err, p.result, w.turns())
			}
		})
	}
	for _, check := range kamino.Checks() {
		if !needed[check] {
			t.Errorf("no image shows that check %s is needed", check)
		}
	}
}
