package chart

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino/internal/golden"
)

// monitored is an API server that knows the kinds of Prometheus' operator.
var monitored = []string{"monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule"}

// renderKeeper is what "helm template" makes of charts/kamino, schema included.
func renderKeeper(t *testing.T, kinds []string, sets ...string) (map[string]string, error) {
	t.Helper()
	c, known := controllerChart(t), *chartutil.DefaultCapabilities
	known.APIVersions = append(append(chartutil.VersionSet{}, known.APIVersions...), kinds...)
	given := controllerValues(t, sets...)
	if err := chartutil.ProcessDependencies(c, given); err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: keeperRelease, Namespace: namespace, IsInstall: true, Revision: 1}, &known)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// keeperUses are ways in which the chart is used.
var keeperUses = []struct {
	name  string
	kinds []string
	sets  []string
}{
	{"default", nil, nil},
	{"notify", nil, []string{"notify.secret=told"}},
	{"workload-identity", monitored, []string{"azure.workloadIdentity.enabled=true", "azure.workloadIdentity.clientId=22222222-2222-2222-2222-222222222222",
		"azure.subscription=00000000-0000-0000-0000-000000000001", "azure.resourceGroup=rg-1", "metrics.readers[0].name=prometheus-k8s", "metrics.readers[0].namespace=monitoring",
		"metrics.prometheusRule.without={KaminoRunFailed}", "metrics.prometheusRule.runbooks=https://git.example.com/kamino/", "metrics.serviceMonitor.labels.team=infra"}},
	{"aws", nil, []string{"base.enabled=false", "aws.enabled=true", "aws.roleARN=arn:aws:iam::123456789012:role/kamino", "aws.region=eu-central-1", "aws.clusterName=prod", "replicas=1",
		"networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring", "rbac.force=true", "rbac.probeNamespaces={ops}", "notify.secret=told", "image.pullSecret=registry",
		"controller.lastPatchAnnotations={condition:Patched}", "controller.sealPolicy=x", "tolerations[0].operator=Exists", "affinity.nodeAffinity.x=y", "podLabels.team=infra", "podAnnotations.note=hello",
		"controller.extraEnv[0].name=HTTPS_PROXY", "controller.extraEnv[0].value=http://proxy:3128", "priorityClassName="}},
}

func TestKeeperGolden(t *testing.T) {
	for _, use := range keeperUses {
		t.Run(use.name, func(t *testing.T) {
			files, err := renderKeeper(t, use.kinds, use.sets...)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			base := 0
			for _, name := range sorted(files) {
				if strings.Contains(name, "/kamino-base/") {
					base++
					continue
				}
				if !strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, "nodeprototypes.yaml") {
					continue
				}
				for _, doc := range strings.Split(files[name], "\n---") {
					o := &unstructured.Unstructured{}
					if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
						t.Fatalf("%s: %v\n%s", name, err, doc)
					}
					if len(o.Object) == 0 {
						continue
					}
					text, err := yaml.Marshal(o.Object)
					if err != nil {
						t.Fatal(err)
					}
					b.WriteString("---\n" + string(text))
				}
			}
			if (base > 0) != (use.name != "aws") {
				t.Errorf("%d files of kamino-base", base)
			}
			golden.Check(t, "testdata/keeper-"+use.name+".yaml", b.String())
			if notes := files["kamino/templates/NOTES.txt"]; len(commands(notes)) < 6 {
				t.Errorf("the notes tell little to type:\n%s", notes)
			}
		})
	}
}

// Values that make no sense are refused with a message that names them.
func TestKeeperNonsense(t *testing.T) {
	for name, tt := range map[string]struct {
		set, want string
	}{
		"a name that is not there": {"controller.maxDonor=1", "maxDonor"},
		"no donors":                {"controller.maxDonors=0", "maxDonors"},
		"no replicas":              {"replicas=0", "replicas"},
		"unknown suffix":           {"controller.resync=5w", "resync"},
		"no image":                 {"image.registry=", "image.registry is required"},
		"bad digest":               {"image.digest=abc", "digest"},
		"an image that seals not":  {"kamino-base.sealImages={reg/x@sha256:" + strings.Repeat("ab", 32) + "}", "kamino-base.sealImages does not name registry.invalid/kamino@sha256:"},
		"two clouds":               {"aws.enabled=true,azure.gallery=mine", "azure.gallery is for clusters on Azure"},
		"a reader of nowhere":      {"metrics.readers[0].name=p", "namespace"},
		"a role on no cloud":       {"aws.roleARN=arn:aws:iam::123456789012:role/kamino", "set aws.enabled=true"},
		"no role":                  {"aws.roleARN=kamino", "roleARN"},
		"no port":                  {"networkPolicy.egressPorts={}", "egressPorts"},
		"value of the base":        {"kamino-base.images=x", "images"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := renderKeeper(t, nil, tt.set); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestKeeperLint(t *testing.T) {
	for _, use := range keeperUses {
		for _, m := range lint.All("../../charts/kamino", controllerValues(t, use.sets...), namespace, true).Messages {
			// The dependency is brought by helm dependency build, and by the release.
			if m.Severity > support.InfoSev && !strings.Contains(m.Err.Error(), "kamino-base") {
				t.Errorf("%s: %s: %v", use.name, m.Path, m.Err)
			}
		}
	}
}

// Each value of values.yaml stands in the README.
func TestKeeperReadme(t *testing.T) {
	text, err := os.ReadFile("../../charts/kamino/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mustRead(t, "../../charts/kamino/values.yaml"))) {
		m := regexp.MustCompile(`^ *([A-Za-z-]+):`).FindStringSubmatch(line)
		if m != nil && slices.Contains([]string{"requests", "limits", "cpu", "memory"}, m[1]) {
			continue // they are the API's, below resources
		}
		if m != nil && !regexp.MustCompile("[`.]"+m[1]+"[`.]").Match(text) {
			t.Errorf("the README does not tell of %s", strings.TrimSpace(line))
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
