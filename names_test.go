package kamino

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNames: what Azure names is short enough, of characters that it allows, and
// of no two resource groups the same. Names that were right stay.
func TestNames(t *testing.T) {
	long := strings.Repeat("g", 90)
	gallery := regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.]{0,78}[0-9A-Za-z_]$`)
	seen := map[string]string{}
	for group, want := range map[string]string{
		"rg": "SIG_rg", "kamino-lab": "SIG_kamino_lab", "a-b": "SIG_a_b", "v1.2": "SIG_v1.2",
		"a_b": "", "a-b_c": "", "a_b-c": "", "a_b_c": "", "rg(old)": "", "rg_old_": "", long: "", long[:89] + "-": "",
	} {
		t.Run(group, func(t *testing.T) {
			name := GalleryName(group)
			if !gallery.MatchString(name) || want != "" && name != want || seen[strings.ToLower(name)] != "" {
				t.Errorf("group %s: %s, as %s", group, name, seen[name])
			}
			seen[strings.ToLower(name)] = group
			if former := FormerGalleryName(group); (former == "") != (want != "" || strings.ContainsAny(group, "()") || len(group) > 76) ||
				former != "" && former != "SIG_"+strings.ReplaceAll(group, "-", "_") {
				t.Errorf("group %s: the former name is %q", group, former)
			}
			if o := OfferName(group); len(o) > 64 || len(group) <= 64 && o != group {
				t.Errorf("group %s: the offer is %s", group, o)
			}
		})
	}
	a, b := strings.Repeat("p", 64), strings.Repeat("p", 63)+"q"
	for _, pool := range []string{"k8s-pool1-vmss", a, b} {
		if n := DefinitionName(pool); len(n) > 80 || pool == "k8s-pool1-vmss" && n != "kamino-k8s-pool1-vmss-prototype" {
			t.Error(n)
		}
	}
	if DefinitionName(a) == DefinitionName(b) {
		t.Error("two pools, one definition")
	}
}

func TestNextVersion(t *testing.T) {
	for _, c := range []struct{ day, existing, want string }{
		{"2026-11-22", "", "2026.11.22"},
		{"2026-11-22", "2026.11.21 2026.10.3101", "2026.11.22"},
		{"2026-11-22", "2026.11.22", "2026.11.2201"},
		{"2026-11-22", "2026.11.22 2026.11.2201", "2026.11.2202"},
		{"2026-11-22", "2026.11.2209 2026.11.22", "2026.11.2210"},
		{"2026-11-23", "2026.11.22 2026.11.2201", "2026.11.2300"},
		{"2026-11-23", "2026.11.2201 2026.11.2300", "2026.11.2301"},
		{"2026-11-23", "2026.11.2201 2026.11.23", "2026.11.2301"}, // the 23rd by a program that knows no NN
		{"2026-12-01", "2026.11.3099", "2026.12.01"},
		{"2026-12-02", "2026.12.0101", "2026.12.0200"},
		{"2026-03-09", "2026.3.9", "2026.03.0901"},
		{"2026-11-22", "2026.11.99 latest 1.2.3 2026.13.2201", "2026.11.22"}, // names of others
		{"2026-11-22", "2026.11.2299", ""},
	} {
		t.Run(c.day, func(t *testing.T) {
			day, _ := time.Parse(time.DateOnly, c.day)
			got, err := NextVersion(named(strings.Fields(c.existing)...), day.Add(23*time.Hour))
			if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, errNamesOver) {
				t.Errorf("on %s, with %q: %q, %v; want %q", c.day, c.existing, got, err, c.want)
			}
		})
	}
}

// TestModels: instances count by the write of the model that they were made after, and those from
// before the first that is known by their version.
// TestAfterDay: the second version of a day is not one of a later day.
func TestAfterDay(t *testing.T) {
	day := time.Date(2026, 11, 24, 9, 0, 0, 0, time.UTC)
	for name, want := range map[string]bool{"2026.11.2301": false, "2026.11.23": false, "2026.11.24": false, "2026.11.2401": false, "2026.11.25": true, "2026.12.01": true, "2027.01.01": true} {
		if got := ParseVersion(Artifact{Name: name, Tags: map[string]string{TagRun: "r"}}).AfterDay(day); got != want {
			t.Errorf("version %s is of a later day: %t, want %t", name, got, want)
		}
	}
}

// TestAcquittal: a definition that was followed once and then no more is not acquitted by what came
// before.
func TestAcquittal(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	const def = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute/galleries/g/images/kamino-a-prototype"
	v := func(name string, births ...time.Duration) Version {
		a := Artifact{Kind: KindVersion, Name: name, ID: def + "/versions/" + name, State: Succeeded, Ready: true, Tags: map[string]string{TagRun: "r", TagOffer: TagOfferOffered}}
		for _, b := range births {
			a.Births = append(a.Births, at.Add(b))
		}
		return ParseVersion(a)
	}
	l := Ledger{Promoted: &Promotion{Version: "2026.03.01", At: at}}
	versions := []Version{v("2026.03.01", 20*time.Minute), v("2026.02.01", 26*time.Hour, 27*time.Hour, 28*time.Hour)}
	if s := l.astray(def, versions); s == nil {
		t.Error("the first instance followed, and the three that came a day later did not: the definition is believed")
	}
}

// TestUnlike: only what is known to differ keeps an image from a machine.
func TestUnlike(t *testing.T) {
	v2 := Machine{Architecture: "x64", Generation: "V2"}
	for _, tt := range []struct {
		image Machine
		want  string // part of why
	}{
		{v2, ""}, {Machine{}, ""}, {Machine{Architecture: "X64", Generation: "v2"}, ""}, {Machine{Architecture: "x64"}, ""},
		{Machine{Architecture: "x64", Generation: "V1"}, "generation"}, {Machine{Architecture: "Arm64", Generation: "V2"}, "architecture"},
	} {
		if got := tt.image.Unlike(v2); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.image, got, tt.want)
		}
	}
}

func named(names ...string) (out []Version) {
	for _, n := range names {
		out = append(out, ParseVersion(Artifact{Kind: KindVersion, Name: n, State: Succeeded, Tags: map[string]string{TagBuiltFrom: "n"}}))
	}
	slices.SortStableFunc(out, func(a, b Version) int { return CompareVersions(b.Name, a.Name) })
	return out
}
