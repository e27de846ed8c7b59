package kube

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

func TestReadSealPod(t *testing.T) {
	status := func(phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Image: "reg/kamino:1", State: state}}}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, words string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: words}}
	}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   kamino.AgentPod
	}{
		"new": {corev1.PodStatus{Phase: corev1.PodPending}, kamino.AgentPod{Message: "pending"}},
		"creating": {status(corev1.PodPending, waiting("ContainerCreating", "")),
			kamino.AgentPod{Message: "pending, ContainerCreating"}},
		"running": {status(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			kamino.AgentPod{Started: true, Message: "running"}},
		"detached": {status(corev1.PodSucceeded, ended(0, "")),
			kamino.AgentPod{Started: true, Done: true, Message: "succeeded, exit code 0"}},
		"failed": {status(corev1.PodFailed, ended(1, "no space left\n")),
			kamino.AgentPod{Started: true, Failed: true, Message: "failed, exit code 1: no space left"}},
		"refused by the kubelet": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", Message: "Pod was rejected"},
			kamino.AgentPod{Failed: true, Ousted: true, Message: "failed, OutOfmemory: Pod was rejected"}},
		"no such image": {status(corev1.PodPending, waiting("ImagePullBackOff", "Back-off")),
			kamino.AgentPod{Failed: true, Message: "pending, ImagePullBackOff: Back-off, image reg/kamino:1"}},
		"bad image name": {status(corev1.PodPending, waiting("InvalidImageName", "")),
			kamino.AgentPod{Failed: true, Message: "pending, InvalidImageName, image reg/kamino:1"}},
		"pull failed":  {status(corev1.PodPending, waiting("ErrImagePull", "")), kamino.AgentPod{Failed: true, Message: "pending, ErrImagePull, image reg/kamino:1"}},
		"config error": {status(corev1.PodPending, waiting("CreateContainerConfigError", "")), kamino.AgentPod{Failed: true, Message: "pending, CreateContainerConfigError, image reg/kamino:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Exists, tt.want.Name, tt.want.Node, tt.want.Nonce = true, "kamino-system/p", "n1", "n0nce"
			if diff := cmp.Diff(tt.want, readAgentPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kamino.SystemNamespace, Name: "p"}, Status: tt.status,
				Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: nonceEnv, Value: "n0nce"}}}}}})); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		})
	}
}

func TestSeal(t *testing.T) {
	client := fake.NewClientset()
	c := NewForClient(client, Options{SealImage: "reg/kamino:1"})
	n := kamino.Node{Name: "n1", SystemUUID: "u", BootID: "b"}
	seal := func(want bool) {
		t.Helper()
		for range 2 { // twice is the same as once
			err := c.RemoveAgents(t.Context(), "r1", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory})
			if want {
				err = c.StartAgent(t.Context(), n, kamino.TaskSeal, kamino.SealOrder{Run: "r1", Nonce: "n0nce"})
			}
			if err != nil {
				t.Fatal(err)
			}
			if pod, err := c.AgentPod(t.Context(), "r1", kamino.TaskSeal); err != nil || pod.Exists != want {
				t.Fatalf("seal pod exists: %v, %v; want %v", pod.Exists, err, want)
			}
		}
	}
	seal(false)
	seal(true)
	got, err := client.CoreV1().Pods(kamino.SystemNamespace).Get(t.Context(), "kamino-seal-r1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box := got.Spec.Containers[0]
	const command = "/kamino-agent seal --host-root /host --run r1 --donor n1 --detach --poweroff"
	if strings.Join(box.Command, " ") != command || box.Image != "reg/kamino:1" || !*box.SecurityContext.Privileged ||
		got.Spec.NodeName != "n1" || !got.Spec.HostPID || *got.Spec.AutomountServiceAccountToken || *got.Spec.TerminationGracePeriodSeconds != 0 ||
		got.Spec.PriorityClassName != "system-node-critical" ||
		got.Labels["app.kubernetes.io/name"] != "kamino-seal" || got.Labels["kamino.dev/run"] != "r1" {
		t.Errorf("seal pod: %+v", got)
	}
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "KAMINO_SEAL_NONCE", Value: "n0nce"}, {Name: "KAMINO_MACHINE", Value: "u"}, {Name: "KAMINO_BOOT", Value: "b"}}, box.Env); diff != "" {
		t.Error(diff)
	}
	seal(false)
	last := client.Actions()[len(client.Actions())-2].(ktesting.DeleteActionImpl)
	if *last.DeleteOptions.GracePeriodSeconds != 0 {
		t.Errorf("deleted with grace %d", *last.DeleteOptions.GracePeriodSeconds)
	}
}

