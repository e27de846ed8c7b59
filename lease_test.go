package kamino

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestExpected: the median, in whatever order runs were noted, of those that
// ended well and were seen to their end.
func TestExpected(t *testing.T) {
	run := func(seconds, away float64) PastRun { return PastRun{Seconds: seconds, AwaySeconds: away} }
	proved := PastRun{Seconds: 900, AwaySeconds: 20, ProofSeconds: 700}
	failed := PastRun{Seconds: 1, AwaySeconds: 1, Failure: "x"}
	for _, c := range []struct {
		past      []PastRun
		run, away float64
	}{
		{nil, 0, 0},
		{[]PastRun{failed}, 0, 0},
		{[]PastRun{run(900, 30), run(100, 20), run(200, 10)}, 200, 20},
		{[]PastRun{proved, run(100, 20)}, 150, 20}, // a plan says whether it proves, and for how long
		{[]PastRun{run(100, 5), failed, run(900, 9), run(300, 1), run(200, 3)}, 250, 4},
		{[]PastRun{run(100, 0), run(300, 7)}, 300, 7}, // of one that was adopted nobody knows
	} {
		if a, b := (Ledger{Past: c.past}).Expected(); a != c.run || b != c.away {
			t.Errorf("%+v: %v, %v", c.past, a, b)
		}
	}
}

// TestFailureIsShort: no failure makes the annotation of a lease too large.
func TestFailureIsShort(t *testing.T) {
	var l Ledger
	for i := range 3 * maxPast {
		l.NoteFailed(fmt.Sprint("run", i), Record{Donor: "a", Failure: strings.Repeat("ü", 100000)}, time.Time{})
	}
	if n := len([]rune(l.Past[0].Failure)); len(l.Past) != maxPast || n != MaxFailure {
		t.Errorf("%d runs, %d characters", len(l.Past), n)
	}
}

func TestFailedStep(t *testing.T) {
	err := fmt.Errorf("x: %w", errors.Join(&StepError{Step: "drain", Err: errors.New("y")}, errors.New("z")))
	if s := FailedStep(err); s != "drain" || FailedStep(errors.New("q")) != "" {
		t.Error(s)
	}
}

// TestPinLedgers: what a ledger says about the image in the model.
func TestPinLedgers(t *testing.T) {
	const definition, original = "/galleries/g/images/a", "canonical:ubuntu:22_04-lts:latest"
	id := func(name string) string { return definition + "/versions/" + name }
	var versions []Artifact
	for _, name := range []string{"2026.03.09", "2026.03.05", "2026.03.01", "2026.02.10", "2026.2.9"} {
		versions = append(versions, Artifact{Kind: KindVersion, Name: name, ID: id(name), State: Succeeded, Ready: true})
	}
	versions = append([]Artifact{{Kind: KindVersion, Name: "2026.03.12", ID: id("2026.03.12"), State: Succeeded, Ready: true, Excluded: true,
		Tags: map[string]string{TagOffer: TagOfferHidden, TagProof: TagProofPassed}}}, versions...)
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
		{"nothing written, and the image is the last version", Ledger{Past: past}, id("2026.03.05"), false},
		{"nothing written, and the image is the definition", Ledger{Past: past}, definition, false},
		{"nothing written, and the image is another version", Ledger{Past: past}, id("2026.03.01"), true},
		{"nothing written, and the image is the newest version", Ledger{Past: past}, id("2026.03.09"), false},
		{"a first version that waits for a person", Ledger{Past: []PastRun{{Version: "2026.03.12"}}}, original, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if pin := c.ledger.pin(Pool{Model: Model{Image: c.image}}, ParseVersions(versions)); (pin != nil) != c.want {
				t.Errorf("%s: %+v", c.name, pin)
			}
		})
	}
}

// TestTiming: of what a node tells of its boot the lease keeps what can be one, and little; an
// agent that does not tell starts replaces no boot of which they are known.
func TestTiming(t *testing.T) {
	told := Timing{map[string]float64{"kernel": 2, "Ready": 3, "early": -1, "late": 1e9, strings.Repeat("x", 41): 1}, map[string]float64{"kernel": 0, "Ready": 1e9, "of no phase": 1}}
	var l Ledger
	l.NoteBoot(0, told, "n1", time.Time{})
	if want := (Timing{map[string]float64{"kernel": 2, "Ready": 3}, map[string]float64{"kernel": 0}}); !reflect.DeepEqual(told.bounded(), want) || !reflect.DeepEqual(l.Phases[0], want.Phases) {
		t.Errorf("%+v", told.bounded())
	}
	if l.Clone == nil || l.Clone.Node != "n1" || len(l.Clone.Phases) != 1 {
		t.Errorf("%+v", l.Clone)
	}
	l.NoteBoot(60, Timing{Phases: map[string]float64{"kernel": 2}}, "n2", time.Time{})
	if len(l.Phases) != 2 || l.Clone.Node != "n1" {
		t.Errorf("an agent that tells no starts: %+v", l.Clone)
	}
	for _, letter := range []string{"x", "\x01", "<", "\u2028", "\xff", "\x7f", `"`} { // JSON escapes most
		many := Timing{map[string]float64{}, map[string]float64{}}
		for i := range 5000 {
			name := strings.Repeat(letter, (maxPhaseName-4)/len(letter)) + fmt.Sprint(1000+i)
			many.Phases[name], many.Starts[name] = 1e-300/3, 1e-300/3
		}
		if text, err := json.Marshal(many.Waterfall("n", time.Time{})); err != nil || len(text) > 4096 {
			t.Errorf("a boot with %q takes %d bytes of the lease, %v", letter, len(text), err)
		}
		if kept := many.bounded(); len(kept.Phases) > 0 != (letter == "x") {
			t.Errorf("of phases with %q it keeps %d", letter, len(kept.Phases))
		}
	}
}
