// Package bench prints what is measured, for tests that measure. They run in
// make bench only, and no figure fails one.
package bench

import (
	"fmt"
	"os"
	"testing"
)

// Measures reports whether this run measures: KAMINO_BENCH is set.
func Measures() bool { return os.Getenv("KAMINO_BENCH") != "" }

// Need skips a test that measures in a run that does not.
func Need(t testing.TB) {
	t.Helper()
	if !Measures() {
		t.Skip("KAMINO_BENCH is not set: nothing is measured")
	}
}

// Figure prints one line, BENCH name value unit bound B holds|over, with the
// bound as the most that is wanted.
func Figure(name string, value float64, unit string, bound float64) {
	verdict := "holds"
	if value > bound {
		verdict = "over"
	}
	fmt.Printf("BENCH %s %.4g %s bound %g %s\n", name, value, unit, bound, verdict)
}
