package boot

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// clockSlack is how far two records of one boot may differ in when the kernel started by the wall
	// clock: each reads the clock early in the boot, before it is set.
	clockSlack = Micros(2 * 60 * 1000 * 1000)
	// latestCloudInit is when cloud-init's first stage has begun at the latest, after the kernel.
	latestCloudInit = Micros(60 * 60 * 1000 * 1000)
	// stampSlack is how far two records may differ in systemd's own stamps of one boot, where not both
	// have them from systemd.
	stampSlack = Micros(1000 * 1000)
)

// SameBoot returns an error that names what contradicts, where two records cannot be of the same boot
// of the same machine: the ID of the boot or of the VM, the host's name, the kernel, when the kernel
// started, or systemd's own stamps. Equal boot IDs settle it. After a step of the wall clock that
// either record knows of, the clock says nothing.
func (c *Capture) SameBoot(o *Capture) error {
	if a, b := plainID(c.Host.BootID), plainID(o.Host.BootID); a != "" && b != "" {
		if a == b {
			return nil
		}
		return differ("boots", c.Host.BootID, o.Host.BootID)
	}
	h, g := c.Host, o.Host
	if h.VMID != "" && g.VMID != "" && !strings.EqualFold(h.VMID, g.VMID) {
		return differ("machines", h.VMID, g.VMID)
	}
	if a, b := ShortName(h.Name), ShortName(g.Name); a != "" && b != "" && a != b {
		return differ("machines", h.Name, g.Name)
	}
	if h.Kernel != "" && g.Kernel != "" && h.Kernel != g.Kernel {
		return differ("boots", "kernel "+h.Kernel, "kernel "+g.Kernel)
	}
	for _, same := range []func(*Capture) error{c.sameClock, c.sameStamps, c.sameLengths} {
		if err := same(o); err != nil {
			return err
		}
	}
	return nil
}

func differ(what, a, b string) error {
	return fmt.Errorf("records of two %s, %s and %s; use `kamino boot compare`", what, a, b)
}

// ShortName is a host's name in lower case without its domain; names that every new machine has are
// none.
func ShortName(name string) string {
	short, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch short {
	case "localhost", "(none)", "unassigned-hostname":
		return ""
	}
	return short
}

// sameClock compares when the kernel started, by the wall clock.
func (c *Capture) sameClock(o *Capture) error {
	stepped := func(m Mark) bool { return m.Name == MarkClockJump || m.Name == "suspend" }
	if slices.ContainsFunc(c.Marks, stepped) || slices.ContainsFunc(o.Marks, stepped) {
		return nil
	}
	at := func(m Micros) string { return time.UnixMicro(int64(m)).UTC().Format("2006-01-02 15:04:05") }
	a, b := c.Manager.KernelRealtime, o.Manager.KernelRealtime
	if a > 0 && b > 0 && absolute(a-b) > clockSlack {
		return differ("boots", "kernel started at "+at(a), at(b))
	}
	for _, p := range []struct{ floating, kernel Micros }{{c.Floating, b}, {o.Floating, a}} {
		if since := p.floating - p.kernel; p.floating > FloatNowhere && p.kernel > 0 && (since < -clockSlack || since > latestCloudInit) {
			return differ("boots", "kernel started at "+at(p.kernel), "cloud-init began at "+at(p.floating+floatStart))
		}
	}
	return nil
}

// sameStamps compares systemd's stamps of the whole boot.
func (c *Capture) sameStamps(o *Capture) error {
	slack := stampSlack
	if c.bySystemd() && o.bySystemd() {
		slack = edgeTolerance
	}
	estimated := func(c *Capture) bool { return slices.Contains(c.Sources, "plot-json") }
	if estimated(c) || estimated(o) || c.Manager.FromUserspace != o.Manager.FromUserspace {
		return nil
	}
	for _, p := range []struct {
		what string
		a, b Micros
	}{
		{"userspace began ", c.Manager.Userspace, o.Manager.Userspace},
		{"startup finished ", c.Manager.Finish, o.Manager.Finish},
	} {
		if p.a > 0 && p.b > 0 && absolute(p.a-p.b) > slack {
			return differ("boots", p.what+p.a.String(), p.b.String()+" after the kernel")
		}
	}
	return c.sameUnits(o)
}

// sameLengths compares how long the units that start once took, also where a record does not say when.
func (c *Capture) sameLengths(o *Capture) error {
	took := func(c *Capture, name string) Micros {
		if u := c.Unit(name); u != nil && !u.Coarse && u.Restarts == 0 && u.FirstStamps().Took() > 0 {
			return u.FirstStamps().Took()
		}
		if i := slices.IndexFunc(c.Lengths, func(l Length) bool { return l.Name == name }); i >= 0 {
			return c.Lengths[i].Took
		}
		return 0
	}
	for _, name := range onceUnits {
		if a, b := took(c, name), took(o, name); a > 0 && b > 0 && absolute(a-b) > stampSlack {
			return differ("boots", name+" took "+a.String(), b.String())
		}
	}
	return nil
}

// onceUnits start once in a boot; others may have been restarted between two looks at it.
var onceUnits = append([]string{"multi-user.target", "graphical.target"}, cloudInitAll...)

// sameUnits compares the units that start once. A log that does not know its own zero says nothing.
func (c *Capture) sameUnits(o *Capture) error {
	adrift := func(c *Capture) bool { return c.Manager.FromUserspace && slices.Contains(c.Sources, "log") }
	if adrift(c) || adrift(o) {
		return nil
	}
	for _, name := range onceUnits {
		u, v := c.Unit(name), o.Unit(name)
		if u == nil || v == nil || u.Coarse || v.Coarse || u.Restarts+v.Restarts > 0 {
			continue
		}
		s, t := u.FirstStamps(), v.FirstStamps()
		if a, b := s.Began(), t.Began(); a > 0 && b > 0 && absolute(a-b) > stampSlack {
			return differ("boots", name+" began at "+a.String(), b.String())
		}
		if a, b := s.Done(), t.Done(); a > 0 && b > 0 && absolute(a-b) > stampSlack {
			return differ("boots", name+" was done at "+a.String(), b.String())
		}
	}
	return nil
}
