package nodes_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

func TestNodeIsItsInstance(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	instance, ok := w.cloud.Instance(w.instance(0))
	if !ok {
		t.Fatal("no instance")
	}
	node := w.get(w.node(0))
	if got, want := node.Spec.ProviderID, "azure://"+w.instance(0); got != want {
		t.Errorf("providerID = %s, want %s", got, want)
	}
	info := node.Status.NodeInfo
	if got, want := info.SystemUUID, instance.VMID; got != want {
		t.Errorf("systemUUID = %s, want the vmId %s", got, want)
	}
	if got, want := info.MachineID, strings.TrimSpace(w.disk(instance.ID)["/etc/machine-id"]); got != want {
		t.Errorf("machineID = %s, want %s as on the disk", got, want)
	}
	for label, want := range map[string]string{
		corev1.LabelHostname: w.node(0), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelInstanceTypeStable: "Standard_D2s_v3", corev1.LabelTopologyRegion: "westeurope", "kubernetes.azure.com/agentpool": w.pool,
	} {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s = %q, want %q", label, got, want)
		}
	}
	if got := node.Status.Capacity.Cpu().Value(); got != 2 {
		t.Errorf("a Standard_D2s_v3 has %d CPUs, want 2", got)
	}
	first := w.ready(w.node(0)).LastHeartbeatTime
	w.await("status heartbeat moves", func() string {
		if now := w.ready(w.node(0)).LastHeartbeatTime; !now.After(first.Time) {
			return "still " + now.String()
		}
		return ""
	})
}

func TestStopAndStart(t *testing.T) {
	w := newWorld(t, 2, nodes.Latencies{Boot: 300 * time.Millisecond})
	before := w.get(w.node(0))
	w.arm.do(http.MethodPost, w.instance(0)+"/powerOff", "")
	// No word of its own: the real node lifecycle controller finds out.
	w.awaitUnknown(w.node(0))
	if got := w.ready(w.node(1)).Status; got != corev1.ConditionTrue {
		t.Errorf("the other node's Ready is %q", got)
	}
	started := time.Now()
	w.arm.do(http.MethodPost, w.instance(0)+"/start", "")
	w.awaitReady(w.node(0))
	if took := time.Since(started); took < 300*time.Millisecond {
		t.Errorf("node was back after %s, want no less than its boot time", took)
	}
	after := w.get(w.node(0))
	if after.UID != before.UID {
		t.Error("the Node object was made anew")
	}
	if after.Status.NodeInfo.BootID == before.Status.NodeInfo.BootID {
		t.Error("bootID is that of the boot before")
	}
	if after.Status.NodeInfo.MachineID != before.Status.NodeInfo.MachineID {
		t.Error("machineID changed over a reboot")
	}
}

func TestShutdownSaysGoodbye(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency(), func(s *emulator.Server) { s.Latencies.Stop = time.Hour })
	before := w.get(w.node(0))
	w.arm.do(http.MethodPost, w.instance(0)+"/powerOff", "")
	// What it says stands for the grace of the node lifecycle controller only: every state is seen.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	states, err := client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + before.Name, ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for event := range states.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok {
			t.Fatalf("watch node: %v", event.Object)
		}
		ready := readyOf(node)
		if ready.Status == corev1.ConditionFalse && ready.Message == "node is shutting down" {
			return
		}
		said = append(said, string(ready.Status)+" "+ready.Message)
	}
	t.Errorf("it did not say that it shuts down; Ready was %q", said)
}

func TestScaleOutAndIn(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	w.arm.do(http.MethodPatch, w.id, `{"sku":{"capacity":2}}`)
	w.awaitReady(w.node(1))
	if w.get(w.node(1)).Status.NodeInfo.MachineID == w.get(w.node(0)).Status.NodeInfo.MachineID {
		t.Error("two nodes of the generic image have one machineID")
	}
	w.arm.do(http.MethodDelete, w.instance(1), "")
	w.await("node of the deleted instance is gone", func() string {
		if w.get(w.node(1)) != nil {
			return "still there"
		}
		return ""
	})
	if w.get(w.node(0)) == nil {
		t.Error("the other node is gone too")
	}
}

