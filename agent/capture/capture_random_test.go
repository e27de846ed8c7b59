package capture

import (
	"fmt"
	"math/rand/v2"

	"kamino.dev/kamino/boot"
)

// randomBoot makes a boot that holds together only as much as real ones do: most units follow their
// dependencies, but some were restarted, failed, came from the initrd, started after startup
// finished, never started, or depend on each other in a circle. Some boots are containers, some did
// not finish.
func randomBoot(seed uint64) *boot.Capture {
	r := rand.New(rand.NewPCG(seed, 1))
	c := &boot.Capture{Schema: boot.Schema, Manager: randomManager(r)}
	m := &c.Manager
	n := 1 + r.IntN(60)
	if seed%50 == 0 {
		n = 0
	}
	if seed%20 == 7 {
		n = 300
	}
	length := int64(max(m.Finish, m.Userspace+1e6) - m.Userspace)
	if length < 1000 {
		length = 40e6
	}
	for i := range n {
		c.Units = append(c.Units, randomUnit(r, i, m, length, seed))
	}
	for i := range c.Units {
		randomEdges(r, c, i, seed)
	}
	if n > 0 && seed%11 != 3 {
		u := &c.Units[r.IntN(n)]
		u.Names = append(u.Names, "default.target")
		if r.IntN(4) == 0 { // a cycle through the alias
			other := &c.Units[r.IntN(n)]
			other.After = append(other.After, u.ID)
		}
	}
	return c
}

func randomManager(r *rand.Rand) boot.Manager {
	m := boot.Manager{Version: "252.39", KernelRealtime: 1700000000000000}
	m.Userspace = boot.Micros(1 + r.Int64N(5e6))
	m.SecurityStart = m.Userspace + boot.Micros(r.Int64N(9000))
	m.SecurityFinish = m.SecurityStart + 700
	if r.IntN(3) == 0 {
		m.InitRD = boot.Micros(1 + r.Int64N(int64(m.Userspace)))
	}
	if r.IntN(3) == 0 {
		m.Loader = boot.Micros(r.Int64N(9e6))
		m.Firmware = m.Loader + boot.Micros(r.Int64N(20e6))
	}
	switch r.IntN(12) {
	case 0: // container
		m.SecurityStart, m.SecurityFinish, m.InitRD = 0, 0, 0
	case 1: // not finished
		return m
	}
	m.Finish = m.Userspace + boot.Micros(r.Int64N([]int64{1, 2000, 60e6, 1100e6, 100 * 3600e6}[r.IntN(5)]+1))
	m.GeneratorsStart = m.Userspace + 10
	m.UnitsLoadStart = m.Userspace + 20
	return m
}

var unitKinds = []string{"service", "service", "service", "target", "mount", "socket", "device", "slice"}

func randomUnit(r *rand.Rand, i int, m *boot.Manager, length int64, seed uint64) boot.Unit {
	u := boot.Unit{ID: fmt.Sprintf("unit-%d.%s", i, unitKinds[r.IntN(len(unitKinds))])}
	switch r.IntN(20) {
	case 0:
		u.ID = fmt.Sprintf(`dev-disk-by\x2did-%d.device`, i)
	case 1:
		u.ID = fmt.Sprintf("a-very-long-name-of-a-unit-that-goes-on-and-on-and-does-not-fit-into-eighty-columns-%d.service", i)
	}
	at := func() boot.Micros { return m.Userspace + boot.Micros(r.Int64N(length)) }
	if seed%5 == 4 { // coarse stamps, so that many are equal
		at = func() boot.Micros { return m.Userspace + boot.Micros(r.Int64N(length/1000+1)/50*50000) }
	}
	u.Activating = at()
	u.Activated = u.Activating
	if r.IntN(2) == 0 {
		u.Activated += boot.Micros(r.Int64N(length/4 + 1))
	}
	switch r.IntN(14) {
	case 0: // never started
		u.Stamps = boot.Stamps{}
	case 1: // a oneshot that is done
		u.Deactivated, u.Activated = u.Activated, 0
	case 2: // failed or its condition did
		u.Activated, u.Deactivated = 0, u.Activating
	case 3: // from the initrd; a container's would abort the real program in nearly every boot, so it is rare there
		if m.SecurityStart > 0 || r.IntN(30) == 0 {
			u.Activating = 1 + boot.Micros(r.Int64N(int64(m.Userspace)))
		}
	case 4: // after startup had finished
		u.Activating += boot.Micros(length)
		u.Activated += boot.Micros(length)
	case 5: // restarted: the stamps of the stop are those of the former life
		u.Deactivating, u.Deactivated = u.Activating-min(u.Activating, 2000), u.Activating-min(u.Activating, 1000)
	case 6: // device: no activating phase
		u.Activating = u.Activated
	case 7: // activated in an earlier life, activating now
		u.Activated = max(u.Activating-5000, m.Userspace)
	}
	return u
}

func randomEdges(r *rand.Rand, c *boot.Capture, i int, seed uint64) {
	u := &c.Units[i]
	for range r.IntN(8) {
		j := r.IntN(len(c.Units))
		if seed%4 != 0 && c.Units[j].Activated > u.Activating && r.IntN(10) > 0 {
			continue // mostly in order
		}
		u.After = append(u.After, c.Units[j].ID)
	}
	if seed%20 == 7 && i > 0 { // one long chain, deeper than systemd's 32 bits of branches
		u.After = append(u.After, c.Units[i-1].ID)
	}
	if r.IntN(10) == 0 {
		u.After = append(u.After, "not-loaded.target")
	}
}
