package kamino

import (
	"strings"
	"testing"
)

// TestPhase: the phases of a version, from its tags.
func TestPhase(t *testing.T) {
	v := Artifact{State: Succeeded, Ready: true}
	for tags, want := range map[string]Phase{
		"": PhasePromoted, "offer=hidden": PhaseHidden, "offer=proving": PhaseProving, "offer=offered": PhasePromoted,
		"offer=withdrawn": PhaseWithdrawn, "offer=hidden proof=passed": PhaseWaiting, "offer=hidden proof=inconclusive: cloud": PhaseHidden,
	} {
		v.Tags = map[string]string{}
		for _, pair := range strings.SplitN(tags, " ", 2) {
			if key, value, ok := strings.Cut(pair, "="); ok {
				v.Tags["kamino-"+key] = value
			}
		}
		if got := ParseVersion(v).Phase; got != want {
			t.Errorf("%s is %s, want %s", tags, got, want)
		}
	}
	if got := ParseVersion(Artifact{State: Creating, Tags: map[string]string{TagOffer: TagOfferHidden}}).Phase; got != PhaseBuilding {
		t.Error(got)
	}
}

// TestLineage: descendants of a withdrawn version are told, and a line without end ends.
func TestLineage(t *testing.T) {
	version := func(name, parent, bad string) Version {
		v := Artifact{Name: name, State: Succeeded, Tags: map[string]string{TagParent: "d/versions/" + parent}}
		if bad != "" {
			v.Tags[TagBad] = bad
		}
		return ParseVersion(v)
	}
	all := []Version{version("3", "2", ""), version("2", "1", ""), version("1", "0", "it was bad"), version("9", "9", "")}
	if a, b := BadAncestor(all[0], all), BadAncestor(all[3], all); a != "1" || b != "" {
		t.Errorf("%q, %q", a, b)
	}
	if got := Descendants("1", all); strings.Join(got, " ") != "3 2" {
		t.Error(got)
	}
}
