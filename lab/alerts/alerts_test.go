package alerts

import (
	"context"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	rulesFile = "../../charts/kamino/alerts.yaml"
	runbook   = "../../docs/runbook.md"
	day       = 24 * time.Hour
)

var start = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

// at is a moment as a metric tells it.
func at(d time.Duration) float64 { return float64(start.Add(d).Unix()) }

// series is a metric and its value at each minute from the start; NaN where it is absent.
type series struct {
	metric string
	value  func(since time.Duration) float64
}

// always is a value that does not change.
func always(metric string, value float64) series {
	return series{metric, func(time.Duration) float64 { return value }}
}

// from is one value until a moment, and another from then on.
func from(metric string, when time.Duration, before, after float64) series {
	return series{metric, func(since time.Duration) float64 {
		if since < when {
			return before
		}
		return after
	}}
}

var gone = math.NaN()

// hours is how long each case is looked at.
const hours = 9 * time.Hour

// Each alert fires in a window of time and not before, nor after.
var cases = []struct {
	alert, name string
	in          []series
	first, last time.Duration // last 0: to the end; first < 0: never
	summary     string
}{
	{"KaminoDonorAway", "off for an hour and two minutes, then back",
		[]series{from(`kamino_pool_donor_away_since_timestamp_seconds{pool="p1",donor="n1",instance="a"}`, 62*time.Minute, at(0), gone)},
		61 * time.Minute, 65 * time.Minute, "Node n1 of pool p1 has been off for 1h 1m 0s"}, // Prometheus looks back five minutes
	{"KaminoDonorAway", "one donor after the other", []series{
		{`kamino_pool_donor_away_since_timestamp_seconds{pool="p1",donor="n1"}`, func(s time.Duration) float64 { return at(s.Truncate(50 * time.Minute)) }}}, -1, 0, ""},
	{"KaminoRunStuck", "its process is gone", []series{
		always(`kamino_pool_run_heartbeat_timestamp_seconds{pool="p1"}`, at(0)), always(`kamino_pool_run_start_timestamp_seconds{pool="p1"}`, at(0))},
		31 * time.Minute, 0, "A run holds pool p1 and does not come on"},
	{"KaminoRunStuck", "it beats, and does not end", []series{
		{`kamino_pool_run_heartbeat_timestamp_seconds{pool="p1"}`, func(s time.Duration) float64 { return at(s) }}, always(`kamino_pool_run_start_timestamp_seconds{pool="p1"}`, at(-26*time.Hour))},
		2*time.Hour + time.Minute, 0, "A run holds pool p1 and does not come on"},
	{"KaminoRunStuck", "it bakes for a day", []series{
		{`kamino_pool_run_heartbeat_timestamp_seconds{pool="p1"}`, func(s time.Duration) float64 { return at(s.Truncate(10 * time.Minute)) }}, always(`kamino_pool_run_start_timestamp_seconds{pool="p1"}`, at(-18*time.Hour))}, -1, 0, ""},
	{"KaminoWithdrawn", "by a command", []series{from(`kamino_pool_versions{pool="p1",state="withdrawn"}`, time.Hour, 0, 1)},
		time.Hour, 7*time.Hour - 2*time.Minute, "An image of pool p1 was withdrawn in the last six hours"},
	{"KaminoWithdrawn", "the second that the controller withdraws; history keeps one", []series{
		always(`kamino_pool_versions{pool="p1",state="withdrawn"}`, 1), from(`kamino_withdrawals_total{pool="p1"}`, time.Hour, 1, 2)},
		time.Hour, 7*time.Hour - 2*time.Minute, "An image of pool p1 was withdrawn in the last six hours"},
	{"KaminoWithdrawn", "the first that a new process withdraws", []series{
		always(`kamino_pool_versions{pool="p1",state="withdrawn"}`, 1), from(`kamino_withdrawals_total{pool="p1",instance="b"}`, time.Hour, 0, 1)},
		time.Hour, 7*time.Hour - 2*time.Minute, "An image of pool p1 was withdrawn in the last six hours"},
	{"KaminoWithdrawn", "long ago; and the controller starts anew", []series{
		always(`kamino_pool_versions{pool="p1",state="withdrawn"}`, 1), from(`kamino_withdrawals_total{pool="p1",instance="a"}`, time.Hour, 1, gone), from(`kamino_withdrawals_total{pool="p1",instance="b"}`, time.Hour, gone, 0)}, -1, 0, ""},
	{"KaminoProofFailed", "the first of this process", []series{from(`kamino_proofs_total{pool="p1",outcome="failed"}`, time.Hour, 0, 1)},
		time.Hour, 7*time.Hour - 2*time.Minute, "The proof of an image of pool p1 ended failed in the last six hours"},
	{"KaminoProofFailed", "one more is inconclusive", []series{from(`kamino_proofs_total{pool="p1",outcome="inconclusive"}`, time.Hour, 1, 2)},
		time.Hour, 7*time.Hour - 2*time.Minute, "The proof of an image of pool p1 ended inconclusive in the last six hours"},
	{"KaminoProofFailed", "they pass", []series{from(`kamino_proofs_total{pool="p1",outcome="passed"}`, time.Hour, 0, 1)}, -1, 0, ""},
	{"KaminoRunFailed", "and the next one too", []series{from(`kamino_pool_last_run_failed{pool="p1"}`, time.Hour, 0, 1)},
		90 * time.Minute, 0, "The last run of pool p1 failed"},
	{"KaminoRunFailed", "the next one is in order", []series{{`kamino_pool_last_run_failed{pool="p1"}`, func(s time.Duration) float64 {
		if s >= time.Hour && s < 80*time.Minute {
			return 1
		}
		return 0
	}}}, -1, 0, ""},
	{"KaminoConfigRefused", "two of them, as two processes tell", []series{always(`kamino_pool_config_nodes{pool="p1",generation="3",status="Applied"}`, 5),
		from(`kamino_pool_config_nodes{pool="p1",generation="3",status="RolledBack",instance="a"}`, time.Hour, gone, 1),
		from(`kamino_pool_config_nodes{pool="p1",generation="3",status="RolledBack",instance="b"}`, time.Hour, gone, 1),
		from(`kamino_pool_config_nodes{pool="p1",generation="2",status="Unreadable"}`, time.Hour, gone, 1)},
		75 * time.Minute, 0, "2 nodes of pool p1 refused a NodeConfig, or cannot read it"},
	{"KaminoConfigRefused", "one waits for its share", []series{always(`kamino_pool_config_nodes{pool="p1",generation="3",status="Waiting"}`, 5)}, -1, 0, ""},
	{"KaminoImageStale", "nodes were patched", []series{from(`kamino_pool_next_image_behind_seconds{pool="p1"}`, time.Hour, 0, (8 * day).Seconds())},
		2 * time.Hour, 0, "New nodes of pool p1 boot from an old image"},
	{"KaminoImageStale", "it is 45 days old", []series{always(`kamino_pool_next_image_built_timestamp_seconds{pool="p1"}`, at(-45*day))},
		61 * time.Minute, 0, "New nodes of pool p1 boot from an old image"},
	{"KaminoImageStale", "it is a month old, and nothing was patched since", []series{
		always(`kamino_pool_next_image_built_timestamp_seconds{pool="p1"}`, at(-30*day)), always(`kamino_pool_next_image_behind_seconds{pool="p1"}`, 0)}, -1, 0, ""},
	{"KaminoPoolUnreadable", "for hours", []series{from(`kamino_pool_readable{pool="p1"}`, time.Hour, 1, 0)}, 90 * time.Minute, 0, "Nothing is known of pool p1"},
	{"KaminoPoolUnreadable", "once", []series{{`kamino_pool_readable{pool="p1"}`, func(s time.Duration) float64 {
		if s == time.Hour {
			return 0
		}
		return 1
	}}}, -1, 0, ""},
	{"KaminoAbsent", "the process is gone", []series{from(`kamino_build_info{version="1"}`, time.Hour, 1, gone)}, 94 * time.Minute, 0, "Kamino is not scraped"},
	{"KaminoAbsent", "it is there", []series{always(`kamino_build_info{version="1"}`, 1)}, -1, 0, ""},
}

