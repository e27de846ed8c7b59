package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/lab/demo"
)

// right is one verb of one rule of a rendered role.
type right struct{ kind, namespace, role, group, resource, verb string }

func (r right) String() string {
	where := "cluster"
	if r.namespace != "" {
		where = r.namespace
	}
	return fmt.Sprintf("%s_%s_in_%s", r.verb, strings.ReplaceAll(r.resource, "/", "_"), where)
}

// boundRole is the role of the base that a binding names; nil when there is none of that name,
// or the object is no binding.
func boundRole(t *testing.T, binding *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	kind, _, _ := unstructured.NestedString(binding.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name")
	manifests, err := charts.Base(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range manifests {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if name != "" && o.GetKind() == kind && o.GetName() == name && (kind == "ClusterRole" || o.GetNamespace() == binding.GetNamespace()) {
			return o
		}
	}
	return nil
}

// rights lists what a release is granted.
func rights(t *testing.T, sets []string) []right {
	t.Helper()
	var out []right
	for _, o := range objects(t, "rel", sets...) {
		role := boundRole(t, o)
		if role == nil || role.GetName() == "kamino-uninstall" { // TestUninstall tests that one
			continue
		}
		each(t, role, func(r right, _ map[string]any) {
			if r.verb != "keep-to-own" {
				out = append(out, r)
			}
		})
	}
	return out
}

// each calls f with every right of a role and its rule.
func each(t *testing.T, o *unstructured.Unstructured, f func(right, map[string]any)) {
	t.Helper()
	if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
		return
	}
	rules, _, err := unstructured.NestedSlice(o.Object, "rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		rule := rule.(map[string]any)
		for _, resource := range rule["resources"].([]any) {
			for _, verb := range rule["verbs"].([]any) {
				f(right{o.GetKind(), o.GetNamespace(), o.GetName(), rule["apiGroups"].([]any)[0].(string), resource.(string), verb.(string)}, rule)
			}
		}
	}
	if err := unstructured.SetNestedSlice(o.Object, rules, "rules"); err != nil {
		t.Fatal(err)
	}
}

// without removes one right. The other resources of its rule keep the verb: the resource moves to a
// rule of its own. There a verb that does not exist replaces the removed one, as a rule must have one.
func without(t *testing.T, gone right) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		var own []any
		each(t, o, func(r right, rule map[string]any) {
			if r != gone {
				return
			}
			less := runtime.DeepCopyJSON(rule)
			less["resources"] = []any{r.resource}
			verbs := less["verbs"].([]any)
			verbs[slices.Index(verbs, any(r.verb))] = "nothing"
			own = append(own, less)
			rule["resources"] = slices.DeleteFunc(slices.Clone(rule["resources"].([]any)), func(resource any) bool { return resource == r.resource })
		})
		rules, _, err := unstructured.NestedSlice(o.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		rules = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["resources"].([]any)) == 0 })
		if err := unstructured.SetNestedSlice(o.Object, append(rules, own...), "rules"); err != nil {
			t.Fatal(err)
		}
	}
}

var quick = []string{"--prove-for", "0s"}

// jobs are the ways in which a job of the chart runs; POOL and NODE are its own.
var jobs = []struct {
	name    string
	sets    []string
	quick   []string
	budget  bool   // a disruption budget holds the donor's pod
	like    string // rights of that job are tested there
	outcome string // in what it prints
}{
	{name: "status", outcome: "Next node:"},
	{name: "dry-run", sets: []string{"kamino.targetVMSS=POOL", kured1, kured2, "kamino.auto.minimumReadyTime=0", "kamino.auto.dryRun=true"}, outcome: "EVICTED POD"},
	{name: "update", sets: []string{"kamino.targetNode=NODE", "kamino.drain.gracePeriod=1"}, quick: quick, outcome: "Donor away:"},
	{name: "force", sets: []string{"kamino.targetNode=NODE", "kamino.drain.gracePeriod=1", "kamino.drain.force=true", "kamino.drain.timeout=1"},
		quick: quick, budget: true, like: "update", outcome: "Donor away:"},
	{name: "auto-update", sets: []string{"kamino.targetVMSS=POOL", kured1, kured2, "kamino.auto.minimumReadyTime=0", "kamino.drain.gracePeriod=1",
		"kamino.auto.maxUnavailablePools=all", "kamino.auto.maxNotReady=1000"}, quick: quick, like: "update", outcome: "updated"},
}

