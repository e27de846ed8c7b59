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
		if a, b := (Ledger{Past: c.past}).expected(); a != c.run || b != c.away {
			t.Errorf("%+v: %v, %v", c.past, a, b)
		}
	}
}

// TestFailureIsShort: no failure makes the annotation of a lease too large.
func TestFailureIsShort(t *testing.T) {
	var l Ledger
	for i := range 3 * maxPast {
		l.failed(fmt.Sprint("run", i), Record{Donor: "a", Failure: strings.Repeat("ü", 100000)}, time.Time{})
	}
	if n := len([]rune(l.Past[0].Failure)); len(l.Past) != maxPast || n != maxFailure {
		t.Errorf("%d runs, %d characters", len(l.Past), n)
	}
}

func TestFailedStep(t *testing.T) {
	err := fmt.Errorf("x: %w", errors.Join(&StepError{Step: "drain", Err: errors.New("y")}, errors.New("z")))
	if s := failedStep(err); s != "drain" || failedStep(errors.New("q")) != "" {
		t.Error(s)
	}
}

// TestPinLedgers: what a ledger says about the image in the model.
func TestPinLedgers(t *testing.T) {
	const definition, original = "/galleries/g/images/a", "canonical:ubuntu:22_04-lts:latest"
	id := func(name string) string { return definition + "/versions/" + name }
	var versions []Artifact
	for _, name := range []string{"2026.03.09", "2026.03.05", "2026.03.01", "2026.02.10", "2026.2.9"} {
		versions = append(versions, Artifact{Kind: Version, Name: name, ID: id(name), State: Succeeded, Ready: true})
	}
	versions = append([]Artifact{{Kind: Version, Name: "2026.03.12", ID: id("2026.03.12"), State: Succeeded, Ready: true, Excluded: true,
		Tags: map[string]string{TagOffer: offerHidden, TagProof: proofPassed}}}, versions...)
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
			if pin := c.ledger.pin(Pool{Model: Model{Image: c.image}}, versions); (pin != nil) != c.want {
				t.Errorf("%s: %+v", c.name, pin)
			}
		})
	}
}

// TestEvidenceIsPlain: an image on trial writes its console, its conditions and its report, and
// what terminals obey of that reaches neither tags nor terminals.
func TestEvidenceIsPlain(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\u0085b\r\nc\x07\x7f\x9b\td"
	const plain = "a[2J31mb c\ufffd d"
	for what, wrong := range map[string]func(*Sight){
		"console":   func(s *Sight) { silent(s); s.Console = []string{evil} },
		"condition": func(s *Sight) { s.Node.Conditions = []Condition{{Type: "Odd", Status: "True", Reason: evil}} },
		"report": func(s *Sight) {
			reports(s, func(r *NodeReport) { r.RebootPending = "a\x1b[2J\u009b31m\u0085b\r\nc\x07\x7f\ufffd\td" })
		},
		"pod": func(s *Sight) { s.Daemons[0].Ready, s.Daemons[0].Reason = false, evil },
	} {
		t.Run(what, func(t *testing.T) {
			s := goodSight()
			wrong(&s)
			_, findings := Judge(s, proofBounds)
			err := &ProofError{Version: "v", Outcome: ProofFailed, Findings: findings}
			if !strings.Contains(err.Error(), plain) || Plain(err.Error()) != err.Error() {
				t.Errorf("%s: %q", what, err)
			}
		})
	}
}

