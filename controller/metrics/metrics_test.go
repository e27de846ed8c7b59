package metrics

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

var (
	built = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	days  = 1.5
	full  = poolstate.PoolStatus{Pool: "/x/p1", Name: "p1", Nodes: 3, Ready: 2, Next: "2026.11.22", NextBuilt: &built,
		Configs: []kamino.NodeConfig{{Node: "n1", Generation: 311, Status: kamino.ConfigApplied}, {Node: "n2", Generation: 310, Status: kamino.ConfigRolledBack, Offered: 311},
			{Node: "n3", Generation: 311, Status: kamino.ConfigApplied}},
		Behind:     &poolstate.Behind{Days: &days, Packages: poolstate.ComparedDiffers},
		Versions:   []poolstate.VersionStatus{{Name: "2026.11.22", Phase: kamino.PhasePromoted, Instances: 2, Proof: "passed"}, {Name: "2026.11.21", Phase: kamino.PhaseWithdrawn}},
		Unfinished: &kamino.Unfinished{Run: "r2", Record: kamino.Record{Donor: "n1", Step: "stop", Started: built, AwaySince: built}, Heartbeat: built},
		Runs:       []kamino.PastRun{{Run: "r1", Ended: built, Failure: "x"}}}
)

// TestLint: names, units and help are as Prometheus' own linter wants them.
func TestLint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := NewRuns(registry, "test")
	r.Set("a", full)
	r.Set("b", full) // a second prototype of the pool
	r.Ended("p1", []engine.PoolResult{{Pool: "/x/p1", Result: &engine.Result{Changed: true, Version: "v", Next: "v", AwaySeconds: 9,
		Steps: []kamino.StepTime{{Name: "seal", Seconds: 5}, {Name: "drain", Skipped: true}}, Proof: &kamino.Proved{ReadySeconds: 20}}}}, nil)
	r.Ended("p1", []engine.PoolResult{{Pool: "/x/p1", Error: "x"}}, &kamino.ProofError{Outcome: kamino.ProofFailed})
	requests := NewRequests()
	registry.MustRegister(requests)
	requests.Heard("EC2 DescribeInstances", "200")
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for name, want := range map[string]float64{`runs_total{pool="p1",result="done"}`: 1, `runs_total{pool="p1",result="failed"}`: 1, `proofs_total{outcome="failed",pool="p1"}`: 1,
		`proofs_total{outcome="passed",pool="p1"}`: 1, `promotions_total{pool="p1"}`: 1, `withdrawals_total{pool="p1"}`: 1} {
		t.Run(name, func(t *testing.T) {
			metric, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			values := []string{"p1"}
			for _, l := range strings.Split(labels, ",") {
				if key, value, _ := strings.Cut(l, "="); key != "pool" {
					values = append(values, strings.Trim(value, `"`))
				}
			}
			vec := map[string]*prometheus.CounterVec{"runs_total": r.runs, "proofs_total": r.proofs, "promotions_total": r.promotions, "withdrawals_total": r.withdrawn}[metric]
			if got := testutil.ToFloat64(vec.WithLabelValues(values...)); got != want {
				t.Errorf("kamino_%s is %g, want %g", name, got, want)
			}
		})
	}
}

// TestZero: what is counted of a pool is there before it happens first, as alerts look at
// increases.
func TestZero(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	NewRuns(registry, "test").Set("a", full)
	for name, want := range map[string]int{"kamino_runs_total": 3, "kamino_proofs_total": 3, "kamino_promotions_total": 1, "kamino_withdrawals_total": 1} {
		t.Run(name, func(t *testing.T) {
			if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
				t.Errorf("%d of %s, want %d (%v)", got, name, want, err)
			}
		})
	}
}

// TestWrite: kamino status -o openmetrics.
func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, "test", []poolstate.PoolStatus{full, {Pool: "/x/p2", Name: "p2", Error: "not found"}}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{`kamino_build_info{version="test"} 1`, `kamino_pool_next_image_info{pool="p1",version="2026.11.22"} 1`,
		`kamino_pool_next_image_built_timestamp_seconds{pool="p1"} 1.7953164e+09`, `kamino_pool_next_image_behind_seconds{pool="p1"} 129600`, `kamino_pool_next_image_packages_differ{pool="p1"} 1`,
		`kamino_pool_next_image_proven{pool="p1"} 1`, `kamino_pool_instances{pool="p1",version="2026.11.22"} 2`, `kamino_pool_versions{pool="p1",state="withdrawn"} 1`,
		`kamino_pool_donor_away_since_timestamp_seconds{donor="n1",pool="p1"} `, `kamino_pool_run_info{pool="p1",run="r2",step="stop"} 1`,
		`kamino_pool_last_run_failed{pool="p1"} 1`, `kamino_pool_readable{pool="p2"} 0`,
		`kamino_pool_config_nodes{generation="310",pool="p1",status="RolledBack"} 1`, `kamino_pool_config_nodes{generation="311",pool="p1",status="Applied"} 2`, "# EOF\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `next_image_info{pool="p2"`) {
		t.Errorf("of a pool that could not be read something is told:\n%s", text)
	}
}

// TestSameNames: two pools of one name, as scale sets of two resource groups, are both told: the
// donor of the second may be off for hours.
func TestSameNames(t *testing.T) {
	for _, order := range [][]string{{"/rg1/x/p1", "/rg2/x/p1"}, {"/rg2/x/p1", "/rg1/x/p1"}} {
		well, away := full, full
		well.Pool, away.Pool = kamino.PoolID(order[0]), kamino.PoolID(order[1])
		well.Unfinished = nil
		var out bytes.Buffer
		if err := Write(&out, "test", []poolstate.PoolStatus{well, away}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "kamino_pool_donor_away_since_timestamp_seconds{") {
			t.Errorf("%v: nothing tells that a donor is away", order)
		}
	}
}