func load(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	groups, bad := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), nil)
	for _, err := range bad {
		t.Fatal(err)
	}
	out := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			out[r.Alert] = r
		}
	}
	return out
}

// TestAlerts: each fires when it should, for as long as it should, and says what happened.
func TestAlerts(t *testing.T) {
	rules, tested := load(t), map[string]int{}
	for _, tt := range cases {
		rule, ok := rules[tt.alert]
		if !ok {
			t.Fatalf("there is no alert %s", tt.alert)
		}
		if tt.first >= 0 {
			tested[tt.alert] |= 1
		} else {
			tested[tt.alert] |= 2
		}
		t.Run(tt.alert+"/"+tt.name, func(t *testing.T) {
			last := tt.last
			if last == 0 {
				last = hours
			}
			w := world{stored(t, tt.in), promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})}
			var since time.Duration = -1
			for now := time.Duration(0); now <= hours; now += time.Minute {
				found := w.eval(t, rule.Expr, now)
				if len(found) == 0 {
					since = -1
				} else if since < 0 {
					since = now
				}
				fires := since >= 0 && now-since >= time.Duration(rule.For)
				if want := tt.first >= 0 && now >= tt.first && now <= last; fires != want {
					t.Fatalf("after %s: fires is %v, want %v (%v)", now, fires, want, found)
				}
				if fires && now == tt.first {
					if got := w.expand(t, rule.Annotations["summary"], found[0], now); got != tt.summary {
						t.Errorf("says %q, want %q", got, tt.summary)
					}
					if got := w.expand(t, rule.Annotations["description"], found[0], now); strings.Contains(got, "{{") || strings.Contains(got, "no value") {
						t.Errorf("says %q", got)
					}
				}
			}
		})
	}
	for name := range rules {
		if tested[name] != 3 && name != "" {
			t.Errorf("alert %s needs a case in which it fires, and one in which it does not", name)
		}
	}
}

