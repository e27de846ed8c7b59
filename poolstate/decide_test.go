package poolstate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestDecideHidden: what was never proved is proved, or left to a person; nobody promotes it in
// passing. What passed is promoted only where that is nobody's decision.
func TestDecideHidden(t *testing.T) {
	const id = "/g/galleries/SIG_g/images/kamino-p-prototype/versions/"
	v := func(name, offer, proof string) kamino.Version {
		a := kamino.Artifact{Kind: kamino.KindVersion, Name: name, ID: id + name, State: kamino.Succeeded, Ready: true, Excluded: offer != kamino.TagOfferOffered,
			Tags: map[string]string{kamino.TagBuiltFrom: "n", kamino.TagRun: "r" + name, kamino.TagReceipt: "x", kamino.TagOffer: offer, kamino.TagBuiltAt: "2026-11-01 00:00:00.000000"}}
		if proof != "" {
			a.Tags[kamino.TagProof] = proof
		}
		if offer == kamino.TagOfferWithdrawn {
			a.Tags[kamino.TagBad] = "failed its proof"
		}
		return kamino.ParseVersion(a)
	}
	const unsure = "inconclusive: cloud: no quota"
	v1, withdrawn := v("2026.11.01", kamino.TagOfferOffered, ""), v("2026.11.03", kamino.TagOfferWithdrawn, "")
	second := func(offer, proof string) kamino.Version { return v("2026.11.02", offer, proof) }
	canary := kamino.Proving{Mode: kamino.ProveCanary, Promote: kamino.PromoteAuto}
	none, byHand := kamino.Proving{Mode: kamino.ProveNone, Promote: kamino.PromoteAuto}, kamino.Proving{Mode: kamino.ProveNone, Promote: kamino.PromoteManual}
	proved := kamino.Proving{Mode: kamino.ProveCanary, Promote: kamino.PromoteManual}
	for name, tt := range map[string]struct {
		proof     kamino.Proving
		imageOnly bool
		versions  []kamino.Version
		want      Action
		held      kamino.Code
	}{
		"an unproved one, canary":                {canary, false, []kamino.Version{second(kamino.TagOfferHidden, unsure), v1}, DoUpdate, ""},
		"below a withdrawn one, canary":          {canary, false, []kamino.Version{withdrawn, second(kamino.TagOfferHidden, unsure), v1}, DoUpdate, ""},
		"inconclusive, none":                     {none, false, []kamino.Version{second(kamino.TagOfferHidden, unsure), v1}, DoNothing, "promote"},
		"below a withdrawn one, none":            {none, false, []kamino.Version{withdrawn, second(kamino.TagOfferHidden, unsure), v1}, DoNothing, "promote"},
		"in the middle of its proof, none":       {none, false, []kamino.Version{second(kamino.TagOfferProving, ""), v1}, DoNothing, "promote"},
		"nobody wanted a proof":                  {none, false, []kamino.Version{second(kamino.TagOfferHidden, ""), v1}, DoModel, ""},
		"passed":                                 {canary, false, []kamino.Version{second(kamino.TagOfferHidden, kamino.TagProofPassed), v1}, DoModel, ""},
		"passed, below a withdrawn one":          {canary, false, []kamino.Version{withdrawn, second(kamino.TagOfferHidden, kamino.TagProofPassed), v1}, DoModel, ""},
		"no proof, by hand":                      {byHand, false, []kamino.Version{second(kamino.TagOfferHidden, ""), v1}, DoNothing, "promote"},
		"passed, by hand":                        {proved, false, []kamino.Version{second(kamino.TagOfferHidden, kamino.TagProofPassed), v1}, DoNothing, "promote"},
		"passed, by hand, below a withdrawn one": {proved, false, []kamino.Version{withdrawn, second(kamino.TagOfferHidden, kamino.TagProofPassed), v1}, DoNothing, "promote"},
		"image only":                             {none, true, []kamino.Version{second(kamino.TagOfferHidden, ""), v1}, DoNothing, "image-only"},
		"nothing hidden":                         {canary, false, []kamino.Version{v1}, DoNothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, model := range []string{kamino.DefinitionOf(v1.ID), v1.ID} {
				o := State{ID: "p", Pool: kamino.Pool{ID: "p", Name: "p", Model: kamino.Model{Image: model}}, Versions: tt.versions,
					Nodes: []kamino.Node{{Name: "n", Ready: true, ReadySince: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)}}}
				opts := kamino.AutoDefaults()
				opts.Proof, opts.ImageOnly = tt.proof, tt.imageOnly
				p := o.Decide(opts, time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC))
				if p.Action != tt.want || (tt.held == "") != (len(p.Held) == 0) || tt.held != "" && !kamino.Has(p.Held, tt.held) {
					t.Errorf("%s, the model names %s: %s, because %v, held %v", name, kamino.LastSegment(model), p.Action, p.Why, p.Held)
				}
			}
		})
	}
}

