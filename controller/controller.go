package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/notify"
)

// Options of Run. Engine, Cluster, Config and Log must be set.
type Options struct {
	Engine  *engine.Engine // its Cluster is the one below, and its Clock is set
	Cluster *kube.Cluster
	Config  *rest.Config
	Log     *slog.Logger
	// Defaults are the options that a prototype leaves out.
	Defaults kamino.AutoOptions
	// TrustProbesIn are the namespaces in which the Job of a prototype's probe is not restricted.
	TrustProbesIn []string
	MaxDonors     int           // how many donors may be away in the cluster at the same time, at least 1
	Resync        time.Duration // interval between two passes of a prototype without events
	Retry         time.Duration // wait after a failed run; doubled with each further failure, up to 12 h
	// PerSecond is how many passes a second may read the cloud, for all pools together.
	PerSecond float32
	// Look makes the contexts of looks at many pools, whose calls may share reads. It is called
	// anew each minute. Nil: nothing is shared.
	Look func() func(context.Context) context.Context
	// Grace is how long the end of the process waits for donors to come back. Donors that are away
	// then are restored by the next process.
	Grace time.Duration
	// LeaseTime is how long a leader keeps the lead without renewing it.
	LeaseTime time.Duration
	Version   string // of this program
	// Notify sends notifications; nil: none are sent.
	Notify *notify.Notifier
	// Requests counts the requests to the cloud, as the engine's provider reports them.
	Requests metrics.Requests
	// Metrics and Health are addresses to listen on; "0": do not listen.
	Metrics, Health string
}

// workers is how many prototypes are processed in parallel.
const workers = 8

// Run keeps the pools of all NodePrototypes up to date until ctx ends. Of several processes one is
// the leader and does the work.
func Run(ctx context.Context, o Options) error {
	api, err := connect(o.Config)
	if err != nil {
		return err
	}
	known, err := api.inform()
	if err != nil {
		return err
	}
	registry := newRegistry()
	closing, err := serve(ctx, o, api, registry)
	if err != nil {
		return err
	}
	defer closing()
	r := newReconciler(known, registry, o)
	seen := newSightings(o.Engine.Clock.Now)
	if _, err := known.leases.AddEventHandler(seen); err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	o.Engine.Sighted = seen.since
	informers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { known.leases.RunWithContext(informers) }) // processes on standby watch leases too
	e := &election{seat: api, clock: o.Engine.Clock, log: o.Log, me: o.Engine.Process + "_" + rand.Text(), lasts: o.LeaseTime}
	return e.lead(ctx, o.Grace, func(ctx context.Context) { r.keep(ctx, known, &running, informers) })
}

// keep makes passes until ctx ends. It returns when the runs that it started have ended.
func (r *reconciler) keep(ctx context.Context, known *informed, running *sync.WaitGroup, informers context.Context) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	if err := r.follow(known, queue); err != nil {
		r.opts.Log.Error("watch the cluster", "error", err)
		return
	}
	for _, informer := range []cache.SharedIndexInformer{known.prototypes, known.nodes, known.namespace} {
		running.Go(func() { informer.RunWithContext(informers) })
	}
	if cache.WaitForCacheSync(ctx.Done(), known.prototypes.HasSynced, known.nodes.HasSynced, known.namespace.HasSynced,
		known.leases.HasSynced) {
		for range workers {
			running.Go(func() {
				for r.next(ctx, queue) {
				}
			})
		}
		r.runs.start(ctx)
	}
	<-ctx.Done()
	queue.ShutDown()
	r.runs.busy.Wait()
}

// next makes the next pass that is due. It returns false when the queue has shut down.
func (r *reconciler) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	name, over := queue.Get()
	if over {
		return false
	}
	defer queue.Done(name)
	switch again, err := r.guarded(ctx, name); {
	case err != nil:
		r.opts.Log.Error("reconcile", "prototype", name, "error", err, "hint", kamino.Hint(err))
		queue.AddRateLimited(name)
	case again > 0:
		queue.Forget(name)
		queue.AddAfter(name, again)
	default:
		queue.Forget(name)
	}
	return true
}

// guarded is Reconcile, with a panic as an error: a defect in the pass of one prototype must not end
// the runs of other prototypes.
func (r *reconciler) guarded(ctx context.Context, name string) (again time.Duration, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("panic: %v\n%s", what, debug.Stack())
		}
	}()
	return r.Reconcile(ctx, name)
}

