package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// reconciler asks the engine for each prototype what auto-update would do.
type reconciler struct {
	objects objects
	engine  *engine.Engine // reads the API server itself
	seen    *engine.Engine // reads nodes from the informer
	base    kamino.AutoOptions
	opts    Options
	runs    *runs
	teller  *teller
	census  census
	pace    *pace // of passes that read the cloud, shared by all pools

	mu      sync.Mutex
	views   map[string]view            // by prototype
	watches map[kamino.PoolID]watching // watches of versions that were promoted recently
	metrics *metrics.Runs
	looked  time.Time // when the shared context was made
	glance  func(context.Context) context.Context
}

// view is what a pass read, and of which pool.
type view struct {
	generation int64
	at         time.Time
	pool       kamino.PoolID
	poolstate.PoolView
}

// Reconcile makes one pass. A pass that the end of the process interrupts is no error: the next
// process makes it again.
func (r *reconciler) Reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	again, err = r.pass(ctx, name)
	if ctx.Err() != nil {
		return 0, nil
	}
	return again, err
}

func (r *reconciler) pass(ctx context.Context, name string) (time.Duration, error) {
	p, err := r.objects.Prototype(ctx, name)
	if apierrors.IsNotFound(err) {
		r.forget(name)
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	if p.DeletionTimestamp != nil {
		return 0, nil
	}
	opts, err := optionsOf(r.base, r.opts.TrustProbesIn, p.Spec)
	if err != nil {
		err = troubled(v1alpha1.ReasonInvalid, "%v", err)
	}
	w, pool, err := r.look(ctx, p, opts, err)
	if err == nil {
		err = r.promote(ctx, p, pool, &w)
	}
	if wait := laterError(0); errors.As(err, &wait) {
		return time.Duration(wait), nil
	} else if err != nil {
		return 0, err
	}
	v := derive(p, w)
	if err := r.write(ctx, p, v.status); err != nil {
		return 0, err
	}
	if v.start {
		opts.Pools = []string{string(pool)}
		if !w.patchDue {
			opts.Patch = nil
		}
		r.runs.begin(p.Name, opts, v.back)
	}
	r.tell(ctx, p, w)
	r.watch(p.Name, p.Spec, w, pool, opts)
	return r.again(p.Name, v.wake), nil
}

// tell reports what happened. Services are notified in the background, because they may hang.
func (r *reconciler) tell(ctx context.Context, p *v1alpha1.NodePrototype, w world) {
	leading := r.runs.context()
	all, whole := news(w)
	out := r.teller.tell(ctx, p, all, whole, w.now, leading != nil && leading.Err() == nil)
	if len(out) > 0 {
		p := p.DeepCopy()
		r.runs.busy.Go(func() { r.teller.deliver(leading, p, out) })
	}
}

// look reads the world. A problem of the prototype or its pool is part of the result; an error is
// only something that another try may solve.
func (r *reconciler) look(ctx context.Context, p *v1alpha1.NodePrototype, opts kamino.AutoOptions, wrong error) (w world,
	pool kamino.PoolID, err error) {
	w = world{now: r.engine.Clock.Now(), own: r.runs.get(p.Name), maxAge: opts.MaxImageAge, retry: r.opts.Retry, turn: r.runs.free()}
	window, err := parseWindow(p.Spec.Window)
	if err != nil && wrong == nil {
		wrong = troubled(v1alpha1.ReasonInvalid, "spec.window: %v", err)
	}
	w.window, w.hours = window.at(w.now), window
	pool, err = r.poolOf(ctx, p)
	if wrong == nil {
		wrong = err
	} else {
		opts = r.base // the spec may be the problem
	}
	if pool != "" { // despite the problem, a run may have a donor of the pool
		w.view, err = r.view(ctx, p, pool, opts)
		if other := (*problem)(nil); wrong == nil || err != nil && !errors.As(err, &other) {
			wrong = err
		}
	}
	if wrong != nil {
		if !errors.As(wrong, &w.trouble) {
			return w, pool, wrong
		}
		return w, pool, nil
	}
	w.warning = r.warning(pool, w.view.Status.Next)
	w.patchDue = p.Spec.Patch != nil && w.window.open && lastPatch(w).Before(patchedBy(w))
	return w, pool, nil
}

// poolOf returns the pool of a prototype. If another prototype has the same pool, it also returns
// an error.
func (r *reconciler) poolOf(ctx context.Context, p *v1alpha1.NodePrototype) (kamino.PoolID, error) {
	k, err := r.known(ctx)
	if err != nil {
		return "", err
	}
	pool, err := k.find(p.Spec, func() ([]kamino.Lease, error) { return r.engine.Cluster.Leases(ctx) })
	if err != nil {
		return "", err
	}
	all, err := r.objects.Prototypes(ctx)
	if err != nil {
		return "", err
	}
	if others := k.others(p.Name, pool, all); len(others) > 0 {
		return pool, troubled(v1alpha1.ReasonConflict, "prototype %s also names pool %s: delete all but one",
			strings.Join(others, ", "), pool.Name())
	}
	return pool, nil
}

// laterError: other pools have their turn first.
type laterError time.Duration

func (e laterError) Error() string { return "wait for " + time.Duration(e).String() }

// fresh is how long the view of a pool with a running run is used. Its lease is read each time, and
// nothing else is decided meanwhile.
const fresh = time.Minute

func (r *reconciler) view(ctx context.Context, p *v1alpha1.NodePrototype, pool kamino.PoolID, opts kamino.AutoOptions) (poolstate.PoolView,
	error) {
	r.mu.Lock()
	last := r.views[p.Name]
	r.mu.Unlock()
	now := r.engine.Clock.Now()
	if own := r.runs.get(p.Name); own != nil && own.running && last.generation == p.Generation && last.pool == pool &&
		now.Sub(last.at) < fresh {
		lease, err := r.engine.Cluster.Lease(ctx, pool)
		if err != nil {
			return poolstate.PoolView{}, fmt.Errorf("read lease of pool %s: %w", pool.Name(), err)
		}
		last.Status.Unfinished = lease.Unfinished(now)
		return last.PoolView, nil
	}
	// A changed prototype does not wait behind regular passes.
	changed := last.generation != 0 && last.generation != p.Generation
	if wait := r.pace.wait(p.Name, now, changed); wait > 0 {
		return poolstate.PoolView{}, laterError(wait)
	}
	k, err := r.known(ctx)
	if err != nil {
		return poolstate.PoolView{}, err
	}
	seen := *r.seen
	seen.Cluster = members{r.seen.Cluster.(viewed), k.nodesOf(pool)}
	got, err := seen.View(r.sharing(ctx, now), pool, opts)
	if err != nil {
		return got, err
	}
	r.mu.Lock()
	r.views[p.Name] = view{p.Generation, now, pool, got}
	r.mu.Unlock()
	r.metrics.Set(p.Name, got.Status)
	switch {
	case got.Gone:
		return got, troubled(v1alpha1.ReasonPoolNotFound, "%s", got.Status.Error)
	case got.Status.Error != "":
		return got, troubled(v1alpha1.ReasonUnreadable, "%s", got.Status.Error)
	}
	return got, nil
}

// sharing returns the context that the passes of this minute share.
func (r *reconciler) sharing(ctx context.Context, now time.Time) context.Context {
	if r.opts.Look == nil {
		return ctx
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.glance == nil || now.Sub(r.looked) >= fresh {
		r.glance, r.looked = r.opts.Look(), now
	}
	return r.glance(ctx)
}

// patchedBy is the time since which a node must have been patched: when the window opened or,
// without one, a day ago.
func patchedBy(w world) time.Time {
	if w.window.from.IsZero() {
		return w.now.Add(-24 * time.Hour)
	}
	return w.window.from
}

// lastPatch is when a node of the pool was last patched, or this process tried to.
func lastPatch(w world) (last time.Time) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, w.view.Status.Patched); err == nil {
			last = at
			break
		}
	}
	if w.own != nil && w.own.patched.After(last) {
		last = w.own.patched
	}
	return last
}