// TestRunbook: each alert says what to type, and its section of the runbook is there.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(runbook)
	if err != nil {
		t.Fatal(err)
	}
	for name, rule := range load(t) {
		if !regexp.MustCompile(`"(kamino|kubectl) [^"]+"`).MatchString(rule.Annotations["description"]) {
			t.Errorf("%s does not say what to type", name)
		}
		if want := "docs/runbook.md#" + strings.ToLower(name); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s links %q, want %q", name, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(text), "\n### "+name+"\n") {
			t.Errorf("the runbook has no section %s", name)
		}
		if !slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s has severity %q", name, rule.Labels["severity"])
		}
	}
}

// world is what Prometheus has scraped, and its engine.
type world struct {
	storage.Queryable
	engine *promql.Engine
}

func (w world) eval(t *testing.T, expr string, now time.Duration) promql.Vector {
	t.Helper()
	query, err := w.engine.NewInstantQuery(t.Context(), w, nil, expr, start.Add(now))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(vector)
}

// expand is what Prometheus makes of an annotation.
func (w world) expand(t *testing.T, text string, sample promql.Sample, now time.Duration) string {
	t.Helper()
	head := "{{$labels := .Labels}}{{$value := .Value}}"
	data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
	expanded, err := template.NewTemplateExpander(t.Context(), head+text, "x", data, model.Time(timestamp.FromTime(start.Add(now))), nil, &url.URL{}, nil).Expand()
	if err != nil {
		t.Fatal(err)
	}
	return expanded
}

// stored keeps series as a database does.
func stored(t *testing.T, in []series) storage.Queryable {
	t.Helper()
	var all []storage.Series
	p := parser.NewParser(parser.Options{})
	for _, s := range in {
		metric, err := p.ParseMetric(s.metric)
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for now := time.Duration(0); now <= hours; now += time.Minute {
			if v := s.value(now); !math.IsNaN(v) {
				samples = append(samples, sample{at: timestamp.FromTime(start.Add(now)), value: v})
			}
		}
		all = append(all, storage.NewListSeries(metric, samples))
	}
	return storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return kept{all}, nil })
}

// sample is a number at a moment.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                    { return s.at }
func (s sample) F() float64                  { return s.value }
func (sample) ST() int64                     { return 0 }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

// kept selects series.
type kept struct{ all []storage.Series }

func (k kept) Select(_ context.Context, _ bool, _ *storage.SelectHints, by ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, s := range k.all {
		if !slices.ContainsFunc(by, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
			found = append(found, s)
		}
	}
	return &set{found: found, at: -1}
}

func (kept) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (kept) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (kept) Close() error { return nil }

// set is what was selected.
type set struct {
	found []storage.Series
	at    int
}

func (s *set) Next() bool                      { s.at++; return s.at < len(s.found) }
func (s *set) At() storage.Series              { return s.found[s.at] }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }
