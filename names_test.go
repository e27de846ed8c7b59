package kamino

import (
	"regexp"
	"strings"
	"testing"
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
