package poolstate

import (
	"testing"

	"kamino.dev/kamino"
)

// TestBackWhileRefused: what a person does to stop a bad image, or how it is being rolled out, does
// not keep the pool from going back. (aws/refuse.go has the codes.)
func TestBackWhileRefused(t *testing.T) {
	for _, code := range []kamino.Code{"refresh", "suspended", "warm-pool", "automatic-repairs", kamino.CodeShared} {
		for _, verb := range []kamino.Verb{kamino.VerbRollback, kamino.VerbWithdraw} {
			if left := (Destination{Verb: verb}).Options().Unlifted([]kamino.Refusal{{Code: code}}); len(left) > 0 {
				t.Errorf("%s is refused for %q", verb, code)
			}
		}
	}
}
