package chart

import (
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino/internal/golden"
	"kamino.dev/kamino/lab"
)

const (
	chartDir = "../../charts/vmss-prototype"
	baseDir  = "../../charts/kamino-base"
)

// image is what every user must give, lab.SealImage here.
var image = []string{"kamino.container.imageRegistry=registry.invalid", "kamino.container.imageRepository=kamino",
	"kamino.container.imageHash=" + strings.TrimPrefix(lab.SealImage, "registry.invalid/kamino@sha256:")}

// values reads what a user gives after --set.
func values(t *testing.T, sets ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range append(slices.Clone(image), sets...) {
		if err := strvals.ParseInto(s, out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// render is what "helm template" does, schema included.
func render(t *testing.T, release string, sets ...string) (map[string]string, error) {
	t.Helper()
	return renderIn(t, namespace, release, sets...)
}

func renderIn(t *testing.T, namespace, release string, sets ...string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values(t, sets...), chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// objects are the rendered manifests in a fixed order.
func objects(t *testing.T, release string, sets ...string) []*unstructured.Unstructured {
	t.Helper()
	files, err := render(t, release, sets...)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, name := range sorted(files) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, doc := range strings.Split(files[name], "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if len(o.Object) > 0 {
				out = append(out, o)
			}
		}
	}
	return out
}

func isHook(o *unstructured.Unstructured) bool { return o.GetAnnotations()["helm.sh/hook"] != "" }

func sorted(files map[string]string) []string {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

const (
	aNode  = "kamino.targetNode=k8s-pool1-12345678-vmss000001"
	kured1 = "kamino.auto.lastPatchAnnotation=weave.works/kured-most-recent-reboot-needed"
	kured2 = "kamino.auto.pendingRebootAnnotation=weave.works/kured-reboot-in-progress"
)

// The ways in which the chart is used.
var uses = []struct {
	name string
	job  string // as the original named it
	kind string
	sets []string
}{
	{"status", "kamino-gen-status-rel-1", "Job", nil},
	{"target-node", "kamino-gen-k8s-pool1-12345678-vmss-rel-1", "Job", []string{aNode}},
	{"target-node-on-control-plane", "kamino-gen-k8s-pool1-12345678-vmss-rel-1", "Job", []string{aNode, "kamino.scheduleOnControlPlane=true", "kamino.drain.force=true"}},
	{"target-vmss", "kamino-gen-autoupdate-rel-1", "Job", []string{"kamino.targetVMSS=k8s-pool1-12345678-vmss", kured1, kured2}},
	{"all", "kamino-gen-autoupdate-rel-1", "Job", []string{"kamino.targetVMSS=ALL", kured1, kured2, "kamino.auto.dryRun=true"}},
	{"cronjob", "nightly-autoupdate-rel", "CronJob", []string{"kamino.name=nightly", "kamino.targetVMSS=ALL", kured1, kured2,
		"kamino.notify.secret=told", "kamino.auto.cronjob.enabled=true", "kamino.auto.cronjob.schedule=15 3 * * 0", "kamino.auto.cronjob.timeZone=Europe/Berlin"}},
	{"aws", "kamino-gen-autoupdate-rel-1", "Job", []string{"kamino.targetVMSS=ALL", kured1, kured2, "kamino.aws.enabled=true",
		"kamino.aws.roleARN=arn:aws:iam::123456789012:role/kamino", "kamino.aws.region=eu-central-1", "kamino.aws.clusterName=prod"}},
	{"everything", "kamino-gen-autoupdate-rel-1", "Job", []string{"kamino.targetVMSS=k8s-pool1-12345678-vmss", kured1, kured2,
		"kamino.container.pullSecret=registry", "kamino.notify.secret=told", "kamino.newUpdatedNodes=2", "kamino.imageHistory=5",
		"kamino.jobTtl=60", "kamino.drain.gracePeriod=30", "kamino.drain.force=true", "kamino.drain.timeout=900", "kamino.logLevel=DEBUG",
		"kamino.allowSpot=true", "kamino.auto.minimumReadyTime=2d", "kamino.auto.minimumCandidates=3",
		"kamino.auto.maximumImageAge=30", "kamino.auto.ignoreNodes={n1,n2}", "kamino.auto.nodeIgnoreAnnotations={keep.example.com/out}",
		"kamino.auto.ignoreConditions={SriovReady}", "kamino.auto.rejectTainted=true", "kamino.auto.maxUnavailablePools=all", "kamino.auto.maxNotReady=5",
		"kamino.azure.workloadIdentity.enabled=true", "kamino.azure.workloadIdentity.clientId=22222222-2222-2222-2222-222222222222",
		"kamino.azure.subscription=00000000-0000-0000-0000-000000000001", "kamino.azure.resourceGroup=rg-1",
		"kamino.resources.limits.memory=1Gi", "kamino.nodeSelector.disk=ssd", "kamino.tolerations[0].operator=Exists",
		"kamino.podLabels.team=infra", "kamino.activeDeadline=7200", "kamino.gallery=mine", "kamino.keepExtensions={Microsoft.AKS/Billing}",
		"kamino.extraArgs={--no-proxy-check}", "kamino.extraEnv[0].name=HTTPS_PROXY", "kamino.extraEnv[0].value=http://proxy:3128", "kamino.priorityClass=batch",
		"kamino.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=kubernetes.io/hostname", "kamino.podAnnotations.note=hello", "kamino.serviceAccount.annotations.a=b", "kamino.labels.app=mine"}},
}

func TestGolden(t *testing.T) {
	for _, use := range uses {
		t.Run(use.name, func(t *testing.T) {
			var b strings.Builder
			for _, o := range objects(t, "rel", use.sets...) {
				if o.GetKind() == use.kind && !isHook(o) && o.GetName() != use.job {
					t.Errorf("the %s is called %s, want %s", use.kind, o.GetName(), use.job)
				}
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("---\n" + string(text))
			}
			golden.Check(t, "testdata/"+use.name+".yaml", b.String())
		})
	}
}

// Releases of which namespace and name only read alike together share no object.
func TestReleasesShareNoName(t *testing.T) {
	names := map[string]string{}
	for _, where := range [][2]string{{"a-b", "c"}, {"a", "b-c"}} {
		files, err := renderIn(t, where[0], where[1], aNode)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(files["vmss-prototype/templates/rbac.yaml"], "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatal(err)
			}
			key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if other := names[key]; other != "" && len(o.Object) > 0 {
				t.Errorf("releases %s and %s/%s both have %s", other, where[0], where[1], key)
			}
			names[key] = where[0] + "/" + where[1]
		}
	}
	if len(names) < 12 {
		t.Errorf("only %d objects: %v", len(names), names)
	}
}

// Values that make no sense are refused with a message that names them.
func TestNonsense(t *testing.T) {
	tests := []struct {
		name string
		sets []string
		want string
	}{
		{"both targets", []string{aNode, "kamino.targetVMSS=ALL", kured1, kured2}, `kamino.targetVMSS "ALL" exclude each other`},
		{"services of an update", []string{aNode, "kamino.notify.secret=told"}, "kamino.notify.secret needs kamino.targetVMSS"},
		{"a name that is not there", []string{"kamino.targetNodes=x"}, "targetNodes"},
		{"a section that is not there", []string{"kaminos.name=x"}, "kaminos"},
		{"history of one", []string{"kamino.imageHistory=1"}, "imageHistory"},
		{"history as text", []string{`kamino.imageHistory=many`}, "imageHistory"},
		{"negative nodes", []string{"kamino.newUpdatedNodes=-1"}, "newUpdatedNodes"},
		{"force as text", []string{"kamino.drain.force=maybe"}, "force"},
		{"negative grace", []string{"kamino.drain.gracePeriod=-2"}, "gracePeriod"},
		{"unknown level", []string{"kamino.logLevel=VERBOSE"}, "logLevel"},
		{"unknown suffix", []string{"kamino.auto.minimumReadyTime=5w"}, "minimumReadyTime"},
		{"no candidates", []string{"kamino.auto.minimumCandidates=0"}, "minimumCandidates"},
		{"bad digest", []string{"kamino.container.imageHash=abc"}, "imageHash"},
		{"name of a job", []string{"kamino.name=Kamino_Gen"}, "name"},
		{"schedule", []string{"kamino.auto.cronjob.schedule=often"}, "schedule"},
		{"annotation", []string{"kamino.targetVMSS=ALL", "kamino.auto.lastPatchAnnotation=a b", kured2}, "lastPatchAnnotation"},
		{"subscription", []string{"kamino.azure.subscription=mine"}, "subscription"},
		{"a node twice", []string{"kamino.auto.ignoreNodes={a,a}"}, "ignoreNodes"},
		{"reference", []string{"kamino.imageReference=version"}, "imageReference"},
		{"no last patch", []string{"kamino.targetVMSS=ALL", kured2}, "kamino.auto.lastPatchAnnotation is required"},
		{"no pending reboot", []string{"kamino.targetVMSS=ALL", kured1}, "kamino.auto.pendingRebootAnnotation is required"},
		{"cronjob without a target", []string{"kamino.auto.cronjob.enabled=true"}, "needs kamino.targetVMSS"},
		{"cronjob of a node", []string{aNode, "kamino.auto.cronjob.enabled=true"}, "needs kamino.targetVMSS"},
		{"no node of a scale set", []string{"kamino.targetNode=n1"}, `"n1"`},
		{"resources as text", []string{"kamino.resources=much"}, "resources"},
		{"no section at all", []string{"kamino=null"}, "kamino"},
		{"no image", []string{"kamino.container.imageRegistry="}, "kamino.container.imageRegistry is required"},
		{"no digest", []string{"kamino.container.imageHash="}, "kamino.container.imageHash is required"},
		{"a tag", []string{"kamino.container.imageTag=1.0.0"}, "imageTag"},
		{"the Python image", []string{"kamino.container.imageRepository=jackfrancis/kamino/vmss-prototype"}, "is the image of the Python script"},
		{"no extension", []string{"kamino.keepExtensions={x}"}, "keepExtensions"},
		{"a folder of the node", []string{"kamino.azure.hostFiles={etc}"}, "hostFiles"},
		{"a role on no cloud", []string{"kamino.aws.roleARN=arn:aws:iam::123456789012:role/kamino"}, "set kamino.aws.enabled=true"},
		{"failures forgotten", []string{"kamino.auto.cronjob.failedJobsHistoryLimit=0"}, "failedJobsHistoryLimit"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := render(t, "rel", test.sets...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestLint(t *testing.T) {
	for _, use := range uses {
		for _, m := range lint.All(chartDir, values(t, use.sets...), namespace, true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s: %v", use.name, m.Path, m.Err)
			}
		}
	}
}
