package boot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

const chainHeader = "The time when unit became active or started is printed after the \"@\" character.\n" +
	"The time the unit took to start is printed after the \"+\" character.\n\n"

// CompatChain writes what `systemd-analyze critical-chain [--fuzz=FUZZ] [UNIT…]` of systemd 252
// writes in a UTF-8 locale to something that is not a terminal. Without units it is
// default.target's. Dependencies that became active in the same microsecond come in the order of
// the capture; systemd's own order is then that of an unstable sort.
//
// A unit that the capture does not have prints nothing of its own, as in systemd-analyze, which
// complains on stderr; the names of such units are returned.
func CompatChain(w io.Writer, c *Capture, fuzz Micros, units ...string) (missing []string, err error) {
	b, err := compatOf(c)
	if err != nil {
		return nil, err
	}
	if err := b.acquireUnits(); err != nil {
		return nil, err
	}
	if len(b.units) == 0 {
		return nil, nil
	}
	if len(units) == 0 {
		units = []string{"default.target"}
	}
	p := &compatChain{boot: b, fuzz: uint64(max(fuzz, 0))}
	p.out.WriteString(chainHeader)
	for _, name := range units {
		if u := b.byName[name]; u == nil {
			missing = append(missing, name)
		} else {
			p.root(name, u)
		}
	}
	_, err = io.WriteString(w, p.out.String())
	return missing, err
}

type compatChain struct {
	boot    *compatBoot
	fuzz    uint64
	out     strings.Builder
	visited map[string]bool
}

func (p *compatChain) root(name string, u *Unit) {
	p.visited = map[string]bool{}
	if t := p.boot.byID[u.ID]; t != nil {
		switch {
		case t.time > 0:
			fmt.Fprintf(&p.out, "%s +%s\n", u.ID, timespan(t.time))
		case t.activated > p.boot.userspace:
			fmt.Fprintf(&p.out, "%s @%s\n", u.ID, timespan(t.activated-p.boot.userspace))
		default:
			p.out.WriteString(u.ID + "\n")
		}
	}
	p.below(name, u, 0, 0)
}

// below prints what a unit waited for. The name as it was given is what counts as visited, so that
// a cycle back to the real name of an alias is not noticed at the first level; systemd-analyze does
// the same.
func (p *compatChain) below(name string, u *Unit, level int, branches uint32) {
	p.visited[name] = true
	type dep struct {
		name string
		t    *compatUnit
	}
	var deps []dep
	for _, d := range u.After {
		if t := p.boot.byID[d]; t != nil && t.activated > 0 && t.activated <= p.boot.finish {
			deps = append(deps, dep{d, t})
		}
	}
	if len(deps) == 0 {
		return
	}
	slices.SortStableFunc(deps, func(x, y dep) int { return cmp.Compare(y.t.activated, x.t.activated) })
	longest := deps[0].t.activated
	deps = slices.DeleteFunc(deps, func(d dep) bool { return longest-d.t.activated > p.fuzz })
	for i, d := range deps {
		last := i == len(deps)-1
		p.line(d.name, level, branches, last, d.t)
		next := branches << 1
		if !last {
			next |= 1
		}
		if p.visited[d.name] {
			p.line("...", level+1, next, true, nil)
			continue
		}
		p.below(d.name, p.boot.byName[d.name], level+1, next)
	}
}

// line keeps systemd's 32 bits of branches: below level 32 the shift wraps, as it does on x86.
func (p *compatChain) line(name string, level int, branches uint32, last bool, t *compatUnit) {
	for i := level; i > 0; i-- {
		if branches&(1<<((i-1)&31)) != 0 {
			p.out.WriteString("│ ")
		} else {
			p.out.WriteString("  ")
		}
	}
	if last {
		p.out.WriteString("└─")
	} else {
		p.out.WriteString("├─")
	}
	p.out.WriteString(name)
	if t != nil {
		switch {
		case t.time > 0:
			fmt.Fprintf(&p.out, " @%s +%s", timespan(t.activating-p.boot.userspace), timespan(t.time))
		case t.activated > p.boot.userspace:
			fmt.Fprintf(&p.out, " @%s", timespan(t.activated-p.boot.userspace))
		}
	}
	p.out.WriteString("\n")
}