// TestAbandonedProof: a version is being proved while a canary of it is there, or a run that lives
// has it; else its proof was abandoned.
func TestAbandonedProof(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	v := Artifact{Kind: Version, Name: "2026.11.22", ID: "/d/versions/2026.11.22", State: Succeeded, Ready: true}.offering(offerProving)
	lease := func(version string, silence time.Duration) Lease {
		return Lease{Holder: "r", Renewed: now.Add(-silence), Record: Record{Version: version}}
	}
	for name, tt := range map[string]struct {
		lease    Lease
		canaries []Canary
		proof    string
		life     Life
	}{
		"nobody":             {proof: "abandoned", life: LifeHidden},
		"a canary":           {canaries: []Canary{{Version: strings.ToUpper(v.ID)}}, life: LifeProving},
		"another's canary":   {canaries: []Canary{{Version: "/d/versions/2026.11.21"}}, proof: "abandoned", life: LifeHidden},
		"a run":              {lease: lease(v.Name, time.Second), life: LifeProving},
		"a run that is dead": {lease: lease(v.Name, time.Hour), proof: "abandoned", life: LifeHidden},
		"a run of another":   {lease: lease("2026.11.23", time.Second), proof: "abandoned", life: LifeHidden},
	} {
		t.Run(name, func(t *testing.T) {
			o := overview{id: "p", lease: tt.lease, canaries: tt.canaries, versions: []Artifact{v}}
			if got := o.status(now, nil).Versions[0]; got.Life != tt.life || got.Proof != tt.proof {
				t.Errorf("%s: %s, proof %q; want %s, %q", name, got.Life, got.Proof, tt.life, tt.proof)
			}
		})
	}
}

// TestJudgeBoot: a boot is compared with the pool's history, where there is one.
func TestJudgeBoot(t *testing.T) {
	l := Ledger{}
	for _, seconds := range []float64{60, 70, 80} {
		if usually(l.Boots) != 0 || len(l.usualPhases()) != 0 {
			t.Error("a history of fewer than three")
		}
		l.booted(seconds, Timing{Phases: map[string]float64{"kernel": 2, "kubelet": seconds - 20}}, "n", time.Time{})
	}
	if p := (Proving{Budget: 10 * time.Minute, Times: 2}); p.budget(l) != 140*time.Second || p.budget(Ledger{}) != 10*time.Minute || (Proving{Budget: time.Minute}).budget(l) != time.Minute {
		t.Errorf("twice the usual is %s, without a history %s", p.budget(l), p.budget(Ledger{}))
	}
	b := proofBounds
	b.History, b.Phases = usually(l.Boots), l.usualPhases()
	s := goodSight()
	if out, f := Judge(s, b); b.History != 70*time.Second || out != ProofPassed {
		t.Errorf("%s: %s %v", b.History, out, f)
	}
	s.Running = s.Ready.Add(-4 * time.Minute)
	if out, f := Judge(s, b); out != ProofPassed {
		t.Errorf("within a quarter of the budget: %s %v", out, f)
	}
	s.Running = s.Ready.Add(-5 * time.Minute)
	if out, f := Judge(s, b); out != ProofFailed || f[0].Check != "boot" {
		t.Errorf("%s %v", out, f)
	}
	s = goodSight()
	reports(&s, func(r *NodeReport) { r.Phases = map[string]float64{"kernel": 160, "kubelet": 4} })
	if out, f := Judge(s, b); out != ProofFailed || f[0].Check != "boot" || f[0].Evidence != "phase kernel took 2m40s, usually 2s" {
		t.Errorf("a slow phase: %s %v", out, f)
	}
	s.Running = s.Ready.Add(-5 * time.Minute)
	if out, f := Judge(s, b); out != ProofFailed || !strings.Contains(f[0].Evidence, "(phase kernel took 2m40s, usually 2s)") {
		t.Errorf("a slow boot for a phase: %s %v", out, f)
	}
	s.Node.Annotations = nil // its agent has not reported, or not recorded the boot
	for ready, want := range map[time.Duration]Outcome{9 * time.Minute: ProofWaits, 11 * time.Minute: ProofFailed} {
		s.Ready = s.Now.Add(-ready)
		s.ReadyAs, s.Node.ReadySince, s.Running = s.Ready, s.Ready, s.Ready.Add(-5*time.Minute)
		if out, f := Judge(s, b); out != want || f[0].Check != "boot" || !strings.Contains(f[0].Evidence, "Ready 5m0s after the machine started") {
			t.Errorf("a slow boot before its phases are told, Ready for %s: %s %v", ready, out, f)
		}
		alone := b
		if alone.Without = []string{"report"}; ready < b.settled() {
			if out, f := Judge(s, alone); out != ProofFailed {
				t.Errorf("where no report is to come: %s %v", out, f)
			}
		}
	}
}

