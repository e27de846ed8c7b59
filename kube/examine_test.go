package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

const canaryNode = "kamino-0a1b2c3d000000"

func sighted(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Labels: map[string]string{"agentpool": "a", "by-hand": "x"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:agentpool":{}}}}`)},
				{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:by-hand":{}}}}`)},
			}},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: "m-" + name, KubeletVersion: "v1.36.3"},
			Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")},
			Images:     []corev1.ContainerImage{{Names: []string{"r/a@sha256:1", "r/a:1"}}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"}}},
	}
}

func request(t *testing.T, name, node string, made time.Time, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(made)},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
	for _, c := range conditions {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(made.Add(time.Minute))})
	}
	return csr
}

func daemonSet(name string, template corev1.PodSpec) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, UID: types.UID(name)},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: template}}}
}

func daemonPodOf(set *appsv1.DaemonSet, ready corev1.ConditionStatus, waiting string) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name + "-x",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: set.UID, Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: canaryNode},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	if waiting != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}}}
	}
	return pod
}

// TestExamine: what the API server tells of a canary's node.
func TestExamine(t *testing.T) {
	canary, donor := sighted(canaryNode), sighted("a-0")
	canary.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	proxy := daemonSet("proxy", corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}})
	logs := daemonSet("logs", corev1.PodSpec{NodeSelector: map[string]string{"agentpool": "a"}, Tolerations: []corev1.Toleration{{Key: "dedicated", Value: "gpu"}}})
	elsewhere := daemonSet("elsewhere", corev1.PodSpec{NodeSelector: map[string]string{"agentpool": "b"}, Tolerations: proxy.Spec.Template.Spec.Tolerations})
	shy := daemonSet("shy", corev1.PodSpec{})
	renewed := metav1.NewMicroTime(noon.Add(-5 * time.Second))
	started := func(name string, at time.Time) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Reason: "Starting", Count: 1, LastTimestamp: metav1.NewTime(at),
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: canaryNode}, Source: corev1.EventSource{Component: "kubelet"}}
	}
	since := noon.Add(-10 * time.Minute)
	c := NewForClient(fake.NewClientset(canary, donor, proxy, logs, elsewhere, shy, daemonPodOf(proxy, corev1.ConditionTrue, ""), daemonPodOf(logs, corev1.ConditionFalse, "ImagePullBackOff"),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "a-0"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}},
		request(t, "mine", canaryNode, since.Add(time.Minute)), request(t, "old", canaryNode, since.Add(-time.Hour)),
		request(t, "fine", canaryNode, since.Add(time.Minute), certificatesv1.CertificateApproved), request(t, "another", "a-9", since.Add(2*time.Minute), certificatesv1.CertificateApproved),
		started("e1", since.Add(time.Minute)), started("e2", since.Add(2*time.Minute)), started("e3", since.Add(-time.Hour))), Options{Clock: &fixedClock{now: noon}})
	got, err := c.Examine(t.Context(), kamino.ExamineOrder{Run: "r", Node: canaryNode, Sibling: "a-0", Since: since})
	if err != nil {
		t.Fatal(err)
	}
	n := got.Node
	if n.MachineID != "m-"+canaryNode || n.CPU != 4000 || n.Memory != 8<<30 || n.MaxPods != 110 || n.Versions["kubelet"] != "v1.36.3" || len(n.Images) != 1 ||
		len(n.Own) != 1 || n.Own["agentpool"] != "a" || n.NotReady != "KubeletNotReady: no network" || !got.Sibling.Pulse.Equal(renewed.Time) || !got.Renewed.Equal(renewed.Time) {
		t.Errorf("node %+v, renewed %s, sibling's pulse %s", n, got.Renewed, got.Sibling.Pulse)
	}
	if len(got.Requests) != 1 || got.Requests[0].Name != "mine" || got.Requests[0].Denied || got.Requests[0].Foreign || !got.Requests[0].OthersApproved {
		t.Errorf("requests %+v", got.Requests)
	}
	if len(got.Daemons) != 2 || got.Daemons[0].Set != "kube-system/logs" || got.Daemons[0].Ready || !got.Daemons[0].Owed || !got.Daemons[1].Ready {
		t.Errorf("DaemonSets %+v", got.Daemons)
	}
	if got.Starts != 2 {
		t.Errorf("%d starts of the kubelet", got.Starts)
	}
	none, err := c.Examine(t.Context(), kamino.ExamineOrder{Node: "not-there", Since: since})
	if err != nil || none.Node.UID != "" || none.Renewed.IsZero() {
		t.Errorf("%+v, %v", none, err)
	}
	if got, err := NewForClient(fake.NewClientset(donor), Options{Clock: &fixedClock{now: noon}}).Examine(t.Context(), kamino.ExamineOrder{Node: "a-0"}); err != nil || !got.Renewed.IsZero() {
		t.Errorf("nobody else is heard of: %+v, %v", got, err)
	}
}

