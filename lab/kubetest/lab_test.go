// Package kubetest tests package kube against a real API server, with real
// controllers and a scheduler. Nodes are objects without kubelets; where a
// kubelet would act, the test does. Every request runs with the permissions of
// role alone, so a missing one fails a test.
package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/controlplane"
	"kamino.dev/kamino/lab/labtest"
)

const (
	user      = "kamino-under-test"
	sealImage = "reg/kamino:1"
)

// role is what package kube needs, and nothing else.
var role = rbacv1.ClusterRole{
	ObjectMeta: metav1.ObjectMeta{Name: user},
	Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}},
		{APIGroups: []string{"kamino.dev"}, Resources: []string{"nodes"}, Verbs: []string{"keep-to-own"}},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"list"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "create", "patch"}},
	},
}

var (
	config *rest.Config          // the administrator's
	admin  *kubernetes.Clientset // people, kubelets, other controllers
)

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, labBinary string) (stop func(), err error) {
		cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: labBinary})
		if err != nil {
			return nil, err
		}
		config = cp.RESTConfig()
		if admin, err = kubernetes.NewForConfig(config); err != nil {
			return nil, err
		}
		if err := lab.Prepare(ctx, config, sealImage); err != nil {
			return nil, err
		}
		if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}, metav1.CreateOptions{})
		return cp.Stop, err
	})
}

// counter notes the requests that pass.
type counter struct {
	next http.RoundTripper
	mu   *sync.Mutex
	seen *[]string
}

func (c counter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.seen = append(*c.seen, fmt.Sprintf("%s %s %v", req.Method, req.URL.Path, resp.StatusCode))
	return resp, err
}

// subject is a Cluster with the permissions of role, and what it asked since
// the last call of requests.
type subject struct {
	*kube.Cluster
	mu   sync.Mutex
	seen []string
}

func newSubject(t *testing.T, opts kube.Options) *subject {
	t.Helper()
	return newSubjectOf(t, user, opts)
}

func newSubjectOf(t *testing.T, name string, opts kube.Options) *subject {
	t.Helper()
	cfg := rest.CopyConfig(config)
	cfg.Impersonate.UserName = name
	s := &subject{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, &s.mu, &s.seen} })
	var err error
	if s.Cluster, err = kube.New(cfg, opts); err != nil {
		t.Fatal(err)
	}
	return s
}

// cost fails the test unless the last calls made so many requests.
func (s *subject) cost(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) != want {
		t.Errorf("%d requests, want %d: %q", len(s.seen), want, s.seen)
	}
	s.seen = nil
}

// node reads a node as the engine does, without counting.
func (s *subject) node(t *testing.T, name string) kamino.Node {
	t.Helper()
	n, err := s.Node(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
	return n
}

// makeNode makes a Ready node with room for pods and removes it after the test.
func makeNode(t *testing.T, n *corev1.Node) *corev1.Node {
	t.Helper()
	ctx := t.Context()
	made, err := admin.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeNode(t, n.Name) })
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"systemUUID":"a1b2c3d4-e5f6-4711-8899-aabbccddeeff","bootID":"b"},"capacity":{"pods":"110","cpu":"4","memory":"8Gi"},"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	if made, err = admin.CoreV1().Nodes().PatchStatus(ctx, made.Name, []byte(patch)); err != nil {
		t.Fatal(err)
	}
	// The controllers write on a new node; wait until they have.
	eventually(t, "the node lifecycle controller to take its taint off", func() bool {
		made, err = admin.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		for _, taint := range made.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady {
				return false
			}
		}
		return err == nil
	})
	return made
}

func removeNode(t *testing.T, name string) {
	t.Helper()
	err := admin.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// makePod makes a pod that runs on a node, as its kubelet would show it.
func makePod(t *testing.T, node, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"node": node}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	p, err := admin.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runPod(t, p)
	t.Cleanup(func() { endPod(t, p.Namespace, p.Name) })
	return p
}

// runPod says of a pod what a kubelet says of one that runs and is ready.
func runPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	_, err := admin.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// endPod does what a kubelet does last.
func endPod(t *testing.T, namespace, name string) {
	t.Helper()
	now := int64(0)
	err := admin.CoreV1().Pods(namespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// eventually waits for a condition, 30 s at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain for " + what)
		}
	}
}
