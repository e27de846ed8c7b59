package emulator

import "testing"

func TestLike(t *testing.T) {
	for _, tt := range []struct {
		pattern, value string
		want           bool
	}{
		{"running", "running", true}, {"running", "run", false}, {"", "", true},
		{"run*", "running", true}, {"run?ing", "running", true}, {"run?", "running", false},
		{"/kamino/*", "/kamino/lab/blue", true}, {"a[b]", "a[b]", true}, {"a[b]*", "a[b]c", true}, {`\*`, "*", true}, {`\*`, "x", false},
	} {
		if got := like(tt.pattern, tt.value); got != tt.want {
			t.Errorf("%q like %q: %v", tt.value, tt.pattern, got)
		}
	}
}