// TestForeign: anybody may write any node's name into a request; who asked is the API server's
// word.
func TestForeign(t *testing.T) {
	for what, tt := range map[string]struct {
		user, group string
		want        bool
	}{
		"its first":    {"system:bootstrap:abcdef", "system:bootstrappers", false},
		"its own":      {"system:node:" + canaryNode, "system:nodes", false},
		"another node": {"system:node:a-1", "system:nodes", true},
		"a person":     {"mallory", "system:authenticated", true},
	} {
		t.Run(what, func(t *testing.T) {
			r := request(t, "r", canaryNode, noon)
			r.Spec.Username, r.Spec.Groups = tt.user, []string{tt.group}
			c := NewForClient(fake.NewClientset(r), Options{Clock: &fixedClock{now: noon}})
			if got, err := c.requests(t.Context(), canaryNode, noon); err != nil || len(got) != 1 || got[0].Foreign != tt.want {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		})
	}
}

// TestDaemonPods: a pod that is not Ready speaks against a node only where the scheduler or the
// node keeps it, and the sibling's pod of the same revision is Ready.
func TestDaemonPods(t *testing.T) {
	canary := sighted(canaryNode)
	set := daemonSet("proxy", corev1.PodSpec{})
	pod := func(node, revision string, ready corev1.ConditionStatus, change func(*corev1.Pod)) *corev1.Pod {
		p := daemonPodOf(set, ready, "")
		p.Name, p.Spec.NodeName = "proxy-"+node+revision, node
		p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
		if change != nil {
			change(p)
		}
		return p
	}
	unbound := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{canaryNode}}}}}}}}
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: "Insufficient cpu"})
		}
	}
	waits := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	fine := pod("a-0", "1", yes, nil)
	for what, tt := range map[string]struct {
		pods                []runtime.Object
		ready, beside, owed bool
	}{
		"Ready":                         {[]runtime.Object{pod(canaryNode, "1", yes, nil), fine}, true, false, false},
		"crashes here alone":            {[]runtime.Object{pod(canaryNode, "1", no, waits("CrashLoopBackOff")), fine}, false, true, false},
		"crashes everywhere":            {[]runtime.Object{pod(canaryNode, "1", no, nil), pod("a-0", "1", no, nil)}, false, false, false},
		"a new revision":                {[]runtime.Object{pod(canaryNode, "2", no, nil), fine}, false, false, false},
		"waits for a Secret":            {[]runtime.Object{pod(canaryNode, "1", no, waits("CreateContainerConfigError")), fine}, false, true, true},
		"made by nobody":                {[]runtime.Object{fine}, false, false, true},
		"no room":                       {[]runtime.Object{pod("", "1", no, unbound(corev1.PodReasonUnschedulable)), fine}, false, true, false},
		"seen by no scheduler":          {[]runtime.Object{pod("", "1", no, unbound("")), fine}, false, true, true},
		"the pod of another is unbound": {[]runtime.Object{pod("", "1", no, nil), pod(canaryNode, "1", yes, nil), fine}, true, false, false},
	} {
		t.Run(what, func(t *testing.T) {
			c := NewForClient(fake.NewClientset(append(tt.pods, set)...), Options{})
			got, err := c.daemons(t.Context(), canary, "a-0")
			if err != nil || len(got) != 1 || got[0].Ready != tt.ready || got[0].Beside != tt.beside || got[0].Owed != tt.owed || got[0].Asked != (what == "waits for a Secret") || got[0].Unplaced != (what == "no room") {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		})
	}
}