func TestSealRefused(t *testing.T) {
	n := kamino.Node{Name: "n1"}
	if err := NewForClient(fake.NewClientset(), Options{}).StartAgent(t.Context(), n, kamino.TaskSeal, kamino.SealOrder{Run: "r1"}); !strings.Contains(err.Error(), "--image") {
		t.Errorf("no image: %v, hint %q", err, kamino.Hint(err))
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(podsResource, "x", errors.New(`violates PodSecurity "restricted:latest": privileged`))
	})
	c := NewForClient(client, Options{SealImage: "i"})
	err := c.StartAgent(t.Context(), n, kamino.TaskSeal, kamino.SealOrder{Run: "r1"})
	refused := (*kamino.RefusedError)(nil)
	if !errors.As(err, &refused) || !strings.Contains(refused.Refusals[0].Do, "must be privileged") {
		t.Errorf("got %v", err)
	}
}

// TestListUnseen: where the API server does not find the list of images, the hint says when it is
// the API server that has to be restarted; of another refusal of the policy it does not.
func TestListUnseen(t *testing.T) {
	for why, restart := range map[string]bool{
		"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction": true,
		"the image is not one of those that may seal disks":                                                   false,
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(podsResource, "x", errors.New(why))
		})
		client.PrependReactor("create", "selfsubjectaccessreviews", func(ktesting.Action) (bool, runtime.Object, error) {
			return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
		})
		err := NewForClient(client, Options{SealImage: "i"}).StartAgent(t.Context(), kamino.Node{Name: "n1"}, kamino.TaskSeal, kamino.SealOrder{Run: "r1"})
		refused := (*kamino.RefusedError)(nil)
		if !errors.As(err, &refused) || strings.Contains(refused.Refusals[0].Do, "restart each kube-apiserver") != restart {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// TestNoNamespace: a dry run on a cluster that is not prepared tells what to type, as a run does.
func TestNoNamespace(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(corev1.Resource("namespaces"), kamino.SystemNamespace)
	})
	err := NewForClient(client, Options{SealImage: "i"}).RehearseSeal(t.Context(), kamino.Node{Name: "n1"}, kamino.SealOrder{Run: "r1"})
	if !errors.Is(err, kamino.ErrNotFound) || !strings.Contains(err.Error(), "not prepared") || !strings.Contains(kamino.Hint(err), "kamino init") {
		t.Errorf("%v, hint %q", err, kamino.Hint(err))
	}
}

func TestRunningImage(t *testing.T) {
	tests := map[string]struct{ imageID, want string }{
		"containerd":     {"registry.example/kamino@sha256:abc", "registry.example/kamino@sha256:abc"},
		"dockershim":     {"docker-pullable://registry.example/kamino@sha256:abc", "registry.example/kamino@sha256:abc"},
		"loaded by hand": {"sha256:abc", ""},
		"docker, loaded": {"docker://sha256:abc", ""},
		"not started":    {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := NewForClient(fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{ImageID: tt.imageID}}}}), Options{})
			got, err := c.RunningImage(t.Context(), "ns", "p")
			if got != tt.want || (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, kamino.ErrUnsupported) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestSealChangedOrLimited: what others do to pods of the namespace is named by what it is; only a
// pod whose image is not listed is told to list it.
func TestSealChangedOrLimited(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy 'kamino-seal-pods' with binding 'kamino-seal-pods' denied request: "
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"quota":       {apierrors.NewForbidden(podsResource, "a", errors.New("exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0")), "kubectl get resourcequota -n kamino-system"},
		"limit range": {apierrors.NewForbidden(podsResource, "a", errors.New("minimum cpu usage per Container is 100m, but request is 10m")), "kubectl get limitrange -n kamino-system"},
		"environment": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Forbidden(nil, policy+"a seal pod has no other environment than the run's nonce, machine, boot and policies; this one has HTTPS_PROXY")}), "exclude namespace kamino-system"},
		"sidecar":     {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Forbidden(nil, policy+"a pod of kamino-system has one container")}), "exclude namespace kamino-system"},
		"image":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", field.ErrorList{field.Forbidden(nil, policy+"image x may not seal disks: the ConfigMap kamino-system/kamino-seal-images does not name it")}), "kamino init --seal-image image"},
		"no params":   {apierrors.NewForbidden(podsResource, "a", errors.New("policy 'kamino-seal-pods' with binding 'kamino-seal-pods' denied request: no params found for policy binding with `Deny` parameterNotFoundAction")), "restart each kube-apiserver"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
			client.PrependReactor("create", "selfsubjectaccessreviews", func(ktesting.Action) (bool, runtime.Object, error) {
				return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
			})
			err := NewForClient(client, Options{SealImage: "image"}).RehearseSeal(t.Context(), kamino.Node{Name: "n1"}, kamino.SealOrder{Run: "r"})
			var refused *kamino.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(refused.Refusals[0].Do, tt.want) {
				t.Fatalf("%v, want %s", err, tt.want)
			}
			if do := refused.Refusals[0].Do; tt.want != "kamino init --seal-image image" && name != "no params" && strings.Contains(do, "--seal-image") {
				t.Errorf("it says: %s", do)
			}
		})
	}
}
