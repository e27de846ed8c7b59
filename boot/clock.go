package boot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// clockTolerance is the least step that counts as a jump: systemctl prints wall clock stamps in whole seconds, so that two
// differences of the same clock may be almost a second apart each way.
const clockTolerance = 2500 * 1000

// clockWatch compares wall clock and monotonic stamps of the same moments. Their difference is constant unless the clock was
// set or the machine slept: CLOCK_MONOTONIC stands still during a suspend, and a "Savable" pre-provisioned VM is suspended.
type clockWatch struct {
	real  map[string]Micros
	pairs []clockPair
}

type clockPair struct{ mono, offset Micros }

// unit takes one property of `systemctl show`: the wall clock stamp comes right before the monotonic one of the same name.
func (w *clockWatch) unit(key, value string) {
	name, isMono := strings.CutSuffix(key, "TimestampMonotonic")
	if !isMono {
		if name, isReal := strings.CutSuffix(key, "Timestamp"); isReal {
			if t, ok := showTime(value); ok {
				if w.real == nil {
					w.real = map[string]Micros{}
				}
				w.real[name] = Micros(t.UnixMicro())
			}
		}
		return
	}
	if real, ok := w.real[name]; ok {
		if mono, err := showMicros(key, value); err == nil {
			w.pair(mono, real)
		}
		delete(w.real, name)
	}
}

// pair takes one moment on both clocks; zero is never a moment.
func (w *clockWatch) pair(mono, real Micros) {
	if mono > 0 && real > 0 {
		w.pairs = append(w.pairs, clockPair{mono, real - mono})
	}
}

// jumps are the moments between which the difference changed.
func (w *clockWatch) jumps() []Mark {
	slices.SortFunc(w.pairs, func(a, b clockPair) int { return cmp.Compare(a.mono, b.mono) })
	var marks []Mark
	for i := 1; i < len(w.pairs); i++ {
		step := w.pairs[i].offset - w.pairs[i-1].offset
		if step > -clockTolerance && step < clockTolerance {
			continue
		}
		direction := "forward"
		if step < 0 {
			direction, step = "back", -step
		}
		marks = append(marks, Mark{Name: MarkClockJump, At: w.pairs[i].mono, Source: "unit stamps",
			Detail: fmt.Sprintf("wall clock moved %s by about %s (set, or the machine was suspended)", direction, step)})
	}
	return marks
}

// ClockJumps finds steps between the wall clock and the monotonic one in pairs of stamps (monotonic, wall clock in µs since
// 1970) of the same moments.
func ClockJumps(pairs [][2]Micros) []Mark {
	var w clockWatch
	for _, p := range pairs {
		w.pair(p[0], p[1])
	}
	return w.jumps()
}
