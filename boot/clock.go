package boot

import (
	"cmp"
	"fmt"
	"slices"
)

// ClockTolerance is the least step that counts as a jump: systemctl prints wall clock stamps in
// whole seconds, so that two differences of the same clock may be almost a second apart each way.
const ClockTolerance = 2500 * 1000

// ClockJumps finds steps between the wall clock and the monotonic one in pairs of stamps of the same
// moments: monotonic, and wall clock in µs since 1970. Zero is never a moment. The difference of the
// two is constant unless the clock was set or the machine slept: CLOCK_MONOTONIC stands still during a
// suspend, and a "Savable" pre-provisioned VM is suspended.
func ClockJumps(pairs [][2]Micros) []Mark {
	type moment struct{ mono, offset Micros }
	var moments []moment
	for _, p := range pairs {
		if p[0] > 0 && p[1] > 0 {
			moments = append(moments, moment{p[0], p[1] - p[0]})
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return cmp.Compare(a.mono, b.mono) })
	var marks []Mark
	for i := 1; i < len(moments); i++ {
		step := moments[i].offset - moments[i-1].offset
		if step > -ClockTolerance && step < ClockTolerance {
			continue
		}
		direction := "forward"
		if step < 0 {
			direction, step = "back", -step
		}
		marks = append(marks, Mark{Name: MarkClockJump, At: moments[i].mono, Source: "unit stamps",
			Detail: fmt.Sprintf("wall clock moved %s by about %s (set, or the machine was suspended)", direction, step)})
	}
	return marks
}