// TestSelects: a DaemonSet selects a node as its controller decides.
func TestSelects(t *testing.T) {
	node := sighted("n")
	term := func(op corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "agentpool", Operator: op, Values: values}}}}}}}
	}
	byName := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}}}}}
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"all":           {corev1.PodSpec{}, true},
		"a label":       {corev1.PodSpec{NodeSelector: map[string]string{"agentpool": "a"}}, true},
		"another value": {corev1.PodSpec{NodeSelector: map[string]string{"agentpool": "b"}}, false},
		"in":            {corev1.PodSpec{Affinity: term(corev1.NodeSelectorOpIn, "a", "b")}, true},
		"not in":        {corev1.PodSpec{Affinity: term(corev1.NodeSelectorOpNotIn, "a")}, false},
		"exists":        {corev1.PodSpec{Affinity: term(corev1.NodeSelectorOpExists)}, true},
		"exists not":    {corev1.PodSpec{Affinity: term(corev1.NodeSelectorOpDoesNotExist)}, false},
		"by name":       {corev1.PodSpec{Affinity: byName}, true},
		"another node":  {corev1.PodSpec{NodeName: "m"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selects(&tt.spec, node); got != tt.want {
				t.Errorf("%s: %t", name, got)
			}
		})
	}
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
	if !selects(&corev1.PodSpec{}, node) {
		t.Error("a cordoned node is left out")
	}
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: kamino.TaintCanary, Effect: corev1.TaintEffectNoSchedule})
	if selects(&corev1.PodSpec{}, node) {
		t.Error("a node with the taint of a canary is selected")
	}
}

const probe = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, namespace: ops}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: p, image: \"reg.example.com/p:1\"}]\n"

