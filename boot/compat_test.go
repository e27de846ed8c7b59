package boot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readFile(t testing.TB, path ...string) *Capture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCompatChainPublished makes the critical chains that the project's founding document shows come out of our code, from
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
			want, err := os.ReadFile(filepath.Join("testdata", "seed", tc.want+".chain"))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			missing, err := CompatChain(&got, readFile(t, "seed", tc.dump+".show"), 0, tc.units...)
			if err != nil || len(missing) > 0 {
				t.Fatalf("missing %v, error %v", missing, err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTimespan(t *testing.T) {
	for in, want := range map[uint64]string{
		0: "0", 1: "1us", 999: "999us", 1000: "1ms", 270999: "270ms", 1000000: "1s", 1033000: "1.033s", 1000001: "1.000s",
		59999999: "59.999s", 60000000: "1min", 60000500: "1min", 1000410000: "16min 40.410s", 3723004000: "1h 2min 3.004s",
		1<<64 - 1: "infinity", 1<<64 - 448000: "584542y 2w 2d 20h 1min 49.103s",
	} {
		if got := timespan(in); got != want {
			t.Errorf("timespan(%d) = %q, want %q", in, got, want)
		}
	}
}

func TestCompatRefusals(t *testing.T) {
	unfinished := &Capture{Units: []Unit{{ID: "a.service", Stamps: Stamps{Activating: 5, Activated: 9}}}}
	var out bytes.Buffer
	if err := CompatTime(&out, unfinished); err != ErrNotFinished {
		t.Errorf("unfinished boot: error %v, want ErrNotFinished", err)
	}
	container := &Capture{Manager: Manager{Userspace: 100, Finish: 900}, Units: []Unit{{ID: "old.mount", Stamps: Stamps{Activating: 5, Activated: 9}}}}
	if err := CompatBlame(&out, container); err == nil || !strings.Contains(err.Error(), "old.mount") {
		t.Errorf("unit older than the container: error %v, want one that names old.mount", err)
	}
}
