package kamino

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Signal is a place on a node where another program says something that
// selection needs to know: an annotation, or a condition. Whatever keeps the
// nodes patched is plugged in here.
type Signal struct {
	Annotation string `json:"annotation,omitempty"`
	Condition  string `json:"condition,omitempty"` // type of a condition that is True
}

// The annotations of kured, which the original was validated with.
var (
	KuredPendingReboot = Signal{Annotation: "weave.works/kured-reboot-in-progress"}
	KuredLastPatch     = Signal{Annotation: "weave.works/kured-most-recent-reboot-needed"}
)

const conditionPrefix = "condition:"

var (
	annotationName = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	conditionType  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_./]*$`)
)

// ParseSignal reads a signal as people write it: the name of an annotation, or
// "condition:" and the type of a condition.
func ParseSignal(s string) (Signal, error) {
	if c, ok := strings.CutPrefix(s, conditionPrefix); ok {
		if !conditionType.MatchString(c) || c == "Ready" {
			return Signal{}, WithHint(fmt.Errorf("%q is no type of a node's condition other than Ready", c),
				"kubectl describe node lists the conditions")
		}
		return Signal{Condition: c}, nil
	}
	if !annotationName.MatchString(s) {
		return Signal{}, WithHint(fmt.Errorf("%q is no name of an annotation", s),
			"for instance %s, or condition:TYPE for a node's condition", KuredLastPatch.Annotation)
	}
	return Signal{Annotation: s}, nil
}

// String is what ParseSignal reads.
func (s Signal) String() string {
	if s.Condition != "" {
		return conditionPrefix + s.Condition
	}
	return s.Annotation
}

// on reads the signal on a node. The value of a condition is the time since
// when it is True.
func (s Signal) on(n Node) (value string, ok bool) {
	if s.Condition == "" {
		value, ok = n.Annotations[s.Annotation]
		return value, ok
	}
	for _, c := range n.Conditions {
		if c.Type == s.Condition && c.Status == "True" {
			return c.Since.UTC().Format(time.RFC3339), true
		}
	}
	return "", false
}

// stamp is a point in time that may be known to the day only.
type stamp struct {
	time.Time
	exact bool
}

func (s stamp) day() time.Time { return s.UTC().Truncate(24 * time.Hour) }

// after compares as closely as both are known: two days, or two times.
func (s stamp) after(t stamp) bool {
	if s.exact && t.exact {
		return s.Time.After(t.Time)
	}
	return s.day().After(t.day())
}

// clockSkew is how far a node's clock may be ahead of ours.
const clockSkew = 5 * time.Minute

// farthestEast is the offset of the time zone in which a day begins first, UTC+14
// (https://data.iana.org/time-zones/tzdb/australasia, Pacific/Kiritimati).
const farthestEast = 14 * time.Hour

// future says whether the time is yet to come, clocks and time zones allowed for.
func (s stamp) future(now time.Time) bool {
	if s.exact {
		return s.Time.After(now.Add(clockSkew))
	}
	return s.day().After(now.Add(farthestEast))
}

func (s stamp) String() string {
	if s.exact {
		return s.UTC().Format(time.RFC3339)
	}
	return s.UTC().Format(time.DateOnly)
}

var (
	timeInText = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})`)
	dayInText  = regexp.MustCompile(`(^|[^0-9])([0-9]{4}-[0-9]{2}-[0-9]{2})([^0-9]|$)`)
)

// parseStamp finds the first time (RFC 3339) or else the first date
// (YYYY-MM-DD) anywhere in a text.
func parseStamp(text string) (stamp, error) {
	// Most values are nothing but a time, and thousands of nodes have one.
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return stamp{t.UTC(), true}, nil
	}
	for _, m := range timeInText.FindAllString(text, -1) {
		if t, err := time.Parse(time.RFC3339, strings.ToUpper(m)); err == nil {
			return stamp{t.UTC(), true}, nil
		}
	}
	for _, m := range dayInText.FindAllStringSubmatch(text, -1) {
		if t, err := time.Parse(time.DateOnly, m[2]); err == nil {
			return stamp{t, false}, nil
		}
	}
	return stamp{}, fmt.Errorf("%q holds no date (RFC 3339 or YYYY-MM-DD)", text)
}

func parseBuiltAt(text string) (time.Time, error) {
	// The original wrote the local time of its pod, which is UTC in containers.
	return time.Parse("2006-01-02 15:04:05", text)
}
