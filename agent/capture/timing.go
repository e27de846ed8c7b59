package capture

import (
	"time"

	"kamino.dev/kamino/boot"
)

// Timing is a boot by the phases of package boot, by their names: how many seconds each took, and
// when it began, since the kernel's start; firmware and loader began before that.
type Timing struct {
	Phases map[string]float64 `json:"phases,omitempty"`
	Starts map[string]float64 `json:"starts,omitempty"`
}

// TimingMost is when a boot is over: what began again later, by a person or after a failure, is no
// part of it. The slowest that is known took 17 minutes.
const TimingMost = time.Hour

// TimingOf is empty for what cannot be analysed.
func TimingOf(c *boot.Capture) Timing {
	a, err := boot.Analyze(c, boot.Options{})
	if err != nil {
		return Timing{}
	}
	t := Timing{map[string]float64{}, map[string]float64{}}
	seconds := func(m boot.Micros) float64 { return m.Duration().Round(time.Millisecond).Seconds() }
	for _, p := range a.Phases {
		if p.End.Duration() <= TimingMost {
			t.Phases[p.Name], t.Starts[p.Name] = seconds(p.Gross), seconds(p.Start)
		}
	}
	return t
}
