package main

import (
	"errors"
	"strings"
	"testing"
)

// TestNothingLeft: restore says that nothing was left only if it could look.
func TestNothingLeft(t *testing.T) {
	for want, failed := range map[string]error{"Nothing was left.\n": nil, "": errors.New("list leases: forbidden")} {
		var out strings.Builder
		if printLeft(&out, nil, false, failed); out.String() != want {
			t.Errorf("with error %v: %q, want %q", failed, out.String(), want)
		}
	}
}
