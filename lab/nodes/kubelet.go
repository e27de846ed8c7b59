package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// Machine is what a kubelet runs on.
type Machine struct {
	Cloud     Cloud
	Instance  emulator.Instance
	Behaviour Behaviour
	Client    kubernetes.Interface // with the rights of a kubelet, or more
	Network   *Network
	Now       func() time.Time // by the machine's own clock
}

// Kubelet is one boot of a machine: what its kubelet, and the agent in its pods, do to the disk and
// tell Kubernetes. It knows no time but to write it down, tries nothing twice, and does what it is
// called for only: a [Fleet] plays many at once in real time, lab/crash one thing after the other
// on a virtual clock.
type Kubelet struct {
	Machine
	identity
}

// Boot makes up what the disk lacks. What the disk has decides who the machine is.
func (m Machine) Boot() (*Kubelet, error) {
	k := &Kubelet{Machine: m}
	err := m.Cloud.WriteDisk(m.Instance.ID, func(files map[string]string) {
		k.identity = firstBoot(files, strings.ToLower(m.Instance.ComputerName), m.Instance.Pool)
	})
	return k, err
}

// Name is that of the node, as kubelet's credentials have it.
func (k *Kubelet) Name() string { return k.node }

// Boot is the present one, for what a patch does in it.
func (k *Kubelet) Boot() Boot { return Boot{ID: k.bootID, Kernel: kernelOf(k.Instance)} }

// Register makes the Node object and the Lease, or takes over those that exist
// under its name, as the real kubelet does: labels are renewed, providerID is not.
func (k *Kubelet) Register(ctx context.Context) error {
	nodes := k.Client.CoreV1().Nodes()
	object := nodeObject(k.Instance, k.identity)
	k.Behaviour.differ(object)
	object.Status = k.status(nil)
	_, err := nodes.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = errors.Join(k.patchNode(ctx, map[string]any{"metadata": map[string]any{"labels": object.Labels}}), k.Report(ctx))
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", k.node, err)
	}
	return k.Beat(ctx)
}

// status is what the machine says of itself.
func (k *Kubelet) status(known []corev1.NodeCondition) corev1.NodeStatus {
	status := nodeStatus(k.Instance, k.identity, k.Network.node(k.Instance.ID), known, k.Now())
	k.Behaviour.status(&status)
	return status
}

// Beat renews the node's Lease
// (https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats).
func (k *Kubelet) Beat(ctx context.Context) error {
	leases := k.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(k.Now())
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

// Report posts the node's status: who it is and that it is Ready.
func (k *Kubelet) Report(ctx context.Context) error {
	object, err := k.Client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", k.node, err)
	}
	return k.patchStatus(ctx, k.status(object.Status.Conditions))
}

// Leave posts NotReady as a kubelet does that sees its machine shut down
// (https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/).
func (k *Kubelet) Leave(ctx context.Context) error {
	return k.ready(ctx, corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")
}

// FallSilent is what the node lifecycle controller posts of a node that was not heard of for long
// (https://kubernetes.io/docs/reference/node/node-status/#condition).
func (k *Kubelet) FallSilent(ctx context.Context) error {
	return k.ready(ctx, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
}

// ready changes the conditions only: a NodeStatus would empty nodeInfo.
func (k *Kubelet) ready(ctx context.Context, status corev1.ConditionStatus, reason, message string) error {
	object, err := k.Client.CoreV1().Nodes().Get(ctx, k.node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read node %s: %w", k.node, err)
	}
	return k.patchStatus(ctx, map[string]any{"conditions": conditions(object.Status.Conditions, k.Now(), status, reason, message)})
}

func (k *Kubelet) patchStatus(ctx context.Context, status any) error {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	_, err = k.Client.CoreV1().Nodes().Patch(ctx, k.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report status of node %s: %w", k.node, err)
	}
	return nil
}

// Annotate is how the agent tells something: it writes on its node.
func (k *Kubelet) Annotate(ctx context.Context, annotations map[string]string) error {
	return k.patchNode(ctx, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

func (k *Kubelet) patchNode(ctx context.Context, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := k.Client.CoreV1().Nodes().Patch(ctx, k.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", k.node, err)
	}
	return nil
}

// apart is with what the agent lets a node register, where the instance is a canary.
func apart(n *corev1.Node, i emulator.Instance, who identity) *corev1.Node {
	if i.Tags[kamino.TagCanary] != "" && who.agent {
		n.Labels[kamino.LabelCanary] = "true"
		n.Spec.Taints = []corev1.Taint{{Key: kamino.TaintCanary, Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// Introduce is the report of a canary's agent, which only a disk that was sealed has.
func (k *Kubelet) Introduce(ctx context.Context) error {
	nonce := k.Instance.Tags[kamino.TagNonce]
	if nonce == "" || !k.agent {
		return nil
	}
	report, err := json.Marshal(kamino.NodeReport{Nonce: nonce, At: k.Now().UTC(), MachineID: k.machineID, SSHKeys: []string{k.sshKey},
		PackageDigest: k.packages,
		Timing: kamino.Timing{Phases: map[string]float64{"kernel": 1, "kubelet": 1},
			Starts: map[string]float64{"kernel": 0, "kubelet": 1}},
		FailedUnits: k.Behaviour.Units})
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return k.Annotate(ctx, map[string]string{kamino.AnnotationReport: string(report)})
}
