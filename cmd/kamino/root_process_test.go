package main

import (
	"strings"
	"testing"
)

// TestProcessName: two processes of the same host name and number, as containers on one host's
// network are, hold no lease of each other.
func TestProcessName(t *testing.T) {
	a, b := processName("node-7", 1), processName("node-7", 1)
	if a == b || !strings.HasPrefix(a, "node-7/1-") {
		t.Errorf("%s and %s", a, b)
	}
}
