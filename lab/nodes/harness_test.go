package nodes_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/controlplane"
	"kamino.dev/kamino/lab/labtest"
	"kamino.dev/kamino/lab/nodes"
)

// One control plane serves all tests; each has a cloud, a fleet and a pool of its own.
var (
	cluster *controlplane.ControlPlane
	client  kubernetes.Interface
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, labBinary string) (stop func(), err error) {
		cluster, err = controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: labBinary, NodeGrace: 6 * time.Second})
		if err != nil {
			return nil, err
		}
		client, err = kubernetes.NewForConfig(cluster.RESTConfig())
		return cluster.Stop, err
	})
}

// world is one test's cloud and fleet with one pool.
type world struct {
	*testing.T
	cloud *emulator.Server
	fleet *nodes.Fleet
	arm   *arm
	pool  string // name of the scale set
	id    string // its ARM ID
}

// newWorld starts a pool. Nothing takes time in it but what latencies and change say.
func newWorld(t *testing.T, count int, latencies nodes.Latencies, change ...func(*emulator.Server)) *world {
	t.Helper()
	t.Parallel()
	pool := strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	sc := emulator.Scenario{Pools: []emulator.Pool{{Name: pool, Count: count}}}
	w := &world{T: t, cloud: &emulator.Server{Latencies: emulator.NoLatency()}, pool: pool, id: sc.PoolID(pool)}
	for _, f := range change {
		f(w.cloud)
	}
	w.cloud.Seed(sc)
	t.Cleanup(w.cloud.Close)
	w.arm = &arm{t, w.cloud}
	var err error
	w.fleet, err = nodes.Start(t.Context(), nodes.Options{
		Config: cluster.RESTConfig(), Cloud: w.cloud, Latencies: latencies, Heartbeat: 500 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.fleet.Stop()
		for _, in := range w.cloud.Instances() { // else the next world of this name has nodes before its kubelets came up
			if err := client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), strings.ToLower(in.ComputerName), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	for n := range count {
		w.awaitReady(w.node(n))
	}
	return w
}

// node is the name of the n-th node, as Azure forms computer names.
func (w *world) node(n int) string { return fmt.Sprintf("%s%06d", w.pool, n) }

// instance is the ARM ID of the n-th instance.
func (w *world) instance(n int) string { return fmt.Sprintf("%s/virtualMachines/%d", w.id, n) }

// await polls until check returns "".
func (w *world) await(what string, check func() string) {
	w.Helper()
	labtest.Await(w, 2*time.Minute, what, check)
}

func (w *world) get(node string) *corev1.Node {
	w.Helper()
	object, err := client.CoreV1().Nodes().Get(w.Context(), node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return object
}

// ready is the node's Ready condition; its status is "" if there is no such node.
func (w *world) ready(node string) corev1.NodeCondition {
	w.Helper()
	if object := w.get(node); object != nil {
		return readyOf(object)
	}
	return corev1.NodeCondition{}
}

func readyOf(node *corev1.Node) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

func (w *world) awaitReady(node string) {
	w.Helper()
	w.await("node "+node+" is Ready", func() string {
		if got := w.ready(node); got.Status != corev1.ConditionTrue {
			return fmt.Sprintf("Ready is %q (%s)", got.Status, got.Message)
		}
		for _, taint := range w.get(node).Spec.Taints {
			return "still tainted: " + taint.ToString()
		}
		return ""
	})
}

func (w *world) awaitUnknown(node string) {
	w.Helper()
	w.await("Ready of node "+node+" is Unknown", func() string {
		if got := w.ready(node); got.Status != corev1.ConditionUnknown {
			return fmt.Sprintf("Ready is %q", got.Status)
		}
		return ""
	})
}

func (w *world) disk(id string) map[string]string {
	w.Helper()
	files, err := w.cloud.ReadDisk(id)
	if err != nil {
		w.Fatal(err)
	}
	return files
}