// promote makes the promotion that the annotation requests, and removes the annotation.
func (r *reconciler) promote(ctx context.Context, p *v1alpha1.NodePrototype, pool kamino.PoolID, w *world) error {
	version, asked := p.Annotations[v1alpha1.AnnotationPromote]
	if !asked || w.trouble != nil {
		return nil
	}
	if w.own != nil && w.own.running {
		return nil // it holds the pool, and its end starts another pass
	}
	_, err := r.engine.PromoteVersion(ctx, engine.PromoteOptions{Pool: string(pool), Version: version})
	if held := (*kamino.HeldError)(nil); errors.As(err, &held) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		w.unpromoted = fmt.Sprintf("annotation %s: %v", v1alpha1.AnnotationPromote, err)
		if hint := kamino.Hint(err); hint != "" {
			w.unpromoted += ": " + hint
		}
		return nil
	}
	done := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationPromote)
	if err := r.objects.Patch(ctx, p.Name, done); err != nil {
		return err
	}
	delete(p.Annotations, v1alpha1.AnnotationPromote)
	r.mu.Lock()
	delete(r.views, p.Name)
	r.mu.Unlock()
	opts, err := optionsOf(r.base, r.opts.TrustProbesIn, p.Spec)
	if err != nil {
		return err
	}
	w.view, err = r.view(ctx, p, pool, opts)
	return err
}

