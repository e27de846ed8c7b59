package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kamino.dev/kamino/lab/controlplane"
)

// parentEnv, when set, turns the test binary into a program that starts a
// control plane in that directory, prints its process ids and waits to be killed.
const parentEnv = "KAMINO_LAB_TEST_PARENT"

var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	var err error
	if binary, err = controlplane.Build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if dir := os.Getenv(parentEnv); dir != "" {
		return parent(ctx, dir)
	}
	return m.Run()
}

func parent(ctx context.Context, dir string) int {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: binary})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, pid := range cp.Pids() {
		fmt.Println(pid)
	}
	fmt.Println("started")
	select {} // until SIGKILL
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: binary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cp.Stop)
	client, err := kubernetes.NewForConfig(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.36.3" {
		t.Errorf("version of the API server = %s, want v1.36.3", version.GitVersion)
	}
	checkAuthorization(t, client)

	// Its data would be deleted under its feet.
	if second, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: binary}); err == nil {
		second.Stop()
		t.Error("a second control plane started in the same directory")
	} else if !strings.Contains(err.Error(), "another lab runs in that directory") {
		t.Errorf("the error of a second control plane is: %v", err)
	}
	checkAuthorization(t, client)

	pids := cp.Pids()
	if len(pids) != 4 {
		t.Errorf("components = %v, want 4", pids)
	}
	cp.Stop()
	cp.Stop() // again: nothing to do
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("%s still exists after Stop: %v", name, err)
		}
	}
	at, err := url.Parse(cp.URL)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", at.Host); err == nil {
		conn.Close()
		t.Errorf("%s still listens after Stop", at.Host)
	}
	select {
	case err := <-cp.Failed():
		t.Errorf("an asked-for stop was reported as failure: %v", err)
	default:
	}
}

// checkAuthorization: a node may heartbeat for itself and for nobody else, a stranger may do
// nothing.
func checkAuthorization(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	review := func(user string, groups []string, lease string) bool {
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: "kube-node-lease", Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: lease,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Allowed
	}
	nodes := []string{"system:nodes", "system:authenticated"}
	if !review("system:node:a", nodes, "a") {
		t.Error("node a may not update its own lease")
	}
	if review("system:node:a", nodes, "b") {
		t.Error("node a may update the lease of node b")
	}
	if review("stranger", []string{"system:authenticated"}, "a") {
		t.Error("a stranger may update a lease")
	}
}

func TestComponentsDieWithTheirParent(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "started"; {
		if pid, err := strconv.Atoi(lines.Text()); err == nil {
			pids = append(pids, pid)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
	if len(pids) != 4 {
		t.Fatalf("the parent named %d components, want 4", len(pids))
	}
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

func TestStartStopsWhatHadStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A binary whose scheduler is broken, and which records the processes it became.
	broken := filepath.Join(dir, "broken")
	script := fmt.Sprintf("#!/bin/sh\necho $$ >>%s/pids\n[ \"$2\" = kube-scheduler ] && { echo no luck today; exit 3; }\nexec %s \"$@\"\n", dir, binary)
	if err := os.WriteFile(broken, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: broken})
	if err == nil {
		t.Fatal("Start succeeded without a scheduler")
	}
	for _, want := range []string{"kube-scheduler", "exit status 3", "no luck today"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q: %v", want, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(text))
	// The scheduler may end before the controller manager, which starts beside it, has begun.
	if len(pids) < 3 {
		t.Fatalf("started %d components, want etcd, the API server and the scheduler at least", len(pids))
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		awaitGone(t, pid)
	}
}

// awaitGone waits until no process of that id runs any more; a zombie whose new
// parent has not collected it yet is gone enough.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(10 * time.Second)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-ticker.C:
		case <-timeout:
			t.Errorf("process %d is still there: %s", pid, stat)
			return
		}
	}
}
