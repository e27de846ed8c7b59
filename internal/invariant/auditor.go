package invariant

import (
	"encoding/json"
	"fmt"
	"time"
)

// Violation is one breach of one invariant.
type Violation struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	What string    `json:"what"`
}

func (v Violation) String() string { return v.ID + ": " + v.What }

// Span is a time that a donor was away: from the moment its disk was touched or
// it was told to go off, to the moment its kubelet reports again.
type Span struct {
	VM   string        `json:"vm"`
	Took time.Duration `json:"took"`
	Back time.Time     `json:"back"`
}

// Auditor watches one world. Its zero value is ready; it is not safe for use by
// several goroutines at once.
type Auditor struct {
	// MaxAway is how many donors may be away in the whole cluster; 0 is no limit.
	MaxAway int
	// Hosts are those that may see an Authorization header.
	Hosts []string
	// Report, if set, hears of every violation at once.
	Report func(Violation)

	violations []Violation
	spans      []Span
	now        time.Time

	marks   map[string]mark      // parsed annotations
	taken   map[string]time.Time // VMs that a run took away, and when
	away    map[string]time.Time // since when they are
	seen    map[string]version   // versions ever seen, by ID
	stale   map[string]int       // calls of a process that had lost the lease
	mine    map[string]bool      // processes that held a lease once
	refused map[string]time.Time // since when a pool is refused
	quiet   map[string]time.Time // process and bucket: throttled until
	scaled  map[string]int       // run: capacity that it asked for
	persons map[string]foreign   // node: what persons left there
	freed   map[string]bool      // nodes that others took our taint off
	changed map[string]time.Time // nodes that others changed, and when
	dropped map[string]time.Time // pools whose lease a person deleted, and when
	forged  map[string]string    // node: a mark that no run wrote
	disks   map[string]string    // run: the disk that it was seen to seal
	unsound map[string]bool      // snapshots by pool and name that nothing may be made of
	claims  map[string]*claim    // the steps that processes are in
	whose   map[string]donor     // what each run marked

	promoted map[string]string // run: the version that it promoted
	next     map[string]string // pool: what its next machine boots from
}

// version is what is remembered of a version.
type version struct {
	pool, name string
	good       bool // was Succeeded once
}

// mark is as much of the annotation of a run as the invariants need.
type mark struct {
	Run        string  `json:"run"`
	VM         string  `json:"vmId"`
	Sealing    bool    `json:"sealing"`
	Begun      bool    `json:"begun"`
	Protection *string `json:"protection"`
	Format     int     `json:"format"`
	Work       string  `json:"work"`
}

// Names that Kamino writes on nodes.
const (
	annotationRun     = "kamino.dev/run"
	annotationReceipt = "kamino.dev/receipt"
	annotationFailure = "kamino.dev/seal-failure"
	annotationProtect = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	taintBlock        = "status-taint.cluster-autoscaler.kubernetes.io/kamino-donor"
)

func (a *Auditor) init() {
	if a.marks != nil {
		return
	}
	a.marks, a.taken, a.away = map[string]mark{}, map[string]time.Time{}, map[string]time.Time{}
	a.seen, a.stale, a.mine = map[string]version{}, map[string]int{}, map[string]bool{}
	a.refused, a.quiet, a.scaled = map[string]time.Time{}, map[string]time.Time{}, map[string]int{}
	a.persons, a.unsound, a.freed = map[string]foreign{}, map[string]bool{}, map[string]bool{}
	a.changed, a.forged, a.dropped = map[string]time.Time{}, map[string]string{}, map[string]time.Time{}
	a.disks = map[string]string{}
	a.claims, a.whose = map[string]*claim{}, map[string]donor{}
	a.promoted, a.next = map[string]string{}, map[string]string{}
}

// Violations lists what was broken so far, in order.
func (a *Auditor) Violations() []Violation { return a.violations }

// Spans lists how long donors were away that are back.
func (a *Auditor) Spans() []Span { return a.spans }

// Violate records a breach that the caller has found himself.
func (a *Auditor) Violate(id, format string, args ...any) {
	v := Violation{ID: id, Time: a.now, What: fmt.Sprintf(format, args...)}
	a.violations = append(a.violations, v)
	if a.Report != nil {
		a.Report(v)
	}
}

// Changed checks the state after any change of the world, whoever made it.
func (a *Auditor) Changed(s *State) {
	a.init()
	a.now = s.Now
	a.observe(s)
	for _, i := range All {
		if i.changed != nil {
			i.changed(a, s)
		}
	}
	a.follow(s)
}

// Before checks a call with the state that it finds.
func (a *Auditor) Before(s *State, c Call) {
	a.init()
	a.now = s.Now
	for _, i := range All {
		if i.before != nil {
			i.before(a, s, c)
		}
	}
	if c.Verb == PowerOff {
		if m := s.machine(c.Machine); m != nil {
			a.taken[m.VM] = s.Now
		}
	}
}

