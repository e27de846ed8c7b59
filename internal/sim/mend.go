package sim

import (
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// powers are what those have done who have more rights than Kamino; it lasts until somebody mends
// it.
type powers struct {
	revoked, locked, denied bool
	limited                 worlds.PodLimit // what keeps pods out, "" for nothing
}

// forbids is the answer to a call at the cloud that somebody does not allow.
func (w *world) forbids(c call) error {
	switch {
	case w.revoked:
		return fmt.Errorf("AuthorizationFailed: %w", kamino.ErrForbidden)
	case w.locked && c.deletes:
		return fmt.Errorf("ScopeLocked: %w", kamino.ErrForbidden)
	case w.denied && c.create:
		return fmt.Errorf("RequestDisallowedByPolicy: %w", kamino.ErrForbidden)
	}
	return nil
}

// Revoke implements worlds.World.
func (w *world) Revoke() { w.revoked = true }

// Lock implements worlds.World.
func (w *world) Lock() { w.locked = true }

// Deny implements worlds.World.
func (w *world) Deny() { w.denied = true }

// Refuse implements worlds.World.
func (w *world) Refuse() {
	w.refusePool(kamino.Refusal{Code: "upgrade-policy", Field: "properties.upgradePolicy.mode", Value: "Automatic"})
}

// Own implements worlds.World: an owner puts its image back within a minute.
func (w *world) Own() {
	p := w.pools[poolA]
	image := p.image
	p.revision, p.owner = w.next(), &kamino.Owner{Name: "somebody"}
	w.happened("pool %s has an owner", p.id.Name())
	w.after(time.Minute, func() {
		if p.image != image && p.owner != nil {
			p.image, p.revision = image, w.next()
			w.happened("the owner of pool %s writes its image back", p.id.Name())
		}
	})
}

// LimitPods implements worlds.World.
func (w *world) LimitPods(by worlds.PodLimit) { w.limited = by }

// newPod is a pod of an agent that is created on a node, or the answer of what keeps it out.
func (w *world) newPod(node string, order kamino.SealOrder) (*simSealPod, error) {
	if err := w.notAdmitted(); err != nil {
		return nil, err
	}
	return &simSealPod{AgentPod: kamino.AgentPod{Exists: true, Message: "pending"}, node: node, nonce: order.Nonce}, nil
}

// notAdmitted is the answer to the creation of a pod while something keeps it out.
func (w *world) notAdmitted() error {
	if w.limited == "" {
		return nil
	}
	w.hit(cellLimited(w.limited))
	return &kamino.RefusedError{Subject: "the seal pod",
		Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod, Field: string(w.limited), Why: "not admitted"}}}
}

// cellLimited: something kept a pod out.
func cellLimited(by worlds.PodLimit) string { return "a pod kept out: " + string(by) }

func (w *world) refusePool(why kamino.Refusal) {
	p := w.pools[poolA]
	p.revision, p.refusals = w.next(), []kamino.Refusal{why}
	w.happened("pool %s must not be touched: %s", p.id.Name(), why.Code)
}

// Exclude implements worlds.World.
func (w *world) Exclude() {
	for _, v := range w.versions(poolA) {
		if v.State == kamino.Succeeded && !v.Excluded {
			w.excluded = w.now
			w.flag(w.artifacts[artifactKey(poolA, kamino.KindVersion, v.Name)], true)
			w.happened("a person takes version %s out of latest", v.Name)
			return
		}
	}
}

// Script implements worlds.World.
func (w *world) Script(node string) {
	m, _ := w.donorOf(node)
	name := kamino.SnapshotName(poolA.Name())
	key := artifactKey(poolA, kamino.KindSnapshot, name)
	if m == nil || w.artifacts[key] != nil {
		return
	}
	w.artifacts[key] = &simArtifact{pool: poolA, Artifact: kamino.Artifact{Kind: kamino.KindSnapshot, Name: name,
		ID:    artifactID(poolA, kamino.KindSnapshot, name),
		State: kamino.Succeeded, Ready: true, Percent: 100, Created: w.now, Source: m.Disk,
		Tags: map[string]string{kamino.TagBuiltFrom: node}}}
	w.happened("the original script takes a snapshot of %s", node)
}

