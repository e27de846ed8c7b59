package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/controller"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/kube"
)

// prototype is the name of the only NodePrototype.
const prototype = "pool1"

// keptShape is the world in which a controller keeps the pool.
func keptShape() Shape {
	return Shape{Name: "kept by a controller", Kept: true}
}

var errNeverReady = errors.New("its time is over")

// keep begins a controller without a manager, which ends when the prototype is up to date. It is a
// goroutine also where others are processes: what a manager does has no virtual time.
func (w *World) keep(p *Process) *Process {
	w.begin(p, func(ctx context.Context, e *engine.Engine) error {
		cluster, ok := e.Cluster.(*kube.Cluster)
		if !ok {
			return errors.New("the controller needs an API server")
		}
		e.Threads = func(n int, body func(*engine.Engine, int)) { // there is one pool
			for i := range n {
				body(e, i)
			}
		}
		ctx, cancel := context.WithCancelCause(ctx)
		w.clock.virtual.AfterFunc(runLimit, func() { cancel(errNeverReady) }) // a controller does not give up by itself
		o := kamino.AutoDefaults()
		o.Options = w.options()
		o.Donor, o.Rules.MinReady = "", 0
		return controller.Alone(ctx, controller.Options{Engine: e, Cluster: cluster, Config: p.config(), Log: slog.New(slog.DiscardHandler),
			Defaults: o, MaxDonors: 1,
			Resync: 5 * time.Minute, Retry: 15 * time.Minute, PerSecond: 100, Version: "crash", Requests: metrics.NewRequests()}, prototype,
			v1alpha1.ReasonUpToDate)
	})
	return p
}

// kind makes the API server know NodePrototypes.
func (s *Station) kind(ctx context.Context) error {
	client, err := dynamic.NewForConfig(s.cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(charts.Kind, &crd.Object); err != nil {
		return fmt.Errorf("read the kind: %w", err)
	}
	kinds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if _, err := kinds.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the kind: %w", err)
	}
	s.protos = client.Resource(v1alpha1.GroupVersion.WithResource("nodeprototypes"))
	for { // it is served a moment later
		if _, err = s.protos.List(ctx, metav1.ListOptions{}); err == nil || !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// declare makes the prototype of the pool, which proves nothing.
func (w *World) declare() error {
	_, err := w.station.protos.Create(w.ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":     "NodePrototype",
		"metadata": map[string]any{"name": prototype}, "spec": map[string]any{"pool": poolName,
			"prove": map[string]any{"mode": string(v1alpha1.ProveNone)}}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the prototype: %w", err)
	}
	return nil
}

// keptRivals are who else works on a pool that a controller keeps: the rivals of commands are
// another controller here, and a command is a rival of its own.
func keptRivals() (out []worlds.Rival) {
	for _, r := range worlds.Rivals() {
		switch r.Name {
		case "a second kamino, same donor", "a second kamino, same donor, while this process is frozen", "a restore",
			"a restore while this process is frozen", "the API is away for two minutes",
			"a person deletes the lease":
			out = append(out, r)
		}
	}
	command := func(to worlds.World, donor, _ string) {
		w := to.(*World)
		o := w.options()
		o.Donor = donor
		w.update(w.prepare(nil), o)
	}
	return append(out,
		worlds.Rival{Name: "a command", Column: "8", Same: true, Act: command},
		worlds.Rival{Name: "a command while this process is frozen", Column: "8", Same: true, Act: command, Freeze: worlds.Frozen},
		worlds.Rival{Name: "a second controller and a command", Column: "8", Same: true, Act: func(to worlds.World, donor, other string) {
			to.Update(donor)
			command(to, donor, other)
		}},
		worlds.Rival{Name: "the API is away for ten minutes", Column: "3", Same: true,
			Act: func(w worlds.World, _, _ string) { w.CutAPI(10 * time.Minute) }},
		worlds.Rival{Name: "the prototype is deleted and made again", Column: "11", Same: true,
			Act: func(to worlds.World, _, _ string) { to.(*World).redeclare() }},
	)
}

// redeclare is a person who applies the prototype anew.
func (w *World) redeclare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check("delete the prototype", w.station.protos.Delete(w.ctx, prototype, metav1.DeleteOptions{}))
	w.check("declare", w.declare())
}
