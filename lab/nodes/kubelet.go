package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino/azure/emulator"
)

const (
	// beatsPerStatus is how many Lease renewals go by between two node status reports.
	beatsPerStatus = 5
	// lastWords is how long a kubelet that is being stopped tries to say so: as long as an API
	// server may take on a machine that does much else.
	lastWords = 30 * time.Second
)

// kubelet is the simulated kubelet of one boot of one machine.
type kubelet struct {
	fleet    *Fleet
	machine  *machine
	instance emulator.Instance
	identity
	behaviour Behaviour

	mu    sync.Mutex
	ctx   context.Context // while it runs; carries its user
	work  sync.WaitGroup
	pods  map[types.UID]*podWorker
	units map[string]*unit // by run
}

func newKubelet(m *machine, instance emulator.Instance, who identity) *kubelet {
	return &kubelet{fleet: m.fleet, machine: m, instance: instance, identity: who, pods: map[types.UID]*podWorker{}, units: map[string]*unit{}}
}

// run is the life of the kubelet, until ctx ends.
func (k *kubelet) run(ctx context.Context) error {
	ctx = asNode(ctx, k.node)
	k.ctx = ctx
	for _, once := range []func(context.Context) error{k.register, k.label, k.started, k.certify, k.tell} {
		if err := k.retry(ctx, once); err != nil {
			return err
		}
	}
	k.fleet.logger.Info("node is up", "node", k.node, "instance", k.instance.Name, "machineID", k.machineID)
	err := k.serve(ctx)
	if errors.Is(context.Cause(ctx), errShutdown) && !k.fleet.abrupt {
		k.sayGoodbye(ctx)
	}
	k.fleet.logger.Info("node is down", "node", k.node, "instance", k.instance.Name, "why", context.Cause(ctx))
	return err
}

// serve runs pods and heartbeats until ctx ends.
func (k *kubelet) serve(ctx context.Context) error {
	defer k.endPods()
	if err := k.retry(ctx, k.adopt); err != nil {
		return err
	}
	release := k.fleet.claim(k)
	defer release()
	k.catchUp()
	k.heartbeats(ctx)
	return nil
}

// retry calls f until it succeeds or ctx ends: an API server that is away must not end a node.
func (k *kubelet) retry(ctx context.Context, f func(context.Context) error) error {
	pause := 50 * time.Millisecond
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			k.fleet.logger.Debug("node tries again", "node", k.node, "after", pause, "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case <-timer.C:
			pause = min(2*pause, 2*time.Second)
		}
	}
}

// register makes the Node object and the Lease, or takes over those that exist
// under its name, as the real kubelet does: labels are renewed, providerID is not.
func (k *kubelet) register(ctx context.Context) error {
	nodes := k.fleet.client.CoreV1().Nodes()
	object := nodeObject(k.instance, k.identity)
	k.behaviour.differ(object)
	object.Status = k.status(nil)
	if _, err := nodes.Create(ctx, object, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		if err := k.patchNode(ctx, map[string]any{"metadata": map[string]any{"labels": object.Labels}}); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("create node %s: %w", k.node, err)
	}
	if err := k.beat(ctx); err != nil {
		return err
	}
	return k.report(ctx)
}

// status is what the machine says of itself.
func (k *kubelet) status(known []corev1.NodeCondition) corev1.NodeStatus {
	status := nodeStatus(k.instance, k.identity, k.machine.addresses, known, k.now())
	k.behaviour.status(&status)
	return status
}

// heartbeats renews the Lease and reports status until ctx ends.
func (k *kubelet) heartbeats(ctx context.Context) {
	period := k.fleet.period()
	// Nodes that came up together must not beat together.
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(period))))
	defer timer.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := k.beat(ctx)
		if err == nil && n%beatsPerStatus == 0 {
			err = errors.Join(k.report(ctx), k.tell(ctx))
			if k.behaviour.Restless {
				err = errors.Join(err, k.started(ctx))
			}
		}
		if err != nil && ctx.Err() == nil {
			k.fleet.logger.Debug("heartbeat failed", "node", k.node, "error", err)
		}
		timer.Reset(k.fleet.period())
	}
}

// beat renews the node's Lease
// (https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats).
func (k *kubelet) beat(ctx context.Context) error {
	leases := k.fleet.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(k.now())
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": now, "holderIdentity": k.node}})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	_, err = leases.Patch(ctx, k.node, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(40) // kubelet's default; only tools read it
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.node, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew lease of node %s: %w", k.node, err)
	}
	return nil
}

// report posts the node's status: who it is and that it is Ready.
func (k *kubelet) report(ctx context.Context) error {
	object, err := k.fleet.client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("read node %s: %w", k.node, err)
	}
	return k.patchStatus(ctx, k.status(object.Status.Conditions))
}

// sayGoodbye posts NotReady as a kubelet does that sees its machine shut down
// (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/).
func (k *kubelet) sayGoodbye(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	object, err := k.fleet.client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{ResourceVersion: "0"})
	if err == nil {
		err = k.patchStatus(ctx, map[string]any{"conditions": conditions( // a NodeStatus would empty nodeInfo
			object.Status.Conditions, time.Now(), corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")})
	}
	if err != nil {
		k.fleet.logger.Debug("node shut down without a word", "node", k.node, "error", err)
	}
}

func (k *kubelet) patchStatus(ctx context.Context, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	_, err = k.fleet.client.CoreV1().Nodes().Patch(ctx, k.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report status of node %s: %w", k.node, err)
	}
	return nil
}

func (k *kubelet) patchNode(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := k.fleet.client.CoreV1().Nodes().Patch(ctx, k.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", k.node, err)
	}
	return nil
}
