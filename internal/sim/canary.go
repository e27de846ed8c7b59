package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// simCanary is one instance beside a pool.
type simCanary struct {
	kamino.Canary
	pool    kamino.PoolID
	nonce   string
	hidden  time.Time // not listed until then
	machine *machine
	sick    sickness
}

// sickness is what is wrong with clones of an image.
type sickness string

const (
	healthy sickness = ""
	mute    sickness = "no kubelet"
	flaps   sickness = "its kubelet starts again and again"
	twin    sickness = "it has the machine ID of another"
	lacking sickness = "a DaemonSet has no pod"
	noQuota sickness = "the cloud has no room" // nothing is wrong with the image
)

const canaryTime = time.Minute // until the machine runs

// Canaries implements kamino.Prover.
func (s simProvider) Canaries(ctx context.Context, pool kamino.Pool) (out []kamino.Canary, err error) {
	w := s.p.w
	err = s.p.call(ctx, call{method: "Find canaries", subject: pool.Name, list: true}, func(f *fault) error {
		out = nil
		if f.is(worlds.Absent) {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(w.canaries)) {
			if c := w.canaries[name]; c.pool == pool.ID && !w.now.Before(c.hidden) {
				out = append(out, c.Canary)
			}
		}
		return nil
	})
	return out, err
}

// LaunchCanary implements kamino.Prover.
func (s simProvider) LaunchCanary(ctx context.Context, pool kamino.Pool, order kamino.CanaryOrder) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "Create canary", subject: order.Name, write: true, create: true}, func(f *fault) error {
		if have := w.canaries[order.Name]; have != nil {
			if have.Version != order.Version || have.Run != order.Run || have.State == kamino.Deleting {
				return fmt.Errorf("canary %s exists: %w", order.Name, kamino.ErrConflict)
			}
			return nil
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.LaunchCanary, Pool: string(pool.ID), Target: order.Version})
		if w.sick == noQuota {
			return fmt.Errorf("QuotaExceeded: %w", kamino.ErrBlocked)
		}
		c := &simCanary{pool: pool.ID, nonce: order.Nonce,
			Canary: kamino.Canary{Name: order.Name, Version: order.Version, Run: order.Run, Expires: order.Expires, State: kamino.Creating}}
		c.sick = w.sickOf(order.Version)
		if f.is(worlds.LateCreate) {
			c.hidden = w.now.Add(30 * time.Second)
		}
		w.canaries[order.Name] = c
		w.happened("%s launches canary %s from %s", s.p.name, order.Name, lastSegment(order.Version))
		failed := f.fails()
		w.after(canaryTime, func() { w.canaryRuns(c, failed) })
		return nil
	})
}

func (w *world) canaryRuns(c *simCanary, failed bool) {
	if w.canaries[c.Name] != c || c.State != kamino.Creating {
		return
	}
	if failed {
		c.State, c.Failure, c.Blocked = kamino.Failed, "AllocationFailed", true
		w.happened("canary %s failed", c.Name)
		return
	}
	n, host := w.next(), c.Name+"000000"
	id := kamino.InstanceID(fmt.Sprintf("azure://%s/scaleSets/%s/virtualMachines/%s", groupID, c.Name, host))
	if w.unnamed {
		host = fmt.Sprintf("ip-10-0-0-%d", n)
		id = kamino.InstanceID(fmt.Sprintf("cloud:///zone/i-%d", n))
	}
	pool, _ := simProvider{}.PoolOf(context.Background(), id)
	m := w.newMachine(kamino.Instance{ID: id, Pool: pool, VMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Hostname: host,
		Power: kamino.PowerOn, Disk: "/disks/" + host, Image: c.Version})
	c.machine = m
	c.Instance, c.VMID, c.Hostname, c.Power = id, m.VMID, host, kamino.PowerOn
	w.happened("canary %s runs", c.Name)
	if c.sick == mute {
		return // and Creating, as Azure shows a set whose guest does not report
	}
	c.State = kamino.Succeeded
	w.after(bootTime, func() { w.canaryJoins(c) })
}

