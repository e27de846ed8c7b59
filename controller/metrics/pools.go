// Package metrics is what there is of pools, and what runs did, as Prometheus reads it. The
// controller serves it, and kamino status -o openmetrics writes the first half of it.
package metrics

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// Pools is a collector of what there is of pools.
type Pools struct {
	mu sync.Mutex
	of map[string]poolstate.PoolStatus
}

// Set puts what is there of a pool in the place of what was; the key is the caller's.
func (p *Pools) Set(key string, s poolstate.PoolStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]poolstate.PoolStatus{}
	}
	p.of[key] = s
}

// Forget leaves a pool out.
func (p *Pools) Forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, key)
}

func about(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kamino_pool_"+name, help, append([]string{"pool"}, labels...), nil)
}

var (
	readable   = about("readable", "Whether the pool could be read: 1 or 0.")
	nodes      = about("nodes", "Nodes of the pool.")
	nodesReady = about("nodes_ready", "Nodes of the pool that are Ready.")
	configured = about("config_nodes", "Nodes of the pool by the generation of their NodeConfig in force, and by what became of the one offered.", "generation", "status")
	instances  = about("instances", "Instances of the pool by the image version that they boot from.", "version")
	nextInfo   = about("next_image_info", "The image version that the next node would boot from: always 1.", "version")
	nextBuilt  = about("next_image_built_timestamp_seconds", "When the image of the next node was built.")
	nextProven = about("next_image_proven", "Whether the image of the next node passed its proof: 1 or 0.")
	behind     = about("next_image_behind_seconds", "How much later the best running node was patched than the image of the next node.")
	differs    = about("next_image_packages_differ",
		"Whether the packages of the next node differ from those of the best running node: 1 or 0.")
	versions   = about("versions", "Image versions of the pool by their state.", "state")
	runInfo    = about("run_info", "The run that holds the pool: always 1.", "run", "step")
	runStart   = about("run_start_timestamp_seconds", "When the run that holds the pool began.")
	runBeat    = about("run_heartbeat_timestamp_seconds", "When the run that holds the pool last renewed its lease.")
	awaySince  = about("donor_away_since_timestamp_seconds", "Since when a donor of the pool may be off; absent where none is.", "donor")
	lastEnd    = about("last_run_end_timestamp_seconds", "When the last run of the pool ended.")
	lastFailed = about("last_run_failed", "Whether the last run of the pool failed: 1 or 0.")
	refused    = about("refused", "Whether no run may take a node of the pool: 1 or 0.")
	pinned     = about("pinned", "Whether the image of the next node was set by someone else: 1 or 0.")
	paused     = about("paused", "Whether runs are paused: 1 or 0.")
)

// lives are the states that a version can have.
var lives = []kamino.Phase{kamino.PhaseBuilding, kamino.PhaseHidden, kamino.PhaseProving, kamino.PhaseWaiting, kamino.PhasePromoted,
	kamino.PhaseWithdrawn, kamino.PhaseFailed}

// Describe implements prometheus.Collector.
func (p *Pools) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readable, nodes, nodesReady, configured, instances, nextInfo, nextBuilt, nextProven, behind,
		differs, versions, runInfo, runStart, runBeat,
		awaySince, lastEnd, lastFailed, refused, pinned, paused} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Pools) Collect(to chan<- prometheus.Metric) {
	p.mu.Lock()
	all := maps.Clone(p.of)
	p.mu.Unlock()
	told := map[string]kamino.PoolID{} // by label
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := all[key]
		name := label(s)
		if other := told[name]; other != "" && s.Pool != "" && other != s.Pool { // a scale set of another resource group
			name = string(s.Pool)
		}
		if _, twice := told[name]; !twice { // two prototypes may mean one pool
			told[name] = s.Pool
			pool{name, to}.collect(s)
		}
	}
}

// label is the pool's name; pools of one name differ by their ID.
func label(s poolstate.PoolStatus) string {
	if s.Pool == "" {
		return s.Name
	}
	return s.Pool.Name()
}

type pool struct {
	name string
	to   chan<- prometheus.Metric
}

func (p pool) gauge(d *prometheus.Desc, value float64, labels ...string) {
	p.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{p.name}, labels...)...)
}

func (p pool) flag(d *prometheus.Desc, is bool) {
	value := 0.0
	if is {
		value = 1
	}
	p.gauge(d, value)
}

func (p pool) collect(s poolstate.PoolStatus) {
	p.flag(readable, s.Error == "")
	p.gauge(nodes, float64(s.Nodes))
	p.gauge(nodesReady, float64(s.Ready))
	p.flag(paused, s.Paused != "")
	p.configs(s.Configs)
	p.runs(s)
	if s.Error != "" {
		return
	}
	p.flag(refused, len(s.Refusals) > 0)
	p.flag(pinned, s.Pinned != nil)
	if s.Next != "" {
		p.gauge(nextInfo, 1, s.Next)
	}
	if s.NextBuilt != nil {
		p.gauge(nextBuilt, float64(s.NextBuilt.Unix()))
	}
	if b := s.Behind; b != nil {
		if b.Days != nil {
			p.gauge(behind, *b.Days*86400)
		}
		if b.Packages != poolstate.ComparedUnknown {
			p.flag(differs, b.Packages == poolstate.ComparedDiffers)
		}
	}
	count := map[kamino.Phase]int{}
	for _, v := range s.Versions {
		count[v.Phase]++
		if v.Instances > 0 {
			p.gauge(instances, float64(v.Instances), v.Name)
		}
		if v.Name == s.Next {
			p.flag(nextProven, v.Proven())
		}
	}
	for _, life := range lives {
		p.gauge(versions, float64(count[life]), string(life))
	}
}

func (p pool) configs(all []kamino.NodeConfig) {
	type key struct {
		generation int64
		status     kamino.ConfigStatus
	}
	count := map[key]int{}
	for _, c := range all {
		count[key{c.Generation, c.Status}]++
	}
	for k, n := range count {
		p.gauge(configured, float64(n), strconv.FormatInt(k.generation, 10), string(k.status))
	}
}

func (p pool) runs(s poolstate.PoolStatus) {
	if u := s.Unfinished; u != nil {
		p.gauge(runInfo, 1, u.Run, u.Step)
		if !u.Started.IsZero() {
			p.gauge(runStart, float64(u.Started.Unix()))
		}
		if !u.Heartbeat.IsZero() {
			p.gauge(runBeat, float64(u.Heartbeat.Unix()))
		}
		if !u.AwaySince.IsZero() && u.AwayEnds.IsZero() {
			p.gauge(awaySince, float64(u.AwaySince.Unix()), u.Donor)
		}
	}
	if len(s.Runs) > 0 {
		p.gauge(lastEnd, float64(s.Runs[0].Ended.Unix()))
		p.flag(lastFailed, s.Runs[0].Failure != "")
	}
}

// buildInfo is the program's version.
func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kamino_build_info", Help: "The version of kamino: always 1.",
		ConstLabels: prometheus.Labels{"version": version}})
	g.Set(1)
	return g
}

// Write writes what there is of pools in the text format of OpenMetrics, for files that the
// textfile collector of node_exporter reads, or a push gateway takes
// (https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md).
func Write(w io.Writer, version string, all []poolstate.PoolStatus) error {
	var p Pools
	for _, s := range all {
		p.Set(string(s.Pool), s)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&p, buildInfo(version))
	families, err := registry.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	encoder := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeOpenMetrics))
	for _, family := range families {
		if err := encoder.Encode(family); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	if closer, ok := encoder.(expfmt.Closer); ok {
		return closer.Close()
	}
	return nil
}
