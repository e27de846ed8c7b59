package seal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/scan"
)

// TestRehearseScan: what containers wrote, which go before the seal's own scan, is no finding of
// the rehearsal's; what is beside them is one.
func TestRehearseScan(t *testing.T) {
	const storage = "var/lib/containers/storage/"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"containers": {map[string]string{
			storage + "overlay-containers/containers.json":       `[{"id":"77aa","layer":"99"}]`,
			storage + "overlay/99/diff/root/key.pem":             secret,
			storage + "overlay-containers/77aa/userdata/key.pem": secret,
		}, nil},
		"no container's": {map[string]string{
			storage + "overlay-containers/containers.json": `[{"id":"77aa","layer":"99"}]`,
			storage + "overlay/98x/key.pem":                secret,
			"srv/key.pem":                                  secret,
		}, []string{"srv/key.pem", storage + "overlay/98x/key.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := small(t, c.files)
			err := rehearseScan(t.Context(), d, estimate(planted(nil)))
			var found *Found
			var got []string
			if errors.As(err, &found) {
				for _, f := range found.Result.Findings {
					got = append(got, f.Path)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestFoundInNumbers: a refusal counts what the scan found and did not list.
func TestFoundInNumbers(t *testing.T) {
	found := &Found{scan.Result{Findings: make([]scan.Finding, scan.MostFindings), More: 1_000_000 - scan.MostFindings}}
	if text := found.Error(); !strings.Contains(text, "1000000 things") || !strings.Contains(text, "and 999990 more") || !strings.Contains(text, "lists the first 2000") {
		t.Error(text)
	}
	found.Result.More = 0
	if text := found.Error(); !strings.Contains(text, "2000 things") || !strings.Contains(text, "lists all") {
		t.Error(text)
	}
}