// TestJudgePhases: the phases of a boot are the node's own word: they count also where nobody saw
// exactly when the machine ran, and where a phase usually takes no time.
func TestJudgePhases(t *testing.T) {
	l := Ledger{}
	for range 3 {
		l.booted(0, Timing{Phases: map[string]float64{"kernel": 2, "kubelet": 0}}, "n", time.Time{})
	}
	b, s := proofBounds, goodSight()
	b.History, b.Phases = usually(l.Boots), l.usualPhases()
	for seconds, want := range map[float64]Outcome{4: ProofPassed, 149: ProofPassed, 151: ProofFailed} {
		reports(&s, func(r *NodeReport) { r.Phases = map[string]float64{"kernel": 2, "kubelet": seconds} })
		s.Running = s.Ready.Add(-9 * time.Minute)
		if out, f := Judge(s, b); out != want || out == ProofFailed && (f[0].Check != "boot" || f[0].Evidence != "phase kubelet took 2m31s, usually 0s") {
			t.Errorf("%gs: %s %v, want %s", seconds, out, f, want)
		}
	}
	if known := l.knownBoots(); known == nil || known.Seconds == nil || len(known.Seconds) > 0 || len(known.Phases) != 3 {
		t.Errorf("known is %+v", known)
	}
}

// TestTiming: of what a node tells of its boot the lease keeps what can be one, and little; an
// agent that does not tell starts replaces no boot of which they are known.
func TestTiming(t *testing.T) {
	told := Timing{map[string]float64{"kernel": 2, "Ready": 3, "early": -1, "late": 1e9, strings.Repeat("x", 41): 1}, map[string]float64{"kernel": 0, "Ready": 1e9, "of no phase": 1}}
	var l Ledger
	l.booted(0, told, "n1", time.Time{})
	if want := (Timing{map[string]float64{"kernel": 2, "Ready": 3}, map[string]float64{"kernel": 0}}); !reflect.DeepEqual(told.bounded(), want) || !reflect.DeepEqual(l.Phases[0], want.Phases) {
		t.Errorf("%+v", told.bounded())
	}
	if l.Clone == nil || l.Clone.Node != "n1" || len(l.Clone.Phases) != 1 {
		t.Errorf("%+v", l.Clone)
	}
	l.booted(60, Timing{Phases: map[string]float64{"kernel": 2}}, "n2", time.Time{})
	if len(l.Phases) != 2 || l.Clone.Node != "n1" {
		t.Errorf("an agent that tells no starts: %+v", l.Clone)
	}
	for _, letter := range []string{"x", "\x01", "<", "\u2028", "\xff", "\x7f", `"`} { // JSON escapes most
		many := Timing{map[string]float64{}, map[string]float64{}}
		for i := range 5000 {
			name := strings.Repeat(letter, (maxPhaseName-4)/len(letter)) + fmt.Sprint(1000+i)
			many.Phases[name], many.Starts[name] = 1e-300/3, 1e-300/3
		}
		if text, err := json.Marshal(many.waterfall("n", time.Time{})); err != nil || len(text) > 4096 {
			t.Errorf("a boot with %q takes %d bytes of the lease, %v", letter, len(text), err)
		}
		if kept := many.bounded(); len(kept.Phases) > 0 != (letter == "x") {
			t.Errorf("of phases with %q it keeps %d", letter, len(kept.Phases))
		}
	}
}