// TestProbe: the operator's Job runs on the canary and nowhere else, under the run's name; what is
// no Job, or has no image that could be pulled, is refused.
func TestProbe(t *testing.T) {
	client := fake.NewClientset()
	c := NewForClient(client, Options{})
	if err := c.StartProbe(t.Context(), kamino.Probed{Run: "r", Namespace: "ops", Nonce: "n0nce"}, kamino.Node{Name: canaryNode}, []byte(probe)); err != nil {
		t.Fatal(err)
	}
	if err := c.StartProbe(t.Context(), kamino.Probed{Run: "r", Namespace: "ops", Nonce: "n0nce"}, kamino.Node{Name: canaryNode}, []byte(probe)); err != nil {
		t.Error("again: ", err)
	}
	job, err := client.BatchV1().Jobs("ops").Get(t.Context(), "kamino-probe-r", metav1.GetOptions{})
	if err != nil || job.Spec.Template.Spec.NodeName != canaryNode {
		t.Fatal(job, err)
	}
	order := kamino.ExamineOrder{Run: "r", Probe: []byte(probe), Nonce: "n0nce"}
	if got, err := c.probe(t.Context(), order); err != nil || !got.Wanted || !got.Started || got.Done {
		t.Errorf("%+v, %v", got, err)
	}
	tried := corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}}
	waits := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}
	for name, status := range map[string]corev1.PodStatus{"a": tried, "b": waits, "c": tried} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ops", Labels: map[string]string{"batch.kubernetes.io/job-name": job.Name}}, Status: status}
		if _, err := client.CoreV1().Pods("ops").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.probe(t.Context(), order); err != nil || !got.Owed || !strings.Contains(got.Reason, "pod b is pending") {
		t.Errorf("it tries again, beside pods that failed: %+v, %v", got, err)
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
	if _, err := client.BatchV1().Jobs("ops").UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.probe(t.Context(), order); err != nil || !got.Failed || got.Reason != "BackoffLimitExceeded" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := c.RemoveProbe(t.Context(), kamino.Probed{Run: "r", Namespace: "ops", Nonce: "n0nce"}); err != nil {
		t.Error(err)
	}
	if got, err := c.probe(t.Context(), order); err != nil || got.Started {
		t.Errorf("%+v, %v", got, err)
	}
	for what, text := range map[string]string{
		"a pod":        strings.Replace(probe, "kind: Job", "kind: Pod", 1),
		"no image":     strings.Replace(probe, "reg.example.com/p:1", "Reg Example", 1),
		"no namespace": strings.Replace(probe, ", namespace: ops", "", 1),
		"ours":         strings.Replace(probe, "namespace: ops", "namespace: kamino-system", 1),
		"suspended":    strings.Replace(probe, "spec:\n", "spec:\n  suspend: true\n", 1),
		"no pods":      strings.Replace(probe, "spec:\n", "spec:\n  parallelism: 0\n", 1),
		"upper case":   strings.Replace(probe, "reg.example.com/p:1", "busyBox:1", 1),
		"an empty tag": strings.Replace(probe, "reg.example.com/p:1", "nginx:", 1),
		"two tags":     strings.Replace(probe, "reg.example.com/p:1", "a:b:c", 1),
		"its init":     strings.Replace(probe, "      containers", "      initContainers: [{name: i, image: \"A B\"}]\n      containers", 1),
		"nothing":      "",
		"no YAML":      ":\n\t-",
	} {
		t.Run(what, func(t *testing.T) {
			var refused *kamino.RefusedError
			_, err := readProbe([]byte(text), "r", kamino.Node{})
			if !errors.As(err, &refused) {
				t.Errorf("%s: %v", what, err)
			}
			if want := map[string]string{"a pod": "the Job of --probe refused: it contains a Pod of batch/v1, not a Job of batch/v1;", "nothing": "it contains nothing, not a Job of batch/v1;"}[what]; err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// TestProbeImages: what a kubelet takes is no error of the operator's.
func TestProbeImages(t *testing.T) {
	for _, image := range []string{"busybox", "busybox:1.36", "library/busybox", "localhost:5000/a/b_c:Tag.1", "Registry.Example.com/a--b/c__d",
		"r.io/a@sha256:" + strings.Repeat("0f", 32), "r.io/a:1@sha512:" + strings.Repeat("0f", 64)} {
		if _, err := readProbe([]byte(strings.Replace(probe, "reg.example.com/p:1", image, 1)), "r", kamino.Node{}); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

// TestProbeLife: a Job whose end goes before it is read would be made again and again, and one that
// nobody removes must end. Deadlines of its own would end it while the registry is away.
func TestProbeLife(t *testing.T) {
	text := strings.Replace(probe, "spec:\n", "spec:\n  ttlSecondsAfterFinished: 1\n  activeDeadlineSeconds: 120\n", 1)
	text = strings.Replace(text, "      containers", "      activeDeadlineSeconds: 60\n      containers", 1)
	job, err := readProbe([]byte(text), "r", kamino.Node{})
	if err != nil || *job.Spec.TTLSecondsAfterFinished != 3600 || job.Spec.ActiveDeadlineSeconds == nil || *job.Spec.ActiveDeadlineSeconds != 25*3600 || job.Spec.Template.Spec.ActiveDeadlineSeconds != nil {
		t.Errorf("%+v, %v", job, err)
	}
}

// TestProbeOwed: a probe that waits for a Secret says nothing of the node that it is on.
func TestProbeOwed(t *testing.T) {
	mounts := strings.Replace(probe, "      containers", "      volumes: [{name: s, secret: {secretName: x}}]\n      containers", 1)
	creating := []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	for what, tt := range map[string]struct {
		text     string
		statuses []corev1.ContainerStatus
		want     bool
	}{
		"a volume":    {mounts, creating, true},
		"none":        {probe, creating, false},
		"it runs":     {mounts, []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}, false},
		"environment": {probe, []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"}}}}, true},
	} {
		t.Run(what, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "p", Labels: map[string]string{"batch.kubernetes.io/job-name": "kamino-probe-r"}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: tt.statuses}})
			c := NewForClient(client, Options{})
			if err := c.StartProbe(t.Context(), kamino.Probed{Run: "r", Namespace: "ops", Nonce: "n0nce"}, kamino.Node{Name: canaryNode}, []byte(tt.text)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.probe(t.Context(), kamino.ExamineOrder{Run: "r", Probe: []byte(tt.text), Nonce: "n0nce"}); err != nil || !got.Started || got.Owed != tt.want {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		})
	}
}

// TestForeignProbe: a Job of the probe's name that somebody else made, and that succeeded, says
// nothing of the image, is not taken for the run's, and is not deleted.
func TestForeignProbe(t *testing.T) {
	for name, labels := range map[string]map[string]string{"no label": nil, "another nonce": {labelNonce: "other"}} {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "kamino-probe-r", Labels: labels},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}}
		client := fake.NewClientset(job)
		c := NewForClient(client, Options{})
		mine := kamino.Probed{Run: "r", Namespace: "ops", Nonce: "n0nce"}
		if err := c.StartProbe(t.Context(), mine, kamino.Node{Name: canaryNode}, []byte(probe)); err == nil || !strings.Contains(err.Error(), "Job ops/kamino-probe-r is not this run's") ||
			!strings.Contains(kamino.Hint(err), "kubectl delete job -n ops kamino-probe-r") {
			t.Errorf("%s: %v, %q", name, err, kamino.Hint(err))
		}
		for _, nonce := range []string{"n0nce", ""} {
			if got, err := c.probe(t.Context(), kamino.ExamineOrder{Run: "r", Probe: []byte(probe), Nonce: nonce}); err != nil || got.Started || got.Done {
				t.Errorf("%s, nonce %q: %+v, %v", name, nonce, got, err)
			}
		}
		if err := c.RemoveProbe(t.Context(), mine); err != nil {
			t.Error(err)
		}
		if _, err := client.BatchV1().Jobs("ops").Get(t.Context(), job.Name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: it was deleted: %v", name, err)
		}
	}
}

// TestAdmitCanary: one write, which depends on the node as it was read.
func TestAdmitCanary(t *testing.T) {
	node := sighted(canaryNode)
	node.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: kamino.TaintCanary, Effect: "NoSchedule"}, {Key: "b", Effect: "NoSchedule"}}
	client := fake.NewClientset(node)
	c := NewForClient(client, Options{})
	read, err := c.Node(t.Context(), canaryNode)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AdmitCanary(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	now, err := c.Node(t.Context(), canaryNode)
	if err != nil || !now.Unschedulable || len(now.Taints) != 2 || now.Tainted(kamino.TaintCanary) {
		t.Errorf("%+v, %v", now, err)
	}
	if err := c.RemoveNode(t.Context(), now); err != nil {
		t.Error(err)
	}
	if err := c.RemoveNode(t.Context(), now); err != nil {
		t.Error("again: ", err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), canaryNode, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestAdmitChanged: a node that its kubelet wrote meanwhile is admitted; another one of its name is
// a conflict, told in words.
func TestAdmitChanged(t *testing.T) {
	client := fake.NewClientset(sighted(canaryNode))
	c := NewForClient(client, Options{})
	read, err := c.Node(t.Context(), canaryNode)
	if err != nil {
		t.Fatal(err)
	}
	failures, uid := 2, types.UID(read.UID)
	client.PrependReactor("patch", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		if failures--; failures < 0 {
			return false, nil, nil
		}
		n, err := client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", canaryNode)
		if err != nil {
			return true, nil, err
		}
		now := n.(*corev1.Node).DeepCopy()
		now.ResourceVersion, now.UID = fmt.Sprint("changed", failures), uid
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), now, ""); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", schema.GroupResource{Resource: "nodes"}, canaryNode, "the server rejected our request", 0, false)
	})
	if err := c.AdmitCanary(t.Context(), read); err != nil {
		t.Error(err)
	}
	failures, uid = 9, "another"
	if err := c.AdmitCanary(t.Context(), read); !errors.Is(err, kamino.ErrConflict) || strings.Contains(err.Error(), "rejected") {
		t.Errorf("another node: %v", err)
	}
}

