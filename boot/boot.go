// Package boot tells where the boot time of a machine went.
//
// It is a set of pure functions on a [Capture], the record of one boot: when each systemd unit
// began to start and when it was up, what it was ordered after, and what cloud-init, the Azure
// agent, the container runtime and kubelet were doing meanwhile. Package boot/read makes a Capture
// from whatever somebody has; [Analyze] turns it into phases, parked time, a critical chain and a
// verdict; [Compare] and [Pool] look at several; package boot/draw makes pictures.
//
// Two ways of looking stand side by side. The Compat functions print byte for byte what
// systemd-analyze 252 prints, faults included, so that published output can be checked against. The
// others are stricter: a dependency counts only if it was up before the dependant began, nothing is
// cut off at the end of startup, and time that no edge explains is shown as idle.
//
// All stamps are microseconds of CLOCK_MONOTONIC since the kernel started, as systemd reports them
// (https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.systemd1.html); zero
// means "never".
package boot

import "time"

// Micros is a point or a length of time in microseconds. As a point it counts from the start of the
// kernel, and zero means "never"; only firmware and loader stamps are magnitudes of time before the
// kernel.
type Micros int64

// Duration converts to the standard library's type.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// String formats with millisecond accuracy in systemd's way: "16min 40.410s", "270ms", "0";
// negative lengths get a minus.
func (m Micros) String() string {
	if m < 0 {
		return "-" + timespan(uint64(-m))
	}
	return timespan(uint64(m))
}

// MaxStamp bounds what is believed of any input: 2^53 µs (285 years) is also the largest integer
// that JSON carries exactly.
const MaxStamp = Micros(1) << 53

// MaxDocument is the size in bytes above which a single input is refused. A capture of 1,000 units
// is about 1 MB; the largest thing people have, a journal export of one boot, seldom exceeds 100
// MB.
const MaxDocument = 256 << 20

// MaxUnits bounds the units of one boot; systemd itself stops at 131,072 (MANAGER_MAX_NAMES).
const MaxUnits = 131072
