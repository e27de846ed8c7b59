package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// The version that the build names is the one that the binary tells: -ldflags -X
// says nothing when there is no such variable.
func TestVersion(t *testing.T) {
	if os.Getenv("KAMINO") != "" {
		t.Skip("KAMINO names a binary that this test did not build")
	}
	out, err := exec.CommandContext(t.Context(), binary, "version").Output()
	if err != nil || string(out) != "kamino test\n" { // as labtest.BuildKamino builds it
		t.Errorf("got %q, %v", out, err)
	}
}
