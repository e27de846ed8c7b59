package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// turnWorld is what turns look at: nodes, and a clock that is moved by sleeping.
type turnWorld struct {
	WallClock
	Cluster
	nodes []Node
	now   time.Time
	// before is called at each look with its number, from 1.
	before func(look int)
	looks  int
	err    error
}

func (w *turnWorld) Nodes(context.Context) ([]Node, error) {
	w.looks++
	if w.before != nil {
		w.before(w.looks)
	}
	return w.nodes, w.err
}

func (w *turnWorld) Now() time.Time { return w.now }

func (w *turnWorld) Sleep(ctx context.Context, d time.Duration) error {
	w.now = w.now.Add(d)
	return ctx.Err()
}

func (w *turnWorld) turns(most, notReady int) *turns {
	w.now = selectNow
	return &turns{most: most, maxNotReady: notReady, away: map[PoolID]bool{}}
}

func (w *turnWorld) engine() *Engine { return &Engine{Cluster: w, Provider: oneEach{}, Clock: w} }

// oneEach is a provider whose pools have one instance each, of the same ID.
type oneEach struct{ Provider }

func (oneEach) PoolOf(_ context.Context, id InstanceID) (PoolID, error) { return PoolID(id), nil }

func donorOf(pool string) Node {
	return Node{Name: "donor-" + pool, ProviderID: InstanceID(pool), Annotations: map[string]string{
		AnnotationRun: fmt.Sprintf(`{"run":"r","pool":%q,"instance":%q}`, pool, pool)}}
}

// A donor is taken only while few enough others are away, whosever they are.
func TestTurns(t *testing.T) {
	silent := func(n int) (out []Node) {
		for i := range n {
			out = append(out, Node{Name: fmt.Sprint("silent-", i), ProviderID: "x"})
		}
		return out
	}
	tests := []struct {
		name     string
		nodes    []Node
		most     int
		notReady int
		away     []PoolID // donors of this process
		want     string   // in the error; "" is a turn
	}{
		{name: "nobody is away", most: 1},
		{name: "a donor of another process", most: 1, nodes: []Node{donorOf("b")}, want: "donor-b"},
		{name: "one of two", most: 2, nodes: []Node{donorOf("b")}},
		{name: "two of two", most: 2, nodes: []Node{donorOf("b"), donorOf("c")}, want: "donor-b, donor-c"},
		{name: "any number", most: 0, nodes: []Node{donorOf("b"), donorOf("c")}},
		{name: "the pool's own donor, left by an ended run", most: 1, nodes: []Node{donorOf("a")}},
		{name: "this process and another", most: 2, nodes: []Node{donorOf("b"), donorOf("c")}, away: []PoolID{"c"}, want: "donor-b"},
		{name: "too many NotReady", most: 1, notReady: 2, nodes: silent(3), want: "3 nodes to be Ready, at most 2 may be NotReady: silent-0, silent-1, silent-2"},
		{name: "as many NotReady as may be", most: 1, notReady: 3, nodes: silent(3)},
		{name: "NotReady counts with any number too", most: 0, notReady: 0, nodes: silent(1), want: "silent-0"},
		{name: "a donor that is off is not NotReady", most: 2, notReady: 0, nodes: []Node{donorOf("b")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := &turnWorld{nodes: test.nodes}
			turns := w.turns(test.most, test.notReady)
			for _, p := range test.away {
				turns.enter(p)
			}
			err := turns.wait(t.Context(), w.engine(), overview{id: "a"})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if err != nil && (Hint(err) == "" || w.now.Sub(selectNow) < turnLimit) {
				t.Errorf("gave up after %s with hint %q", w.now.Sub(selectNow), Hint(err))
			}
			if turns.isAway("a") != (err == nil) {
				t.Errorf("the pool is counted as away: %t, error %v", turns.isAway("a"), err)
			}
		})
	}
}

