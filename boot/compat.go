package boot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrNotFinished reports a boot whose job queue has not been empty yet, where systemd-analyze 252
// refuses to answer.
var ErrNotFinished = errors.New("bootup is not yet finished (FinishTimestampMonotonic is 0): wait until `systemctl list-jobs` is empty and capture again")

// compatBoot is a capture seen with the eyes of systemd-analyze 252
// (src/analyze/analyze-time-data.c). Numbers are unsigned because its underflows are part of its
// output.
type compatBoot struct {
	firmware, loader, kernelDone, initrd, userspace, finish uint64
	offset                                                  uint64
	units                                                   []compatUnit // in the order of ListUnits
	byID                                                    map[string]*compatUnit
	capture                                                 *Capture
	byName                                                  map[string]*Unit
}

type compatUnit struct {
	id                          string
	activating, activated, time uint64
}

// compatOf reads the boot's own stamps. System instances only: captures of --user managers are not
// taken.
func compatOf(c *Capture) (*compatBoot, error) {
	m := c.Manager
	if m.Finish == 0 {
		return nil, ErrNotFinished
	}
	b := &compatBoot{
		firmware: uint64(m.Firmware), loader: uint64(m.Loader), initrd: uint64(m.InitRD),
		userspace: uint64(m.Userspace), finish: uint64(m.Finish), capture: c,
		byName: make(map[string]*Unit, len(c.Units)),
	}
	for i := range c.Units {
		u := &c.Units[i]
		b.byName[u.ID] = u
		for _, n := range u.Names {
			if b.byName[n] == nil {
				b.byName[n] = u
			}
		}
	}
	if m.SecurityStart > 0 {
		b.kernelDone = b.userspace
		if b.initrd > 0 {
			b.kernelDone = b.initrd
		}
		return b, nil
	}
	b.offset = b.userspace
	b.firmware, b.loader, b.initrd, b.userspace = 0, 0, 0, 0
	for _, s := range []Micros{m.Finish, m.GeneratorsStart, m.GeneratorsFinish, m.UnitsLoadStart, m.UnitsLoadFinish} {
		if _, err := b.shift("the manager", s); err != nil {
			return nil, err
		}
	}
	b.finish -= b.offset
	return b, nil
}

// shift takes the container's offset off a stamp. Where systemd-analyze dies of a failed assertion,
// this is an error.
func (b *compatBoot) shift(who string, s Micros) (uint64, error) {
	if s == 0 {
		return 0, nil
	}
	if uint64(s) < b.offset {
		return 0, fmt.Errorf("compare stamps: %s has one older than the container's userspace, where systemd-analyze aborts (systemd issue 27187); run without --compat", who)
	}
	return uint64(s) - b.offset, nil
}

// acquireUnits computes every unit's time, or reports that no unit ever started.
func (b *compatBoot) acquireUnits() error {
	b.byID = make(map[string]*compatUnit, len(b.capture.Units))
	b.units = make([]compatUnit, 0, len(b.capture.Units))
	for i := range b.capture.Units {
		u := &b.capture.Units[i]
		var s [4]uint64
		for j, stamp := range []Micros{u.Activating, u.Activated, u.Deactivating, u.Deactivated} {
			shifted, err := b.shift(u.ID, stamp)
			if err != nil {
				return err
			}
			s[j] = shifted
		}
		if s[0] == 0 {
			continue
		}
		cu := compatUnit{id: u.ID, activating: s[0], activated: s[1]}
		switch {
		case s[1] >= s[0]:
			cu.time = s[1] - s[0]
		case s[3] >= s[0]:
			cu.time = s[3] - s[0]
		}
		b.units = append(b.units, cu)
	}
	for i := range b.units {
		b.byID[b.units[i].id] = &b.units[i]
	}
	return nil
}

// CompatTime writes what `systemd-analyze time` of systemd 252 writes.
func CompatTime(w io.Writer, c *Capture) error {
	b, err := compatOf(c)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("Startup finished in ")
	phase := func(when, length uint64, name string) {
		if when > 0 {
			fmt.Fprintf(&out, "%s (%s) + ", timespan(length), name)
		}
	}
	phase(b.firmware, b.firmware-b.loader, "firmware")
	phase(b.loader, b.loader, "loader")
	phase(b.kernelDone, b.kernelDone, "kernel")
	phase(b.initrd, b.userspace-b.initrd, "initrd")
	fmt.Fprintf(&out, "%s (userspace) ", timespan(b.finish-b.userspace))
	if b.kernelDone > 0 {
		fmt.Fprintf(&out, "= %s ", timespan(b.firmware+b.finish))
	}
	base := b.userspace
	if base == 0 {
		base = b.offset
	}
	switch u := b.byName["default.target"]; {
	case u == nil:
		out.WriteString("\ncould not find default.target.")
	case u.Activated == 0:
		fmt.Fprintf(&out, "\n%s was never reached.", u.ID)
	default:
		fmt.Fprintf(&out, "\n%s reached after %s in userspace.", u.ID, timespan(uint64(u.Activated)-base))
	}
	out.WriteString("\n")
	_, err = io.WriteString(w, out.String())
	return err
}

// CompatBlame writes what `systemd-analyze blame` of systemd 252 writes. Equal times keep the order
// of the capture's units, which for a live capture is that of ListUnits.
func CompatBlame(w io.Writer, c *Capture) error {
	b, err := compatOf(c)
	if err != nil {
		return err
	}
	if err := b.acquireUnits(); err != nil {
		return err
	}
	rows := slices.DeleteFunc(slices.Clone(b.units), func(u compatUnit) bool { return u.time == 0 })
	slices.SortStableFunc(rows, func(x, y compatUnit) int { return cmp.Compare(y.time, x.time) })
	width := 0
	for _, u := range rows {
		width = max(width, len(timespan(u.time)))
	}
	var out strings.Builder
	for _, u := range rows {
		fmt.Fprintf(&out, "%*s %s\n", width, timespan(u.time), u.id)
	}
	_, err = io.WriteString(w, out.String())
	return err
}
