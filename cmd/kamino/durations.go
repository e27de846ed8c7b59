package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// durationValue is a flag for a duration as the original script accepted it, a number with one of
// the suffixes s, m, h, d (none means seconds), and as Go writes it, 1h30m.
type durationValue struct{ d time.Duration }

var plainDuration = regexp.MustCompile(`^([0-9]+)([a-zA-Z]*)$`)

var units = map[string]time.Duration{
	"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

// Set implements pflag.Value.
func (v *durationValue) Set(s string) error {
	if m := plainDuration.FindStringSubmatch(s); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		unit, known := units[m[2]]
		if known && err == nil && n <= int64(100*365*24*time.Hour/unit) {
			v.d = time.Duration(n) * unit
			return nil
		}
		if !known && m[2] != "ms" {
			return kamino.WithHint(fmt.Errorf("invalid duration %q: unknown unit %q", s, m[2]), "use s, m, h or d, for instance 90s or 1d")
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return kamino.WithHint(fmt.Errorf("invalid duration %q", s), "use a number and s, m, h or d, for instance 90s or 1d")
	}
	v.d = d
	return nil
}

// String implements pflag.Value.
func (v *durationValue) String() string {
	if v.d%time.Second == 0 && v.d < time.Hour {
		return strconv.Itoa(int(v.d/time.Second)) + "s"
	}
	return v.d.String()
}

// Type implements pflag.Value.
func (v *durationValue) Type() string { return "duration" }

// graceValue is a duration where -1 means the pod's own period, as for kubectl drain.
type graceValue struct{ durationValue }

// Set implements pflag.Value.
func (v *graceValue) Set(s string) error {
	if s == "-1" {
		v.d = -time.Second
		return nil
	}
	return v.durationValue.Set(s)
}

// budgetValue is a duration, or a multiple of the usual boot, such as 2x.
type budgetValue struct {
	durationValue
	times float64
}

// Set implements pflag.Value.
func (v *budgetValue) Set(s string) error {
	factor, is := strings.CutSuffix(s, "x")
	if !is {
		v.times = 0
		if err := v.durationValue.Set(s); err != nil {
			return kamino.WithHint(errors.New(err.Error()),
				"use a time, for instance 10m, or a factor of what the pool's canaries take, for instance 2x")
		}
		return nil
	}
	times, err := strconv.ParseFloat(factor, 64)
	if err != nil || !(times >= 1 && times <= 100) {
		return kamino.WithHint(fmt.Errorf("invalid factor %q", s),
			"use a number from 1 to 100 and x, for instance 2x or 1.5x, or a time, for instance 10m")
	}
	v.times = times
	return nil
}

// String implements pflag.Value.
func (v *budgetValue) String() string {
	if v.times > 0 {
		return strconv.FormatFloat(v.times, 'g', -1, 64) + "x"
	}
	return v.durationValue.String()
}
