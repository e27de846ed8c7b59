package seal

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHalfConfigured: the donor's unattended upgrade was under way when the seal stopped its
// services, or was interrupted before. All clones would have packages that are left half-way, and
// no patch works on them.
func TestHalfConfigured(t *testing.T) {
	for what, files := range map[string]map[string]string{
		"half-configured": {"var/lib/dpkg/status": "Package: libc6\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 1\n\n"},
		"unpacked":        {"var/lib/dpkg/status": "Package: openssl\nStatus: install ok unpacked\nArchitecture: amd64\nVersion: 1\n\n"},
		"dpkg's journal":  {"var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n", "var/lib/dpkg/updates/0001": "Package: libc6\nStatus: install ok half-installed\n"},
	} {
		t.Run(what, func(t *testing.T) {
			d := plant(t)
			for name, text := range files {
				path := d.Host(name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := Permit(d, planted(nil)); err == nil {
				t.Error("such a disk may be sealed")
			}
			if r, err := Seal(t.Context(), d, planted(nil)); err == nil {
				t.Errorf("such a disk was sealed: %s", r.Hash)
			}
		})
	}
}