// TestPauseSwitch: the reason stands on the namespace until it is taken away.
func TestPauseSwitch(t *testing.T) {
	var objects []runtime.Object
	c := NewForClient(fake.NewClientset(objects...), Options{})
	if pause, err := c.Paused(t.Context()); pause.Reason != "" || err != nil {
		t.Errorf("a cluster that is not prepared: %q, %v", pause, err)
	}
	// As kubectl leaves it over what a former pause tells.
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kamino.SystemNamespace, Annotations: map[string]string{
		kamino.AnnotationPaused: "the disk array", kamino.AnnotationPausedBy: `{"reason":"an incident","by":"bob"}`}}}
	api := fake.NewClientset(space)
	api.PrependReactor("create", "selfsubjectreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann"}}}, nil
	})
	c = NewForClient(api, Options{})
	if pause, err := c.Paused(t.Context()); pause != (kamino.Pause{Reason: "the disk array"}) || err != nil {
		t.Errorf("%+v, %v", pause, err)
	}
	for _, want := range []string{"an incident", ""} {
		if err := c.Pause(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		pause, err := c.Paused(t.Context())
		if known := pause.By == "ann" && !pause.Since.IsZero(); pause.Reason != want || err != nil || known != (want != "") {
			t.Errorf("%+v, %v; want %q", pause, err, want)
		}
	}
}
