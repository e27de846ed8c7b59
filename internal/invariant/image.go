package invariant

import (
	"strconv"
	"strings"
)

func equalID(a, b string) bool { return strings.EqualFold(a, b) }

// later compares versions number by number; names that are none come first.
func later(a, b string) bool {
	x, y := numbers(a), numbers(b)
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return false
}

func numbers(version string) (out [3]int) {
	parts := strings.Split(version, ".")
	if len(parts) != 3 {
		return [3]int{-1, -1, -1}
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return [3]int{-1, -1, -1}
		}
		out[i] = n
	}
	return out
}

// foreignArtifact: I3 for what is deleted.
func foreignArtifact(a *Auditor, s *State, c Call) {
	if c.Verb != DeleteArtifact {
		return
	}
	if v := s.artifact(c.Kind, c.Target); v != nil && !v.Ours {
		a.Violate("I3", "%s deletes %s %s, which is not ours", c.Process, v.Kind, v.Name)
	}
}

// sealedAndOff: I4.
func sealedAndOff(a *Auditor, s *State, c Call) {
	switch c.Verb {
	case Seal:
		for _, p := range s.Pods {
			if p.Node == c.Node && !p.Stays {
				a.Violate("I4", "%s seals node %s, where pod %s still runs", c.Process, c.Node, p.Name)
			}
		}
	case CreateSnapshot:
		sealed, known := a.disks[c.Made.Run]
		if known && !equalID(sealed, c.Made.Source) {
			a.unsound[c.Pool+" "+c.Made.Name] = true
			a.Violate("I4", "%s takes a snapshot of disk %s, run %s sealed disk %s", c.Process, c.Made.Source, c.Made.Run, sealed)
			return
		}
		for i := range s.Machines {
			m := &s.Machines[i]
			if !equalID(m.Disk, c.Made.Source) {
				continue
			}
			sound := m.Power == Off && m.Sealed != "" && m.Sealed == c.Made.Run && m.Receipt == c.Made.Receipt
			a.unsound[c.Pool+" "+c.Made.Name] = !sound
			if !sound && !c.Raced {
				a.Violate("I4", "%s takes a snapshot of %s for run %s with receipt %s: power %s, sealed by %q with receipt %s",
					c.Process, m.ID, c.Made.Run, c.Made.Receipt, m.Power, m.Sealed, m.Receipt)
			}
			return
		}
		if a.unsound[c.Pool+" "+c.Made.Name] = !known; !known {
			a.Violate("I4", "%s takes a snapshot of %s, which is no machine's disk", c.Process, c.Made.Source)
		}
	case CreateVersion:
		if src := s.artifact(Snapshot, c.Made.Source); src != nil && a.unsound[src.Pool+" "+src.Name] {
			a.Violate("I4", "%s builds version %s from a snapshot that was not taken of a sealed disk at rest", c.Process, c.Made.Name)
		}
	}
}

// readyImage: I5.
func readyImage(a *Auditor, s *State, c Call) {
	switch c.Verb {
	case CreateVersion:
		src := s.artifact(Snapshot, c.Made.Source)
		if src == nil || src.State == "Deleting" {
			return // nothing can be built of it
		}
		if src.State != "Succeeded" || !src.Ready {
			a.Violate("I5", "%s builds version %s from a snapshot that is not complete", c.Process, c.Made.Name)
		} else if src.Receipt == "" || src.Run != c.Made.Run || src.Receipt != c.Made.Receipt {
			a.Violate("I5", "%s builds version %s as of run %q receipt %q from a snapshot of run %q receipt %q",
				c.Process, c.Made.Name, c.Made.Run, c.Made.Receipt, src.Run, src.Receipt)
		}
	case SetModel:
		v := s.artifact(Version, c.Target)
		if !strings.Contains(strings.ToLower(c.Target), "/versions/") {
			return // a way back to a model from before, or a definition: see I6
		}
		if v == nil || v.State != "Succeeded" || !v.Ready {
			a.Violate("I5", "%s points the model at %s, which is not ready", c.Process, c.Target)
		}
	}
}