// sickOf is what is wrong with the clones of an image, of which one was asked for.
func (w *world) sickOf(image string) sickness {
	for _, a := range w.artifacts {
		if a.ID == image {
			a.proved = true
			return a.sick
		}
	}
	return healthy
}

func (w *world) canaryJoins(c *simCanary) {
	m := c.machine
	if m.Gone || w.canaries[c.Name] != c {
		return
	}
	m.Booted()
	n := w.nodes[m.Hostname]
	n.Created, n.MachineID = w.now, m.VMID
	n.Taints = append(n.Taints, kamino.Taint{Key: kamino.TaintCanary, Effect: "NoSchedule"})
	n.Labels[kamino.LabelCanary] = "true"
	report, _ := json.Marshal(kamino.NodeReport{Nonce: c.nonce, At: w.now, MachineID: n.MachineID,
		SSHKeys: []string{m.sshKey()}, Timing: cloneBoot})
	n.Annotations[kamino.AnnotationReport] = string(report)
	switch c.sick {
	case twin:
		n.MachineID = w.nodes["a-2"].MachineID
	case flaps:
		w.flap(m, n)
	}
	w.changeNode(n)
	w.happened("node %s of canary %s registers", n.Name, c.Name)
}

// flap is a kubelet that starts again and again: whoever comes late sees the next start.
func (w *world) flap(m *machine, n *simNode) {
	w.after(40*time.Second, func() {
		if m.Gone {
			return
		}
		n.ReadySince = w.now
		w.changeNode(n)
		w.flap(m, n)
	})
}

// RemoveCanary implements kamino.Prover. Its node stays for as long as the cloud controller manager
// remembers the machine.
func (s simProvider) RemoveCanary(ctx context.Context, pool kamino.Pool, name string) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "Delete canary", subject: name, write: true}, func(f *fault) error {
		c := w.canaries[name]
		if c == nil || c.State == kamino.Deleting {
			return nil
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.RemoveCanary, Pool: string(pool.ID), Target: name})
		was := c.State
		c.State = kamino.Deleting
		w.happened("%s removes canary %s", s.p.name, name)
		w.after(deleteTime, func() {
			if f.fails() {
				c.State = was
				return
			}
			delete(w.canaries, name)
			if m := c.machine; m != nil {
				m.Gone, m.Kubelet = true, false
				delete(w.machines, m.ID)
				w.after(10*time.Minute, func() {
					if n := w.nodes[m.Hostname]; n != nil && n.SystemUUID == m.VMID {
						w.removeNode(n)
					}
				})
			}
			w.happened("canary %s is gone", name)
		})
		return nil
	})
}

// CanaryFit, Console and PreflightCanary find nothing in the way and nothing to read.
func (s simProvider) CanaryFit(context.Context, kamino.Pool) (kamino.CanaryFit, error) {
	return kamino.CanaryFit{Size: "small"}, nil
}

func (s simProvider) Console(context.Context, kamino.Pool, kamino.Canary) ([]string, error) {
	return nil, kamino.ErrUnsupported
}

func (s simProvider) PreflightCanary(context.Context) ([]kamino.Warning, error) { return nil, nil }

func (s simProvider) CanaryRights() string { return "the rights of the simulation" }

// Examine implements kamino.Examiner.
func (c simCluster) Examine(ctx context.Context, order kamino.ExamineOrder) (out kamino.ClusterObservation, err error) {
	w := c.p.w
	err = c.call(ctx, call{method: "Examine", subject: order.Node}, func(*fault) error {
		out = kamino.ClusterObservation{Node: w.sight(order.Node), Sibling: w.sight(order.Sibling)}
		for _, m := range w.machines {
			if m.Kubelet && m.Hostname != order.Node {
				out.Renewed = w.now
			}
		}
		if out.Node.UID != "" {
			probed := w.probe == order.Run+" on "+order.Node && w.probeNonce == order.Nonce
			out.Probe = kamino.ProbeState{Wanted: order.Probe != nil, Started: probed, Done: probed}
			out.Daemons = []kamino.DaemonPod{{Set: "kube-system/proxy", Ready: !out.Node.Tainted(kamino.TaintCanary) &&
				!w.lacking(order.Node), Beside: true}}
		}
		return nil
	})
	return out, err
}

