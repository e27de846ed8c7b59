package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/poolstate"
)

var now = time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)

// due is the world of a pool that needs an image, and may have one.
func due() world {
	return world{now: now, window: sight{open: true}, retry: 15 * time.Minute, turn: true, view: poolstate.PoolView{
		Status: poolstate.PoolStatus{Name: "p"},
		Plan:   poolstate.PoolPlan{Action: poolstate.DoUpdate, Donor: "n1", Why: []kamino.Verdict{{Code: "no-image", Text: "the pool has no image version yet"}}},
	}}
}

func past(ago time.Duration, failure string) kamino.PastRun {
	return kamino.PastRun{Run: "r", Ended: now.Add(-ago), Failure: failure}
}

// TestDerive: of each state of the world, what Ready says, whether a run starts, and when to look
// again.
func TestDerive(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world, *v1alpha1.NodePrototypeSpec)
		reason string
		ready  metav1.ConditionStatus
		start  bool
		wake   time.Duration // 0: as always
	}{
		"due":                {func(w *world, _ *v1alpha1.NodePrototypeSpec) {}, "NeedsRun", "Unknown", true, 0},
		"suspended":          {func(w *world, s *v1alpha1.NodePrototypeSpec) { s.Suspend = true }, "Suspended", "False", false, 0},
		"outside its window": {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.window = sight{from: now.Add(time.Hour)} }, "OutsideWindow", "Unknown", false, time.Hour},
		"no turn":            {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.turn = false }, "WaitingForTurn", "Unknown", false, 0},
		"failed a minute ago": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.view.Status.Runs = []kamino.PastRun{past(time.Minute, "x")}
		}, "RunFailed", "False", false, 14 * time.Minute},
		"failed three times": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.view.Status.Runs = []kamino.PastRun{past(time.Minute, "x"), past(time.Hour, "x"), past(2*time.Hour, "x"), past(3*time.Hour, "")}
		}, "RunFailed", "False", false, 59 * time.Minute},
		"failed long ago": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.view.Status.Runs = []kamino.PastRun{past(16*time.Minute, "x")}
		}, "NeedsRun", "Unknown", true, 0},
		"failed before its lease": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.own = &run{ended: now.Add(-time.Minute), err: errors.New("x"), failures: 2}
		}, "RunFailed", "False", false, 29 * time.Minute},
		"ended with the process": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.own = &run{ended: now.Add(-time.Minute), err: fmt.Errorf("x: %w", context.Canceled), failures: 1}
		}, "NeedsRun", "Unknown", true, 0},
		"at work": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.own = &run{running: true, step: "seal", id: "r", percent: -1}
		}, "Running", "Unknown", false, 0},
		"left by another process": {func(w *world, s *v1alpha1.NodePrototypeSpec) {
			s.Suspend, w.window.open = true, false
			w.view.Plan.Action = poolstate.DoFinish
			w.view.Status.Unfinished = &kamino.Unfinished{Run: "r"}
		}, "Running", "Unknown", true, 0},
		"held by another process": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.view.Plan.Action = poolstate.DoFinish
			w.own = &run{ended: now.Add(-20 * time.Second), err: &kamino.HeldError{}}
		}, "Running", "Unknown", false, 40 * time.Second},
		"nothing":                              {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.nothing() }, "UpToDate", "True", false, 0},
		"nothing, suspended":                   {func(w *world, s *v1alpha1.NodePrototypeSpec) { w.nothing(); s.Suspend = true }, "UpToDate", "True", false, 0},
		"nothing, but to patch":                {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.nothing(); w.patchDue = true }, "NeedsRun", "Unknown", true, 0},
		"nothing, and new nodes are not Ready": {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.nothing(); w.kept() }, "NewNodesNotReady", "False", false, 0},
		"due, and new nodes are not Ready":     {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.kept() }, "NeedsRun", "Unknown", true, 0},
		"nothing, and it was promoted since": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.nothing()
			w.kept()
			w.view.Status.Runs = append([]kamino.PastRun{{Verb: kamino.VerbPromote, Pointed: "v"}}, w.view.Status.Runs...)
		}, "UpToDate", "True", false, 0},
		"old soon": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.nothing()
			built := now.Add(-23 * time.Hour)
			w.maxAge, w.view.Status.Next, w.view.Status.NextBuilt = 24*time.Hour, "v", &built
			w.view.Status.Versions = []poolstate.VersionStatus{{Name: "v"}}
		}, "UpToDate", "True", false, time.Hour + time.Second},
		"one of today":       {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("today") }, "Held", "False", false, 20 * time.Hour},
		"paused":             {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("paused") }, "Paused", "False", false, 0},
		"paused, to patch":   {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("paused"); w.patchDue = true }, "Paused", "False", false, 0},
		"too few, to patch":  {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("too-few-candidates"); w.patchDue = true }, "NeedsRun", "Unknown", true, 0},
		"waits for a person": {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("promote") }, "AwaitsPromotion", "Unknown", false, 0},
		"pinned":             {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hold("pinned") }, "Pinned", "False", false, 0},
		"owned": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.hold("refused")
			w.view.Status.Owner = &kamino.Owner{Name: "o"}
		}, "Owned", "False", false, 0},
		"no such pool": {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.trouble = &problem{v1alpha1.ReasonPoolNotFound, "x"} }, "PoolNotFound", "False", false, 0},
		"no such pool, with a donor": {func(w *world, _ *v1alpha1.NodePrototypeSpec) {
			w.trouble = &problem{v1alpha1.ReasonPoolNotFound, "x"}
			w.view.Status.Unfinished = &kamino.Unfinished{Run: "r"}
		}, "PoolNotFound", "False", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := due(), &v1alpha1.NodePrototype{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			tt.change(&w, &p.Spec)
			v := derive(p, w)
			ready := meta.FindStatusCondition(v.status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || ready.Reason != tt.reason || ready.Status != tt.ready || ready.ObservedGeneration != 7 || v.status.ObservedGeneration != 7 {
				t.Errorf("Ready is %+v, want %s because %s", ready, tt.ready, tt.reason)
			}
			want := time.Time{}
			if tt.wake > 0 {
				want = now.Add(tt.wake)
			}
			if v.start != tt.start || !v.wake.Equal(want) {
				t.Errorf("starts a run: %t, looks again at %s; want %t, %s", v.start, v.wake, tt.start, want)
			}
			if len(v.status.Conditions) != 8 {
				t.Errorf("%d conditions, want 8: %+v", len(v.status.Conditions), v.status.Conditions)
			}
			// A second later nothing has changed.
			p.Status = *v.status.DeepCopy()
			later := w
			later.now = now.Add(time.Second)
			if again := derive(p, later); !equality.Semantic.DeepEqual(again.status, v.status) {
				t.Errorf("a second later the status is another:\n%+v\n%+v", again.status, v.status)
			}
		})
	}
}

