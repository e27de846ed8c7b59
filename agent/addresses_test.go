package agent

import (
	"os"
	"path/filepath"
	"testing"

	"kamino.dev/kamino/agent/disk"
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

// TestAnothersName: the name of the machine to which a disk is attached is not the disk's.
func TestAnothersName(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"/": own, t.TempDir(): ""} {
		d, err := disk.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostName(d); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
		_ = d.Close()
	}
}
