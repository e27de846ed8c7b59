package kamino

import "testing"

// TestFindingIsText: what a node sent moves no terminal, also not by control characters of eight
// bits.
func TestFindingIsText(t *testing.T) {
	if got := (Finding{"ready", ProofFailed, "a\x1b[2Jb\u009b2Jc\nd é"}).String(); got != "ready: a[2Jb2Jc d é" {
		t.Errorf("%q", got)
	}
}
