package boot

import (
	"slices"
	"strings"
)

// Kinds of links: why the unit above waited for this one.
const (
	LinkRoot    = "goal"
	LinkAfter   = "after"     // After= in the unit file
	LinkTrigger = "trigger"   // its timer, socket or path
	LinkDuring  = "during"    // it was started while this task ran
	LinkInside  = "inside"    // the task belongs to this unit
	LinkPresume = "presumed"  // no edge is known, but this is what Azure's extensions wait for
	LinkTimeout = "timed out" // systemd gave up waiting for it
)

// Link is one step of a critical chain, seen from what waited: the goal comes first, its causes are
// in Next.
type Link struct {
	// Unit is a unit's ID, or the name of a task if Task is set.
	Unit string `json:"unit"`
	Task bool   `json:"task,omitempty"`
	Kind string `json:"kind"`
	// Start and Done are when it began and when the one above could go on; for a task that still
	// ran then, Done is that start.
	Start Micros `json:"start"`
	Done  Micros `json:"done"`
	// Took is Done-Start, Net the same without parked time.
	Took Micros `json:"took"`
	Net  Micros `json:"net"`
	// Idle is the time between the latest cause's Done and Start in which nothing known held the
	// unit back, without parked time. For a link without a cause it counts from the moment at which
	// systemd had loaded its units, and Loading is the time from the start of userspace until then.
	Idle    Micros `json:"idle,omitempty"`
	Loading Micros `json:"loading,omitempty"`
	// Why says what is known of the idle time: a device that never came, say.
	Why string `json:"why,omitempty"`
	// Restarts tells that the unit was restarted later; the stamps are those of its first
	// activation, if First.
	Restarts int  `json:"restarts,omitempty"`
	First    bool `json:"first,omitempty"`
	// Seen marks a link whose causes are printed elsewhere in the tree.
	Seen bool   `json:"seen,omitempty"`
	Next []Link `json:"next,omitempty"`
}

// maxChain bounds a chain's length; systemd's longest real ones have some forty steps.
const maxChain = 4096

// chainer builds one tree.
type chainer struct {
	*index
	fuzz    Micros
	visited map[string]bool
	count   int
}

// chain is what unit i waited for. Beyond the latest cause it follows those that are at most fuzz
// earlier.
func (x *index) chain(i int, fuzz Micros) *Link {
	b := &chainer{index: x, fuzz: fuzz, visited: map[string]bool{}}
	l := b.unit(i, LinkRoot)
	return &l
}

func (b *chainer) unit(i int, kind string) Link {
	u, s := &b.c.Units[i], b.first[i]
	l := Link{Unit: u.ID, Kind: kind, Start: s.Began(), Done: s.Done(), Restarts: u.Restarts, First: u.First != nil}
	if l.Done == 0 { // it has not come up; it may be what the boot still waits for
		l.Done = l.Start
	}
	b.measure(&l)
	if b.stop(&l) {
		return l
	}
	causes := b.causes(i)
	if t, ok := b.inVain(u.ID, causes, l.Start); ok {
		l.Next = []Link{t}
		b.idle(&l)
		return l
	}
	if t, ok := b.outside(i, l.Start); ok {
		l.Next = []Link{t}
		b.idle(&l)
		return l
	}
	for _, e := range causes {
		if causes[0].done-e.done > b.fuzz {
			break
		}
		l.Next = append(l.Next, b.unit(e.unit, e.kind))
	}
	b.idle(&l)
	return l
}

func (b *chainer) measure(l *Link) {
	l.Took = max(l.Done-l.Start, 0)
	l.Net = b.net(l.Start, l.Done)
}

// idle measures the time before a link in which nothing known happened. A record without ordering
// edges has no first link: what came before its only one is unknown.
func (b *chainer) idle(l *Link) {
	switch {
	case len(l.Next) > 0:
		l.Idle = b.net(l.Next[0].Done, l.Start)
	case b.ordered:
		from, loaded := b.beforeFirst(l.Start)
		l.Loading, l.Idle = b.net(from, loaded), b.net(loaded, l.Start)
	}
	if l.Idle >= IdleThreshold {
		l.Why = b.why(l)
	}
}

// inVain is the start that a unit waited for until systemd gave it up, where there was one. It lasted
// from the last of the unit's other causes, or from its own beginning where that was later.
func (b *chainer) inVain(unit string, causes []edge, began Micros) (Link, bool) {
	_, from := b.beforeFirst(began)
	if len(causes) > 0 {
		from = causes[0].done
	}
	t, ok := b.timeoutBefore(unit, from, began)
	if !ok {
		return Link{}, false
	}
	l := Link{Unit: t.unit, Kind: LinkTimeout, Start: max(t.began, from), Done: t.at}
	b.measure(&l)
	if b.stop(&l) {
		return l, true
	}
	if len(causes) > 0 {
		l.Next = []Link{b.unit(causes[0].unit, causes[0].kind)}
	}
	b.idle(&l)
	return l, true
}

// stop ends the recursion at what was seen before.
func (b *chainer) stop(l *Link) bool {
	key := l.Unit
	if l.Task {
		key = "task\x00" + key
	}
	b.count++
	if b.visited[key] || b.count > maxChain {
		l.Seen = true
		return true
	}
	b.visited[key] = true
	return false
}

