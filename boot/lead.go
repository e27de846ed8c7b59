package boot

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// systemdItself names the time in which PID 1 runs its generators and loads unit files, before it
// starts a unit.
const systemdItself = "systemd's own start"

// timeout is the start of a unit for which systemd waited until it gave up: mostly a device that a
// line of /etc/fstab names and the machine does not have.
type timeout struct {
	unit string
	// began is when the job began, zero where the record does not say so; at is when it was given up.
	began, at Micros
}

// findTimeouts lists the starts that were given up: jobs that timed out, as the journal has them, and
// devices that were expected and never came, as their own stamps say.
func (x *index) findTimeouts() []timeout {
	var out []timeout
	known := map[string]bool{}
	for _, m := range x.c.Marks {
		if m.Name != MarkTimeout || m.Detail == "" || known[m.Detail] {
			continue
		}
		known[m.Detail] = true
		t := timeout{unit: m.Detail, at: m.At}
		if i, ok := x.byName[m.Detail]; ok && x.first[i].Activating < m.At {
			t.began = x.first[i].Activating
		}
		out = append(out, t)
	}
	for i := range x.c.Units {
		id, s := x.c.Units[i].ID, x.first[i]
		if strings.HasSuffix(id, ".device") && !known[id] && s.Activated == 0 && s.Activating > 0 && s.Deactivated > s.Activating {
			out = append(out, timeout{id, s.Activating, s.Deactivated})
		}
	}
	return out
}

// timedOut tells whether systemd gave up waiting for a unit.
func (x *index) timedOut(unit string) bool {
	for _, t := range x.timeouts {
		if t.unit == unit {
			return true
		}
	}
	return false
}

// timeoutBefore finds what a unit waited for in vain: the latest start that was given up between the
// last of its known causes and its own beginning, shortly before that.
func (x *index) timeoutBefore(unit string, from, began Micros) (timeout, bool) {
	var best timeout
	if x.net(from, began) <= presumeThreshold {
		return best, false
	}
	for _, t := range x.timeouts {
		if t.unit != unit && t.at > max(from, best.at) && t.at <= began+edgeTolerance && x.net(t.at, began) <= presumeThreshold {
			best = t
		}
	}
	return best, best.at > 0
}

// beforeFirst divides the time before the first unit of a chain: from the start of userspace until
// systemd had loaded its units, and from there until that unit began.
func (x *index) beforeFirst(began Micros) (from, loaded Micros) {
	from = min(x.c.Manager.Userspace, began)
	return from, max(from, min(x.c.Manager.UnitsLoadFinish, began))
}

// why says in few words what an idle stretch before a link was.
func (x *index) why(l *Link) string {
	if i, ok := x.byName[l.Unit]; ok && !l.Task && l.Idle >= vainThreshold {
		if name := x.neverCame(i); name != "" {
			return name + " never came"
		}
	}
	if len(l.Next) == 0 && x.c.Manager.Userspace == 0 && x.since != sinceUserspace {
		return "not in this record"
	}
	return ""
}

// vainThreshold is the idle time from which a device, mount or swap that never came is named as a
// likely reason: systemd's own limits are tens of seconds.
const vainThreshold = Micros(10 * 1000 * 1000)

// neverCame finds a device, mount or swap that unit i is ordered after, directly or through others
// that never came, and that is not known to have come. systemd keeps no stamps of most of these.
func (x *index) neverCame(i int) string {
	seen := map[string]bool{}
	found := ""
	queue := x.c.Units[i].After
	for n := 0; n < len(queue) && n < maxChain; n++ {
		name := queue[n]
		j, known := x.byName[name]
		if seen[name] || known && x.first[j].Done() > 0 {
			continue
		}
		seen[name] = true
		switch {
		case strings.HasSuffix(name, ".device"):
			return name
		case strings.HasSuffix(name, ".mount"), strings.HasSuffix(name, ".swap"):
			if found == "" {
				found = name
			}
		case !strings.HasPrefix(name, "systemd-fsck@") && !strings.HasPrefix(name, "systemd-cryptsetup@"):
			continue
		}
		if known {
			queue = append(queue[:len(queue):len(queue)], x.c.Units[j].After...)
		}
	}
	return found
}

// devicePath is the path of a device's unit, as /etc/fstab has it; any other unit is its name. What is
// escaped and not plain stays escaped: a terminal may obey it.
func devicePath(unit string) string {
	rest, device := strings.CutSuffix(unit, ".device")
	if !device {
		return unit
	}
	var b strings.Builder
	b.WriteByte('/')
	for i := 0; i < len(rest); i++ {
		if rest[i] == '-' {
			b.WriteByte('/')
			continue
		}
		if strings.HasPrefix(rest[i:], `\x`) && len(rest) >= i+4 {
			if n, err := strconv.ParseUint(rest[i+2:i+4], 16, 8); err == nil && n > ' ' && n < 0x7f {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(rest[i])
	}
	return b.String()
}

// heldBack tells whether systemd gave up waiting for something before the goal was reached.
func (x *index) heldBack(goal Micros) bool {
	return slices.ContainsFunc(x.timeouts, func(t timeout) bool { return t.at <= goal })
}

// maxTimeouts bounds the lines about starts that were given up.
const maxTimeouts = 3

// timeoutVerdict says for what systemd waited in vain, and what to look at.
func (x *index) timeoutVerdict(after string) []string {
	var out []string
	for n, t := range x.timeouts {
		if n == maxTimeouts {
			out = append(out, fmt.Sprintf("And %s more.", Count(len(x.timeouts)-n, "timeout")))
			break
		}
		waited := ""
		if t.began > 0 {
			waited = " " + (t.at - t.began).String()
		}
		when := ""
		if t.at >= 1000 { // else it is the first line of a log that was cut
			when = fmt.Sprintf(" at %s %s", t.at, after)
		}
		out = append(out, fmt.Sprintf("systemd waited%s for %s and gave up%s.", waited, devicePath(t.unit), when))
	}
	if len(out) > 0 {
		out = append(out, "Look for what never came in /etc/fstab, /etc/crypttab and the kernel's resume=: remove it there, or give it the option nofail.")
	}
	return out
}
