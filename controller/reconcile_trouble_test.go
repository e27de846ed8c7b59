package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
)

// interrupted is a cluster in which an ended process has left the donor of a pool off.
type interrupted struct {
	kamino.Cluster
	kamino.Examiner
	renewed time.Time
	taken   func(kamino.Lease) // by whoever writes the lease
}

func (i interrupted) Lease(context.Context, kamino.PoolID) (kamino.Lease, error) {
	return kamino.Lease{Pool: "/pools/p", Holder: "r1", Process: "gone", Revision: "7", Renewed: i.renewed,
		Record: kamino.Record{Donor: "n1", Step: "stop", Sealing: true, Started: now.Add(-time.Hour), AwaySince: now.Add(-time.Hour)}}, nil
}

func (i interrupted) Leases(ctx context.Context) ([]kamino.Lease, error) {
	l, err := i.Lease(ctx, "")
	return []kamino.Lease{l}, err
}

func (i interrupted) SetLease(ctx context.Context, l kamino.Lease) (kamino.Lease, error) {
	i.taken(l)
	return kamino.Lease{}, context.Cause(ctx)
}

func (interrupted) Nodes(context.Context) ([]kamino.Node, error) {
	return []kamino.Node{{Name: "n1", ProviderID: "i-1"}}, nil
}

func (interrupted) Paused(context.Context) (kamino.Pause, error) { return kamino.Pause{}, nil }

// onePool is a cloud with that pool, of which no version was made.
type onePool struct{ kamino.Provider }

func (onePool) PoolOf(context.Context, kamino.InstanceID) (kamino.PoolID, error) {
	return "/pools/p", nil
}

func (onePool) Pool(_ context.Context, id kamino.PoolID) (kamino.Pool, error) {
	return kamino.Pool{ID: id, Name: id.Name()}, nil
}

func (onePool) Find(context.Context, kamino.Pool, kamino.Kind, string) ([]kamino.Artifact, error) {
	return nil, nil
}

func (onePool) Instances(context.Context, kamino.Pool) ([]kamino.InstanceID, error) { return nil, nil }

func (onePool) Homes() []kamino.Kind { return nil }

// declared are the prototypes that the API server has.
type declared struct {
	objects
	all []v1alpha1.NodePrototype
}

func (d declared) Prototypes(context.Context) ([]v1alpha1.NodePrototype, error) { return d.all, nil }

// quick is a clock on which nobody waits.
type quick struct{ at *time.Time }

func (q quick) Now() time.Time { return *q.at }

func (q quick) Sleep(ctx context.Context, d time.Duration) error {
	*q.at = q.at.Add(d)
	return ctx.Err()
}

func (q quick) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// TestTroubledGivesBack: whatever is wrong with a prototype, a donor that an ended process has left
// off is given back, and the status tells of it; nothing else is begun.
func TestTroubledGivesBack(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(p *v1alpha1.NodePrototype, all *[]v1alpha1.NodePrototype)
		renewed time.Time
		start   bool
	}{
		"an unknown time zone": {func(p *v1alpha1.NodePrototype, _ *[]v1alpha1.NodePrototype) {
			p.Spec.Window = &v1alpha1.Window{Start: "02:00", End: "04:00", TimeZone: "Europe/Berlim"}
		}, time.Time{}, true},
		"a second prototype of the pool":             {second, now.Add(-time.Hour), true},
		"a second prototype, and the run is at work": {second, now.Add(-time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.NodePrototype{}
			p.Name, p.Spec.Pool = "blue", "p"
			all := []v1alpha1.NodePrototype{*p}
			tt.change(p, &all)
			at := now
			ctx, cancel := context.WithCancel(t.Context())
			var took []kamino.Lease
			e := &engine.Engine{Provider: onePool{}, Clock: quick{&at}, Process: "me",
				Cluster: interrupted{renewed: tt.renewed, taken: func(l kamino.Lease) { took = append(took, l); cancel() }}}
			r := &reconciler{engine: e, seen: e, objects: declared{all: all}, base: kamino.AutoDefaults(), pace: newPace(10, 8),
				views: map[string]view{}, watches: map[kamino.PoolID]watching{}, metrics: metrics.NewRuns(prometheus.NewRegistry(), ""),
				runs: &runs{engine: e, on: ctx, log: slog.New(slog.DiscardHandler), of: map[string]*run{}, turns: make(chan struct{}, 1),
					wake: func(string) {}, report: func(kamino.Event) {}, ended: func(string, string, []engine.PoolResult, error) {}}}
			w, pool, err := r.look(ctx, p, kamino.AutoDefaults(), nil)
			if err != nil || w.trouble == nil || pool != "/pools/p" {
				t.Fatal(err, w.trouble, pool)
			}
			v := derive(p, w)
			if v.start != tt.start || !v.back || v.status.Donor != "n1" || v.status.Run == nil || v.status.Run.ID != "r1" {
				t.Errorf("%s: starts: %t, gives back only: %t; donor %q, run %+v", w.trouble.text, v.start, v.back, v.status.Donor, v.status.Run)
			}
			if !tt.start {
				return
			}
			r.runs.begin(p.Name, kamino.AutoOptions{Pools: []string{string(pool)}}, v.back) // auto-update refuses these
			r.runs.busy.Wait()
			if len(took) == 0 || took[0].Holder != "r1" || took[0].Process != "me" {
				t.Errorf("run r1 is not adopted, but %+v: %v", took, r.runs.get(p.Name).err)
			}
		})
	}
}

func second(_ *v1alpha1.NodePrototype, all *[]v1alpha1.NodePrototype) {
	p := v1alpha1.NodePrototype{}
	p.Name, p.Spec.Pool = "copy", "p"
	*all = append(*all, p)
}
