package main

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// A run that was taken over did not see its donor go: "0.0s" would be a lie.
func TestUpdateTellsHowLongTheDonorWasAway(t *testing.T) {
	for _, c := range []struct {
		result kamino.Result
		want   string
	}{
		{kamino.Result{Changed: true, AwaySeconds: 187}, "3m07s"},
		{kamino.Result{Changed: true, Adopted: true, AwaySeconds: 187}, "3m07s"},
		{kamino.Result{Changed: true, Adopted: true}, "not known"},
	} {
		var out strings.Builder
		updateReport{OK: true, Result: c.result}.table(&out)
		if _, after, _ := strings.Cut(out.String(), "Donor away:\t"); !strings.HasPrefix(after, c.want) {
			t.Errorf("%+v is printed as\n%swant %q", c.result, out.String(), c.want)
		}
	}
}