// lacking says whether pods of DaemonSets do not start on a canary's node.
func (w *world) lacking(node string) bool {
	for _, c := range w.canaries {
		if c.Hostname == node && c.sick == lacking {
			return true
		}
	}
	return false
}

func (w *world) sight(name string) (out kamino.NodeObservation) {
	if n := w.nodes[name]; n != nil {
		out.Node = w.readNode(n)
		out.Pulse = out.Heartbeat
	}
	return out
}

// AdmitCanary implements kamino.Examiner.
func (c simCluster) AdmitCanary(ctx context.Context, node kamino.Node) error {
	w := c.p.w
	return c.call(ctx, call{method: "Admit", subject: node.Name, write: true}, func(*fault) error {
		n := w.nodes[node.Name]
		switch {
		case n == nil:
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		case n.UID != node.UID || n.Revision != node.Revision:
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrConflict)
		}
		c.p.auditCanaryNode(n, invariant.AdmitCanary)
		n.Unschedulable = true
		n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintCanary })
		w.changeNode(n)
		w.happened("%s admits %s", c.p.name, n.Name)
		return nil
	})
}

// auditCanaryNode shows a call on a canary's node as one of the pool whose canary it is.
func (p *proc) auditCanaryNode(n *simNode, verb invariant.Verb) {
	call := invariant.Call{Process: p.name, Verb: verb, Node: n.Name}
	for id, pool := range p.w.pools {
		if l := p.w.standing(id); pool != nil && l.Process == p.name {
			call.Pool = string(id)
		}
	}
	p.w.audit.before(call)
}

// RemoveNode implements kamino.Examiner.
func (c simCluster) RemoveNode(ctx context.Context, node kamino.Node) error {
	w := c.p.w
	return c.call(ctx, call{method: "Remove node", subject: node.Name, write: true}, func(*fault) error {
		n := w.nodes[node.Name]
		if n == nil || n.UID != node.UID {
			return nil
		}
		c.p.auditCanaryNode(n, invariant.RemoveNode)
		w.removeNode(n)
		return nil
	})
}

// PreflightProof implements kamino.Examiner.
func (c simCluster) PreflightProof(context.Context, []byte) error { return c.p.w.proofDenied }

// StartProbe implements kamino.Examiner. Probes succeed as soon as they are started.
func (c simCluster) StartProbe(_ context.Context, p kamino.Probed, node kamino.Node, _ []byte) error {
	if strings.HasPrefix(c.p.w.probe, p.Run+" ") && c.p.w.probeNonce != p.Nonce {
		return fmt.Errorf("job of run %s is not this run's", p.Run)
	}
	c.p.w.probe, c.p.w.probeNonce = p.Run+" on "+node.Name, p.Nonce
	c.p.w.probes++
	return nil
}

// RemoveProbe implements kamino.Examiner.
func (c simCluster) RemoveProbe(_ context.Context, p kamino.Probed) error {
	if strings.HasPrefix(c.p.w.probe, p.Run+" ") && c.p.w.probeNonce == p.Nonce {
		c.p.w.probe = ""
	}
	return nil
}

// ProbeNamespace implements kamino.Examiner.
func (c simCluster) ProbeNamespace([]byte) (string, error) { return "ops", nil }

// Paused implements kamino.Examiner. It costs no call: walks count those.
func (c simCluster) Paused(context.Context) (kamino.Pause, error) {
	return kamino.Pause{Reason: c.p.w.paused}, nil
}

// Pause implements kamino.Examiner.
func (c simCluster) Pause(_ context.Context, reason string) error {
	c.p.w.paused = reason
	return nil
}
