package patch

import (
	"strings"
	"testing"
)

// FuzzPolicy: whatever a run asks for is read or refused, and names no release that a command line would read
// otherwise.
func FuzzPolicy(f *testing.F) {
	f.Add(`{"manager":"apt","scope":"security","held":"upgrade","seconds":600,"roomMiB":100}`)
	f.Add(`{"manager":"dnf","release":"2023.5.20240701","task":"check"}{"x":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePolicy(text)
		if err == nil && (strings.ContainsAny(p.Release, " =/\n") || strings.HasPrefix(p.Release, "-") || p.Limit() < 0) {
			t.Errorf("%q becomes %+v", text, p)
		}
	})
}

// FuzzManagers: what package managers print, and their lists, whatever is in them.
func FuzzManagers(f *testing.F) {
	f.Add("Inst a [1] (2 x)\nRemv systemd [1]\nRemv\n", "a 1 amd64\nb 2\n")
	f.Fuzz(func(t *testing.T, printed, list string) {
		if lost := removals(printed); len(lost) > strings.Count(printed, "Remv") {
			t.Errorf("%q: %q", printed, lost)
		}
		_ = saysLocked(printed)
		lines := strings.Split(list, "\n")
		if same := changes(lines, lines); len(same) > 0 {
			t.Errorf("%q differs from itself: %+v", list, same)
		}
		for _, c := range changes(nil, lines) {
			if c.From != "" {
				t.Errorf("%q: %+v", list, c)
			}
		}
	})
}
