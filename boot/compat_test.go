package boot_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

func readFile(t testing.TB, path ...string) *boot.Capture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	c, err := read.Bytes(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCompatChainPublished makes the critical chains that were published come out of our code, from
// the stamps and dependencies they were made of plus some that must not show.
func TestCompatChainPublished(t *testing.T) {
	for _, tc := range []struct {
		dump, want string
		units      []string
	}{
		{"docker", "docker", nil},
		{"preprovisioned", "preprovisioned", nil},
		{"cloud-final", "cloud-final", []string{"cloud-final.service"}},
		{"cloud-final", "walinuxagent", []string{"walinuxagent.service"}},
	} {
		t.Run(tc.want, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join("testdata", "published", tc.want+".chain"))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			missing, err := boot.CompatChain(&got, readFile(t, "published", tc.dump+".show"), 0, tc.units...)
			if err != nil || len(missing) > 0 {
				t.Fatalf("missing %v, error %v", missing, err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCompatRefusals(t *testing.T) {
	unfinished := &boot.Capture{Units: []boot.Unit{{ID: "a.service", Stamps: boot.Stamps{Activating: 5, Activated: 9}}}}
	var out bytes.Buffer
	if err := boot.CompatTime(&out, unfinished); !errors.Is(err, boot.ErrNotFinished) {
		t.Errorf("unfinished boot: error %v, want boot.ErrNotFinished", err)
	}
	container := &boot.Capture{Manager: boot.Manager{Userspace: 100, Finish: 900}, Units: []boot.Unit{{ID: "old.mount", Stamps: boot.Stamps{Activating: 5, Activated: 9}}}}
	if err := boot.CompatBlame(&out, container); err == nil || !strings.Contains(err.Error(), "old.mount") {
		t.Errorf("unit older than the container: error %v, want one that names old.mount", err)
	}
}
