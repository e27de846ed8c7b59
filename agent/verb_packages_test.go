package agent

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// TestListPackagesMost: a list that has no place in an annotation is an error that says so. Of
// names that cannot be compressed 1,000 have place; of Debian's, 878 packages are 10 KiB.
func TestListPackagesMost(t *testing.T) {
	for count, fits := range map[int]bool{1000: true, 3000: false} {
		h := newPatchHost(t, "inactive")
		var status strings.Builder
		for i := range count {
			fmt.Fprintf(&status, "Package: p%x\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n", sha256.Sum256(fmt.Append(nil, i)))
		}
		h.write("var/lib/dpkg/status", status.String())
		d, err := disk.Open(h.root)
		if err != nil {
			t.Fatal(err)
		}
		text, err := listPackages(d, "r1", "n0nce")
		if fits && (err != nil || len(text) > packagesMost || len(text) < packagesMost/2) ||
			!fits && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("list of the %d packages has", count)) || !strings.Contains(err.Error(), "at most 65536")) {
			t.Errorf("%d packages: %d bytes, %v", count, len(text), err)
		}
		_ = d.Close()
	}
}