// write writes the status if it changed.
func (r *reconciler) write(ctx context.Context, p *v1alpha1.NodePrototype, status v1alpha1.NodePrototypeStatus) error {
	if equality.Semantic.DeepEqual(p.Status, status) {
		return nil
	}
	patch, err := statusPatch(p.Status, status)
	if err != nil {
		return err
	}
	p.Status = status
	if err := r.objects.Patch(ctx, p.Name, patch, "status"); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// statusPatch is the JSON merge patch from one status to another.
func statusPatch(was, is v1alpha1.NodePrototypeStatus) ([]byte, error) {
	type part struct {
		Status v1alpha1.NodePrototypeStatus `json:"status"`
	}
	before, err := json.Marshal(part{was})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	after, err := json.Marshal(part{is})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	return jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
}

// again returns the time until the next pass without events, with jitter so that passes of many
// prototypes do not coincide.
func (r *reconciler) again(name string, wake time.Time) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	after := r.opts.Resync + r.opts.Resync*time.Duration(h.Sum32()%100)/500
	if !wake.IsZero() {
		after = min(after, max(wake.Sub(r.engine.Clock.Now()), time.Second))
	}
	return after
}

func (r *reconciler) forget(name string) {
	r.runs.forget(name)
	r.teller.forget(name)
	r.pace.forget(name)
	r.metrics.Forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.views, name)
	for pool, one := range r.watches {
		if one.heir == name {
			one.heir = ""
			r.watches[pool] = one
		}
		if one.prototype == name {
			r.unasked(pool)
		}
	}
}

// unasked ends the watch of a pool whose prototype is gone, because nobody asks for a withdrawal
// any more; or hands it to the second prototype. A chart that renames a prototype makes the new one
// first.
func (r *reconciler) unasked(pool kamino.PoolID) {
	one := r.watches[pool]
	if one.heir == "" {
		one.cancel()
		delete(r.watches, pool)
		return
	}
	one.prototype, one.heir = one.heir, ""
	r.watches[pool] = one
}

// watching is a watch of new nodes after a promotion.
type watching struct {
	prototype string // the prototype that asked for it
	heir      string // a second prototype of the pool; "" if none
	version   string
	lasts     time.Duration // duration from the spec at that time
	cancel    context.CancelFunc
	warning   string // the last warning
}

// watch starts the watch of new nodes after a promotion by anybody, for the rest of the time in the
// spec. A process that starts later continues it. If the prototype no longer asks for the watch,
// which might withdraw a version, watch ends it.
func (r *reconciler) watch(name string, spec v1alpha1.NodePrototypeSpec, w world, pool kamino.PoolID, opts kamino.AutoOptions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, one := range r.watches {
		if one.prototype == name && (of != pool || spec.Watch == nil) {
			r.unasked(of)
		}
	}
	if one, on := r.watches[pool]; on && w.trouble != nil && w.trouble.reason == v1alpha1.ReasonConflict && one.prototype != name {
		one.heir = name
		r.watches[pool] = one
	}
	st := w.view.Status
	if w.trouble != nil || spec.Watch == nil || st.Next == "" || w.view.Promoted.IsZero() || st.Kept() != nil {
		return
	}
	d, err := time.ParseDuration(string(*spec.Watch))
	left := d - w.now.Sub(w.view.Promoted)
	leading := r.runs.context()
	if err != nil || leading == nil {
		return
	}
	if was, on := r.watches[pool]; on {
		same := was.version == st.Next && was.lasts == d
		if !same {
			was.cancel()
		}
		was.prototype, was.heir, was.lasts = name, "", d // of two prototypes that shared it for a moment, the present one
		r.watches[pool] = was                            // its last warning is still shown
		if same {
			return
		}
	}
	if left <= 0 {
		return
	}
	ctx, cancel := context.WithCancel(leading)
	r.watches[pool] = watching{prototype: name, version: st.Next, lasts: d, cancel: cancel}
	promoted := engine.PoolResult{Pool: pool, Name: st.Name, Result: &engine.Result{Pool: pool, Version: st.Next, Changed: true}}
	seen := *r.seen
	seen.Report = func(ev kamino.Event) {
		r.runs.report(ev)
		if ev.Kind == kamino.EventWarning && ev.Step == kamino.StepWatch {
			r.warned(pool, st.Next, ev.Message)
			r.runs.wake(name)
		}
	}
	r.runs.busy.Go(func() {
		defer cancel()
		err := seen.Watch(ctx, []engine.PoolResult{promoted}, engine.Watching{For: left, Proof: opts.Proof})
		// A pass that sees the version withdrawn cancels the watch, which is about to report that.
		proof := (*kamino.ProofError)(nil)
		if judged := errors.As(err, &proof); err != nil && (ctx.Err() == nil || judged && leading.Err() == nil) {
			r.opts.Log.Error("watch of new nodes ended", "prototype", name, "version", st.Next, "error", err, "hint", kamino.Hint(err))
			r.runs.ended(name, pool.Name(), nil, err)
			if !judged { // a later pass watches it again
				r.unwatch(pool, st.Next)
				return
			}
			if held := (*kamino.HeldError)(nil); !errors.As(err, &held) { // the ledger reports it
				r.warned(pool, st.Next, "")
			}
		}
		r.runs.wake(name)
	})
}

// warned keeps the last warning of the watch of a version.
func (r *reconciler) warned(pool kamino.PoolID, version, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.watches[pool]; one.version == version {
		one.warning = what
		r.watches[pool] = one
	}
}

// unwatch removes the watch of a version.
func (r *reconciler) unwatch(pool kamino.PoolID, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[pool].version == version {
		delete(r.watches, pool)
	}
}

// warning returns the warning of the watch of the next version. The watch of another version is
// over; if that version is named again, it is watched again.
func (r *reconciler) warning(pool kamino.PoolID, next string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, on := r.watches[pool]
	if on && one.version != next {
		one.cancel()
		delete(r.watches, pool)
	}
	return r.watches[pool].warning
}