// TestNextRun: an image that is fresh will be too old at a moment that is known, and a run starts
// when the window is open then.
func TestNextRun(t *testing.T) {
	built := now.Add(-23 * time.Hour)
	night, err := parseWindow(&v1alpha1.Window{Start: "22:00", End: "23:00", TimeZone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*world, *v1alpha1.NodePrototypeSpec)
		want   time.Time
	}{
		"always open":     {func(*world, *v1alpha1.NodePrototypeSpec) {}, now.Add(time.Hour + time.Second)},
		"in its window":   {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.hours = night }, time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)},
		"in no time":      {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.maxAge = 0 }, time.Time{}},
		"suspended":       {func(_ *world, s *v1alpha1.NodePrototypeSpec) { s.Suspend = true }, time.Time{}},
		"of no prototype": {func(w *world, _ *v1alpha1.NodePrototypeSpec) { w.view.Status.Next = "" }, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := due(), &v1alpha1.NodePrototype{}
			w.nothing()
			w.maxAge, w.view.Status.Next, w.view.Status.NextBuilt = 24*time.Hour, "v", &built
			w.view.Status.Versions = []poolstate.VersionStatus{{Name: "v"}}
			tt.change(&w, &p.Spec)
			got := derive(p, w).status.NextRun
			if tt.want.IsZero() != (got == nil) || got != nil && !got.Time.Equal(tt.want) {
				t.Errorf("the next run is at %v, want %s", got, tt.want)
			}
		})
	}
}

func (w *world) nothing() {
	w.view.Plan = poolstate.PoolPlan{Action: poolstate.DoNothing, Why: []kamino.Verdict{{Code: "nothing", Text: "x"}}}
}

// kept: a watch found new nodes of what is next not Ready, and could not withdraw it.
func (w *world) kept() {
	w.view.Status.Next = "v"
	w.view.Status.Runs = []kamino.PastRun{{Verb: kamino.VerbWithdraw, Step: kamino.StepWatch, Withdrawn: "v", Reason: "x", Failure: "y"}}
}

