package capture

import "kamino.dev/kamino/boot"

// edge is a boot of which the published behaviour of systemd-analyze is odd enough to be compared
// by name.
type edge struct {
	name string
	boot *boot.Capture
	fuzz string
	unit string
}

func (e edge) questions() []question {
	return boots(e.boot, e.fuzz, e.unit)
}

// with builds a boot of a real machine: kernel 1 s, initrd 1 s, userspace from 2 s, finished at 30
// s.
func with(change func(*boot.Manager), units ...boot.Unit) *boot.Capture {
	c := &boot.Capture{Schema: boot.Schema, Manager: boot.Manager{Version: "252.39", KernelRealtime: 1700000000e6, InitRD: 1e6, Userspace: 2e6, Finish: 30e6,
		SecurityStart: 21e5, SecurityFinish: 211e4, GeneratorsStart: 212e4, GeneratorsFinish: 22e5, UnitsLoadStart: 22e5, UnitsLoadFinish: 23e5}, Units: units}
	if change != nil {
		change(&c.Manager)
	}
	return c
}

func unit(id string, activating, activated boot.Micros, after ...string) boot.Unit {
	return boot.Unit{ID: id, ActiveState: "active", After: after, Stamps: boot.Stamps{Activating: activating, Activated: activated}}
}

func alias(u boot.Unit, names ...string) boot.Unit {
	u.Names = append(u.Names, names...)
	return u
}

func stopped(u boot.Unit, deactivating, deactivated boot.Micros) boot.Unit {
	u.Deactivating, u.Deactivated = deactivating, deactivated
	return u
}

func target(after ...string) boot.Unit {
	return alias(unit("multi-user.target", 20e6, 20e6, after...), "default.target")
}

// edges are the cases that the notes on systemd-analyze's semantics list.
func edges() []edge {
	container := func(m *boot.Manager) { m.SecurityStart, m.SecurityFinish, m.InitRD = 0, 0, 0 }
	a := unit("a.service", 5e6, 9e6)
	return []edge{
		{name: "firmware and loader", boot: with(func(m *boot.Manager) { m.Firmware, m.Loader = 9e6, 4e6 }, target("a.service"), a)},
		{name: "loader without firmware", boot: with(func(m *boot.Manager) { m.Loader = 4e6 }, target("a.service"), a)},
		{name: "no initrd", boot: with(func(m *boot.Manager) { m.InitRD = 0 }, target("a.service"), a)},
		{name: "not finished", boot: with(func(m *boot.Manager) { m.Finish = 0 }, target("a.service"), a)},
		{name: "no unit at all", boot: with(nil)},
		{name: "no unit started", boot: with(nil, unit("a.service", 0, 0))},
		{name: "container", boot: with(container, target("a.service"), a)},
		{name: "container with a unit older than it, where systemd-analyze aborts", boot: with(container, target("a.service"), a, unit("old.mount", 15e5, 15e5))},
		{name: "container that finished when it began", boot: with(func(m *boot.Manager) { container(m); m.Finish = m.Userspace }, target())},
		{name: "default target not known", boot: with(nil, a)},
		{name: "default target not reached", boot: with(nil, alias(unit("multi-user.target", 0, 0, "a.service"), "default.target"), a)},
		{name: "default target starting", boot: with(nil, alias(unit("multi-user.target", 9e6, 0, "a.service"), "default.target"), a)},
		{name: "dependency active after the end of startup", boot: with(nil, target("a.service", "late.service"), a, unit("late.service", 31e6, 45e6))},
		{name: "only a late dependency", boot: with(nil, target("late.service"), unit("late.service", 31e6, 45e6))},
		{name: "dependency active at the very end of startup", boot: with(nil, target("last.service"), unit("last.service", 29e6, 30e6))},
		{name: "dependency later than its dependant", boot: with(nil, target("false.mount"), unit("false.mount", 22e6, 25e6, "a.service"), a)},
		{name: "unit from before userspace", boot: with(nil, target("initrd.mount"), unit("initrd.mount", 15e5, 3e6, "older.mount"), unit("older.mount", 1e6, 12e5))},
		{name: "unit that took no time before userspace", boot: with(nil, target("initrd.mount"), unit("initrd.mount", 15e5, 15e5))},
		{name: "oneshot that is done", boot: with(nil, target("once.service"), stopped(unit("once.service", 5e6, 0, "a.service"), 0, 12e6), a)},
		{name: "oneshot between two that count", boot: with(nil, target("once.service", "a.service"), stopped(unit("once.service", 5e6, 0), 0, 12e6), a)},
		{name: "failed condition", boot: with(nil, target("a.service", "cond.service"), stopped(unit("cond.service", 0, 0), 0, 6e6), a)},
		{name: "restarted after startup", boot: with(nil, target("a.service", "again.service"), stopped(unit("again.service", 900e6, 905e6), 899e6, 8995e5), a)},
		{name: "starting again now", boot: with(nil, target("a.service", "again.service"), stopped(unit("again.service", 900e6, 8e6), 899e6, 8995e5), a)},
		{name: "dependency that is not loaded", boot: with(nil, target("missing.service", "a.service"), a)},
		{name: "root given by alias", boot: with(nil, alias(target("a.service"), "runlevel3.target"), a), unit: "runlevel3.target"},
		{name: "dependency given by alias", boot: with(nil, target("nickname.service"), alias(a, "nickname.service"))},
		{name: "circle", boot: with(nil, target("a.service"), unit("a.service", 5e6, 9e6, "b.service"), unit("b.service", 6e6, 8e6, "a.service"))},
		{name: "circle of one", boot: with(nil, target("a.service"), unit("a.service", 5e6, 9e6, "a.service"))},
		{name: "circle back to the root's real name", boot: with(nil, target("a.service"), unit("a.service", 5e6, 9e6, "multi-user.target"))},
		{name: "seen twice in two branches", boot: with(nil, target("a.service", "b.service"), unit("a.service", 5e6, 9e6, "c.service"), unit("b.service", 55e5, 9e6, "c.service"), unit("c.service", 3e6, 4e6))},
		{name: "equal moments", boot: with(nil, target("a.service", "b.service", "c.service"), a, unit("b.service", 6e6, 9e6), unit("c.service", 7e6, 9e6))},
		{name: "fuzz takes in the second", boot: with(nil, target("a.service", "b.service"), a, unit("b.service", 6e6, 8e6)), fuzz: "1s"},
		{name: "fuzz just not enough", boot: with(nil, target("a.service", "b.service"), a, unit("b.service", 6e6, 8e6-1)), fuzz: "1s"},
		{name: "microsecond lengths", boot: with(nil, target("a.service"), unit("a.service", 5e6, 5e6+999, "b.service"), unit("b.service", 4e6, 4e6+1))},
		{name: "minutes, hours, days", boot: with(func(m *boot.Manager) { m.Finish = 400000e6 }, alias(unit("multi-user.target", 399000e6, 399000e6, "a.service"), "default.target"),
			unit("a.service", 90000e6, 398765432100, "b.service"), unit("b.service", 62e6, 1062410e3))},
		{name: "name of an escaped device", boot: with(nil, target(`dev-disk-by\x2duuid-4fa1\x2dc7.device`), unit(`dev-disk-by\x2duuid-4fa1\x2dc7.device`, 4e6, 4e6))},
		{name: "unit asked for that never started", boot: with(nil, target("a.service"), a, unit("idle.service", 0, 0, "a.service")), unit: "idle.service"},
		{name: "unit asked for that is not there", boot: with(nil, target("a.service"), a), unit: "nosuch.service"},
	}
}