// publish makes a version of the n-th instance's disk and points the model at it.
func (w *world) publish(n int) {
	w.Helper()
	group := w.id[:strings.Index(w.id, "/providers/")] + "/providers/Microsoft.Compute"
	snapshot, gallery := group+"/snapshots/snapshot_"+w.pool, group+"/galleries/gallery"
	definition := gallery + "/images/" + w.pool
	w.arm.do(http.MethodPut, snapshot, fmt.Sprintf(
		`{"location":"westeurope","properties":{"hyperVGeneration":"V2","creationData":{"createOption":"Copy","sourceResourceId":%q}}}`, w.osDisk(n)))
	w.arm.do(http.MethodPut, gallery, `{"location":"westeurope"}`)
	w.arm.do(http.MethodPut, definition, fmt.Sprintf(`{"location":"westeurope","properties":{"osType":"Linux","osState":"Generalized",`+
		`"hyperVGeneration":"V2","identifier":{"publisher":"kamino","offer":%q,"sku":"node"}}}`, w.pool))
	w.arm.do(http.MethodPut, definition+"/versions/2026.1.1", fmt.Sprintf(
		`{"location":"westeurope","properties":{"publishingProfile":{"targetRegions":[{"name":"westeurope"}]},"storageProfile":{"osDiskImage":{"source":{"id":%q}}}}}`, snapshot))
	w.arm.do(http.MethodPatch, w.id, fmt.Sprintf(
		`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":%q}}}}}`, definition+"/versions/2026.1.1"))
}

func (w *world) osDisk(n int) string {
	w.Helper()
	instance, ok := w.cloud.Instance(w.instance(n))
	if !ok {
		w.Fatalf("no instance %d", n)
	}
	return instance.OSDiskID
}

func TestUnsealedCloneIsItsDonor(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	donor, _ := w.cloud.Instance(w.instance(0))
	w.publish(0)
	w.arm.do(http.MethodPatch, w.id, `{"sku":{"capacity":2}}`)
	clone, ok := w.cloud.Instance(w.instance(1))
	if !ok || clone.PowerState != emulator.PowerRunning {
		t.Fatalf("no running clone: %+v", clone)
	}
	w.await("two machines are one node", func() string {
		if got := w.get(w.node(0)).Status.NodeInfo.SystemUUID; got != clone.VMID {
			return "systemUUID is " + got + ", the donor's is " + donor.VMID
		}
		return ""
	})
	if w.get(w.node(1)) != nil {
		t.Error("the unsealed clone has a node of its own")
	}
	// The clone's end must not take the donor's node away.
	w.arm.do(http.MethodDelete, clone.ID, "")
	w.await("the donor speaks for itself again", func() string {
		node := w.get(w.node(0))
		if node == nil {
			t.Fatal("the donor's node was deleted with its clone")
		}
		if got := node.Status.NodeInfo.SystemUUID; got != donor.VMID {
			return "systemUUID is " + got
		}
		return ""
	})
}

func TestPodsRunAndEnd(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	name := w.pool
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"agentpool": w.pool}, // the real scheduler finds the node
			Containers:   []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	podIs := func(what string, check func(*corev1.Pod) bool) {
		t.Helper()
		w.await("pod is "+what, func() string {
			pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if !check(pod) {
				return fmt.Sprintf("status is %+v", pod.Status)
			}
			return ""
		})
	}
	podIs("running", func(pod *corev1.Pod) bool {
		return podutil.IsPodReady(pod) && pod.Status.PodIP != "" && pod.Spec.NodeName == w.node(0)
	})
	w.arm.do(http.MethodPost, w.instance(0)+"/powerOff", "")
	w.arm.do(http.MethodPost, w.instance(0)+"/start", "")
	podIs("restarted", func(pod *corev1.Pod) bool {
		return podutil.IsPodReady(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1
	})
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("pod is gone", func() string {
		if _, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			return "still there"
		}
		return ""
	})
}
