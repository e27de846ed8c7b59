package kube

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// fixedClock is a clock that a test moves by hand.
type fixedClock struct {
	kamino.WallClock
	now time.Time
}

func (c *fixedClock) Now() time.Time { return c.now }

func pod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-" + "pod", Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-of-web", Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// madeBy is the UID of the controller that pod names.
func madeBy(p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 {
		return ""
	}
	return "uid-of-web"
}

func bare(p *corev1.Pod)      { p.OwnerReferences = nil }
func succeeded(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
func daemon(p *corev1.Pod)    { p.OwnerReferences[0].Kind = "DaemonSet" }
func mirror(p *corev1.Pod) {
	bare(p)
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}
func seal(p *corev1.Pod) {
	bare(p)
	p.Namespace, p.Labels = kamino.SystemNamespace, map[string]string{"app.kubernetes.io/name": "kamino-seal"}
}
func falseSeal(p *corev1.Pod) { seal(p); p.Namespace = "shop" }
func deleting(grace int64, at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: at}, &grace
	}
}

func job(p *corev1.Pod) {
	p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.Spec.RestartPolicy = "batch/v1", "Job", corev1.RestartPolicyOnFailure
}

func tolerating(t ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = t }
}

// conflict is an answer of 409.
func conflict(why string) error { return apierrors.NewConflict(podsResource, "a", errors.New(why)) }

func budgetError(message string, seconds int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

// several is the API's answer to the eviction of a pod with two budgets: a bare
// status, without a reason.
var several = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
	Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}

var podsResource = schema.GroupResource{Resource: "pods"}

