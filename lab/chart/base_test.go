package chart

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lab"
)

func baseValues(images ...string) map[string]any {
	list := []any{}
	for _, i := range images {
		list = append(list, i)
	}
	return map[string]any{"sealImages": list}
}

// What "kamino init" applies is what Helm would install, object by object.
func TestInitIsTheChart(t *testing.T) {
	second := "registry.invalid/other@sha256:" + strings.Repeat("ab", 32)
	for name, tt := range map[string]struct {
		values map[string]any
		args   []string
	}{
		"default":    {map[string]any{}, nil},
		"one image":  {baseValues(lab.SealImage), []string{"--image", lab.SealImage}},
		"two images": {baseValues(lab.SealImage, second), []string{"--seal-image", lab.SealImage, "--seal-image", second}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := loader.Load(baseDir)
			if err != nil {
				t.Fatal(err)
			}
			all, err := chartutil.ToRenderValues(c, tt.values, chartutil.ReleaseOptions{Name: "base", Namespace: namespace, Revision: 1}, chartutil.DefaultCapabilities)
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := engine.Render(c, all)
			if err != nil {
				t.Fatal(err)
			}
			var chart string
			for _, file := range sorted(rendered) {
				if strings.HasSuffix(file, ".yaml") {
					chart += "\n---\n" + rendered[file]
				}
			}
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), binary, append([]string{"init", "-o", "yaml"}, tt.args...)...)
			cmd.Stderr = &stderr
			init, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			if diff := cmp.Diff(documents(t, chart), documents(t, string(init))); diff != "" {
				t.Errorf("chart and init differ:\n%s", diff)
			}
			for _, m := range lint.All(baseDir, tt.values, namespace, true).Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("lint: %s: %v", m.Path, m.Err)
				}
			}
		})
	}
}

func documents(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for _, doc := range strings.Split(text, "\n---\n") {
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(doc, "---\n")), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if len(o.Object) > 0 {
			out = append(out, o.Object)
		}
	}
	slices.SortFunc(out, func(a, b map[string]any) int {
		x, y := unstructured.Unstructured{Object: a}, unstructured.Unstructured{Object: b}
		return strings.Compare(x.GetKind()+x.GetNamespace()+x.GetName(), y.GetKind()+y.GetNamespace()+y.GetName())
	})
	if len(out) < 10 {
		t.Fatalf("%d objects in\n%s", len(out), text)
	}
	return out
}

// "kamino init" says what it did, does it once, and in a dry run not at all.
func TestInit(t *testing.T) {
	nothing := false // POD_IMAGE is not set
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"init"}, args...)...)
		cmd.Env = []string{"PATH=/nowhere"}
		for name, value := range shared.Environment() {
			if nothing && name == "POD_IMAGE" {
				continue
			}
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return string(text)
	}
	second := "registry.invalid/other@sha256:" + strings.Repeat("ab", 32)
	allowed := func() []string {
		t.Helper()
		list, err := shared.Client.CoreV1().ConfigMaps(kamino.SystemNamespace).Get(t.Context(), "kamino-seal-images", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(list.Data["images"])
	}
	expect := func(out string, changed int, images ...string) {
		t.Helper()
		if n := strings.Count(out, "configured"); n != changed || strings.Contains(out, "created") {
			t.Errorf("%d objects changed, want %d:\n%s", n, changed, out)
		}
		if diff := cmp.Diff(images, allowed()); diff != "" {
			t.Errorf("images (-want +got): %s\n%s", diff, out)
		}
	}
	// The lab was prepared with the same image.
	was := allowed()
	expect(run(), 0, was...)
	both := append(slices.Clone(was), second)
	for range 2 { // the dry run changes nothing, and tells what would be new
		out := run("--seal-image", second, "--dry-run")
		if expect(out, 1, was...); !strings.Contains(out, "configured (dry run)") || !regexp.MustCompile(`from now on +`+second).MatchString(out) {
			t.Errorf("dry run:\n%s", out)
		}
	}
	expect(run("--seal-image", second), 1, both...)
	nothing = true
	expect(run(), 0, both...) // no image is named: the list stays
	if out := run("-o", "json"); !strings.Contains(out, `"kind": "List"`) {
		t.Errorf("-o json prints no manifests:\n%s", out)
	}
	expect("", 0, both...)
	out := run("--no-seal-image", "--seal-image", was[0])
	if expect(out, 1, was...); !regexp.MustCompile(`no more +` + second).MatchString(out) {
		t.Errorf("another list:\n%s", out)
	}
}
