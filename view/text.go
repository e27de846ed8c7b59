// Package view shows statuses to people: words, a table and a page.
package view

import (
	"fmt"
	"strings"
	"time"
)

// Seconds formats a number of seconds as 3.1s, 4m05s or 1h02m.
func Seconds(s float64) string {
	if s < 10 {
		return fmt.Sprintf("%.1fs", s)
	}
	return ShortTime(time.Duration(s * float64(time.Second)))
}

// Shown makes a value fit into a table.
func Shown(s string) string {
	if s == "" {
		return "-"
	}
	return Cut(Short(s), 100)
}

// Short keeps the part of a resource ID by which people recognize it.
func Short(id string) string {
	parts := strings.Split(id, "/")
	if len(parts) < 9 || !strings.EqualFold(parts[1], "subscriptions") {
		return id
	}
	return "…/" + strings.Join(parts[8:], "/")
}

// ShortTime formats a duration as 3s, 4m05s or 1h02m.
func ShortTime(d time.Duration) string {
	d = max(d, 0).Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// OneLine removes characters that would break a line or control a terminal.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// Cut shortens a line to a number of columns and makes it one line.
func Cut(s string, columns int) string {
	runes := []rune(OneLine(s))
	if len(runes) <= columns {
		return string(runes)
	}
	return string(runes[:columns-1]) + "…"
}

// Instant formats a time as RFC 3339 in UTC; - stands for none.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