// modelExists: I6. An image of no version of ours is somebody else's to keep.
func modelExists(a *Auditor, s *State) {
	for _, p := range s.Pools {
		if v := s.artifact(Version, p.Next); v != nil && v.State == "Succeeded" && !v.Ready {
			a.Violate("I6", "the next machine of %s boots from version %s, which is not replicated", p.ID, v.Name)
		}
		if p.Image == p.Person && p.Person != "" {
			continue
		}
		known, ours := a.seen[p.Image]
		if !ours || known.pool != p.ID {
			continue
		}
		v := s.artifact(Version, p.Image)
		if v == nil || v.State != "Succeeded" {
			a.Violate("I6", "the model of %s refers to version %s, which cannot be used", p.ID, known.name)
		}
	}
}

// unusedVersion: I7.
func unusedVersion(a *Auditor, s *State, c Call) {
	if c.Verb != DeleteArtifact || c.Kind != Version {
		return
	}
	v := s.artifact(Version, c.Target)
	if v == nil {
		return
	}
	for _, p := range s.Pools {
		if equalID(p.Image, v.ID) {
			a.Violate("I7", "%s deletes version %s, which the model of %s refers to", c.Process, v.Name, p.ID)
		}
	}
	for i := range s.Machines {
		if m := &s.Machines[i]; equalID(m.Image, v.ID) {
			a.Violate("I7", "%s deletes version %s, from which %s booted", c.Process, v.Name, m.ID)
		}
	}
	if v.State != "Succeeded" {
		return
	}
	newest, good := "", 0
	for _, o := range s.Artifacts {
		if o.Kind == Version && o.Pool == v.Pool && o.State == "Succeeded" {
			if good++; newest == "" || later(o.Name, newest) {
				newest = o.Name
			}
		}
	}
	former := s.lease(v.Pool).Former
	if s.Now.Sub(a.dropped[v.Pool]) <= lookAge {
		former = "" // what stood there was lost
	}
	if v.Name == newest || good <= 2 || equalID(former, v.ID) {
		a.Violate("I7", "%s deletes version %s: newest %s, %d good, former model %s", c.Process, v.Name, newest, good, former)
	}
	if c.Checked > maxAge {
		a.Violate("I7", "%s deletes version %s, whose users were read %s ago", c.Process, v.Name, c.Checked)
	}
}

// savedModel: I8 before a write of the model.
func savedModel(a *Auditor, s *State, c Call) {
	p := s.pool(c.Pool)
	if c.Verb != SetModel || p == nil || c.Raced || equalID(p.Image, c.Target) {
		return
	}
	l := s.lease(c.Pool)
	if s.Now.Sub(a.dropped[c.Pool]) <= lookAge {
		return // it stood on a lease that was just deleted or went back in time
	}
	if !equalID(l.Former, p.Image) {
		a.Violate("I8", "%s replaces image %s in the model, which was not saved; saved is %q", c.Process, p.Image, l.Former)
	}
	if _, ours := a.seen[p.Image]; !ours && !strings.Contains(p.Image, "/galleries/") && l.Original == "" {
		a.Violate("I8", "%s replaces the original image %s, which was not saved", c.Process, p.Image)
	}
}

// ledgerKept: I8 at every write of a lease.
func ledgerKept(a *Auditor, was, is *State, c Call) {
	if c.Verb != SetLease {
		return
	}
	if x, y := was.lease(c.Pool), is.lease(c.Pool); x.Original != "" && !equalID(x.Original, y.Original) ||
		x.Former != "" && y.Former == "" {
		a.Violate("I8", "%s loses a saved model: %q, %q become %q, %q", c.Process, x.Former, x.Original, y.Former, y.Original)
	}
}