// TestEvictLeavesAgents: a process that adopts a run drains the node once more, beside the pod in
// which the agent still works.
func TestEvictLeavesAgents(t *testing.T) {
	for _, task := range []kamino.Task{kamino.TaskInventory, kamino.TaskCheck, kamino.TaskSeal, kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook} {
		t.Run(string(task), func(t *testing.T) {
			c, n := NewForClient(fake.NewClientset(), Options{SealImage: "i"}), kamino.Node{Name: "n1"}
			if err := c.StartAgent(t.Context(), n, task, kamino.SealOrder{Run: "r1", Patch: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
			n.Annotations = map[string]string{kamino.AnnotationRun: `{"run":"r1","pool":"p","instance":"i"}`}
			if left, err := c.Evict(t.Context(), n, kamino.DrainOptions{}); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

// TestEvictOfAnother: the drain of a run that is to seal a node finds the pod in which another run
// upgrades that node's packages, as after its marks were removed by hand. The seal would stop that.
func TestEvictOfAnother(t *testing.T) {
	for _, task := range []kamino.Task{kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook} {
		t.Run(string(task), func(t *testing.T) {
			c, n := NewForClient(fake.NewClientset(), Options{SealImage: "i"}), kamino.Node{Name: "n1"}
			if err := c.StartAgent(t.Context(), n, task, kamino.SealOrder{Run: "another", Patch: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
			n.Annotations = map[string]string{kamino.AnnotationRun: `{"run":"r1","pool":"p","instance":"i"}`}
			if left, err := c.Evict(t.Context(), n, kamino.DrainOptions{}); err != nil || len(left) != 1 || !left[0].Stuck {
				t.Errorf("%v, %v", left, err)
			}
		})
	}
}

func TestEvict(t *testing.T) {
	terminating := apierrors.NewForbidden(podsResource, "a", errors.New("unable to evict"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	webhook := apierrors.NewForbidden(podsResource, "a", errors.New("admission webhook \"w\" denied the request: no"))
	const overdue, force = 1, 2
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		answer error
		push   int
		want   string // reason; "" means gone
		stuck  bool
		did    string // "", "evict" or "delete <seconds>"
	}{
		"evicted":                      {pod: pod("a"), want: "ending", did: "evict"},
		"gone since the list":          {pod: pod("a"), answer: apierrors.NewNotFound(podsResource, "a"), want: "ending", did: "evict"},
		"another of that name":         {pod: pod("a"), answer: conflict("Precondition failed: UID in precondition: a, UID in object meta: b"), want: conflict("Precondition failed: UID in precondition: a, UID in object meta: b").Error(), did: "evict"},
		"a budget that changed":        {pod: pod("a"), answer: conflict("the object has been modified"), want: conflict("the object has been modified").Error(), did: "evict"},
		"a webhook answers 409":        {pod: pod("a"), answer: conflict("a failover is running"), want: conflict("a failover is running").Error(), did: "evict"},
		"held by a budget":             {pod: pod("a"), answer: budgetError("The disruption budget b needs 2", 0), want: "The disruption budget b needs 2", did: "evict"},
		"budget still in process":      {pod: pod("a"), answer: budgetError("The disruption budget b is new", 10), want: "The disruption budget b is new", did: "evict"},
		"held by a budget, forced":     {pod: pod("a"), answer: budgetError("b", 0), push: force, want: "b", did: "evict"},
		"held by a budget, overdue":    {pod: pod("a"), answer: budgetError("b", 0), push: overdue, want: "b", did: "evict"},
		"overdue and forced":           {pod: pod("a"), push: overdue | force, want: "deleted with a grace of 1s", did: "delete 1"},
		"several budgets":              {pod: pod("a"), answer: several, want: severalReason(nil) + ": one, two", stuck: true, did: "evict"},
		"namespace ends":               {pod: pod("a"), answer: terminating, want: "its namespace is being deleted", did: "evict"},
		"webhook denies":               {pod: pod("a"), answer: webhook, want: webhook.Error(), did: "evict"},
		"ending":                       {pod: pod("a", deleting(30, noon)), want: "ending"},
		"ending, held":                 {pod: pod("a", deleting(30, noon), func(p *corev1.Pod) { p.Finalizers = []string{"f/g"} }), want: "ending; finalizers f/g"},
		"ending slowly, forced":        {pod: pod("a", deleting(900, noon)), push: overdue | force, want: "deleted with a grace of 1s", did: "delete 1"},
		"ending at once, forced":       {pod: pod("a", deleting(1, noon.Add(-9*time.Second))), push: overdue | force, want: "ending"},
		"not ending, forced":           {pod: pod("a", deleting(1, noon.Add(-11*time.Second))), push: overdue | force, want: "deleted with a grace of 0s", did: "delete 0"},
		"no controller":                {pod: pod("a", bare), want: reasonUnmanaged, stuck: true},
		"no controller, overdue":       {pod: pod("a", bare), push: overdue, want: reasonUnmanaged, stuck: true},
		"no controller, forced":        {pod: pod("a", bare), push: force, want: "ending", did: "evict"},
		"no controller, but finished":  {pod: pod("a", bare, succeeded), want: "ending", did: "evict"},
		"no controller, ending":        {pod: pod("a", bare, deleting(30, noon)), want: "ending"},
		"daemon set":                   {pod: pod("a", daemon), push: overdue | force},
		"mirror":                       {pod: pod("a", mirror), push: overdue | force},
		"seal pod":                     {pod: pod("a", seal), push: overdue | force},
		"named like a seal pod":        {pod: pod("a", falseSeal), want: reasonUnmanaged, stuck: true},
		"gone before it was deleted":   {pod: pod("a"), push: overdue | force, answer: apierrors.NewNotFound(podsResource, "a"), want: "ending", did: "delete 1"},
		"replaced before it was ended": {pod: pod("a"), push: overdue | force, answer: conflict("uid"), want: "ending", did: "delete 1"},
		"tolerates everything":         {pod: pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), want: reasonReturns, stuck: true},
		"tolerates the block, forced":  {pod: pod("a", tolerating(corev1.Toleration{Key: kamino.TaintBlock, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})), push: overdue | force, want: reasonReturns, stuck: true},
		"tolerates it, and ends":       {pod: pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), deleting(30, noon)), want: "ending"},
		"tolerates it, ends, forced":   {pod: pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), deleting(900, noon)), push: overdue | force, want: "deleted with a grace of 1s", did: "delete 1"},
		"tolerates it, of a Job":       {pod: pod("a", job, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), want: reasonWorks},
		"tolerates it, a Job, forced":  {pod: pod("a", job, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), push: overdue | force, want: reasonWorks},
		"of a Job":                     {pod: pod("a", job), want: "ending", did: "evict"},
		"tolerates it, finished":       {pod: pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}), succeeded), want: "ending", did: "evict"},
		"tolerates it, no controller":  {pod: pod("a", bare, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), push: force, want: "ending", did: "evict"},
		"tolerates other taints": {pod: pod("a", tolerating(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})),
			want: "ending", did: "evict"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.pod, budget("one", 1), budget("two", 1))
			did := answerRemovals(t, client, tt.answer)
			c := NewForClient(client, Options{Clock: &fixedClock{now: noon}})
			opts := kamino.DrainOptions{Grace: 300 * time.Second, Force: tt.push&force != 0, Overdue: tt.push&overdue != 0}
			got, err := c.Evict(t.Context(), kamino.Node{Name: "n1"}, opts)
			if err != nil {
				t.Fatal(err)
			}
			var want []kamino.Pod
			if tt.want != "" {
				want = []kamino.Pod{{Namespace: "shop", Name: "a", UID: "uid-of-pod", Controller: madeBy(tt.pod), Reason: tt.want, Stuck: tt.stuck, Returns: tt.want == reasonReturns || tt.want == reasonWorks}}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if *did != tt.did {
				t.Errorf("did %q, want %q", *did, tt.did)
			}
		})
	}
}

// answerRemovals answers evictions and deletions and notes what was asked. Each
// must be for this very pod.
func answerRemovals(t *testing.T, client *fake.Clientset, answer error) *string {
	did := new(string)
	check := func(o *metav1.DeleteOptions) {
		if o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID != "uid-of-pod" {
			t.Errorf("not for this pod alone: %v", o.Preconditions)
		}
	}
	client.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		eviction, ok := a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		*did += "evict"
		check(eviction.DeleteOptions)
		if s := eviction.DeleteOptions.GracePeriodSeconds; s == nil || *s != 300 {
			t.Errorf("grace of eviction: %v", s)
		}
		return true, nil, answer
	})
	client.PrependReactor("delete", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		o := a.(ktesting.DeleteActionImpl).DeleteOptions
		*did += "delete " + string('0'+rune(*o.GracePeriodSeconds))
		check(&o)
		return true, nil, answer
	})
	return did
}

func budget(name string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, DesiredHealthy: 2, CurrentHealthy: 1 + allowed},
	}
}

func TestEvictGrace(t *testing.T) {
	for _, tt := range []struct {
		grace time.Duration
		want  *int64
	}{{-1, nil}, {0, ptr(0)}, {time.Millisecond, ptr(1)}, {90 * time.Second, ptr(90)}} {
		if diff := cmp.Diff(tt.want, onlyThis(pod("a"), tt.grace).GracePeriodSeconds); diff != "" {
			t.Errorf("%s: %s", tt.grace, diff)
		}
	}
}

func ptr(n int64) *int64 { return &n }

// What ends a round at once: nobody can do anything about the next pod either.
func TestEvictFails(t *testing.T) {
	rbac := apierrors.NewForbidden(podsResource, "a", errors.New(`User "k" cannot create resource "pods/eviction" in API group "" in the namespace "shop"`))
	for name, tt := range map[string]struct{ answer, want error }{
		"not allowed": {rbac, kamino.ErrForbidden},
		"broken":      {apierrors.NewInternalError(errors.New("etcd")), kamino.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(pod("a"), pod("b"))
			did := answerRemovals(t, client, tt.answer)
			_, err := NewForClient(client, Options{}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{Grace: 300 * time.Second})
			if !errors.Is(err, tt.want) || *did != "evict" {
				t.Errorf("%s: got %v after %q", name, err, *did)
			}
		})
	}
	var throttled *kamino.ThrottledError
	client := fake.NewClientset(pod("a"))
	answerRemovals(t, client, apierrors.NewTooManyRequests("too many requests", 7))
	_, err := NewForClient(client, Options{}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{Grace: 300 * time.Second})
	if !errors.As(err, &throttled) || throttled.After != 7*time.Second {
		t.Errorf("throttled: got %v", err)
	}
}

// TestOthersWords: what a webhook answers to an eviction is others' text, whatever its code.
func TestOthersWords(t *testing.T) {
	const evil = "failover\x1b[2J\n1  other-node\u202e"
	for name, answer := range map[string]error{"409": conflict(evil), "403": apierrors.NewForbidden(podsResource, "a", errors.New(evil)),
		"500": apierrors.NewInternalError(errors.New(evil)), "400": apierrors.NewBadRequest(evil)} {
		client := fake.NewClientset(pod("a"))
		answerRemovals(t, client, answer)
		left, err := NewForClient(client, Options{}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{Grace: 300 * time.Second})
		text := fmt.Sprint(left, err)
		if len(left) > 0 {
			text = left[0].Reason
		}
		if kamino.Plain(text) != text {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// A round that takes long ends early; the pods that had no turn are still listed.
func TestEvictRoundEnds(t *testing.T) {
	client := fake.NewClientset(pod("a"), pod("b"))
	clock := &fixedClock{now: noon}
	client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		clock.now = clock.now.Add(evictTime + time.Second)
		return true, nil, nil
	})
	got, err := NewForClient(client, Options{Clock: clock}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{})
	want := []kamino.Pod{{Namespace: "shop", Name: "a", UID: "uid-of-pod", Controller: "uid-of-web", Reason: "ending"},
		{Namespace: "shop", Name: "b", UID: "uid-of-pod", Controller: "uid-of-web", Reason: "evicted in the next round"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// The filters must not cost a request for each pod of a DaemonSet.
func TestEvictRequests(t *testing.T) {
	client := fake.NewClientset(pod("a", daemon), pod("b", daemon), pod("c"), &appsv1.DaemonSet{})
	client.PrependReactor("create", "pods", func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
	if _, err := NewForClient(client, Options{}).Evict(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range client.Actions() {
		got = append(got, a.GetVerb()+" "+a.GetResource().Resource)
	}
	if want := []string{"list pods", "create pods"}; !slices.Equal(got, want) {
		t.Errorf("requests: %v, want %v", got, want)
	}
	list := client.Actions()[0].(ktesting.ListAction).GetListRestrictions()
	if list.Fields.String() != "spec.nodeName=n1" {
		t.Errorf("listed pods of %s", list.Fields)
	}
}
