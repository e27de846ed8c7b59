package controller

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	served "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

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
	// Defaults are the options that a prototype leaves out. Patch is used where spec.patch is
	// silent.
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

// leaderLease is the lease of the leading process, in the namespace of the pools' leases.
const leaderLease = "kamino-controller"

// workers is how many prototypes are processed in parallel.
const workers = 8

// Run keeps the pools of all NodePrototypes up to date until ctx ends. Of several processes, one
// leads and does the work.
func Run(ctx context.Context, o Options) error {
	logger := logr.FromSlogHandler(orderly{o.Log.Handler(), ctx})
	log.SetLogger(logger)
	scheme, err := kinds()
	if err != nil {
		return err
	}
	config := rest.CopyConfig(o.Config)
	config.QPS = -1 // the server's priority and fairness is the limit that matters
	renew, retry := o.LeaseTime*2/3, o.LeaseTime/8
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: logger, Cache: caches(),
		LeaderElection: true, LeaderElectionID: leaderLease, LeaderElectionNamespace: kamino.SystemNamespace,
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &o.LeaseTime, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: server.Options{BindAddress: o.Metrics, SecureServing: true, FilterProvider: func(config *rest.Config, client *http.Client) (server.Filter, error) {
			return authenticated(config, client, o.Engine.Clock.Now)
		}},
		HealthProbeBindAddress:  o.Health,
		GracefulShutdownTimeout: &o.Grace,
	})
	if err != nil {
		return fmt.Errorf("start controller: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), served.Registry, o)
	if err := r.setUp(mgr); err != nil {
		return err
	}
	seen := newSightings(o.Engine.Clock.Now, mgr.GetCache())
	if err := mgr.Add(seen); err != nil {
		return err
	}
	o.Engine.Sighted = seen.since
	return mgr.Start(ctx)
}

// kinds returns the kinds that the controller reads and writes.
func kinds() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	return scheme, nil
}

func newReconciler(api client.Client, registry prometheus.Registerer, o Options) *reconciler {
	seen := *o.Engine
	seen.Cluster = sightseer{o.Cluster, api}
	o.Defaults.MaxAway = o.MaxDonors
	count := metrics.NewRuns(registry, o.Version)
	registry.MustRegister(o.Requests)
	tell := &teller{log: o.Log, record: o.Cluster.RecordOnce, again: o.Resync, told: map[string]*told{}, clock: o.Engine.Clock,
		patch: func(ctx context.Context, name string, patch client.Patch) error {
			return api.Patch(ctx, &v1alpha1.NodePrototype{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
		}}
	if o.Notify != nil {
		tell.send = o.Notify.Send
	}
	return &reconciler{
		client: api, engine: o.Engine, seen: &seen, base: o.Defaults, opts: o,
		pace:  newPace(o.PerSecond, workers),
		views: map[string]view{}, watches: map[kamino.PoolID]watching{},
		runs: &runs{engine: o.Engine, log: o.Log, report: o.Engine.Report, turns: make(chan struct{}, o.MaxDonors), of: map[string]*run{},
			ended: func(_, pool string, results []engine.PoolResult, err error) { count.Ended(pool, results, err) }},
		metrics: count, teller: tell,
	}
}

// caches are the options of the informers: of nodes the fields that passes read, of leases the
// metadata of the pools' leases, and the namespace with the stop switch.
func caches() cache.Options {
	pools := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "kamino"})
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}:            {Transform: trimNode},
		leaseMeta():               {Label: pools, Namespaces: map[string]cache.Config{kamino.SystemNamespace: {}}, Transform: trimLease},
		&corev1.Namespace{}:       {Field: fields.OneTermEqualSelector("metadata.name", kamino.SystemNamespace), Transform: cache.TransformStripManagedFields()},
		&v1alpha1.NodePrototype{}: {Transform: cache.TransformStripManagedFields()},
	}}
}

func leaseMeta() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	return m
}

// setUp defines what starts a pass: a change of the prototype; of the nodes and leases of its pool;
// of the stop switch; and a report of a run.
func (r *reconciler) setUp(mgr manager.Manager) error {
	wakes := make(chan event.GenericEvent, 1024)
	r.runs.wake = func(name string) {
		go func() { // the reporter holds locks
			ctx, cancel := r.engine.Clock.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			select {
			case wakes <- event.GenericEvent{Object: &v1alpha1.NodePrototype{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
			case <-ctx.Done(): // the next pass sees it
			}
		}()
	}
	if err := mgr.Add(r.runs); err != nil {
		return err
	}
	every := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return r.all(ctx) })
	return builder.ControllerManagedBy(mgr).Named("nodeprototype").
		For(&v1alpha1.NodePrototype{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, statusGone))).
		Watches(&v1alpha1.NodePrototype{}, every, builder.WithPredicates(otherPool)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(r.census.nodeChanges())).
		WatchesMetadata(leaseMeta(), handler.EnqueueRequestsFromMapFunc(r.ofLease), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&corev1.Namespace{}, every, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WatchesRawSource(source.Channel(wakes, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			if o.GetName() == "" {
				return r.all(ctx)
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: o.GetName()}}}
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// statusGone matches an update in which somebody has removed the status.
var statusGone = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*v1alpha1.NodePrototype)
	is, ok2 := e.ObjectNew.(*v1alpha1.NodePrototype)
	return ok && ok2 && was.Status.ObservedGeneration != 0 && is.Status.ObservedGeneration == 0
}}

// otherPool matches changes that may affect the prototypes of other pools, because two prototypes
// may name one pool.
var otherPool = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.NodePrototype)
		is, ok2 := e.ObjectNew.(*v1alpha1.NodePrototype)
		return ok && ok2 && (was.Spec.Pool != is.Spec.Pool || fmt.Sprint(was.Spec.NodeSelector) != fmt.Sprint(is.Spec.NodeSelector))
	},
}

// all returns a request for every prototype.
func (r *reconciler) all(ctx context.Context) (out []reconcile.Request) {
	var list v1alpha1.NodePrototypeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // the list is only read
		return nil // the cache is not ready, and every prototype gets a pass once it is
	}
	for _, p := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
	}
	return out
}

// of returns requests for the prototypes of a pool, as far as they are known, and for those whose
// pool is unknown.
func (r *reconciler) of(ctx context.Context, pool kamino.PoolID) (out []reconcile.Request) {
	for _, req := range r.all(ctx) {
		r.mu.Lock()
		seen, ok := r.views[req.Name]
		r.mu.Unlock()
		if !ok || strings.EqualFold(string(seen.pool), string(pool)) {
			out = append(out, req)
		}
	}
	return out
}

func (r *reconciler) ofNode(ctx context.Context, o client.Object) []reconcile.Request {
	n, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	pool, err := r.engine.Provider.PoolOf(ctx, kamino.InstanceID(n.Spec.ProviderID))
	if err != nil {
		return nil
	}
	return r.of(ctx, pool)
}

func (r *reconciler) ofLease(ctx context.Context, o client.Object) []reconcile.Request {
	return r.of(ctx, kube.PoolOfLease(o.GetAnnotations()))
}

// trimLease keeps of a pool's lease only what shows that its run has progressed.
func trimLease(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	m.ManagedFields = nil
	kube.TrimLease(m.Annotations)
	return m, nil
}
