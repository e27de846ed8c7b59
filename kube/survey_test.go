package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// TestSurvey: a pod that looks at a node beside its pods is the seal pod with another verb and
// without any claim on the node, a drain leaves it, and it goes with the other pods of its run.
func TestSurvey(t *testing.T) {
	for _, tt := range []struct {
		task    kamino.Task
		name    string
		command string
		env     []corev1.EnvVar
	}{
		{kamino.TaskInventory, "kamino-inventory-r1", "inventory", []corev1.EnvVar{{Name: nonceEnv, Value: "n0nce"}}},
		{kamino.TaskCheck, "kamino-patch-check-r1", "patch", []corev1.EnvVar{{Name: nonceEnv, Value: "n0nce"}, {Name: patchOrders, Value: "{}"}}},
	} {
		t.Run(string(tt.task), func(t *testing.T) {
			client := fake.NewClientset()
			c := NewForClient(client, Options{SealImage: "reg/kamino:1"})
			n := kamino.Node{Name: "n1"}
			for range 2 { // twice is the same as once
				if err := c.StartAgent(t.Context(), n, tt.task, kamino.SealOrder{Run: "r1", Nonce: "n0nce", Patch: []byte("{}")}); err != nil {
					t.Fatal(err)
				}
			}
			pod, err := client.CoreV1().Pods(kamino.SystemNamespace).Get(t.Context(), tt.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			box := pod.Spec.Containers[0]
			if got := strings.Join(box.Command, " "); got != "/kamino-agent "+tt.command+" --host-root /host --run r1 --donor n1" {
				t.Errorf("command %q", got)
			}
			if pod.Spec.PriorityClassName != "" || len(box.Resources.Requests) > 0 || !slices.Equal(box.Env, tt.env) {
				t.Errorf("made %+v", pod.Spec)
			}
			if !isAgent(pod, "r1") {
				t.Error("a drain would evict it")
			}
			if got, err := c.AgentPod(t.Context(), "r1", tt.task); err != nil || !got.Exists || got.Done {
				t.Errorf("%+v, %v", got, err)
			}
			for _, other := range []kamino.Task{kamino.TaskSeal, kamino.TaskPatch} {
				if got, err := c.AgentPod(t.Context(), "r1", other); err != nil || got.Exists {
					t.Errorf("taken for that of %s: %+v, %v", other, got, err)
				}
			}
			if err := c.RemoveAgents(t.Context(), "r1", []kamino.Task{kamino.TaskSeal, tt.task}); err != nil {
				t.Fatal(err)
			}
			if got, err := c.AgentPod(t.Context(), "r1", tt.task); err != nil || got.Exists {
				t.Errorf("left: %+v, %v", got, err)
			}
		})
	}
}

// TestSurveyNotAdmitted: a cluster whose policies know no inventory is told apart from one in which
// no seal pod could be made either.
func TestSurveyNotAdmitted(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	for name, tt := range map[string]struct {
		denied map[string]error // by label
		want   error
	}{
		"the inventory alone":   {map[string]error{surveyName: apierrors.NewInvalid(kind, "x", nil)}, kamino.ErrUnsupported},
		"by a webhook":          {map[string]error{surveyName: apierrors.NewForbidden(podsResource, "x", errors.New("denied"))}, kamino.ErrUnsupported},
		"the seal pod too":      {map[string]error{surveyName: apierrors.NewForbidden(podsResource, "x", nil), sealName: apierrors.NewForbidden(podsResource, "x", nil)}, kamino.ErrForbidden},
		"nothing, it is absent": {map[string]error{surveyName: apierrors.NewServiceUnavailable("x")}, kamino.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				pod := a.(ktesting.CreateAction).GetObject().(*corev1.Pod)
				return true, pod, tt.denied[pod.Labels[labelName]]
			})
			c := NewForClient(client, Options{SealImage: "i"})
			err := c.StartAgent(t.Context(), kamino.Node{Name: "n1"}, kamino.TaskInventory, kamino.SealOrder{Run: "r1"})
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// TestReadSurveyPod: what the agent refuses is told apart from a pod that the node had no room for.
func TestReadSurveyPod(t *testing.T) {
	ended := func(phase corev1.PodPhase, code int32) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}}}
	}
	for name, tt := range map[string]struct {
		pod                  *corev1.Pod
		done, failed, ousted bool
	}{
		"done":     {ended(corev1.PodSucceeded, 0), true, false, false},
		"refused":  {ended(corev1.PodFailed, 3), false, true, false},
		"killed":   {ended(corev1.PodFailed, 137), false, true, true},
		"no room":  {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods"}}, false, true, true},
		"no image": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}}, false, true, false},
		"at work":  {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAgentPod(tt.pod)
			if got.Done != tt.done || got.Failed != tt.failed || got.Ousted != tt.ousted {
				t.Errorf("%s: %+v", name, got)
			}
			if got.Refused != (name == "refused") {
				t.Errorf("%s: refused is %t", name, got.Refused)
			}
		})
	}
}
