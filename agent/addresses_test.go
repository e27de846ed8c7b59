package agent

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOwnCard: cards and what is made of them are the machine's own; what containers have is not.
func TestOwnCard(t *testing.T) {
	class := t.TempDir()
	for _, dir := range []string{"ib0/device", "bond0/lower_ib0", "team0/lower_ib0", "vlan5/lower_bond0", "br0/lower_vlan5", "docker0/lower_veth1", "veth1/statistics", "tunl0"} {
		if err := os.MkdirAll(filepath.Join(class, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"ib0": true, "bond0": true, "team0": true, "vlan5": true, "br0": true, "docker0": false, "veth1": false, "tunl0": false, "gone": false} {
		t.Run(name, func(t *testing.T) {
			if ownCard(class, name) != want {
				t.Errorf("%s: %v", name, !want)
			}
		})
	}
}