// TestTooMany: two of the first three, or more than a fifth of at least five.
func TestTooMany(t *testing.T) {
	// As they were born: l is late, r Ready, w still to come.
	for nodes, want := range map[string]bool{"": false, "l": false, "lr": false, "ll": true, "rlr": false, "lrl": true, "rll": true, "llr": true,
		"lrrl": false, "lwrl": false, "rlrrr": false, "rrrll": true, "lrrrrrrrrl": false, "lrrrrrrrll": true, "llrrrrrrrrrr": true} {
		t.Run(nodes, func(t *testing.T) {
			b := NewNodes{}
			for i, is := range nodes {
				b[kamino.InstanceID(fmt.Sprintf("pool/%d", 8+i))] = &NewNode{Late: is == 'l', Ready: is == 'r'}
			}
			if late, of, bad := b.TooMany(); late != strings.Count(nodes, "l") || of != late+strings.Count(nodes, "r") || bad != want {
				t.Errorf("%s: %d, %d, %t", nodes, late, of, bad)
			}
		})
	}
}

// TestNewborns: late is only what runs while others do well.
func TestNewborns(t *testing.T) {
	at := func(minutes int) time.Time { return proofNoon.Add(time.Duration(minutes) * time.Minute) }
	on, off := kamino.Instance{ID: "p/0", VMID: "v", Power: kamino.PowerOn}, kamino.Instance{ID: "p/0", VMID: "v", Power: kamino.PowerOff}
	unmade, spot, ending := on, on, on
	unmade.Failure, ending.Power = "AllocationFailed", kamino.PowerBetween
	spot.Refusals = []kamino.Refusal{{Code: "spot"}}
	dark := on
	dark.Zone = "dark"
	none := kamino.Instance{}
	lives := func(in kamino.Instance, looks int, then ...kamino.Instance) []kamino.Instance {
		return append(slices.Repeat([]kamino.Instance{in}, looks), then...)
	}
	for name, tt := range map[string]struct {
		looks []kamino.Instance
		fair  bool
		want  bool
	}{
		"runs":                              {lives(on, 10), true, true},
		"is off":                            {lives(off, 10), true, false},
		"was never allocated":               {lives(unmade, 10), true, false},
		"runs since a minute":               {lives(off, 9, on), true, false},
		"others are sick":                   {lives(on, 10), false, false},
		"was deleted young":                 {lives(on, 2, none, none, none, none), true, false},
		"was deleted unready":               {lives(on, 4, none, none, none, none), true, true},
		"was shut down and deleted":         {lives(on, 4, ending, none, none, none, none), true, true},
		"was shut down young":               {lives(on, 2, ending, none, none, none, none), true, false},
		"was restarted":                     {lives(on, 4, ending, on, on, none, none, none, none), true, false},
		"stays off for long":                {lives(on, 4, slices.Repeat([]kamino.Instance{off}, 20)...), true, false},
		"was not listed for two minutes":    {lives(on, 4, none, none, on), true, false},
		"was off before it was deleted":     {lives(off, 4, none, none, none, none), true, false},
		"is a Spot Instance that is gone":   {lives(spot, 4, none, none, none, none), true, false},
		"was deleted while others are sick": {lives(on, 4, none, none, none, none), false, false},
		"runs in a zone that is cut off":    {lives(dark, 10), true, false},
		"was deleted in such a zone":        {lives(dark, 4, none, none, none, none), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewNodes{}
			for i, in := range tt.looks {
				born := []kamino.Instance{in}
				if in.ID == "" {
					born = nil
				}
				b.Saw(born, nil, at(i), 8*time.Minute, 3*time.Minute, func(zone string) bool { return tt.fair && zone != "dark" })
			}
			if late, _, _ := b.TooMany(); (late > 0) != tt.want {
				t.Errorf("a machine that %s: %d late", name, late)
			}
		})
	}
	node := kamino.Node{Name: "n", ProviderID: "q/0", Ready: true, Heartbeat: proofNoon}
	silent, gone := node, node
	silent.Heartbeat, gone.Ready = at(-10), false
	for name, tt := range map[string]struct {
		nodes []kamino.Node
		want  bool
	}{"fine": {[]kamino.Node{node}, true}, "none": {nil, false}, "silent": {[]kamino.Node{silent}, false}, "most are not Ready": {[]kamino.Node{node, gone, gone}, false}} {
		t.Run(name, func(t *testing.T) {
			if got := OthersFine(tt.nodes, proofNoon); got != tt.want {
				t.Errorf("others %s: %t", name, got)
			}
		})
	}
}