func (w *world) hold(code kamino.Code) {
	w.view.Plan.Action, w.view.Plan.Held = poolstate.DoNothing, []kamino.Verdict{{Code: code, Text: "x"}}
}

// TestWatchWarning: what the watch of new nodes cannot judge stands beside that all is well.
func TestWatchWarning(t *testing.T) {
	w := due()
	w.nothing()
	w.warning = "the watch of version v cannot judge node n"
	v := derive(&v1alpha1.NodePrototype{}, w)
	if ready := meta.FindStatusCondition(v.status.Conditions, v1alpha1.ConditionReady); ready.Status != "True" || ready.Message != "x; "+w.warning {
		t.Errorf("%+v", ready)
	}
}

// TestConfigFailed: nodes that refuse their configuration make a condition, and no reason to do
// anything.
func TestConfigFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes   []kamino.NodeConfig
		status  metav1.ConditionStatus
		message string
	}{
		"none tells":       {nil, "False", ""},
		"applied, waiting": {[]kamino.NodeConfig{{Node: "n1", Generation: 2, Status: kamino.ConfigApplied}, {Node: "n2", Generation: 1, Offered: 2, Status: kamino.ConfigWaiting}}, "False", ""},
		"refused": {[]kamino.NodeConfig{{Node: "n1", Generation: 2, Status: kamino.ConfigApplied}, {Node: "n2", Generation: 1, Offered: 2, Status: kamino.ConfigRolledBack, Reason: "x"},
			{Node: "n3", Status: kamino.ConfigUnreadable}}, "True", "2 of 5 nodes: node n2 refused generation 2 (RolledBack): x"},
	} {
		t.Run(name, func(t *testing.T) {
			w := due()
			w.nothing()
			w.view.Status.Nodes, w.view.Status.Configs = 5, tt.nodes
			v := derive(&v1alpha1.NodePrototype{}, w)
			failed := meta.FindStatusCondition(v.status.Conditions, v1alpha1.ConditionConfigFailed)
			if failed == nil || failed.Status != tt.status || failed.Message != tt.message || v.start {
				t.Errorf("%+v, starts a run: %t", failed, v.start)
			}
		})
	}
}

// TestAge: the text of an age does not make the status another each day.
func TestAge(t *testing.T) {
	w := due()
	w.maxAge, w.view.Plan.Image = time.Hour, "v"
	w.view.Plan.Why = []kamino.Verdict{{Code: "age", Text: "image v is 3.1 days old"}}
	v := derive(&v1alpha1.NodePrototype{}, w)
	stale := meta.FindStatusCondition(v.status.Conditions, v1alpha1.ConditionStale)
	if stale.Status != metav1.ConditionTrue || strings.Contains(stale.Message, "3.1") {
		t.Errorf("%+v", stale)
	}
}