// TestJudgeRestarts: what systemd starts again while a canary is watched is compared with the
// pool's good canaries, where three were watched for as long.
func TestJudgeRestarts(t *testing.T) {
	none, often, brief := Baked{Seconds: 660}, Baked{Seconds: 660, Restarts: map[string]int{"app.service": 3}}, Baked{Seconds: 60}
	for name, tt := range map[string]struct {
		baked []Baked
		again int
		want  Outcome
	}{
		"once, without a history":         {nil, 1, ProofPassed},
		"twice, without a history":        {nil, 2, ProofFailed},
		"once, after two":                 {[]Baked{none, none}, 1, ProofPassed},
		"once, never on three":            {[]Baked{none, none, none}, 1, ProofFailed},
		"once, three not watched so long": {[]Baked{brief, brief, brief}, 1, ProofPassed},
		"as often as on a good one":       {[]Baked{none, often, none, none}, 3, ProofPassed},
		"a little more often":             {[]Baked{often}, 4, ProofPassed},
		"far more often":                  {[]Baked{often, often, often}, 7, ProofFailed},
		"never":                           {[]Baked{none, none, none}, 0, ProofPassed},
	} {
		var l Ledger
		for _, good := range tt.baked {
			l.baked(good)
		}
		b, s := proofBounds, goodSight()
		b.Baked = l.Baked
		reports(&s, func(r *NodeReport) { r.Restarts["app.service"] = tt.again })
		if out, f := Judge(s, b); out != tt.want || out == ProofFailed && f[0].Check != "units" {
			t.Errorf("%s: %s %v, want %s", name, out, f, tt.want)
		}
		if got, ok := s.baked(); !ok || got.Seconds != 660 || got.Restarts["app.service"] != tt.again || len(got.Restarts) != min(tt.again, 1) {
			t.Errorf("%s: watched as %+v, %t", name, got, ok)
		}
	}
	s := goodSight()
	reports(&s, func(r *NodeReport) {
		for i := range 2 * maxBaked {
			r.Restarts[fmt.Sprint(i)] = 1
		}
	})
	if got, ok := s.baked(); ok {
		t.Errorf("the ledger takes whatever a node says: %+v", got)
	}
	if s.Restarts = nil; len(s.again()) > 0 {
		t.Error("restarts before the node was Ready count")
	}
}

// TestOriginal: an image of Kamino's own is never the original, whatever its ID looks like.
func TestOriginal(t *testing.T) {
	versions := []Artifact{{Name: "2026.1.2", ID: "ami-2"}, {Name: "2026.1.1", ID: "ami-1"}}
	for _, c := range []struct {
		name, image, gallery string
		original             bool
	}{
		{"an AMI of somebody else's", "ami-0", "", true},
		{"an AMI of a version", "ami-1", "", false},
		{"a stock image", "Canonical:server:24_04:latest", "SIG_a", true},
		{"the definition", "/resourceGroups/rg/providers/Microsoft.Compute/galleries/SIG_a/images/x", "sig_a", false},
		{"another gallery", "/resourceGroups/rg/providers/Microsoft.Compute/galleries/SIG_b/images/x", "SIG_a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			pool := Pool{Gallery: c.gallery, Model: Model{Image: c.image}}
			var l Lease
			l.Ledger.remember(SavedModel{Image: c.image}, prototype(pool, versions))
			if got := l.Ledger.Original != nil; got != c.original || l.Ledger.Former == nil {
				t.Errorf("%s: remembered as the original %t, want %t", c.name, got, c.original)
			}
		})
	}
}

// TestAwayWithoutLease: somebody deleted the lease of a pool while its donor was off. The marks of
// the node tell that; the alert KaminoDonorAway, the event and the notification go by Away.
func TestAwayWithoutLease(t *testing.T) {
	mark := `{"format":1,"run":"r1","epoch":1,"pool":"p","instance":"i","since":"2026-11-20T03:00:00Z","block":true,"sealing":true}`
	n := Node{Name: "n1", ProviderID: "i", Annotations: map[string]string{AnnotationRun: mark}, Taints: []Taint{{Key: TaintBlock, Value: "r1", Effect: "NoSchedule"}}}
	o := overview{id: "p", nodes: []Node{n}}
	u := o.unfinished(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))
	if u == nil || u.Donor != "n1" {
		t.Fatalf("%+v", u)
	}
	if u.Away().IsZero() {
		t.Error("donor n1 is off, and nothing tells since when: no alert, no event")
	}
}