// TestDecideWithoutDefinition: where versions stand by themselves, as on AWS, a run that ended
// between proof and promotion is continued while the model names an older version; one that ended
// in the write itself only where the provider's stamp says that it never was.
func TestDecideWithoutDefinition(t *testing.T) {

	version := func(name, offer string) kamino.Version {
		v := kamino.Artifact{Kind: kamino.KindVersion, Name: name, ID: "ami-" + name, State: kamino.Succeeded, Ready: true, Tags: map[string]string{
			kamino.TagRun: "r", kamino.TagReceipt: "x", kamino.TagOffer: offer, kamino.TagProof: kamino.TagProofPassed, kamino.TagBuiltAt: "2026-10-01 00:00:00"}}
		v.Excluded = offer == kamino.TagOfferHidden
		return kamino.ParseVersion(v)
	}
	versions := []kamino.Version{version("2026.11.01", kamino.TagOfferHidden), version("2026.10.01", kamino.TagOfferOffered)}
	was, next := versions[1].ID, versions[0].ID
	for name, tt := range map[string]struct {
		wrote kamino.WrittenModel
		stamp string // of the pool now
		want  Action
		held  kamino.Code
	}{
		"before the write":       {kamino.WrittenModel{Image: was, Seen: true}, "", DoModel, ""},
		"in it, nothing written": {kamino.WrittenModel{Image: next, Stamp: "7"}, "7", DoModel, ""},
		"in it, written since":   {kamino.WrittenModel{Image: next, Stamp: "7"}, "9", DoNothing, "pinned"},
		"in it, without a stamp": {kamino.WrittenModel{Image: next}, "", DoNothing, "foreign-model"},
		"set by a person":        {kamino.WrittenModel{Image: "ami-other", Seen: true}, "9", DoNothing, "pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			o := State{ID: "p", Pool: kamino.Pool{ID: "p", Name: "p", Model: kamino.Model{Image: was}, Stamp: tt.stamp}, Versions: versions,
				Nodes: []kamino.Node{{Name: "n", Ready: true, ReadySince: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)}}}
			o.Lease.Ledger = kamino.Ledger{Original: &kamino.SavedModel{Image: "ami-base"}, Former: &kamino.SavedModel{Image: was}, Wrote: &tt.wrote}
			p := o.Decide(kamino.AutoDefaults(), time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC))
			if p.Action != tt.want || (tt.held == "") != (len(p.Held) == 0) || tt.held != "" && !kamino.Has(p.Held, tt.held) {
				t.Errorf("%s, because %v, held %v", p.Action, p.Why, p.Held)
			}
		})
	}
}

var selectNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var proofNoon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
