package read

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

var showLine = lazyregexp.New(`^[A-Z][A-Za-z0-9]*=`)

func sniffShow(head []byte) bool { return showLine.Match(head) }

// readShow reads blocks of Key=value lines separated by blank lines: the manager's (`systemctl
// show`) and units' (`systemctl show --all '*'`), in any order. A block without Id= that is not the
// manager's is the rest of a value with a blank line in it, and belongs to the unit before.
func readShow(data []byte) (*boot.Capture, error) {
	c := &boot.Capture{}
	clock := &clockWatch{}
	var unit *boot.Unit
	manager := false
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	for block := range bytes.SplitSeq(data, []byte("\n\n")) {
		if id, ok := blockID(block); ok {
			c.Units = append(c.Units, boot.Unit{ID: id})
			unit = &c.Units[len(c.Units)-1]
		} else if isManagerBlock(block) {
			manager, unit = true, nil
		}
		for line := range bytes.SplitSeq(block, []byte("\n")) {
			key, value, ok := strings.Cut(string(line), "=")
			if !ok || value == "" {
				continue
			}
			var err error
			if unit != nil {
				err = setUnit(unit, key, value)
				clock.unit(key, value)
			} else {
				err = setManager(c, key, value)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if len(c.Units) == 0 && !manager {
		return nil, errors.New("neither a manager nor a unit in it; run `systemctl show; echo; systemctl show --all '*'`")
	}
	if !manager {
		c.Note(boot.NoteNoManager)
	}
	c.Marks = append(c.Marks, boot.ClockJumps(clock.pairs)...)
	return c, nil
}

func blockID(block []byte) (string, bool) {
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		if id, ok := bytes.CutPrefix(line, []byte("Id=")); ok && len(id) > 0 {
			return string(id), true
		}
	}
	return "", false
}

func isManagerBlock(block []byte) bool {
	return bytes.Contains(block, []byte("UserspaceTimestampMonotonic=")) || bytes.Contains(block, []byte("FinishTimestampMonotonic="))
}

// showMicros reads a stamp. "infinity" and "[not set]" are how systemctl prints the largest number.
func showMicros(key, value string) (boot.Micros, error) {
	if value == "infinity" || value == "[not set]" || value == "18446744073709551615" {
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n > uint64(boot.MaxStamp) {
		return 0, fmt.Errorf("%s=%s is not a number of microseconds below 2^53", key, value)
	}
	return boot.Micros(n), nil
}

func setUnit(u *boot.Unit, key, value string) (err error) {
	switch key {
	case "InactiveExitTimestampMonotonic":
		u.Activating, err = showMicros(key, value)
	case "ActiveEnterTimestampMonotonic":
		u.Activated, err = showMicros(key, value)
	case "ActiveExitTimestampMonotonic":
		u.Deactivating, err = showMicros(key, value)
	case "InactiveEnterTimestampMonotonic":
		u.Deactivated, err = showMicros(key, value)
	case "Names":
		for _, n := range splitQuoted(value) {
			if n != u.ID {
				u.Names = append(u.Names, n)
			}
		}
	case "After":
		u.After = splitQuoted(value)
	case "Wants":
		u.Wants = splitQuoted(value)
	case "Requires":
		u.Requires = splitQuoted(value)
	case "TriggeredBy":
		u.TriggeredBy = splitQuoted(value)
	case "ActiveState":
		u.ActiveState = value
	case "Result":
		u.Result = value
	case "RemainAfterExit":
		u.RemainsActive = value == "yes"
	case "NRestarts":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			u.Restarts = n
		}
	case "CPUUsageNSec":
		if n, err := strconv.ParseUint(value, 10, 63); err == nil && n/1000 <= uint64(boot.MaxStamp) {
			u.CPU = boot.Micros(n / 1000)
		}
	}
	return err
}

func setManager(c *boot.Capture, key, value string) (err error) {
	m := &c.Manager
	stamps := map[string]*boot.Micros{
		"FirmwareTimestampMonotonic": &m.Firmware, "LoaderTimestampMonotonic": &m.Loader,
		"InitRDTimestampMonotonic": &m.InitRD, "UserspaceTimestampMonotonic": &m.Userspace, "FinishTimestampMonotonic": &m.Finish,
		"SecurityStartTimestampMonotonic": &m.SecurityStart, "SecurityFinishTimestampMonotonic": &m.SecurityFinish,
		"GeneratorsStartTimestampMonotonic": &m.GeneratorsStart, "GeneratorsFinishTimestampMonotonic": &m.GeneratorsFinish,
		"UnitsLoadStartTimestampMonotonic": &m.UnitsLoadStart, "UnitsLoadFinishTimestampMonotonic": &m.UnitsLoadFinish,
		"InitRDSecurityStartTimestampMonotonic": &m.InitRDSecurity, "InitRDSecurityFinishTimestampMonotonic": &m.InitRDSecurityEnd,
		"InitRDUnitsLoadStartTimestampMonotonic": &m.InitRDUnitsLoad, "InitRDUnitsLoadFinishTimestampMonotonic": &m.InitRDUnitsLoadEnd,
		"ShutdownStartTimestampMonotonic": &m.ShutdownStart,
	}
	if stamp, ok := stamps[key]; ok {
		before := *stamp
		*stamp, err = showMicros(key, value)
		if key == "UserspaceTimestampMonotonic" && err == nil && before > 0 && before != *stamp {
			err = twoBoots("userspace began at", before, *stamp)
		}
		return err
	}
	switch key {
	case "KernelTimestamp":
		if t, ok := showTime(value); ok {
			m.KernelRealtime = boot.Micros(t.UnixMicro())
		}
	case "Version":
		m.Version = value
	case "Virtualization":
		c.Host.Virtualization = value
	case "Architecture":
		c.Host.Architecture = value
	case "SoftRebootsCount":
		m.SoftReboots, _ = strconv.Atoi(value)
	}
	return nil
}

// showTime reads systemd's wall clock stamps. Only UTC is trusted: other zones are printed as
// abbreviations that do not name an offset.
func showTime(value string) (time.Time, bool) {
	for _, layout := range []string{"Mon 2006-01-02 15:04:05 UTC", "Mon 2006-01-02 15:04:05.000000 UTC"} {
		if t, err := time.Parse(layout, value); err == nil && t.Year() >= 1970 && t.Year() < 2200 {
			return t, true
		}
	}
	return time.Time{}, false
}

// splitQuoted splits a list of unit names; systemctl puts those with a backslash into double quotes
// and doubles it.
func splitQuoted(s string) []string {
	if !strings.Contains(s, `"`) {
		return strings.Fields(s)
	}
	var out []string
	var word []byte
	quoted, open := false, false
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case ch == '"':
			quoted, open = !quoted, true
		case ch == '\\' && quoted && i+1 < len(s):
			i++
			word = append(word, s[i])
		case ch == ' ' && !quoted:
			if open || len(word) > 0 {
				out = append(out, string(word))
			}
			word, open = word[:0], false
		default:
			word = append(word, ch)
		}
	}
	if open || len(word) > 0 {
		out = append(out, string(word))
	}
	return out
}

// clockWatch gathers wall clock and monotonic stamps of the same moments.
type clockWatch struct {
	real  map[string]boot.Micros
	pairs [][2]boot.Micros
}

// unit takes one property of `systemctl show`: the wall clock stamp comes right before the
// monotonic one of the same name.
func (w *clockWatch) unit(key, value string) {
	name, isMono := strings.CutSuffix(key, "TimestampMonotonic")
	if !isMono {
		if name, isReal := strings.CutSuffix(key, "Timestamp"); isReal {
			if t, ok := showTime(value); ok {
				if w.real == nil {
					w.real = map[string]boot.Micros{}
				}
				w.real[name] = boot.Micros(t.UnixMicro())
			}
		}
		return
	}
	if real, ok := w.real[name]; ok {
		if mono, err := showMicros(key, value); err == nil {
			w.pairs = append(w.pairs, [2]boot.Micros{mono, real})
		}
		delete(w.real, name)
	}
}
