package invariant

import (
	"slices"
	"time"
)

// maxAge is how old what is known of a version's users may be when it goes.
const maxAge = 30 * time.Second

// fenced: I9 before calls. A process that lost the lease has one call in flight
// at most; giving back is harmless and does not count.
func fenced(a *Auditor, s *State, c Call) {
	if c.Verb == Read || c.Verb == SetLease || c.givesBack() || s.lease(c.Pool).Process == c.Process {
		return
	}
	l := s.lease(c.Pool)
	if l.Epoch == 0 {
		return // somebody deleted it: it is nobody's until the next write
	}
	if restored, back := a.dropped[c.Pool]; back && l.Process == "" && s.Now.Sub(restored) <= lookAge {
		return // it went back in time: the same
	}
	if a.stale[c.Process]++; a.stale[c.Process] > 1 || !a.mine[c.Process] {
		a.Violate("I9", "%s makes call %s although process %q holds the lease", c.Process, c.Verb, l.Process)
	}
}

// LeaseDeleted tells that a person deleted the lease of a pool, with what stood there.
func (a *Auditor) LeaseDeleted(pool string, now time.Time) {
	a.init()
	a.dropped[pool] = now
}

// epochGrows: I9 at every write of a lease.
func epochGrows(a *Auditor, was, is *State, c Call) {
	if c.Verb != SetLease {
		return
	}
	x, y := was.lease(c.Pool), is.lease(c.Pool)
	if y.Epoch < x.Epoch || y.Epoch == x.Epoch && y.Process != x.Process && y.Holder != "" {
		a.Violate("I9", "%s writes epoch %d over %d, process %q over %q", c.Process, y.Epoch, x.Epoch, y.Process, x.Process)
	}
}

// intended: I13.
func intended(a *Auditor, s *State, c Call) {
	if c.Verb == Seal {
		n := s.node(c.Node)
		if n == nil {
			return
		}
		// What others did just before the call could not be seen.
		if m, _ := a.markOf(n); !m.Sealing && s.Now.Sub(a.changed[c.Node]) > lookAge {
			a.Violate("I13", "%s seals node %s, whose mark does not say so", c.Process, c.Node)
		}
	}
	l := s.lease(c.Pool)
	wanted, bound := intents[c.Verb]
	if restored, back := a.dropped[c.Pool]; !bound || l.Process != c.Process || back && s.Now.Sub(restored) <= lookAge {
		return // without the lease: I9; or what stood there was lost
	}
	if c.Verb == DeleteArtifact {
		wanted = []string{"delete-" + string(c.Kind)}
	}
	for _, w := range wanted {
		if slices.Contains(l.Acts, w) {
			return
		}
	}
	a.Violate("I13", "%s makes call %s; the acts on the lease are %q", c.Process, c.Verb, l.Acts)
}

// lookAge is how old a look at the world may be when it is acted upon.
const lookAge = 10 * time.Second

// forgottenLife is how long the snapshot of a run stays of which the lease knows nothing any more.
const forgottenLife = 24 * time.Hour

// forgottenBack is how long the donor may be away of a run that the lease has forgotten.
const forgottenBack = 10 * time.Minute

// nothingLeft: I16. Where a person deleted the lease, nobody can know whether the run of a snapshot
// lives, so it stays for a day and is told.
func nothingLeft(a *Auditor, s *State) {
	for _, v := range s.Artifacts {
		dropped, forgotten := a.dropped[v.Pool]
		if v.Kind == Snapshot && forgotten && s.Now.Sub(dropped) <= forgottenLife {
			continue
		}
		if v.Ours && (v.Kind == Snapshot || v.State == "Failed") {
			a.Violate("I16", "%s %s is left, %s", v.Kind, v.Name, v.State)
		}
	}
	for _, p := range s.SealPods {
		a.Violate("I16", "the seal pod of run %s is left on %s", p.Run, p.Node)
	}
	for _, p := range s.AgentPods {
		a.Violate("I16", "a pod of run %s is left on %s", p.Run, p.Node)
	}
	for _, l := range s.Leases {
		if l.Holder != "" {
			a.Violate("I16", "the lease of %s is held by run %s, process %s", l.Pool, l.Holder, l.Process)
		}
	}
}

// retryAfter: I20.
func retryAfter(a *Auditor, s *State, c Call) {
	if c.Bucket == "" {
		return
	}
	if until, ok := a.quiet[c.Process+" "+c.Bucket]; ok && s.Now.Before(until) {
		a.Violate("I20", "%s calls %s %s before its Retry-After is over", c.Process, c.Bucket, until.Sub(s.Now))
	}
}

// refusedUntouched: I28. A refusal that comes up during a run may be seen late,
// but never after the model has been written.
func refusedUntouched(a *Auditor, s *State, c Call) {
	p := s.pool(c.Pool)
	if p == nil || !p.Refused {
		return
	}
	switch c.Verb {
	case SetModel, SetCapacity:
	case Mark, Evict, Seal, PowerOff, CreateGallery, CreateDefinition, CreateSnapshot, CreateVersion:
		if s.Now.Sub(a.refused[c.Pool]) < refusalSeen {
			return
		}
	default:
		return
	}
	a.Violate("I28", "%s makes call %s on pool %s, which is refused", c.Process, c.Verb, c.Pool)
}

// refusalSeen is how long a run that has begun may not notice that its pool
// must not be touched any more: it reads the pool at its ends only.
const refusalSeen = 40 * time.Hour