// The wait ends as soon as the obstacle is gone, and outlasts an API server that
// does not answer for a while.
func TestTurnsWait(t *testing.T) {
	w := &turnWorld{nodes: []Node{donorOf("b")}}
	w.before = func(look int) {
		w.err = nil
		switch look {
		case 3:
			w.err = fmt.Errorf("list nodes: %w", ErrUnavailable)
		case 5:
			w.nodes = nil
		}
	}
	if err := w.turns(1, 0).wait(t.Context(), w.engine(), overview{id: "a"}); err != nil || w.looks != 5 {
		t.Errorf("%d looks, %v", w.looks, err)
	}
	w = &turnWorld{err: fmt.Errorf("list nodes: %w", ErrForbidden)}
	if err := w.turns(1, 0).wait(t.Context(), w.engine(), overview{id: "a"}); !errors.Is(err, ErrForbidden) || w.looks != 1 {
		t.Errorf("%d looks, %v", w.looks, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = &turnWorld{nodes: []Node{donorOf("b")}, before: func(look int) { cancel() }}
	if err := w.turns(1, 0).wait(ctx, w.engine(), overview{id: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// Which failures make room for the next candidate.
func TestNextMayDo(t *testing.T) {
	step := func(name string, err error) error { return &StepError{Step: name, Err: err} }
	refused := &RefusedError{Subject: "node n"}
	tests := []struct {
		err  error
		want bool
	}{
		{step("validate", refused), true},
		{step("validate", fmt.Errorf("node: %w", ErrNotFound)), true},
		{step("validate", ErrForbidden), false},
		{step("rehearse", errors.New("cannot be drained")), true},
		{step("rehearse", ErrForbidden), false},
		{step("protect", errors.New("cluster-autoscaler is deleting node n")), true},
		{step("drain", errors.New("cannot be drained")), true},
		{step("drain", ErrLeaseLost), false},
		{step("drain", ErrForbidden), false},
		{step("seal", errors.New("failed")), false},
		{step("image", errors.New("failed")), false},
		{errors.Join(step("drain", errors.New("x"))), true},
		{errors.Join(step("drain", errors.New("x")), errors.New("the donor is not back")), false},
		{errors.New("x"), false},
	}
	for _, test := range tests {
		if got := nextMayDo(test.err); got != test.want {
			t.Errorf("nextMayDo(%v) = %t", test.err, got)
		}
	}
}

// TestDecideHidden: what was never proved is proved, or left to a person; nobody promotes it in
// passing. What passed is promoted only where that is nobody's decision.
func TestDecideHidden(t *testing.T) {
	const id = "/g/galleries/SIG_g/images/kamino-p-prototype/versions/"
	v := func(name, offer, proof string) Artifact {
		a := Artifact{Kind: Version, Name: name, ID: id + name, State: Succeeded, Ready: true, Excluded: offer != offerOffered,
			Tags: map[string]string{TagBuiltFrom: "n", TagRun: "r" + name, TagReceipt: "x", TagOffer: offer, TagBuiltAt: "2026-11-01 00:00:00.000000"}}
		if proof != "" {
			a.Tags[TagProof] = proof
		}
		if offer == offerWithdrawn {
			a.Tags[TagBad] = "failed its proof"
		}
		return a
	}
	const unsure = "inconclusive: cloud: no quota"
	v1, withdrawn := v("2026.11.01", offerOffered, ""), v("2026.11.03", offerWithdrawn, "")
	second := func(offer, proof string) Artifact { return v("2026.11.02", offer, proof) }
	canary := Proving{Mode: ProveCanary, Promote: PromoteAuto}
	none, byHand := Proving{Mode: ProveNone, Promote: PromoteAuto}, Proving{Mode: ProveNone, Promote: PromoteManual}
	proved := Proving{Mode: ProveCanary, Promote: PromoteManual}
	for name, tt := range map[string]struct {
		proof     Proving
		imageOnly bool
		versions  []Artifact
		want      Action
		held      string
	}{
		"an unproved one, canary":                {canary, false, []Artifact{second(offerHidden, unsure), v1}, DoUpdate, ""},
		"below a withdrawn one, canary":          {canary, false, []Artifact{withdrawn, second(offerHidden, unsure), v1}, DoUpdate, ""},
		"inconclusive, none":                     {none, false, []Artifact{second(offerHidden, unsure), v1}, DoNothing, "promote"},
		"below a withdrawn one, none":            {none, false, []Artifact{withdrawn, second(offerHidden, unsure), v1}, DoNothing, "promote"},
		"in the middle of its proof, none":       {none, false, []Artifact{second(offerProving, ""), v1}, DoNothing, "promote"},
		"nobody wanted a proof":                  {none, false, []Artifact{second(offerHidden, ""), v1}, DoModel, ""},
		"passed":                                 {canary, false, []Artifact{second(offerHidden, proofPassed), v1}, DoModel, ""},
		"passed, below a withdrawn one":          {canary, false, []Artifact{withdrawn, second(offerHidden, proofPassed), v1}, DoModel, ""},
		"no proof, by hand":                      {byHand, false, []Artifact{second(offerHidden, ""), v1}, DoNothing, "promote"},
		"passed, by hand":                        {proved, false, []Artifact{second(offerHidden, proofPassed), v1}, DoNothing, "promote"},
		"passed, by hand, below a withdrawn one": {proved, false, []Artifact{withdrawn, second(offerHidden, proofPassed), v1}, DoNothing, "promote"},
		"image only":                             {none, true, []Artifact{second(offerHidden, ""), v1}, DoNothing, "image-only"},
		"nothing hidden":                         {canary, false, []Artifact{v1}, DoNothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, model := range []string{definitionOf(v1.ID), v1.ID} {
				o := overview{id: "p", pool: Pool{ID: "p", Name: "p", Model: Model{Image: model}}, versions: tt.versions,
					nodes: []Node{{Name: "n", Ready: true, ReadySince: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)}}}
				opts := AutoDefaults()
				opts.Proof, opts.ImageOnly = tt.proof, tt.imageOnly
				p := o.decide(opts, time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC))
				if p.Action != tt.want || (tt.held == "") != (len(p.Held) == 0) || tt.held != "" && !Has(p.Held, tt.held) {
					t.Errorf("%s, the model names %s: %s, because %v, held %v", name, lastSegment(model), p.Action, p.Why, p.Held)
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
			b := newborns{}
			for i, is := range nodes {
				b[InstanceID(fmt.Sprintf("pool/%d", 8+i))] = &newbornNode{late: is == 'l', ready: is == 'r'}
			}
			if late, of, bad := b.tooMany(); late != strings.Count(nodes, "l") || of != late+strings.Count(nodes, "r") || bad != want {
				t.Errorf("%s: %d, %d, %t", nodes, late, of, bad)
			}
		})
	}
}

// TestNewborns: late is only what runs while others do well.
func TestNewborns(t *testing.T) {
	at := func(minutes int) time.Time { return proofNoon.Add(time.Duration(minutes) * time.Minute) }
	on, off := Instance{ID: "p/0", VMID: "v", Power: PowerOn}, Instance{ID: "p/0", VMID: "v", Power: PowerOff}
	unmade, spot, ending := on, on, on
	unmade.Failure, ending.Power = "AllocationFailed", PowerBetween
	spot.Refusals = []Refusal{{Code: "spot"}}
	dark := on
	dark.Zone = "dark"
	none := Instance{}
	lives := func(in Instance, looks int, then ...Instance) []Instance {
		return append(slices.Repeat([]Instance{in}, looks), then...)
	}
	for name, tt := range map[string]struct {
		looks []Instance
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
		"stays off for long":                {lives(on, 4, slices.Repeat([]Instance{off}, 20)...), true, false},
		"was not listed for two minutes":    {lives(on, 4, none, none, on), true, false},
		"was off before it was deleted":     {lives(off, 4, none, none, none, none), true, false},
		"is a Spot Instance that is gone":   {lives(spot, 4, none, none, none, none), true, false},
		"was deleted while others are sick": {lives(on, 4, none, none, none, none), false, false},
		"runs in a zone that is cut off":    {lives(dark, 10), true, false},
		"was deleted in such a zone":        {lives(dark, 4, none, none, none, none), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newborns{}
			for i, in := range tt.looks {
				born := []Instance{in}
				if in.ID == "" {
					born = nil
				}
				b.saw(born, nil, at(i), 8*time.Minute, 3*time.Minute, func(zone string) bool { return tt.fair && zone != "dark" })
			}
			if late, _, _ := b.tooMany(); (late > 0) != tt.want {
				t.Errorf("a machine that %s: %d late", name, late)
			}
		})
	}
	node := Node{Name: "n", ProviderID: "q/0", Ready: true, Heartbeat: proofNoon}
	silent, gone := node, node
	silent.Heartbeat, gone.Ready = at(-10), false
	for name, tt := range map[string]struct {
		nodes []Node
		want  bool
	}{"fine": {[]Node{node}, true}, "none": {nil, false}, "silent": {[]Node{silent}, false}, "most are not Ready": {[]Node{node, gone, gone}, false}} {
		t.Run(name, func(t *testing.T) {
			if got := othersFine(tt.nodes, proofNoon); got != tt.want {
				t.Errorf("others %s: %t", name, got)
			}
		})
	}
}

// TestDecideWithoutDefinition: where versions stand by themselves, as on AWS, a run that ended
// between proof and promotion is continued while the model names an older version; one that ended
// in the write itself only where the provider's stamp says that it never was.
func TestDecideWithoutDefinition(t *testing.T) {

	version := func(name, offer string) Artifact {
		v := Artifact{Kind: Version, Name: name, ID: "ami-" + name, State: Succeeded, Ready: true, Tags: map[string]string{
			TagRun: "r", TagReceipt: "x", TagOffer: offer, TagProof: proofPassed, TagBuiltAt: "2026-10-01 00:00:00"}}
		v.Excluded = offer == offerHidden
		return v
	}
	versions := []Artifact{version("2026.11.01", offerHidden), version("2026.10.01", offerOffered)}
	was, next := versions[1].ID, versions[0].ID
	for name, tt := range map[string]struct {
		wrote WrittenModel
		stamp string // of the pool now
		want  Action
		held  string
	}{
		"before the write":       {WrittenModel{Image: was, Seen: true}, "", DoModel, ""},
		"in it, nothing written": {WrittenModel{Image: next, Stamp: "7"}, "7", DoModel, ""},
		"in it, written since":   {WrittenModel{Image: next, Stamp: "7"}, "9", DoNothing, "pinned"},
		"in it, without a stamp": {WrittenModel{Image: next}, "", DoNothing, "foreign-model"},
		"set by a person":        {WrittenModel{Image: "ami-other", Seen: true}, "9", DoNothing, "pinned"},
	} {
		t.Run(name, func(t *testing.T) {
			o := overview{id: "p", pool: Pool{ID: "p", Name: "p", Model: Model{Image: was}, Stamp: tt.stamp}, versions: versions,
				nodes: []Node{{Name: "n", Ready: true, ReadySince: time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)}}}
			o.lease.Ledger = Ledger{Original: &SavedModel{Image: "ami-base"}, Former: &SavedModel{Image: was}, Wrote: &tt.wrote}
			p := o.decide(AutoDefaults(), time.Date(2026, 11, 5, 0, 0, 0, 0, time.UTC))
			if p.Action != tt.want || (tt.held == "") != (len(p.Held) == 0) || tt.held != "" && !Has(p.Held, tt.held) {
				t.Errorf("%s, because %v, held %v", p.Action, p.Why, p.Held)
			}
		})
	}
}
