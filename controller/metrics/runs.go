package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// Runs counts what the runs of this process did.
type Runs struct {
	*Pools
	runs       *prometheus.CounterVec
	proofs     *prometheus.CounterVec
	promotions *prometheus.CounterVec
	withdrawn  *prometheus.CounterVec
	steps      *prometheus.HistogramVec
	away       *prometheus.HistogramVec
	boots      *prometheus.HistogramVec
}

// seconds are bounds for what takes from a second to an hour and more.
var seconds = []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 2400, 3600, 7200}

// NewRuns registers all metrics with a registry.
func NewRuns(registry prometheus.Registerer, version string) *Runs {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kamino_" + name, Help: help}, append([]string{"pool"}, labels...))
		registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kamino_" + name, Help: help, Buckets: seconds}, labels)
		registry.MustRegister(h)
		return h
	}
	r := &Runs{Pools: &Pools{},
		runs:       counter("runs_total", "Runs that ended, by their result: done, failed or held.", "result"),
		proofs:     counter("proofs_total", "Proofs of image versions that ended, by their outcome.", "outcome"),
		promotions: counter("promotions_total", "Image versions that were promoted."),
		withdrawn:  counter("withdrawals_total", "Image versions that failed and were withdrawn."),
		steps:      histogram("run_step_duration_seconds", "Time that the steps of runs took.", "step"),
		away:       histogram("donor_away_duration_seconds", "Time that donors were away.", "pool"),
		boots: histogram("node_ready_duration_seconds",
			"Time from an instance that runs to its Ready node, by the image version of a canary or first node.", "pool", "version"),
	}
	registry.MustRegister(r.Pools, buildInfo(version))
	return r
}

// Set puts what is there of a pool in the place of what was. Its counters begin at zero then: the
// first of what they count would be no increase otherwise.
func (r *Runs) Set(key string, s poolstate.PoolStatus) {
	r.Pools.Set(key, s)
	pool := label(s)
	for _, result := range []string{"done", "failed", "held"} {
		r.runs.WithLabelValues(pool, result)
	}
	for _, outcome := range []string{"passed", "failed", "inconclusive"} {
		r.proofs.WithLabelValues(pool, outcome)
	}
	r.promotions.WithLabelValues(pool)
	r.withdrawn.WithLabelValues(pool)
}

// Ended counts what one call of auto-update did for a pool, or the watch after it.
func (r *Runs) Ended(pool string, results []engine.PoolResult, err error) {
	r.proved(pool, err)
	for _, one := range results {
		name := one.Pool.Name()
		if held := (*kamino.HeldError)(nil); errors.As(err, &held) {
			r.runs.WithLabelValues(name, "held").Inc()
			continue
		} else if one.Error != "" {
			r.runs.WithLabelValues(name, "failed").Inc()
			continue
		}
		if one.Result == nil {
			continue
		}
		r.runs.WithLabelValues(name, "done").Inc()
		r.done(name, *one.Result)
	}
}

// proved counts a proof that no version passed.
func (r *Runs) proved(pool string, err error) {
	var proof *kamino.ProofError
	if !errors.As(err, &proof) {
		return
	}
	if proof.Outcome != kamino.ProofFailed {
		r.proofs.WithLabelValues(pool, "inconclusive").Inc()
		return
	}
	r.proofs.WithLabelValues(pool, "failed").Inc()
	if !proof.Kept {
		r.withdrawn.WithLabelValues(pool).Inc()
	}
}

func (r *Runs) done(pool string, result engine.Result) {
	for _, step := range result.Steps {
		if !step.Skipped {
			r.steps.WithLabelValues(step.Name).Observe(step.Seconds)
		}
	}
	if result.AwaySeconds > 0 {
		r.away.WithLabelValues(pool).Observe(result.AwaySeconds)
	}
	if result.Changed && result.Next == result.Version {
		r.promotions.WithLabelValues(pool).Inc()
	}
	if p := result.Proof; p != nil {
		r.proofs.WithLabelValues(pool, "passed").Inc()
		r.boots.WithLabelValues(pool, result.Version).Observe(p.ReadySeconds)
	}
}