// workload puts a pod on the node of a release, and a patch date.
func (r *release) workload(t *testing.T, budget bool) {
	t.Helper()
	w := demo.Workload{Name: r.pool, Replicas: 1, NodeSelector: map[string]string{"kubernetes.io/hostname": r.node}}
	if budget {
		w.MinAvailable = 1
	}
	if err := w.Start(t.Context(), shared.Client); err != nil {
		t.Fatal(err)
	}
	r.annotate(t, kamino.KuredLastPatch.Annotation, time.Now().UTC().Add(-time.Hour).Format(time.RFC3339))
}

func (r *release) annotate(t *testing.T, name, value string) {
	t.Helper()
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}})
	if _, err := shared.Client.CoreV1().Nodes().Patch(t.Context(), r.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// events counts those of the release's node that kamino wrote.
func (r *release) events(t *testing.T) (n int) {
	t.Helper()
	list, err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + r.node})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Source.Component == "kamino" {
			n++
		}
	}
	return n
}

// Every job does its work with just the rights that the chart gives it.
func TestJobs(t *testing.T) {
	for _, job := range jobs {
		t.Run(job.name, func(t *testing.T) {
			t.Parallel()
			r := newRelease(t, slices.Clone(job.sets), nil)
			r.workload(t, job.budget)
			o := r.run(t, "", job.quick...)
			if o.code != 0 || !strings.Contains(o.out, job.outcome) {
				t.Fatalf("exit code %d, output:\n%s\nlog:\n%s", o.code, o.out, tail(o.log))
			}
			if acts := job.quick != nil; acts != (r.events(t) > 0) {
				t.Errorf("%d events are on the node", r.events(t))
			}
			if strings.Contains(o.log, "forbidden") {
				t.Errorf("something was forbidden:\n%s", tail(o.log))
			}
		})
	}
}

// Without any one right, something fails: the table or the log names the right, or what it
// is for is missing.
func TestNoRightIsNeedless(t *testing.T) {
	tested := map[string][]right{}
	for _, job := range jobs {
		for _, gone := range rights(t, example(job.sets)) {
			if slices.Contains(tested[job.like], gone) {
				continue
			}
			tested[job.name] = append(tested[job.name], gone)
			t.Run(job.name+"/"+gone.String(), func(t *testing.T) {
				t.Parallel()
				r := newRelease(t, slices.Clone(job.sets), without(t, gone))
				r.workload(t, job.budget)
				acts, stop := job.quick != nil, fmt.Sprintf("cannot %s resource %q", gone.verb, gone.resource)
				if acts {
					stop = "" // connect ends it
				}
				o := r.run(t, stop, job.quick...)
				switch {
				case gone.resource == "events" && gone.verb == "create" && o.code == 0 && r.events(t) == 0:
				case gone.resource == "events" && gone.verb == "create":
					t.Errorf("exit code %d, %d events", o.code, r.events(t))
				case acts:
					r.refusedFirst(t, o, gone)
				case o.code == 0 || !strings.Contains(o.out+o.log, stop):
					t.Errorf("exit code %d without the right to %s %s, output:\n%s\nlog:\n%s", o.code, gone.verb, gone.resource, o.out, tail(o.log))
				}
			})
		}
	}
}

// refusedFirst: the job was told of the right that it lacks, and of no other, before it changed
// anything.
func (r *release) refusedFirst(t *testing.T, o outcome, gone right) {
	t.Helper()
	lacks := fmt.Sprintf("system:serviceaccount:%s:%s lacks rights that a run uses: %s %s", namespace, r.job.ServiceAccountName, gone.verb, gone.resource)
	if o.code == 0 || !strings.Contains(o.log, lacks) || strings.Contains(o.log, lacks+",") || !strings.Contains(o.log, "--user='system:serviceaccount:") {
		t.Errorf("exit code %d without the right to %s %s, log:\n%s", o.code, gone.verb, gone.resource, tail(o.log))
	}
	n, err := shared.Client.CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := shared.Client.CoordinationV1().Leases(kamino.SystemNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := slices.ContainsFunc(leases.Items, func(l coordinationv1.Lease) bool { return strings.Contains(l.Name, r.pool) })
	if n.Annotations[kamino.AnnotationRun] != "" || len(n.Spec.Taints) > 0 || held {
		t.Errorf("without the right to %s %s something was changed: %v, %v, lease %v", gone.verb, gone.resource, n.Annotations, n.Spec.Taints, held)
	}
}

// example fills in a pool, for rendering alone.
func example(sets []string) []string {
	out := slices.Clone(sets)
	for i, s := range out {
		out[i] = strings.NewReplacer("POOL", poolName(0), "NODE", poolName(0)+"000000").Replace(s)
	}
	return out
}
