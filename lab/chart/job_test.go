package chart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// release is a chart installed without its job, which the test runs itself.
type release struct {
	name string
	pool string
	node string
	job  corev1.PodSpec
}

var taken atomic.Int32

// newRelease installs the rights of a release of the chart for a pool of its
// own. change may take something away from a role first.
func newRelease(t *testing.T, sets []string, change func(*unstructured.Unstructured)) *release {
	t.Helper()
	n := int(taken.Add(1)) - 1
	if n >= pools {
		t.Fatal("there are too few pools for all tests")
	}
	r := &release{name: fmt.Sprintf("rel%02d", n), pool: poolName(n), node: poolName(n) + "000000"}
	for i, s := range sets {
		sets[i] = strings.NewReplacer("POOL", r.pool, "NODE", r.node).Replace(s)
	}
	for _, o := range objects(t, r.name, sets...) {
		switch {
		case isHook(o):
			continue
		case o.GetKind() == "Job":
			var job batchv1.Job
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &job); err != nil {
				t.Fatal(err)
			}
			r.job = job.Spec.Template.Spec
			continue
		case change != nil:
			r.ownRole(t, o, change)
		}
		create(t, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	}
	return r
}

// ownRole makes a copy of the role that a binding names, which change may take something from,
// and lets the binding name that.
func (r *release) ownRole(t *testing.T, binding *unstructured.Unstructured, change func(*unstructured.Unstructured)) {
	t.Helper()
	role := boundRole(t, binding)
	if role == nil {
		return
	}
	change(role)
	role.SetName(role.GetName() + "-" + r.name)
	create(t, role, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err := unstructured.SetNestedField(binding.Object, role.GetName(), "roleRef", "name"); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig holds a token of the job's service account and nothing else.
func (r *release) kubeconfig(t *testing.T) string {
	t.Helper()
	hour := int64(3600)
	token, err := shared.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), r.job.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := shared.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData, CertificateAuthority: admin.CAFile}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["pod"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "pod", Namespace: namespace}
	config.CurrentContext = "pod"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// command is the rendered job's container as a process: its arguments and its
// environment. What the pod would mount from the node stands in the lab's
// directory; the rest makes the run quick.
func (r *release) command(t *testing.T, quick ...string) *exec.Cmd {
	t.Helper()
	c := r.job.Containers[0]
	if strings.Join(c.Command, " ") != "/kamino" {
		t.Errorf("the command is %q, the image has /kamino", c.Command)
	}
	args := append(append([]string{}, c.Args...), "--azure-config", filepath.Join(shared.Dir, "azure.json"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, append(args, quick...)...)
	env := map[string]string{"KUBECONFIG": r.kubeconfig(t)}
	for name, value := range shared.Environment() {
		if strings.HasPrefix(name, "AZURE_ENVIRONMENT") { // azurestackcloud.json lies beside azure.json
			env[name] = value
		}
	}
	for _, e := range c.Env {
		env[e.Name] = e.Value
		if e.ValueFrom != nil {
			env[e.Name] = map[string]string{"spec.nodeName": "elsewhere", "metadata.namespace": namespace}[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	env["SSL_CERT_FILE"] = filepath.Join(shared.Dir, "ca.pem")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// outcome is how a process ended, or why it was ended.
type outcome struct {
	code     int // -1: it was ended
	out, log string
	refused  string // the first line that told of the right
}

// run runs the job until its end, or until a line of its log contains stop.
func (r *release) run(t *testing.T, stop string, quick ...string) outcome {
	t.Helper()
	cmd := r.command(t, quick...)
	var out strings.Builder
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var o outcome
	var log strings.Builder
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		line = strings.ReplaceAll(line, `\"`, `"`) // the log quotes what it quotes
		log.WriteString(line)
		if stop != "" && o.refused == "" && strings.Contains(line, stop) {
			o.refused = line
			_ = cmd.Process.Signal(syscall.SIGKILL)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	o.code, o.out, o.log = cmd.ProcessState.ExitCode(), out.String(), log.String()
	return o
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
