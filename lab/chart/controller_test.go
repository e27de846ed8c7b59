package chart

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/downloader"
	"helm.sh/helm/v3/pkg/getter"
	"helm.sh/helm/v3/pkg/strvals"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// controllerImage is what every user of charts/kamino must give.
var controllerImage = []string{"image.registry=registry.invalid", "image.repository=kamino",
	"image.digest=" + strings.TrimPrefix(lab.SealImage, "registry.invalid/kamino@sha256:"), "kamino-base.sealImages={" + lab.SealImage + "}"}

// controllerChart is charts/kamino with what it depends on, as "helm dependency build" makes it.
func controllerChart(t *testing.T) *chart.Chart {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kamino", "kamino-base"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("../../charts", name))); err != nil {
			t.Fatal(err)
		}
	}
	settings := cli.New()
	build := downloader.Manager{Out: io.Discard, ChartPath: filepath.Join(dir, "kamino"), Getters: getter.All(settings),
		RepositoryConfig: filepath.Join(dir, "repositories.yaml"), RepositoryCache: dir}
	if err := build.Build(); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(filepath.Join(dir, "kamino"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func controllerValues(t *testing.T, sets ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range append(slices.Clone(controllerImage), sets...) {
		if err := strvals.ParseInto(s, out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// keeper is the chart kamino, installed by Helm on a lab of its own. Its pods fit on no node: the
// test is their kubelet, and runs what is in them as processes.
type keeper struct {
	*testing.T
	lab     *lab.Lab
	release string
	protos  dynamic.ResourceInterface
}

const keeperRelease = "images"

// swift makes the controller quick.
var swift = []string{"nodeSelector.nowhere=x", "controller.resync=2s", "controller.retry=1s", "controller.leaseTime=2s", "controller.passesPerSecond=100", "controller.grace=1",
	"controller.extraArgs={--grace-period,20s,--minimum-ready-time,0s}"}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	l, err := lab.Start(mainContext, lab.Options{Dir: filepath.Join(t.TempDir(), "lab"), Binary: labProgram, Speed: speed,
		Scenario: emulator.Scenario{Pools: []emulator.Pool{{Name: "blue", Count: 2}, {Name: "green", Count: 2}, {Name: "grey", Count: 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	client, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{t, l, keeperRelease, client.Resource(v1alpha1.GroupVersion.WithResource("nodeprototypes"))}
	install := action.NewInstall(k.helm())
	install.ReleaseName, install.Namespace, install.CreateNamespace = keeperRelease, namespace, true
	install.TakeOwnership = true // the lab was prepared as by kamino init
	if _, err := install.RunWithContext(t.Context(), controllerChart(t), controllerValues(t, swift...)); err != nil {
		t.Fatal(err)
	}
	k.patched()
	return k
}

func (k *keeper) at(t *testing.T) *keeper { return &keeper{t, k.lab, k.release, k.protos} }

// helm is Helm as its command configures it.
func (k *keeper) helm() *action.Configuration {
	k.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &k.lab.Kubeconfig
	space := namespace
	flags.Namespace = &space
	config := &action.Configuration{}
	if err := config.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		k.Fatal(err)
	}
	return config
}

// pods waits for the pods of a component that are not being deleted.
func (k *keeper) pods(component string, n int) []corev1.Pod {
	k.Helper()
	var found []corev1.Pod
	labtest.Await(k, time.Minute, fmt.Sprintf("there are %d pods of component %s", n, component), func() string {
		list, err := k.lab.Client.CoreV1().Pods(namespace).List(k.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=" + component + ",app.kubernetes.io/instance=" + k.release})
		if err != nil {
			return err.Error()
		}
		found = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(found) != n {
			return fmt.Sprintf("%d", len(found))
		}
		return ""
	})
	return found
}

// token is one of a service account.
func (k *keeper) token(account string) string {
	k.Helper()
	hour := int64(3600)
	token, err := k.lab.Client.CoreV1().ServiceAccounts(namespace).CreateToken(k.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	return token.Status.Token
}

// container is a pod's container as a process.
type container struct {
	*process
	metrics string
	ended   chan struct{}
}

// start runs the container of a pod with the rights of its account alone, and with more arguments.
// What the pod would mount from the node stands in the lab's directory.
func (k *keeper) start(pod corev1.Pod, more ...string) *container {
	k.Helper()
	box := pod.Spec.Containers[0]
	admin := k.lab.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{Token: k.token(pod.Spec.ServiceAccountName)}
	config.Contexts["pod"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "pod", Namespace: namespace}
	config.CurrentContext = "pod"
	kubeconfig := filepath.Join(k.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		k.Fatal(err)
	}
	c := &container{process: &process{}, metrics: freeAddress(k.T), ended: make(chan struct{})}
	args := append(slices.Clone(box.Args), more...)
	if k.lab.Cloud != nil {
		args = append(args, "--azure-config", filepath.Join(k.lab.Dir, "azure.json"))
	}
	if slices.Contains(args, "controller") {
		args = append(args, "--metrics-address", c.metrics, "--health-address", "0")
	}
	c.Cmd = exec.Command(binary, args...)
	// Without it a client may ask for lists by a watch, which API servers before 1.34 do not know.
	env := map[string]string{"KUBECONFIG": kubeconfig, "KUBE_FEATURE_WatchListClient": "false"}
	for name, value := range k.lab.Environment() {
		if strings.HasPrefix(name, "AZURE_ENVIRONMENT") || slices.Contains(awsEndpoint, name) {
			env[name] = value
		}
	}
	maps.Copy(env, k.webIdentity(pod.Spec.ServiceAccountName))
	for _, e := range box.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = map[string]string{"spec.nodeName": "elsewhere", "metadata.namespace": namespace}[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	env["SSL_CERT_FILE"] = filepath.Join(k.lab.Dir, "ca.pem")
	for name, value := range env {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Stdout, c.Stderr = c, c
	if err := c.Start(); err != nil {
		k.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		_ = c.Wait() // the state tells
	}()
	k.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.ended
		if k.Failed() {
			k.Logf("the end of the log of %v:\n%s", c.Args, tail(c.says()))
		}
	})
	return c
}

// stop ends it in order.
func (c *container) stop(t *testing.T) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	<-c.ended
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// apply is a person with kubectl apply.
func (k *keeper) apply(name, spec string) {
	k.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, "apiVersion: kamino.dev/v1alpha1\nkind: NodePrototype\nmetadata: {name: %s}\nspec: %s\n", name, spec), &o.Object); err != nil {
		k.Fatal(err)
	}
	if _, err := k.protos.Apply(k.Context(), name, o, metav1.ApplyOptions{FieldManager: "person"}); err != nil {
		k.Fatal(err)
	}
}

// awaitReason waits until Ready has a reason.
func (k *keeper) awaitReason(name, reason string) {
	k.Helper()
	labtest.Await(k, 3*time.Minute, name+" is "+reason, func() string {
		o, err := k.protos.Get(k.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		text, err := o.MarshalJSON()
		if err != nil {
			return err.Error()
		}
		var p v1alpha1.NodePrototype
		if err := json.Unmarshal(text, &p); err != nil {
			return err.Error()
		}
		if ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != reason {
			return fmt.Sprintf("%+v", p.Status)
		}
		return ""
	})
}

// get is the answer of /metrics.
func (c *container) get(ctx context.Context, token string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.metrics+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// code waits until /metrics answers, and is the code.
func (k *keeper) code(c *container, token string) (code int, text string) {
	k.Helper()
	labtest.Await(k, time.Minute, "/metrics answers", func() string {
		var err error
		if code, text, err = c.get(k.Context(), token); err != nil {
			return err.Error()
		}
		return ""
	})
	return code, text
}

// TestController: Helm installs the chart, with kamino-base in it; its pods make, prove and promote
// an image with the rights that it gives them, and no more; Helm tests it and takes it away, which
// gives a donor back that is off.
func TestController(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	pods := k.pods("run", 2)
	one, two := k.start(pods[0]), k.start(pods[1])
	k.apply("blue", `{pool: blue, prove: {bake: 0s}}`)
	k.awaitReason("blue", v1alpha1.ReasonUpToDate)
	for _, c := range []*container{one, two} {
		if strings.Contains(c.says(), "forbidden") {
			t.Errorf("something was forbidden:\n%s", c.says())
		}
	}
	for _, kind := range []string{"Node", "NodePrototype"} { // what happened is told after the status is written
		labtest.Await(t, time.Minute, "the run leaves an event on a "+kind+" of its pool", func() string {
			events, err := k.lab.Client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
			if err != nil || !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.Source.Component == "kamino" && e.InvolvedObject.Kind == kind && strings.HasPrefix(e.InvolvedObject.Name, "blue")
			}) {
				return fmt.Sprintf("none of %d events, %v", len(events.Items), err)
			}
			return ""
		})
	}
	t.Run("metrics", func(t *testing.T) { k.at(t).metrics(one, one, two) })
	t.Run("test", func(t *testing.T) { k.at(t).test() })
	// A version that waits, for the right to take an annotation off.
	k.apply("grey", `{pool: grey, promote: Manual, prove: {bake: 0s}}`)
	k.awaitReason("grey", v1alpha1.ReasonAwaits)
	one.stop(t)
	two.stop(t)
	t.Run("rights", func(t *testing.T) { k.at(t).rights(pods[0]) })
	t.Run("bindings", func(t *testing.T) { k.at(t).bindings(pods[0]) })
	t.Run("ends", func(t *testing.T) { k.at(t).ends(pods[0]) })
	t.Run("uninstall", func(t *testing.T) { k.at(t).uninstall(pods) })
}

// metrics: the API server says who may see them. The process that leads counts its requests to the
// cloud.
func (k *keeper) metrics(c *container, all ...*container) {
	for _, name := range []string{"prometheus", "stranger"} {
		if _, err := k.lab.Client.CoreV1().ServiceAccounts(namespace).Create(k.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			k.Fatal(err)
		}
	}
	_, err := k.lab.Client.RbacV1().ClusterRoleBindings().Create(k.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "scrape"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace + ":" + keeperRelease + "-kamino-metrics"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "prometheus", Namespace: namespace}}}, metav1.CreateOptions{})
	if err != nil {
		k.Fatal(err)
	}
	for name, tt := range map[string]struct {
		token string
		code  int
	}{
		"nobody":     {"", http.StatusUnauthorized},
		"a forger":   {"eyJhbGciOiJub25lIn0.e30.", http.StatusUnauthorized},
		"a stranger": {k.token("stranger"), http.StatusForbidden},
		"Prometheus": {k.token("prometheus"), http.StatusOK},
	} {
		code, text := k.code(c, tt.token)
		if code != tt.code || strings.Contains(text, "kamino_build_info") != (tt.code == http.StatusOK) {
			k.Errorf("%s gets %d, want %d: %.300s", name, code, tt.code, text)
		}
	}
	if !slices.ContainsFunc(all, func(c *container) bool {
		_, text := k.code(c, k.token("prometheus"))
		return strings.Contains(text, `kamino_cloud_requests_total{call="GET Microsoft.Compute/virtualMachineScaleSets",code="200"}`)
	}) {
		k.Error("nobody counted a request to the cloud")
	}
}

// test is "helm test".
func (k *keeper) test() {
	done := make(chan error, 1)
	go func() {
		test := action.NewReleaseTesting(k.helm())
		test.Timeout = 2 * time.Minute
		_, err := test.Run(k.release)
		done <- err
	}()
	said := k.hook("test")
	if err := <-done; err != nil || !strings.Contains(said, "blue") {
		k.Errorf("helm test: %v\n%s", err, said)
	}
}

// hook is the kubelet of the pod of a hook, and what the pod said.
func (k *keeper) hook(component string) string {
	k.Helper()
	pod := k.pods(component, 1)[0]
	c := k.start(pod)
	<-c.ended
	phase := corev1.PodSucceeded
	if !c.ProcessState.Success() {
		phase = corev1.PodFailed
	}
	if _, err := k.lab.Client.CoreV1().Pods(namespace).Patch(context.WithoutCancel(k.Context()), pod.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase), metav1.PatchOptions{}, "status"); err != nil {
		k.Error(err)
	}
	return c.says()
}

// uninstall is "helm uninstall" while a donor is off.
func (k *keeper) uninstall(pods []corev1.Pod) {
	k.lab.Cloud.AddFault(emulator.Fault{Kind: emulator.SlowOperation, Method: "PUT", Path: "**/snapshots/" + kamino.SnapshotName("green"), Times: 1, Duration: 40 * time.Second})
	for _, p := range pods {
		k.finalizers(p.Name, `["lab/kubelet"]`)
	}
	leader := k.start(pods[0])
	k.apply("green", `{pool: green, prove: {bake: 0s}}`)
	k.awaitOff("green", leader)
	done := make(chan error, 1)
	go func() {
		uninstall := action.NewUninstall(k.helm())
		uninstall.Timeout = 3 * time.Minute
		_, err := uninstall.Run(keeperRelease)
		done <- err
	}()
	var hook sync.WaitGroup
	var said string
	hook.Go(func() { said = k.hook("restore") })
	labtest.Await(k, time.Minute, "somebody ends the controller's pods", func() string {
		now, err := k.lab.Client.CoreV1().Pods(namespace).Get(k.Context(), pods[0].Name, metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp != nil {
			return ""
		}
		return "it is not being deleted"
	})
	leader.stop(k.T)
	for _, p := range pods {
		k.finalizers(p.Name, `null`)
	}
	err := <-done
	hook.Wait()
	if err != nil {
		k.Errorf("helm uninstall: %v\n%s", err, said)
	}
	for _, in := range k.lab.Cloud.Instances() {
		if in.PowerState != emulator.PowerRunning {
			k.Errorf("after helm uninstall %s is %s\n%s", in.ComputerName, in.PowerState, said)
		}
	}
	nodes, err := k.lab.Client.CoreV1().Nodes().List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	for _, n := range nodes.Items {
		if n.Annotations[kamino.AnnotationRun] != "" || len(n.Spec.Taints) > 0 {
			k.Errorf("node %s is still marked: %v %v", n.Name, n.Annotations, n.Spec.Taints)
		}
	}
	// The objects, and with them what the pools are to be, stay.
	if list, err := k.protos.List(k.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 3 {
		k.Errorf("of the prototypes %v are left: %v", list, err)
	}
	bindings, err := k.lab.Client.RbacV1().ClusterRoleBindings().List(k.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + keeperRelease})
	if err != nil || len(bindings.Items) > 0 {
		k.Errorf("bindings are left: %v %v", bindings, err)
	}
}

func (k *keeper) awaitOff(pool string, c *container) {
	k.Helper()
	labtest.Await(k, time.Minute, "the donor is off", func() string {
		for _, in := range k.lab.Cloud.Instances() {
			if strings.HasPrefix(in.ComputerName, pool) && in.PowerState != emulator.PowerRunning {
				return ""
			}
		}
		return "its log is:\n" + tail(c.says())
	})
}

func (k *keeper) finalizers(pod, list string) {
	k.Helper()
	if _, err := k.lab.Client.CoreV1().Pods(namespace).Patch(k.Context(), pod, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`), metav1.PatchOptions{}); err != nil {
		k.Error(err)
	}
}
