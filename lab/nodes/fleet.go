// Package nodes simulates kubelets which follow the power of an emulator's instances:
// every running instance is a Node of a real API server, with heartbeats, and
// runs the pods bound to it.
//
// What a node is comes from its disk: machine-id, hostname and kubelet's
// credentials. A disk that was not sealed makes its clone register as the
// donor; a sealed one makes it a new node. The simulated kubelets speak to the
// API server as system:node:NAME, so that the node authorizer and the
// NodeRestriction admission judge them as they would judge real ones.
//
// A [Kubelet] is what such a node does to its disk and tells Kubernetes, without time; a [Fleet]
// plays one for each machine that has power, in real time. lab/crash plays the same ones on its
// virtual clock.
//
// KWOK (https://kwok.sigs.k8s.io) is not used: it has one controller that
// heartbeats for every Node object it finds. Here a Node object must fall silent
// when its machine stops, two machines may claim one Node object, and a machine's
// identity changes with its disk; KWOK's stages see the object and cannot know the
// machine. What is left of it after that would be a timer and a status patch.
package nodes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"kamino.dev/kamino/azure/emulator"
)

// Options of Start. Config and Cloud are required.
type Options struct {
	Config *rest.Config // an administrator's
	Cloud  Cloud        // an emulator's Clock and Speed are the nodes' too

	Latencies Latencies
	// Heartbeat is the period of a node's Lease in real time; 0 means 2 s. It is
	// stretched to 10 ms a node in large fleets. Node status follows every five.
	Heartbeat time.Duration
	// Abrupt makes a machine that is asked to shut down fall silent, as one whose
	// power is cut. Otherwise its kubelet says NotReady before it ends.
	Abrupt bool

	Logger *slog.Logger // nil discards
}

// Latencies of nodes, on the emulator's clock, divided by its Speed. A zero
// field means the default, a negative one no time at all. All are assumed; the
// two boots are what Kamino's seeds report.
type Latencies struct {
	Boot      time.Duration // 60 s, from power on to kubelet of a disk that was a node before
	Bootstrap time.Duration // 240 s, of a generic image: cloud-init, extension script, TLS bootstrap
	PodStart  time.Duration // 3 s, from bound to ready
	PodStop   time.Duration // 1 s, at most the pod's grace period
	Seal      time.Duration // 5 s, from running to receipt
	Patch     time.Duration // 90 s, of the package manager
}

// NoLatency makes everything happen at once.
func NoLatency() Latencies {
	return Latencies{Boot: -1, Bootstrap: -1, PodStart: -1, PodStop: -1, Seal: -1, Patch: -1}
}

func (l Latencies) withDefaults() Latencies {
	pick := func(d, otherwise time.Duration) time.Duration {
		if d == 0 {
			d = otherwise
		}
		return max(d, 0)
	}
	return Latencies{
		Boot:      pick(l.Boot, 60*time.Second),
		Bootstrap: pick(l.Bootstrap, 240*time.Second),
		PodStart:  pick(l.PodStart, 3*time.Second),
		PodStop:   pick(l.PodStop, time.Second),
		Seal:      pick(l.Seal, 5*time.Second),
		Patch:     pick(l.Patch, 90*time.Second),
	}
}

// Fleet is all simulated nodes of one cloud.
type Fleet struct {
	cloud     Cloud
	clock     emulator.Clock
	speed     float64
	client    kubernetes.Interface
	latencies Latencies
	heartbeat time.Duration
	abrupt    bool
	logger    *slog.Logger
	pods      cache.SharedIndexInformer
	network   Network

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	ended    bool
	behave   func(emulator.Instance) Behaviour
	machines map[string]*machine         // by lower-case ARM ID
	kubelets map[string]map[*player]bool // by node name: all machines which claim it
}

const byNode = "node"

// Start makes a node of every running instance, at once, and follows the
// emulator from then on. ctx bounds the start only; Stop ends the fleet.
func Start(ctx context.Context, opts Options) (*Fleet, error) {
	f := &Fleet{
		cloud: opts.Cloud, latencies: opts.Latencies.withDefaults(),
		heartbeat: opts.Heartbeat, abrupt: opts.Abrupt, logger: opts.Logger,
		machines: map[string]*machine{}, kubelets: map[string]map[*player]bool{},
	}
	var err error
	if f.client, err = kubernetes.NewForConfig(impersonating(opts.Config)); err != nil {
		return nil, fmt.Errorf("make client of nodes: %w", err)
	}
	switch cloud := opts.Cloud.(type) {
	case *emulator.Server:
		f.clock, f.speed = cloud.Clock, cloud.Speed
	case region:
		f.clock, f.speed = cloud.Clock, cloud.Speed
	}
	if f.clock == nil {
		f.clock = emulator.WallClock{}
	}
	if f.heartbeat == 0 {
		f.heartbeat = 2 * time.Second
	}
	if f.logger == nil {
		f.logger = slog.New(slog.DiscardHandler)
	}
	f.ctx, f.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := f.watchPods(ctx); err != nil {
		f.Stop()
		return nil, err
	}
	cancel := f.cloud.Subscribe(f.changed)
	context.AfterFunc(f.ctx, cancel)
	for _, instance := range f.cloud.Instances() {
		f.power(instance.ID, instance.PowerState, instance.State, true)
	}
	return f, nil
}

