package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino/api/v1alpha1"
)

// prototypes are the NodePrototypes of the API server, which knows the kind from the file that the
// chart installs.
func prototypes(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../charts/kamino/templates/kamino.dev_nodeprototypes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &crd.Object); err != nil {
		t.Fatal(err)
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Apply(t.Context(), crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "test"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server to serve NodePrototypes", func() bool {
		got, err := crds.Get(t.Context(), crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return false
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		states := map[any]any{}
		for _, c := range conditions {
			c := c.(map[string]any)
			states[c["type"]] = c["status"]
		}
		if states["NonStructuralSchema"] == "True" {
			t.Fatalf("the schema is not structural: %v", conditions)
		}
		return states["Established"] == "True"
	})
	return client.Resource(v1alpha1.GroupVersion.WithResource("nodeprototypes"))
}

func prototype(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf("apiVersion: kamino.dev/v1alpha1\nkind: NodePrototype\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// TestPrototypeValidation: the API server itself takes what makes sense, fills in the defaults, and
// refuses the rest with a message that says what to do.
func TestPrototypeValidation(t *testing.T) {
	all := prototypes(t)
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	for _, spec := range []string{
		`{pool: k8s-pool1-vmss}`,
		`{nodeSelector: {pool: blue}}`,
		`{pool: p, suspend: true, maxImageAge: 720h, history: 2, promote: Manual, watch: 2h}`,
		`{pool: p, window: {start: "22:00", end: "02:00", days: [Fri, Sat], timeZone: Europe/Berlin}}`,
		`{pool: p, prove: {mode: None}, patch: {}}`,
		`{pool: p, prove: {bake: 1h30m, bootBudget: 2x, probe: "kind: Job"}, patch: {nodes: 3, reboot: Never}}`,
		`{pool: p, select: {minReady: 24h, minCandidates: 2, requireLabels: [a.node-restriction.kubernetes.io/donor], lastPatch: ["label:b"], rejectTainted: true}}`,
	} {
		if _, err := all.Create(t.Context(), prototype(t, "fine", spec), dry); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for name, tt := range map[string]struct{ spec, want string }{
		"no pool":             {`{}`, "set either pool or nodeSelector"},
		"two pools":           {`{pool: p, nodeSelector: {a: b}}`, "set either pool or nodeSelector"},
		"empty pool":          {`{pool: ""}`, "spec.pool"},
		"unknown field":       {`{pool: p, windows: {}}`, `unknown field "spec.windows"`},
		"window without end":  {`{pool: p, window: {start: "01:00"}}`, "spec.window.end: Required value"},
		"empty window":        {`{pool: p, window: {start: "01:00", end: "01:00"}}`, "a window that ends when it starts never opens"},
		"no time of a day":    {`{pool: p, window: {start: "24:00", end: "01:00"}}`, "spec.window.start"},
		"no day":              {`{pool: p, window: {start: "23:00", end: "01:00", days: [Monday]}}`, "Unsupported value: \"Monday\""},
		"a day twice":         {`{pool: p, window: {start: "23:00", end: "01:00", days: [Mon, Mon]}}`, "Duplicate value"},
		"days":                {`{pool: p, maxImageAge: 30d}`, "use hours, minutes and seconds, at least 1h, for instance 720h for 30 days"},
		"days of readiness":   {`{pool: p, select: {minReady: 2d}}`, "for instance 48h for two days"},
		"a number":            {`{pool: p, watch: "90"}`, "use hours, minutes and seconds"},
		"young image":         {`{pool: p, maxImageAge: 10m}`, "at least 1h"},
		"long bake":           {`{pool: p, prove: {bake: 25h}}`, "at most 24h"},
		"long watch":          {`{pool: p, watch: 169h}`, "at most 168h"},
		"unknown proof":       {`{pool: p, prove: {mode: canary}}`, "spec.prove.mode"},
		"budget":              {`{pool: p, prove: {bootBudget: 1:5x}}`, "for instance 10m, or a factor, for instance 2x"},
		"probe of nothing":    {`{pool: p, prove: {mode: None, probe: x}}`, "a probe has no effect where nothing is proved"},
		"a proof in the pool": {`{pool: p, prove: {mode: Pool}}`, "spec.prove.mode"},
		"unknown promotion":   {`{pool: p, promote: auto}`, "spec.promote"},
		"history of one":      {`{pool: p, history: 1}`, "spec.history"},
		"four nodes to patch": {`{pool: p, patch: {nodes: 4}}`, "spec.patch.nodes"},
		"unknown reboot":      {`{pool: p, patch: {reboot: auto}}`, "spec.patch.reboot"},
		"no candidates":       {`{pool: p, select: {minCandidates: 0}}`, "spec.select.minCandidates"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := all.Create(t.Context(), prototype(t, "bad", tt.spec), dry); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "duration(") {
				t.Errorf("error is %v, want one with %q", err, tt.want)
			}
		})
	}
	made, err := all.Create(t.Context(), prototype(t, "defaults", `{pool: p, window: {start: "01:00", end: "02:00"}, patch: {}}`), dry)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"history":3,"patch":{"nodes":1,"reboot":"Auto"},"pool":"p","promote":"Automatic","prove":{"bake":"10m","bootBudget":"10m","mode":"Canary"},"window":{"end":"02:00","start":"01:00","timeZone":"UTC"}}`
	if got, _ := json.Marshal(made.Object["spec"]); string(got) != want {
		t.Errorf("with its defaults the spec is\n%s, want\n%s", got, want)
	}
}

// TestPrototypeColumns: kubectl get proto shows what issue and docs show.
func TestPrototypeColumns(t *testing.T) {
	all, ctx := prototypes(t), t.Context()
	made, err := all.Create(ctx, prototype(t, "pool1", `{pool: pool1}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Delete(context.WithoutCancel(ctx), "pool1", metav1.DeleteOptions{}) })
	days, built := int32(0), metav1.NewTime(time.Now().Add(-3*time.Hour))
	condition := func(kind, status, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, LastTransitionTime: built}
	}
	status, err := json.Marshal(v1alpha1.NodePrototypeStatus{Pool: "pool1", Next: &v1alpha1.Image{Version: "2026.11.22", Built: &built},
		Behind:     &v1alpha1.Behind{Node: "n", Days: &days, Packages: "same"},
		Conditions: []metav1.Condition{condition(v1alpha1.ConditionReady, "True", v1alpha1.ReasonUpToDate), condition(v1alpha1.ConditionProven, "True", "Passed")}})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(status, &fields); err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = fields
	if _, err := all.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	raw, err := admin.RESTClient().Get().AbsPath("/apis/kamino.dev/v1alpha1/nodeprototypes/pool1").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, raw)
	}
	var names []string
	for _, c := range table.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if want := []string{"Name", "Pool", "Next image", "Age", "Proven", "Behind", "Running", "Ready", "Reason"}; !slices.Equal(names, want) {
		t.Errorf("columns %q, want %q", names, want)
	}
	if got, want := fmt.Sprint(table.Rows[0].Cells...), fmt.Sprint("pool1", "pool1", "2026.11.22", "3h", "True", 0, nil, "True", "UpToDate"); got != want {
		t.Errorf("row %s, want %s", got, want)
	}
}
