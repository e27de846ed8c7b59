package main

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/hostile"
	"kamino.dev/kamino/kube"
)

// TestHostileNode: no command prints, in any format, what a terminal obeys, nor a line that a node
// forged, whichever fields of its object a kubelet fills with that.
func TestHostileNode(t *testing.T) {
	world := func() *fakeWorld {
		w := newFakeWorld()
		history(w)
		for name, was := range w.cluster.nodes {
			node := corev1.Node{}
			hostile.Fill(&node)
			node.Name, node.Spec.ProviderID, node.Spec.Unschedulable = was.Name, string(was.ProviderID), false
			node.DeletionTimestamp = nil
			node.Status.NodeInfo.SystemUUID, node.Status.NodeInfo.OperatingSystem, node.Status.NodeInfo.Architecture = was.SystemUUID, was.OS, was.Architecture
			for i := range node.Status.Conditions {
				node.Status.Conditions[i].Status = corev1.ConditionTrue
			}
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue})
			text, err := json.Marshal(hostileAnswer())
			if err != nil {
				t.Fatal(err)
			}
			node.Annotations = map[string]string{kamino.KuredLastPatch.Annotation: hostile.Text, "weave.works/kured-reboot-in-progress": hostile.Text}
			for _, key := range []string{kamino.AnnotationFreshness, kamino.AnnotationPatchFailed, kamino.AnnotationSealFailure, kamino.AnnotationReport, kamino.AnnotationReceipt} {
				node.Annotations[key] = string(text)
			}
			switch name {
			case "n1":
				node.Annotations[kamino.AnnotationRun] = string(text)
			case "n2":
				node.Annotations[kamino.AnnotationRun] = hostile.Text
			case "n3":
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: kamino.TaintPatchFailed})
			}
			read := kube.NodeOf(&node)
			w.cluster.nodes[name] = &read
		}
		return w
	}
	reached := 0
	for _, command := range []string{"status", "plan", "doctor", "update --target-node n1 --dry-run", "update --target-node n3 --dry-run",
		"auto-update --dry-run", "patch --target-node n1 --dry-run", "patch --target-node n2 --dry-run", "restore --dry-run", "restore --everything --dry-run",
		"rollback --dry-run", "status --log-level DEBUG", "auto-update --dry-run --log-format json"} {
		for _, format := range []string{"", "wide", "json", "yaml", "html", openMetrics} {
			args := strings.Fields(command)
			if format != "" {
				args = append(args, "-o", format)
			}
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				out, errs, _ := world().kamino(t, args...)
				reached += strings.Count(out+errs, "EVIL")
				for what, text := range map[string]string{"stdout": out, "stderr": errs} {
					if bad := hostile.InOutput(text); bad != "" {
						t.Errorf("%s has %.300s", what, bad)
					}
				}
				var v any
				if format == "json" && json.Unmarshal([]byte(out), &v) == nil {
					for _, bad := range hostile.Find(v) {
						t.Errorf("a value%.300s", bad)
					}
				}
			})
		}
	}
	if reached < 20 {
		t.Errorf("the hostile text is %d times in the outputs: too few to have tried anything", reached)
	}
}

// hostileAnswer fits every annotation that a node writes as JSON.
func hostileAnswer() any {
	out := struct {
		kamino.Freshness
		Run, Nonce, Error, Reason, Hash string
		Pool                            kamino.PoolID
		Instance                        kamino.InstanceID
	}{}
	hostile.Fill(&out)
	return out
}