func newReconciler(api objects, registry prometheus.Registerer, o Options) *reconciler {
	seen := *o.Engine
	seen.Cluster = sightseer{o.Cluster, api}
	o.Defaults.MaxAway = o.MaxDonors
	count := metrics.NewRuns(registry, o.Version)
	registry.MustRegister(o.Requests)
	tell := &teller{log: o.Log, record: o.Cluster.RecordOnce, again: o.Resync, told: map[string]*told{}, clock: o.Engine.Clock,
		patch: func(ctx context.Context, name string, patch []byte) error { return api.Patch(ctx, name, patch) }}
	if o.Notify != nil {
		tell.send = o.Notify.Send
	}
	return &reconciler{
		objects: api, engine: o.Engine, seen: &seen, base: o.Defaults, opts: o,
		pace:  newPace(o.PerSecond, workers),
		views: map[string]view{}, watches: map[kamino.PoolID]watching{},
		runs: &runs{engine: o.Engine, log: o.Log, report: o.Engine.Report, turns: make(chan struct{}, o.MaxDonors), of: map[string]*run{},
			ended: func(_, pool string, results []engine.PoolResult, err error) { count.Ended(pool, results, err) }},
		metrics: count, teller: tell,
	}
}

// follow registers what starts a pass: changes of the prototype, of nodes and leases of its pool, of
// the stop switch, and reports of runs.
func (r *reconciler) follow(known *informed, queue workqueue.TypedRateLimitingInterface[string]) error {
	enqueue := func(names []string) {
		for _, name := range names {
			queue.Add(name)
		}
	}
	every := func() { enqueue(r.all()) }
	r.runs.wake = func(name string) {
		if name == "" {
			every()
		} else {
			queue.Add(name)
		}
	}
	ofNode := func(n *corev1.Node) {
		if pool, err := r.engine.Provider.PoolOf(context.Background(), kamino.InstanceID(n.Spec.ProviderID)); err == nil {
			enqueue(r.of(pool))
		}
	}
	ofLease := func(m *metav1.PartialObjectMetadata) { enqueue(r.of(kube.PoolOfLease(m.Annotations))) }
	_, e1 := known.prototypes.AddEventHandler(handler(
		func(p *v1alpha1.NodePrototype, initial bool) {
			if queue.Add(p.Name); !initial {
				every()
			}
		},
		func(was, is *v1alpha1.NodePrototype) {
			if was.Generation != is.Generation || !maps.Equal(was.Annotations, is.Annotations) || statusGone(was, is) {
				queue.Add(is.Name)
			}
			if otherPool(was, is) {
				every()
			}
		},
		func(p *v1alpha1.NodePrototype) { queue.Add(p.Name); every() }))
	_, e2 := known.nodes.AddEventHandler(handler(
		func(n *corev1.Node, initial bool) {
			if r.census.came(initial) {
				ofNode(n)
			}
		},
		func(was, is *corev1.Node) {
			if r.census.changed(was, is) {
				ofNode(is)
			}
		},
		func(n *corev1.Node) { r.census.stale.Store(true); ofNode(n) }))
	_, e3 := known.leases.AddEventHandler(handler(
		func(m *metav1.PartialObjectMetadata, _ bool) { ofLease(m) },
		func(was, is *metav1.PartialObjectMetadata) {
			if !maps.Equal(was.Annotations, is.Annotations) {
				ofLease(is)
			}
		}, ofLease))
	_, e4 := known.namespace.AddEventHandler(handler(
		func(*corev1.Namespace, bool) { every() },
		func(was, is *corev1.Namespace) {
			if !maps.Equal(was.Annotations, is.Annotations) {
				every()
			}
		},
		func(*corev1.Namespace) { every() }))
	return errors.Join(e1, e2, e3, e4)
}

// handler is an informer's event handler for objects of one type. Of a deletion that the watch
// missed it gets the last known state.
func handler[T any](added func(object T, initial bool), updated func(was, is T), deleted func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if o, ok := object.(T); ok {
				added(o, initial)
			}
		},
		UpdateFunc: func(before, object any) {
			was, ok := before.(T)
			if is, ok2 := object.(T); ok && ok2 {
				updated(was, is)
			}
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if o, ok := object.(T); ok {
				deleted(o)
			}
		},
	}
}

// statusGone reports whether somebody has removed the status.
func statusGone(was, is *v1alpha1.NodePrototype) bool {
	return was.Status.ObservedGeneration != 0 && is.Status.ObservedGeneration == 0
}

// otherPool reports whether the prototype names another pool now, which other prototypes may name too.
func otherPool(was, is *v1alpha1.NodePrototype) bool {
	return was.Spec.Pool != is.Spec.Pool || !maps.Equal(was.Spec.NodeSelector, is.Spec.NodeSelector)
}

// all returns the names of all prototypes.
func (r *reconciler) all() (out []string) {
	list, err := r.objects.Prototypes(context.Background())
	if err != nil {
		return nil // an informer returns no error
	}
	for _, p := range list {
		out = append(out, p.Name)
	}
	return out
}

// of returns requests for the prototypes of a pool, as far as they are known, and for those whose
// pool is unknown.
func (r *reconciler) of(pool kamino.PoolID) (out []string) {
	for _, name := range r.all() {
		r.mu.Lock()
		seen, ok := r.views[name]
		r.mu.Unlock()
		if !ok || strings.EqualFold(string(seen.pool), string(pool)) {
			out = append(out, name)
		}
	}
	return out
}
