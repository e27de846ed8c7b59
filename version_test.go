package kamino

import (
	"strings"
	"testing"
)

// TestLife: the states of a version, from its tags.
func TestLife(t *testing.T) {
	v := Artifact{State: Succeeded, Ready: true}
	for tags, want := range map[string]Life{
		"": LifePromoted, "offer=hidden": LifeHidden, "offer=proving": LifeProving, "offer=offered": LifePromoted,
		"offer=withdrawn": LifeWithdrawn, "offer=hidden proof=passed": LifeWaiting, "offer=hidden proof=inconclusive: cloud": LifeHidden,
	} {
		v.Tags = map[string]string{}
		for _, pair := range strings.SplitN(tags, " ", 2) {
			if key, value, ok := strings.Cut(pair, "="); ok {
				v.Tags["kamino-"+key] = value
			}
		}
		if got := v.Life(); got != want {
			t.Errorf("%s is %s, want %s", tags, got, want)
		}
	}
	if got := (Artifact{State: Creating, Tags: map[string]string{TagOffer: TagOfferHidden}}).Life(); got != LifeBuilding {
		t.Error(got)
	}
}

// TestLineage: descendants of a withdrawn version are told, and a line without end ends.
func TestLineage(t *testing.T) {
	version := func(name, parent, bad string) Artifact {
		v := Artifact{Name: name, State: Succeeded, Tags: map[string]string{TagParent: "d/versions/" + parent}}
		if bad != "" {
			v.Tags[TagBad] = bad
		}
		return v
	}
	all := []Artifact{version("3", "2", ""), version("2", "1", ""), version("1", "0", "it was bad"), version("9", "9", "")}
	if a, b := BadAncestor(all[0], all), BadAncestor(all[3], all); a != "1" || b != "" {
		t.Errorf("%q, %q", a, b)
	}
	if got := Descendants("1", all); strings.Join(got, " ") != "3 2" {
		t.Error(got)
	}
}