// conditional: I10.
func conditional(a *Auditor, s *State, c Call) {
	p := s.pool(c.Pool)
	if c.Verb != SetModel && c.Verb != SetCapacity || p == nil {
		return
	}
	if c.Revision == "" || c.Revision != p.Revision {
		a.Violate("I10", "%s: %s of %s on condition %q, the pool is at %q", c.Process, c.Verb, c.Pool, c.Revision, p.Revision)
	}
	if c.Verb == SetModel {
		for _, f := range c.Fields {
			if !owned(f) {
				a.Violate("I10", "%s writes field %s of the model of %s, which is not ours", c.Process, f, c.Pool)
			}
		}
		if p.Person != "" && p.Image == p.Person && !equalID(c.Target, p.Person) && !c.Raced {
			a.Violate("I10", "%s overwrites image %s, which somebody chose during the run", c.Process, p.Person)
		}
		return
	}
	run := s.lease(c.Pool).Holder
	if asked := a.scaled[run]; asked > 0 && asked != c.Instances {
		a.Violate("I10", "%s sets the capacity of %s to %d, after the same run had asked for %d", c.Process, c.Pool, c.Instances, asked)
	}
	if c.Instances <= p.Capacity {
		a.Violate("I10", "%s sets the capacity of %s from %d to %d", c.Process, c.Pool, p.Capacity, c.Instances)
	}
	a.scaled[run] = c.Instances
}

// owned tells the parts of a pool's document that Kamino may write.
func owned(field string) bool {
	for _, part := range []string{"imageReference", "customData", "userData", "extension", "securityProfile"} {
		if strings.Contains(field, part) {
			return true
		}
	}
	return false
}

// sourceKept: I14 for a snapshot that is being read.
func sourceKept(a *Auditor, s *State, c Call) {
	if c.Verb != DeleteArtifact || c.Kind != Snapshot {
		return
	}
	for _, v := range s.Artifacts {
		if v.Kind == Version && v.State == "Creating" && equalID(v.Source, c.Target) {
			a.Violate("I14", "%s deletes snapshot %s while version %s is built from it", c.Process, c.Target, v.Name)
		}
	}
}

// oneOfEach: I14.
func oneOfEach(a *Auditor, s *State) {
	for i, x := range s.SealPods {
		for _, y := range s.SealPods[i+1:] {
			if x.Node == y.Node || x.Run == y.Run {
				a.Violate("I14", "two seal pods: of run %s on %s, of run %s on %s", x.Run, x.Node, y.Run, y.Node)
			}
		}
	}
	for i, x := range s.Artifacts {
		if x.State == "Failed" || x.State == "Deleting" || x.Run == "" {
			continue
		}
		for _, y := range s.Artifacts[i+1:] {
			if x.Kind == y.Kind && x.Run == y.Run && x.Pool == y.Pool && y.State != "Failed" && y.State != "Deleting" {
				a.Violate("I14", "run %s has two: %s %s and %s", x.Run, x.Kind, x.Name, y.Name)
			}
		}
	}
}

// laterVersion: I17.
func laterVersion(a *Auditor, s *State, c Call) {
	if c.Verb != CreateVersion {
		return
	}
	if numbers(c.Made.Name)[0] < 0 {
		a.Violate("I17", "%s creates version %q, which is no version", c.Process, c.Made.Name)
	}
	// The same request again, of the same run, is no new version: what was just
	// created may not show yet.
	again := false
	for _, v := range s.Artifacts {
		if v.Kind != Version || v.Pool != c.Pool || later(c.Made.Name, v.Name) {
			continue
		}
		if v.Name == c.Made.Name && v.Run == c.Made.Run && v.Run != "" && equalID(v.Source, c.Made.Source) {
			again = true
			continue
		}
		a.Violate("I17", "%s creates version %s although %s exists, %s", c.Process, c.Made.Name, v.Name, v.State)
	}
	for _, v := range a.seen {
		if v.pool == c.Pool && v.good && !later(c.Made.Name, v.name) && !(again && v.name == c.Made.Name) {
			a.Violate("I17", "%s creates version %s although %s had existed", c.Process, c.Made.Name, v.name)
		}
	}
}
