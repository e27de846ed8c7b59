package kamino

import (
	"strings"
	"testing"
)

// TestPinLedgers: what a ledger says about the image in the model.
func TestPinLedgers(t *testing.T) {
	const definition, original = "/galleries/g/images/a", "canonical:ubuntu:22_04-lts:latest"
	id := func(name string) string { return definition + "/versions/" + name }
	var versions []Artifact
	for _, name := range []string{"2026.03.09", "2026.03.05", "2026.03.01", "2026.02.10", "2026.2.9"} {
		versions = append(versions, Artifact{Kind: Version, Name: name, ID: id(name), State: Succeeded, Ready: true})
	}
	former := &SavedModel{Image: id("2026.03.01")}
	past := []PastRun{{Failure: "x", Version: "2026.03.09"}, {Version: "2026.03.05"}, {Version: "2026.03.01"}}
	for _, c := range []struct {
		name   string
		ledger Ledger
		image  string
		want   bool
	}{
		{"an empty ledger", Ledger{}, id("2026.03.05"), false},
		{"what was written", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09"), Seen: true}}, strings.ToUpper(id("2026.03.09")), false},
		{"something else", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09"), Seen: true}}, id("2026.03.05"), true},
		{"an image of no gallery", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09"), Seen: true}}, original, true},
		{"what was there before, put back", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09"), Seen: true}}, former.Image, true},
		{"what was there before an interrupted write", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09")}}, former.Image, false},
		{"something else after an interrupted write", Ledger{Former: former, Wrote: &WrittenModel{Image: id("2026.03.09")}}, id("2026.03.05"), true},
		{"the definition", Ledger{Former: former, Wrote: &WrittenModel{Image: definition, Seen: true}}, definition, false},
		{"an earlier kamino's last version", Ledger{Former: former, Past: past}, id("2026.03.05"), false},
		{"an earlier kamino's, by definition", Ledger{Former: former, Past: past}, definition, false},
		{"an earlier kamino's, and another", Ledger{Former: former, Past: past}, id("2026.03.01"), true},
		{"an earlier kamino's that was adopted", Ledger{Former: former, Past: past}, id("2026.03.09"), false},
		{"an earlier kamino that made none", Ledger{Former: former}, id("2026.03.05"), false},
	} {
		if pin := c.ledger.pin(c.image, versions); (pin != nil) != c.want {
			t.Errorf("%s: %+v", c.name, pin)
		}
	}
}