// outside looks for who started a unit that no edge explains: a task or a script of cloud-init that
// ran at that moment, or the agent that runs extensions. It is asked before the unit files, but
// only when those leave a gap: short for kubelet, which is known to be started so, long for the
// others, since tasks run beside many units that they did not start.
func (b *chainer) outside(i int, began Micros) (Link, bool) {
	kubelet := strings.HasPrefix(b.c.Units[i].ID, "kubelet")
	causes := b.causes(i)
	gap := began
	if len(causes) > 0 {
		gap = b.net(causes[0].done, began)
	}
	if gap <= IdleThreshold || !kubelet && gap <= presumeThreshold {
		return Link{}, false
	}
	if k, ok := b.taskAt(began, b.c.Units[i].ID); ok {
		return b.task(k, LinkDuring, began), true
	}
	if gap <= presumeThreshold || !kubelet {
		return Link{}, false
	}
	for _, id := range []string{"cloud-final.service", "cloud-config.service", "cloud-init-network.service", "cloud-init.service"} {
		if j, ok := b.started(id); ok && b.first[j].Began() < began && b.first[j].Done() > began {
			l := b.unit(j, LinkDuring)
			l.Done = began
			b.measure(&l)
			return l, true
		}
	}
	j, ok := b.started("cloud-final.service")
	if !ok || b.first[j].Done() == 0 || b.first[j].Done() > began || (len(causes) > 0 && b.first[j].Done() <= causes[0].done) {
		return Link{}, false
	}
	return b.unit(j, LinkPresume), true
}

// taskAt is the shortest task that ran at a moment, in another unit than the one given.
func (b *chainer) taskAt(at Micros, notIn string) (int, bool) {
	best, found := 0, false
	for k, s := range b.c.Spans {
		if s.Kind != SpanTask || s.Unit == notIn || s.Start > at || s.End+edgeTolerance < at {
			continue
		}
		if !found || s.End-s.Start < b.c.Spans[best].End-b.c.Spans[best].Start {
			best, found = k, true
		}
	}
	return best, found
}

// task is a step that is not a unit. Before it came the latest task of the same unit that ended by
// then, else the unit itself; an extension's first task also waits for cloud-final, because the
// Azure agent runs no extension before cloud-init has finished (as published with the original;
// unverified on real Azure for every image).
func (b *chainer) task(k int, kind string, until Micros) Link {
	s := b.c.Spans[k]
	l := Link{Unit: s.Name, Task: true, Kind: kind, Start: s.Start, Done: min(s.End, until)}
	b.measure(&l)
	if b.stop(&l) {
		return l
	}
	owner, owned := b.started(s.Unit)
	before := -1
	for j, o := range b.c.Spans {
		if j != k && o.Kind == SpanTask && o.Unit == s.Unit && o.End > 0 && o.End <= s.Start+edgeTolerance && o.Start < s.Start &&
			(before < 0 || o.End > b.c.Spans[before].End) {
			before = j
		}
	}
	final, hasFinal := b.started("cloud-final.service")
	finalDone := Micros(0)
	if hasFinal && final != owner && b.first[final].Done() <= s.Start {
		finalDone = b.first[final].Done()
	}
	ownerDone := Micros(0)
	if owned {
		ownerDone = min(b.first[owner].Done(), s.Start)
		if b.first[owner].Took() > 0 && b.first[owner].Done() > s.Start { // the task is part of the unit's start
			ownerDone = b.first[owner].Began()
		}
	}
	switch {
	case before >= 0 && b.c.Spans[before].End > max(finalDone, ownerDone):
		l.Next = []Link{b.task(before, LinkAfter, s.Start)}
	case finalDone > ownerDone:
		l.Next = []Link{b.unit(final, LinkPresume)}
	case owned:
		o := b.unit(owner, LinkInside)
		o.Done = min(o.Done, s.Start)
		b.measure(&o)
		l.Next = []Link{o}
	}
	b.idle(&l)
	return l
}

// Path lists the main path of a chain in the order of time: what came first, first.
func (l *Link) Path() []*Link {
	var path []*Link
	for at := l; at != nil; {
		path = append(path, at)
		if len(at.Next) == 0 {
			break
		}
		at = &at.Next[0]
	}
	slices.Reverse(path)
	return path
}

// Segment is a stretch of the main path: a unit or task at work, or nothing known ("idle") before
// it.
type Segment struct {
	Unit string `json:"unit"`
	Idle bool   `json:"idle,omitempty"`
	// Why says what is known of an idle stretch.
	Why   string `json:"why,omitempty"`
	Start Micros `json:"start"`
	End   Micros `json:"end"`
	Net   Micros `json:"net"`
}

// segments cut the main path into stretches that do not overlap.
func (x *index) segments(root *Link) []Segment {
	var out []Segment
	at := Micros(0)
	for i, l := range root.Path() {
		if i == 0 {
			at = l.Start
			if x.ordered && !l.Seen {
				var from Micros
				if from, at = x.beforeFirst(l.Start); at > from {
					out = append(out, Segment{Unit: systemdItself, Start: from, End: at, Net: x.net(from, at)})
				}
			}
		}
		if l.Start > at {
			out = append(out, Segment{Unit: l.Unit, Idle: true, Why: l.Why, Start: at, End: l.Start, Net: x.net(at, l.Start)})
			at = l.Start
		}
		if l.Done > at {
			out = append(out, Segment{Unit: l.Unit, Start: at, End: l.Done, Net: x.net(at, l.Done)})
			at = l.Done
		}
	}
	return out
}