// TestOptions: what a spec says takes the place of the flags, what it does not say stays.
func TestOptions(t *testing.T) {
	base := kamino.AutoDefaults()
	base.MinCandidates, base.Rules.RejectTainted = 2, true
	day, bake := v1alpha1.Duration("24h"), v1alpha1.Duration("0s")
	o, err := optionsOf(base, nil, v1alpha1.NodePrototypeSpec{MaxImageAge: &day, History: 5, Promote: v1alpha1.PromoteManual,
		Prove: v1alpha1.Prove{Mode: v1alpha1.ProveCanary, Bake: &bake, BootBudget: "2x"}, Patch: &v1alpha1.Patch{Nodes: 2, Reboot: "Never", Manager: "dnf", Scope: "Security", Release: "2023.9.20260101"},
		Select: &v1alpha1.Select{MinReady: &day, LastPatch: []v1alpha1.Signal{"condition:Patched"}, RequireLabels: []string{"node-restriction.kubernetes.io/donor"}}})
	if err != nil {
		t.Fatal(err)
	}
	if o.MaxImageAge != 24*time.Hour || o.History != 5 || o.Proof.Promote != kamino.PromoteManual || o.Proof.For != 0 || o.Proof.Times != 2 || o.MinCandidates != 2 ||
		!o.Rules.RejectTainted || o.Rules.MinReady != 24*time.Hour || fmt.Sprint(o.Rules.LastPatch) != "[condition:Patched]" || len(o.Rules.RequireLabels) != 1 ||
		o.Patch == nil || o.Patch.Nodes != 2 || o.Patch.Order.Reboot != kamino.RebootNever || o.Patch.Order.Manager != "dnf" || o.Patch.Order.Scope != "security" ||
		o.Patch.Order.Release != "2023.9.20260101" {
		t.Errorf("%+v", o)
	}
	for _, bad := range []v1alpha1.NodePrototypeSpec{
		{Prove: v1alpha1.Prove{BootBudget: "0.5x"}}, {Prove: v1alpha1.Prove{BootBudget: "10s"}},
		{Select: &v1alpha1.Select{RequireLabels: []string{"a"}}}, {Select: &v1alpha1.Select{LastPatch: []v1alpha1.Signal{"a b"}}},
	} {
		if _, err := optionsOf(base, nil, bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// TestOptionsOnlyNarrow: who writes a prototype adds to what the controller demands of a donor, and
// takes nothing from it.
func TestOptionsOnlyNarrow(t *testing.T) {
	base := kamino.AutoDefaults()
	vouched, err := kamino.ParseLabelDemand("node-restriction.kubernetes.io/vouched=yes")
	if err != nil {
		t.Fatal(err)
	}
	base.RequireLabels, base.MaxAway, base.MaxNotReady = []kamino.LabelDemand{vouched}, 1, 2
	base.Rules.RequireLabels = base.RequireLabels
	for name, labels := range map[string][]string{"others": {"node-restriction.kubernetes.io/donor"}, "the same": {"node-restriction.kubernetes.io/vouched=yes"}, "none": nil} {
		o, err := optionsOf(base, nil, v1alpha1.NodePrototypeSpec{Select: &v1alpha1.Select{RequireLabels: labels}})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(o.RequireLabels, vouched) || !slices.Contains(o.Rules.RequireLabels, vouched) || o.MaxAway != 1 || o.MaxNotReady != 2 {
			t.Errorf("%s: %+v", name, o)
		}
		if name == "others" && (len(o.RequireLabels) != 2 || len(o.Rules.RequireLabels) != 2 || len(base.RequireLabels) != 1) {
			t.Errorf("%s: %v, and the controller's %v", name, o.RequireLabels, base.RequireLabels)
		}
	}
}

// TestOptionsProbe: the Job of a prototype is made with the controller's rights, not with those of
// who wrote it. It has no more than any pod, except in namespaces that the controller trusts.
func TestOptionsProbe(t *testing.T) {
	const job = `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ops"}, "spec": {"template": {"spec": {"restartPolicy": "Never",
		"containers": [{"name": "p", "image": "reg.example.com/p:1"}], "hostPID": true}}}}`
	base := kamino.AutoDefaults()
	spec := v1alpha1.NodePrototypeSpec{Prove: v1alpha1.Prove{Probe: job}}
	if _, err := optionsOf(base, nil, spec); err == nil || !strings.Contains(err.Error(), "hostPID") || !strings.Contains(err.Error(), "spec.prove.probe") {
		t.Errorf("it is taken: %v", err)
	}
	if _, err := optionsOf(base, []string{"other"}, spec); err == nil {
		t.Error("it is taken where another namespace is trusted")
	}
	if o, err := optionsOf(base, []string{"ops"}, spec); err != nil || string(o.Proof.Probe) != job {
		t.Errorf("where its namespace is trusted: %v", err)
	}
	base.Proof.Probe = []byte(job) // the controller's own
	if _, err := optionsOf(base, nil, v1alpha1.NodePrototypeSpec{}); err != nil {
		t.Error(err)
	}
}

// TestNextRunInWindow: what status.nextRun tells is a time at which a run may start.
func TestNextRunInWindow(t *testing.T) {
	hours, err := parseWindow(&v1alpha1.Window{Start: "03:00", End: "05:00", TimeZone: "UTC"})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*world){
		"failed": func(w *world) {
			w.retry = 2 * time.Hour
			w.view.Status.Runs = []kamino.PastRun{past(time.Minute, "x")}
		},
		"one of today": func(w *world) { w.hold("today") },
	} {
		t.Run(name, func(t *testing.T) {
			w, p := due(), &v1alpha1.NodePrototype{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
			w.hours, w.window = hours, hours.at(w.now)
			change(&w)
			v := derive(p, w)
			if next := v.status.NextRun; next == nil || !hours.at(next.Time).open {
				t.Errorf("the next run is said to be at %v, when the window is closed", next)
			}
		})
	}
}