// After checks what a call has done: was is the state before it, is the state
// after it, with nothing but the call between the two.
func (a *Auditor) After(was, is *State, c Call) {
	a.init()
	a.now = is.Now
	for _, i := range All {
		if i.after != nil {
			i.after(a, was, is, c)
		}
	}
}

// Settled checks what must hold once nothing goes wrong any more, the last
// process has ended well, and started machines have had the time to boot.
func (a *Auditor) Settled(s *State) {
	a.init()
	a.now = s.Now
	a.observe(s)
	for _, i := range All {
		if i.settled != nil {
			i.settled(a, s)
		}
	}
}

// Step checks a step that a process has reported as done (I15): held tells
// whether its postcondition was true at any moment of the step.
func (a *Auditor) Step(process, step string, held bool) {
	if !held {
		a.Violate("I15", "%s reports step %s as done, which the world never showed", process, step)
	}
}

// Idle checks that nothing was written where nothing was left to do (I19).
func (a *Auditor) Idle(process string, writes int) {
	if writes > 0 {
		a.Violate("I19", "%s makes %d writes although nothing is left to do", process, writes)
	}
}

// Restored checks that every donor which was away at a time, from when on nothing
// went wrong any more and a process was there, came back within the limit (I1).
func (a *Auditor) Restored(from time.Time, limit time.Duration) {
	for _, s := range a.spans {
		if began := s.Back.Add(-s.Took); began.Before(from) && s.Back.Sub(from) > limit {
			a.Violate("I1", "VM %s was back only %s after nothing went wrong any more", s.VM, s.Back.Sub(from))
		}
	}
}

// Ended checks that a process ended in time (I18).
func (a *Auditor) Ended(process string, took, limit time.Duration) {
	if took > limit {
		a.Violate("I18", "%s took %s, more than %s", process, took, limit)
	}
}

// Throttled tells that a process was asked to keep away from a bucket.
func (a *Auditor) Throttled(process, bucket string, until time.Time) {
	a.init()
	a.quiet[process+" "+bucket] = until
}

// Request checks where an Authorization header goes (I27).
func (a *Auditor) Request(host string, authorized bool) {
	if !authorized {
		return
	}
	for _, h := range a.Hosts {
		if h == host {
			return
		}
	}
	a.Violate("I27", "an Authorization header goes to %s, which is none of %v", host, a.Hosts)
}

// observe remembers what later checks need.
func (a *Auditor) observe(s *State) {
	for i := range s.Machines {
		if m := &s.Machines[i]; m.Sealed != "" {
			a.disks[m.Sealed] = m.Disk
		}
		a.clock(&s.Machines[i])
	}
	for _, v := range s.Artifacts {
		if v.Kind == Version {
			if old, known := a.seen[v.ID]; !known || v.State == "Succeeded" && !old.good {
				a.seen[v.ID] = version{v.Pool, v.Name, old.good || v.State == "Succeeded"}
			}
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if a.freed[n.Name] && n.blocked() {
			delete(a.freed, n.Name)
		}
		if m, ok := a.markOf(n); ok && !a.IsForged(n.Name, n.Annotations[annotationRun]) {
			a.whose[m.Run] = donor{n.Name, n.ProviderID, m.VM}
		}
	}
	for _, p := range s.Pools {
		if _, known := a.refused[p.ID]; p.Refused && !known {
			a.refused[p.ID] = s.Now
		} else if !p.Refused {
			delete(a.refused, p.ID)
		}
	}
	for _, l := range s.Leases {
		if l.Process != "" {
			a.mine[l.Process] = true
		}
	}
}

// clock measures how long a donor is away.
func (a *Auditor) clock(m *Machine) {
	whole := m.Power == On && m.Touched == "" && m.Kubelet
	if m.Touched != "" {
		a.taken[m.VM] = a.now
	}
	since, was := a.away[m.VM]
	switch {
	case whole && was:
		a.spans = append(a.spans, Span{m.VM, a.now.Sub(since), a.now})
		delete(a.away, m.VM)
		delete(a.taken, m.VM)
	case whole:
		// Told to go off, it still runs: perhaps it was not told after all.
		if told, ok := a.taken[m.VM]; ok && a.now.Sub(told) > obeys {
			delete(a.taken, m.VM)
		}
	case !was && a.isAway(m):
		a.away[m.VM] = a.now
	}
}

// obeys is how long a machine may take to begin what it was told.
const obeys = 5 * time.Minute

// isAway says whether a run took the machine away and it is not back.
func (a *Auditor) isAway(m *Machine) bool {
	_, taken := a.taken[m.VM]
	return taken && (m.Power != On || m.Touched != "")
}

// markOf reads the mark of a node; ok is false when it has none of ours.
func (a *Auditor) markOf(n *Node) (m mark, ok bool) {
	text, has := n.Annotations[annotationRun]
	if !has {
		return m, false
	}
	m, known := a.marks[text]
	if !known {
		if json.Unmarshal([]byte(text), &m) != nil {
			m = mark{}
		}
		if len(a.marks) > 1000 {
			clear(a.marks)
		}
		a.marks[text] = m
	}
	return m, m.Run != ""
}
