package nodes_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

// sealPod is the engine's, as far as a node cares.
func sealPod(run, node string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kamino-seal-" + run, Labels: map[string]string{"app.kubernetes.io/name": "kamino-seal", "kamino.dev/run": run}},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, HostPID: true,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "seal", Image: "registry.invalid/kamino:1", SecurityContext: &corev1.SecurityContext{Privileged: &yes},
				Command: []string{"/kamino-agent", "seal", "--host-root", "/host", "--run", run, "--donor", node, "--detach", "--poweroff"},
			}},
		},
	}
}

func TestSealAndClone(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	donor, id, run := w.node(0), w.instance(0), "run-"+w.pool
	before := w.get(donor).Status.NodeInfo
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), sealPod(run, donor), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("donor is off", func() string {
		instance, _ := w.cloud.Instance(id)
		if instance.PowerState != emulator.PowerStopped {
			return instance.PowerState
		}
		return ""
	})
	checkReceipt(t, w.get(donor).Annotations["kamino.dev/receipt"], run, donor, before.SystemUUID)
	files := w.disk(id)
	for _, path := range []string{"/etc/machine-id", "/etc/hostname", "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
		if content, ok := files[path]; ok {
			t.Errorf("sealed disk still has %s: %q", path, content)
		}
	}
	if got := files["/var/log/ancestry.log"]; len(strings.Fields(got)) != 2 || !strings.HasSuffix(got, " "+donor+"\n") {
		t.Errorf("ancestry = %q, want one line of date and %s", got, donor)
	}
	w.publish(0)
	w.arm.do(http.MethodPost, id+"/start", "")
	w.await("donor has booted", func() string {
		if got := w.get(donor).Status.NodeInfo.BootID; got == before.BootID {
			return "bootID is still " + got
		}
		return ""
	})
	w.awaitReady(donor)
	after := w.get(donor).Status.NodeInfo
	if after.MachineID == before.MachineID || after.SystemUUID != before.SystemUUID {
		t.Errorf("donor came back as %+v, want a new machineID on the same machine", after)
	}
	checkLineage(w, id, run)
	// The seal pod is still bound to the donor; it must not seal again.
	w.await("seal pod has failed", func() string {
		pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "kamino-seal-"+run, metav1.GetOptions{})
		if err != nil || pod.Status.Phase == corev1.PodFailed {
			return "" // gone is as well
		}
		return "phase is " + string(pod.Status.Phase)
	})

	w.arm.do(http.MethodPatch, w.id, `{"sku":{"capacity":2}}`)
	clone := w.node(1)
	w.awaitReady(clone)
	if got := w.get(clone).Status.NodeInfo.MachineID; got == before.MachineID || got == after.MachineID {
		t.Error("the clone has the donor's machineID")
	}
	w.await("the cloud labels the clone with its version", func() string { // which it may do after the node is Ready
		if got := w.get(clone).Labels["kubernetes.azure.com/node-image"]; got != "2026.1.1" {
			return "the label is " + got
		}
		return ""
	})
	checkLineage(w, w.instance(1), run)
	if got := w.disk(w.instance(1))["/var/log/ancestry.log"]; !strings.HasSuffix(got, " "+donor+"\n") {
		t.Errorf("the clone's ancestry = %q, want the donor in it", got)
	}
	instance, _ := w.cloud.Instance(w.instance(1))
	checkCanary(t, w, instance.ImageID)
}

func checkReceipt(t *testing.T, annotation, run, donor, vmID string) {
	t.Helper()
	var got struct {
		APIVersion, Kind, Run, Donor, SealedAt, VMID, Hash, Agent string
		RuleCount                                                 int
		Rules                                                     []any
	}
	if err := json.Unmarshal([]byte(annotation), &got); err != nil {
		t.Fatalf("receipt %q: %v", annotation, err)
	}
	if got.APIVersion != "kamino.dev/v1alpha1" || got.Kind != "Receipt" || got.Run != run || got.Donor != donor || got.VMID != vmID {
		t.Errorf("receipt = %+v, want one of run %s, donor %s, vmId %s", got, run, donor, vmID)
	}
	if got.RuleCount != 4 || got.Rules != nil || !strings.HasPrefix(got.Hash, "sha256:") {
		t.Errorf("receipt = %+v, want four rules counted, not listed, and a hash", got)
	}
}

// checkLineage: the receipt has moved to the lineage, with its rules.
func checkLineage(w *world, id, run string) {
	w.Helper()
	files := w.disk(id)
	if content, ok := files["/var/lib/kamino/receipt.json"]; ok {
		w.Errorf("receipt stays after the first boot: %s", content)
	}
	lines := strings.Split(strings.TrimSpace(files["/var/lib/kamino/lineage.jsonl"]), "\n")
	var last struct {
		Run   string
		Rules []struct {
			ID             string
			Matched, Bytes int
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		w.Fatalf("lineage %q: %v", lines, err)
	}
	if len(lines) != 1 || last.Run != run || len(last.Rules) != 4 || last.Rules[0].Matched != 1 || last.Rules[0].Bytes != 33 {
		w.Errorf("lineage = %q, want one receipt of run %s with four rules", lines, run)
	}
}

func TestSealOfAnotherDonorIsRefused(t *testing.T) {
	w := newWorld(t, 1, nodes.NoLatency())
	pod := sealPod("run-"+w.pool, w.node(0))
	pod.Spec.Containers[0].Command[7] = "somebody-else"
	if _, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("seal pod has failed", func() string {
		got, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got.Status.Phase != corev1.PodFailed {
			return "phase is " + string(got.Status.Phase)
		}
		return ""
	})
	if instance, _ := w.cloud.Instance(w.instance(0)); instance.PowerState != emulator.PowerRunning {
		t.Errorf("the node is %s", instance.PowerState)
	}
	if _, ok := w.disk(w.instance(0))["/etc/machine-id"]; !ok {
		t.Error("the disk was sealed")
	}
}