// DeletePods implements worlds.World.
func (w *world) DeletePods() {
	clear(w.sealPods)
	clear(w.surveys)
	clear(w.patches)
	w.happened("a person deletes the pods of the run")
}

const foreignNonce = "somebody's"

// Squat implements worlds.World.
func (w *world) Squat() {
	run := w.standing(poolA).Holder
	if run == "" {
		return
	}
	put := func(pods map[string]*simSealPod, key string) {
		if pods[key] == nil {
			pods[key] = &simSealPod{AgentPod: kamino.AgentPod{Exists: true, Done: true, Started: true, Message: "succeeded"},
				node: worlds.NoNode}
		}
	}
	put(w.sealPods, run)
	put(w.surveys, run)
	for _, task := range []kamino.Task{kamino.TaskCheck, kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook, kamino.TaskPackages} {
		put(w.patches, string(task)+" "+run)
	}
	if w.probe == "" {
		w.probe, w.probeNonce = run+" on "+worlds.NoNode, foreignNonce
	}
	w.happened("somebody makes pods under the names of run %s", run)
}

// DeleteSnapshot implements worlds.World. A version that is being built from it fails.
func (w *world) DeleteSnapshot() {
	for key, a := range w.artifacts {
		if a.Kind != kamino.KindSnapshot {
			continue
		}
		for _, v := range w.artifacts {
			if v.State == kamino.Creating && v.Source == a.ID {
				v.State, v.Failure = kamino.Failed, "source snapshot is gone"
			}
		}
		delete(w.artifacts, key)
		w.happened("a person deletes snapshot %s", a.Name)
	}
}

// Reboot implements worlds.World.
func (w *world) Reboot(node string) {
	m, _ := w.donorOf(node)
	if m == nil || m.Power != kamino.PowerOn || !m.Kubelet {
		return
	}
	m.Restart(true)
	m.reboot = m.Boots
	w.audit.person(node)
	w.happened("node %s reboots", node)
}

// After implements worlds.World.
func (w *world) After(d time.Duration, do func()) { w.after(d, do) }

// mend ends everything that persons would have to mend.
func (w *world) mend() {
	w.release()
	w.powers = powers{}
	w.pools[poolA].refusals, w.pools[poolA].owner = nil, nil
	w.unforge()
	w.slowWrites = 0
	w.apiAway, w.blindUntil = time.Time{}, time.Time{}
	w.repair()
	w.advance(w.now.Add(2 * time.Minute))
	w.repair()
	w.advance(w.now.Add(time.Minute))
}

// repair is what a person does to machines that do not come back: power them
// off and on again with whatever was broken mended.
func (w *world) repair() {
	for _, m := range w.machines {
		stuck := m.Fate == worlds.NeverBoots && m.Touched == "boot"
		m.Fate, m.spares = worlds.Healthy, 0
		if stuck && m.Power == kamino.PowerOn {
			m.Booted()
			w.happened("node %s is repaired", m.Hostname)
		}
	}
}

// decide is a person who reads what a restore leaves to a decision, and wants every machine of the
// pool to work. again says whether the restore is to be run again.
func (w *world) decide(left []poolstate.Leftover) (again bool) {
	for _, l := range left {
		m, _ := w.donorOf(l.Node)
		if m == nil || l.Done != "" || !strings.HasPrefix(l.Reason, "needs a decision: unless this is intended") {
			continue
		}
		w.hit(cellDecided)
		w.StartMachine(l.Node)
		if p := w.pools[m.Pool]; m.held == kamino.Held {
			m.held, p.capacity, p.revision = "", p.capacity+1, w.next()
			w.happened("a person puts %s back in service", l.Node)
		}
		again = again || strings.Contains(l.Reason, "kamino restore")
	}
	return again
}

// cellDecided: a restore lists a machine that is off or out of service, and that no run is known to have.
const cellDecided = "a machine that no run is known to have"
