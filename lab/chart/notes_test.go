package chart

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// quoted are commands within a sentence.
var quoted = regexp.MustCompile(`"(kamino [^"]+)"`)

// commands are what the notes of a chart tell people to type: indented lines without what follows
// three spaces, and what is quoted.
func commands(notes string) (out []string) {
	for line := range strings.Lines(notes) {
		if text, ok := strings.CutPrefix(line, "  "); ok {
			command, _, _ := strings.Cut(strings.TrimSpace(text), "   ")
			out = append(out, command)
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(notes, -1) {
		out = append(out, m[1])
	}
	return out
}

// typed checks a command against the objects that the chart makes, and its words against the
// program.
func typed(t *testing.T, command, release string, made []*unstructured.Unstructured) {
	t.Helper()
	has := func(kind, name string) bool {
		return slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool {
			return strings.EqualFold(o.GetKind(), kind) && o.GetName() == name && o.GetNamespace() == namespace
		})
	}
	words := strings.Fields(command)
	switch {
	case words[0] == "kamino":
		if at := slices.Index(words, "--seal-image"); at > 0 && !strings.Contains(text(t, made), `"name":"POD_IMAGE","value":"`+words[at+1]+`"`) {
			t.Errorf("%s: the jobs seal with another image", command)
		}
		if out, err := exec.CommandContext(t.Context(), binary, append(words[1:], "--help")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	case strings.HasPrefix(command, "kubectl -n "+namespace+" create job --from=cronjob/"):
		name, job := strings.TrimPrefix(words[5], "--from=cronjob/"), words[6]
		if bad := validation.IsDNS1123Label(job); !has("CronJob", name) || len(bad) > 0 || len(words) != 7 {
			t.Errorf("%s: there is no such CronJob, or the name is bad: %v", command, bad)
		}
	case strings.HasPrefix(command, "kubectl -n "+namespace+" logs "):
		if job, ok := strings.CutPrefix(words[len(words)-1], "job/"); !ok || !has("Job", job) {
			t.Errorf("%s: there is no such Job", command)
		}
	case strings.HasPrefix(command, "kubectl -n "+namespace+" get jobs -l "):
		key, value, _ := strings.Cut(words[6], "=")
		if !slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool {
			labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "jobTemplate", "metadata", "labels")
			return labels[key] == value
		}) {
			t.Errorf("%s: no job has that label", command)
		}
	case command == "kubectl -n kamino-system get leases -l app.kubernetes.io/managed-by=kamino":
	case command == "helm upgrade base CHART -n default --set 'sealImages={REGISTRY/NAME@sha256:DIGEST}'":
	case command == "helm test "+release+" -n "+namespace+" --timeout 15m":
		if !slices.ContainsFunc(made, func(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] == "test" }) {
			t.Errorf("%s: the release has no test", command)
		}
	case command == "helm uninstall "+release+" -n "+namespace+" --timeout 45m":
	default:
		t.Errorf("%s: nothing is known of this command", command)
	}
}

// text is objects as the API server would get them.
func text(t *testing.T, made []*unstructured.Unstructured) string {
	t.Helper()
	var all []byte
	for _, o := range made {
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return string(all)
}

// TestNotes: what the charts tell people to type after an installation can be typed as it stands.
func TestNotes(t *testing.T) {
	for _, use := range uses {
		t.Run(use.name, func(t *testing.T) {
			// The chart of a release seals with an image of its own.
			for _, more := range [][]string{nil, {"kamino.container.sealImage=registry.invalid/agent@sha256:" + strings.Repeat("3c", 32)}} {
				sets := slices.Concat(use.sets, more)
				files, err := render(t, "rel", sets...)
				if err != nil {
					t.Fatal(err)
				}
				list := commands(files["vmss-prototype/templates/NOTES.txt"])
				if len(list) == 0 {
					t.Error("the notes tell nothing to type")
				}
				for _, command := range list {
					typed(t, command, "rel", objects(t, "rel", sets...))
				}
			}
		})
	}
	t.Run("kamino-base", func(t *testing.T) {
		c, err := loader.Load(baseDir)
		if err != nil {
			t.Fatal(err)
		}
		all, err := chartutil.ToRenderValues(c, nil, chartutil.ReleaseOptions{Name: "base", Namespace: "default", IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.Render(c, all)
		if err != nil {
			t.Fatal(err)
		}
		list := commands(files["kamino-base/templates/NOTES.txt"])
		if len(list) != 4 {
			t.Errorf("commands %q, want 4", list)
		}
		for _, command := range list {
			typed(t, command, "base", nil)
		}
	})
}