// Stop ends all nodes as if their power was cut and returns when nothing of
// them runs any more. The Node objects stay.
func (f *Fleet) Stop() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.end()
	f.work.Wait()
}

// spawn runs f until the fleet ends; not after that.
func (f *Fleet) spawn(run func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.work.Go(run)
}

// changed follows one change of the cloud. It must not block: the emulator
// waits for it.
func (f *Fleet) changed(change emulator.Change) {
	if !isInstanceID(change.ID) {
		return
	}
	if change.Kind == emulator.Deleted {
		f.deleted(change.ID)
		return
	}
	f.power(change.ID, powerState(change.New), provisioningState(change.New), false)
}

// power tells an instance's machine whether it has power. atOnce skips the boot
// time of machines that were running before the fleet was started.
func (f *Fleet) power(id, power, state string, atOnce bool) {
	instance, ok := f.cloud.Instance(id)
	if !ok {
		return
	}
	f.mu.Lock()
	if f.ended {
		f.mu.Unlock()
		return
	}
	m := f.machines[strings.ToLower(id)]
	if m == nil {
		m = &machine{fleet: f, id: id}
		f.machines[strings.ToLower(id)] = m
	}
	f.mu.Unlock()
	switch {
	case power == emulator.PowerRunning && !strings.EqualFold(state, "Deleting"):
		m.on(instance, atOnce)
	case power == emulator.PowerStopping || power == emulator.PowerDeallocating:
		m.off(errShutdown)
	default:
		m.off(errPowerCut)
	}
}

// deleted ends an instance's machine and removes its Node object, as the cloud
// node lifecycle controller of a real cluster does
// (https://kubernetes.io/docs/concepts/architecture/cloud-controller/#node-controller).
func (f *Fleet) deleted(id string) {
	f.mu.Lock()
	m := f.machines[strings.ToLower(id)]
	delete(f.machines, strings.ToLower(id))
	f.mu.Unlock()
	if m != nil {
		m.off(errPowerCut)
		f.spawn(func() { m.forget(f.ctx) })
	}
}

// wait lets emulated time pass: d divided by the emulator's speed, on its clock.
func (f *Fleet) wait(ctx context.Context, d time.Duration) error {
	if f.speed > 0 {
		d = time.Duration(float64(d) / f.speed)
	}
	if d <= 0 {
		return ctx.Err()
	}
	rung := make(chan struct{})
	stop := f.clock.AfterFunc(d, func() { close(rung) })
	defer stop()
	select {
	case <-rung:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// period of a node's Lease.
func (f *Fleet) period() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.heartbeat, time.Duration(len(f.machines))*10*time.Millisecond)
}

func (f *Fleet) watchPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.client, 0, informers.WithTransform(func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil // a third of its size, and nobody reads it
		}
		return object, nil
	}))
	f.pods = factory.Core().V1().Pods().Informer()
	if err := f.pods.AddIndexers(cache.Indexers{byNode: func(object any) ([]string, error) {
		return []string{object.(*corev1.Pod).Spec.NodeName}, nil
	}}); err != nil {
		return fmt.Errorf("index pods by node: %w", err)
	}
	if _, err := f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.podChanged(object, false) },
		UpdateFunc: func(_, object any) { f.podChanged(object, false) },
		DeleteFunc: func(object any) { f.podChanged(object, true) },
	}); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	f.spawn(func() { f.pods.RunWithContext(f.ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), f.pods.HasSynced) {
		return fmt.Errorf("watch pods: %w", ctx.Err())
	}
	return nil
}

func (f *Fleet) podChanged(object any, gone bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	for _, k := range f.claimants(pod.Spec.NodeName) {
		if gone {
			k.podGone(pod)
		} else {
			k.podSeen(pod)
		}
	}
}

func (f *Fleet) claimants(node string) []*player {
	f.mu.Lock()
	defer f.mu.Unlock()
	claimants := make([]*player, 0, 1)
	for k := range f.kubelets[node] {
		claimants = append(claimants, k)
	}
	return claimants
}

// claim makes k one of the kubelets of its node until the returned function is called.
func (f *Fleet) claim(k *player) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kubelets[k.node] == nil {
		f.kubelets[k.node] = map[*player]bool{}
	}
	f.kubelets[k.node][k] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.kubelets[k.node], k)
	}
}

func isInstanceID(id string) bool {
	parts := strings.Split(id, "/")
	return strings.HasPrefix(id, awsScheme) || len(parts) > 2 && strings.EqualFold(parts[len(parts)-2], "virtualMachines")
}

func powerState(document map[string]any) string {
	properties, _ := document["properties"].(map[string]any)
	view, _ := properties["instanceView"].(map[string]any)
	statuses, _ := view["statuses"].([]any)
	for _, status := range statuses {
		status, _ := status.(map[string]any)
		if code, _ := status["code"].(string); strings.HasPrefix(code, "PowerState/") {
			return code
		}
	}
	return ""
}

func provisioningState(document map[string]any) string {
	properties, _ := document["properties"].(map[string]any)
	state, _ := properties["provisioningState"].(string)
	return state
}
