package kamino

import "testing"

func TestParseSignal(t *testing.T) {
	for _, good := range []string{"PendingReboot", "weave.works/kured-reboot-in-progress", "condition:RebootRequired"} {
		s, err := ParseSignal(good)
		if err != nil || s.String() != good {
			t.Errorf("ParseSignal(%q) = %v, %v", good, s, err)
		}
	}
	for _, bad := range []string{"", "a b", "/x", "a/b/c", "condition:", "condition:Ready", "Upper.Case/x"} {
		if s, err := ParseSignal(bad); err == nil || Hint(err) == "" {
			t.Errorf("ParseSignal(%q) = %v, %v, want an error with a hint", bad, s, err)
		}
	}
}
