package boot

import "slices"

// Names of what a boot's time counts from.
const (
	sinceKernel     = "kernel"
	sinceContainer  = "container"
	sinceSoftReboot = "soft reboot"
	sinceUserspace  = "userspace"  // of a record that does not know the kernel's time
	sinceCloudInit  = "cloud-init" // of a record that knows nothing else
)

// After says what the analysis' moments come after.
func (a *Analysis) After() string {
	if a.Since == sinceKernel {
		return "after the kernel"
	}
	return "after the start of " + a.Origin()
}

// Origin is what the analysis' moments count from, in words.
func (a *Analysis) Origin() string { return originOf(a.Since) }

func originOf(since string) string {
	if since == sinceUserspace || since == sinceCloudInit {
		return since
	}
	return "the " + since
}

// floatStart is where the first event of spans is that have no place.
const floatStart = Micros(1000 * 1000)

// ownStart is where a boot's own time begins. Mostly that is the start of the kernel, zero. A
// container's kernel is its host's, which may have been up for months: its time begins with its
// userspace. A soft reboot's begins with the shutdown before it.
func (c *Capture) ownStart() (Micros, string) {
	m := &c.Manager
	switch {
	case c.Floating > 0:
		return floatStart, sinceCloudInit
	case m.FromUserspace:
		return 0, sinceUserspace
	case m.ShutdownStart > 0 && m.ShutdownStart < m.Userspace:
		return m.ShutdownStart, sinceSoftReboot
	case m.SoftReboots > 0 && m.Userspace > 0:
		return m.Userspace, sinceSoftReboot
	case m.SecurityStart == 0 && m.InitRD == 0 && m.Userspace > 0 && m.Finish > 0:
		return m.Userspace, sinceContainer
	}
	return 0, sinceKernel
}

// fromOwnStart is the capture with stamps that count from its own start, and how many units had no
// other stamps than older ones, which belong to an earlier life. The capture itself is not changed.
func (c *Capture) fromOwnStart() (own *Capture, since string, older int) {
	origin, since := c.ownStart()
	if origin == 0 {
		return c, since, 0
	}
	shift := func(m Micros) Micros { return max(m-origin, 0) }
	o := *c
	m := &o.Manager
	m.Firmware, m.Loader, m.InitRD, m.ShutdownStart = 0, 0, 0, 0
	m.InitRDSecurity, m.InitRDSecurityEnd, m.InitRDUnitsLoad, m.InitRDUnitsLoadEnd = 0, 0, 0, 0
	if since == sinceSoftReboot {
		m.SoftReboots = max(m.SoftReboots, 1)
	}
	if m.Userspace > 0 {
		m.Userspace = max(shift(m.Userspace), 1) // zero would mean that it is not known
	}
	for _, s := range []*Micros{&m.Finish, &m.SecurityStart, &m.SecurityFinish, &m.GeneratorsStart, &m.GeneratorsFinish, &m.UnitsLoadStart,
		&m.UnitsLoadFinish} {
		*s = shift(*s)
	}
	move := func(s Stamps) Stamps {
		return Stamps{shift(s.Activating), shift(s.Activated), shift(s.Deactivating), shift(s.Deactivated)}
	}
	o.Units = slices.Clone(c.Units)
	for i := range o.Units {
		u := &o.Units[i]
		u.Stamps = move(u.Stamps)
		if u.First != nil {
			first := move(*u.First)
			if u.First = &first; first == (Stamps{}) {
				u.First = nil
			}
		}
		if u.Stamps == (Stamps{}) && c.Units[i].Stamps != (Stamps{}) {
			older++
		}
	}
	o.Spans = nil
	for _, s := range c.Spans {
		if s.End > 0 && s.End <= origin {
			continue
		}
		s.Start, s.End = max(shift(s.Start), 1), shift(s.End)
		o.Spans = append(o.Spans, s)
	}
	o.Marks = nil
	for _, k := range c.Marks {
		if k.At = shift(k.At); k.At > 0 {
			o.Marks = append(o.Marks, k)
		}
	}
	return &o, since, older
}
