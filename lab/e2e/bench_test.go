package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/demo"
	"kamino.dev/kamino/lab/labtest"
	"kamino.dev/kamino/lab/nodes"
	"kamino.dev/kamino/poolstate"
)

// benchLab starts a lab with one pool and a workload on it.
func benchLab(t *testing.T, opts lab.Options) (*lab.Lab, *pool) {
	t.Helper()
	bench.Need(t)
	opts.Dir, opts.Binary, opts.NodesPerPool = t.TempDir(), labBinary, 3
	l, err := lab.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	name := l.Scenario.Pools[0].Name
	p := &pool{T: t, lab: l, name: name, id: l.Scenario.PoolID(name)}
	p.awaitNode(p.node(1))
	if err := (demo.Workload{Name: "web", Replicas: 6, MinAvailable: 4}).Start(t.Context(), l.Client); err != nil {
		t.Fatal(err)
	}
	return l, p
}

// usersBinary is the program with other times than those of the tests; "" is a user's.
func usersBinary(t *testing.T, pollInterval, settleLimit string) string {
	t.Helper()
	path, err := labtest.BuildKamino(t.Context(), t.TempDir(), pollInterval, settleLimit)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBenchUpdate measures what one update asks of Azure, of the API server and
// of the machine it runs on, where nothing takes time but Kamino, and nothing is proved: of a pool
// that comes to point at its definition. The other options are a user's: defaults.
func TestBenchUpdate(t *testing.T) {
	l, p := benchLab(t, lab.Options{Latencies: emulator.NoLatency(), NodeLatencies: nodes.NoLatency()})
	binary := usersBinary(t, "", "")
	plan := exec.CommandContext(t.Context(), binary, "plan", "--minimum-ready-time", "0s", "-o", "json")
	plan.Env = environment(l, nil)
	planned, err := bench.Run(plan)
	if err != nil {
		t.Fatal(err)
	}
	bench.Figure("plan-cpu", planned.CPU.Seconds(), "s", 0.2)
	bench.Figure("plan-memory", planned.Megabytes, "MB", 36)
	api, since := newProxy(t, l), lastRequest(l)
	cmd := exec.CommandContext(t.Context(), binary, "update", "--target-node", p.node(1), "--image", lab.SealImage, "--prove", "none", "-o", "json")
	cmd.Env = environment(l, map[string]string{"KUBECONFIG": api.kubeconfig})
	var log strings.Builder
	cmd.Stderr = &log
	cost, err := bench.Run(cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	figure := func(name string, value float64, unit string, bound float64) {
		bench.Figure(name, value, unit, bound)
	}
	arm := l.Cloud.Requests(since)
	figure("arm-requests", float64(len(arm)), "requests", 46)
	// Dry evictions grow with the pods of the donor, and are counted apart.
	rehearsed := func(request string) bool { return strings.HasSuffix(request, "/eviction"+dryRun) }
	requests := slices.DeleteFunc(api.requests(), rehearsed)
	figure("api-requests", float64(len(requests)), "requests", 50)
	figure("api-dry-evictions", float64(len(api.requests())-len(requests)), "requests", 6)
	figure("update-cpu", cost.CPU.Seconds(), "s", 0.2)
	figure("update-memory", cost.Megabytes, "MB", 36)
	for _, e := range arm {
		t.Logf("arm %s %s?%s", e.Method, e.Path, e.Query)
	}
	t.Logf("api\n%s", strings.Join(api.requests(), "\n"))
}

// TestBenchAway compares how long the donor is away with the time that the
// emulator itself needs: the guest halts by itself and at once, so that is
// snapshot, start and boot. It runs four times faster than published Azure, and
// polls in proportion; what Kamino adds is not made faster, so it counts fourfold. A proof comes
// after the donor is back, so with a canary it is away no longer.
func TestBenchAway(t *testing.T) {
	for _, b := range []struct {
		name string
		args []string
	}{{"donor-away", []string{"--prove", "none"}}, {"donor-away-canary", []string{"--prove-for", "0s"}}} {
		t.Run(b.name, func(t *testing.T) { benchAway(t, b.name, b.args) })
	}
}

func benchAway(t *testing.T, name string, args []string) {
	const faster = 4
	latencies := emulator.Latencies{Snapshot: 30 * time.Second, Start: 120 * time.Second,
		Gallery: -1, Definition: -1, Version: -1, UpdateScaleSet: -1} // while the donor is there
	boot := 60 * time.Second
	l, p := benchLab(t, lab.Options{Speed: faster, Latencies: latencies, NodeLatencies: nodes.Latencies{Boot: boot}})
	own := (latencies.Snapshot + latencies.Start + boot) / faster
	stopwatch := watchDonor(t, l, p)
	call{lab: l, binary: usersBinary(t, "250ms", "50ms")}.run(t, append(plainArgs(p.node(1)), args...)...).mustSucceed(t)
	away := stopwatch()
	t.Logf("away for %s, of which the emulator takes %s", away, own)
	bench.Figure(name, away.Seconds()/own.Seconds(), "times", 1.05)
}

// watchDonor measures from outside: from the moment the machine stops running
// until the API server shows its node Ready in another boot.
func watchDonor(t *testing.T, l *lab.Lab, p *pool) func() time.Duration {
	t.Helper()
	was := p.get(p.node(1))
	var mu sync.Mutex
	var gone, back time.Time
	cancel := l.Cloud.Subscribe(func(emulator.Change) {
		in, ok := l.Cloud.Instance(p.instance(1))
		mu.Lock()
		defer mu.Unlock()
		if ok && gone.IsZero() && in.PowerState != emulator.PowerRunning {
			gone = time.Now()
		}
	})
	t.Cleanup(cancel)
	w, err := l.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", was.Name).String(), ResourceVersion: was.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			mu.Lock()
			if ok && event.Type == watch.Modified && back.IsZero() && nodeutil.IsNodeReady(node) && node.Status.NodeInfo.BootID != was.Status.NodeInfo.BootID {
				back = time.Now()
			}
			mu.Unlock()
		}
	}()
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return back.Sub(gone)
	}
}

// TestBenchLeaderChange compares how long a donor is away whose process is killed while it is being
// sealed, with a second process beside it, with how long one is that nothing happens to.
func TestBenchLeaderChange(t *testing.T) {
	bench.Need(t)
	k := newKept(t)
	away := func(pool string) float64 {
		k.apply(pool, `{pool: `+pool+`, `+quick+`}`)
		k.awaitReason(pool, v1alpha1.ReasonUpToDate)
		o := call{lab: k.lab}.run(t, "status", "--pool", pool, "-o", "json")
		var pools []poolstate.PoolStatus
		if err := json.Unmarshal([]byte(o.out), &pools); err != nil || len(pools) != 1 || len(pools[0].Runs) == 0 {
			t.Fatalf("%v\n%s", err, o.out)
		}
		return pools[0].Runs[0].AwaySeconds
	}
	k.pool("calm", 2)
	k.pool("killed", 2)
	leader := k.start()
	calm := away("calm")
	killed := k.killAtSeal(leader, "killed")
	k.start()
	disturbed := away("killed")
	<-killed
	t.Logf("away for %.1f s, and %.1f s where the leader is killed", calm, disturbed)
	bench.Figure("leader-change-away", disturbed-calm, "s", kamino.LeaseDuration.Seconds())
}

// TestBenchCanary measures what the proof by a canary adds, where nothing takes time but Kamino and
// nothing is watched for longer than it must: requests of the whole update, and the time from the
// canary's order until the version is promoted.
func TestBenchCanary(t *testing.T) {
	l, p := benchLab(t, lab.Options{Latencies: emulator.NoLatency(), NodeLatencies: nodes.NoLatency()})
	since := lastRequest(l)
	call{lab: l, binary: usersBinary(t, "", "")}.run(t, "update", "--target-node", p.node(1), "--image", lab.SealImage, "--prove-for", "0s", "-o", "json").mustSucceed(t)
	arm := l.Cloud.Requests(since)
	ordered := slices.IndexFunc(arm, func(e emulator.Entry) bool {
		return e.Method == http.MethodPut && strings.Contains(e.Path, "/virtualMachineScaleSets/kamino-")
	})
	promoted := slices.IndexFunc(arm, func(e emulator.Entry) bool {
		return e.Method == http.MethodPatch && strings.HasSuffix(strings.ToLower(e.Path), "/virtualmachinescalesets/"+strings.ToLower(p.name))
	})
	if ordered < 0 || promoted < ordered {
		t.Fatalf("no canary before the promotion: requests %d and %d of %d", ordered, promoted, len(arm))
	}
	bench.Figure("arm-requests-canary", float64(len(arm)), "requests", 71)
	bench.Figure("canary-adds", arm[promoted].Time.Sub(arm[ordered].Time).Seconds(), "s", 10)
	for _, e := range arm {
		t.Logf("arm %s %s?%s", e.Method, e.Path, e.Query)
	}
}

// TestBenchAWS measures what an update asks of AWS, first with nothing proved and then with a
// canary: the group names its parameter by the second.
func TestBenchAWS(t *testing.T) {
	bench.Need(t)
	l, err := lab.Start(t.Context(), lab.Options{On: lab.OnAWS, Dir: t.TempDir(), Binary: labBinary, AWSLatencies: awsemulator.NoLatency(), NodeLatencies: nodes.NoLatency()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	members := l.AWS.Machines()
	for i, b := range []struct {
		name  string
		args  []string
		bound float64
	}{{"aws-requests", []string{"--prove", "none"}, 60}, {"aws-requests-canary", []string{"--prove-for", "0s", "--again"}, 85}} {
		since := len(l.AWS.Requests(0))
		cmd := exec.CommandContext(t.Context(), usersBinary(t, "", ""), append([]string{"update", "--target-node", members[i].Hostname, "--image", lab.SealImage, "-o", "json"}, b.args...)...)
		cmd.Env = environment(l, nil)
		var log strings.Builder
		cmd.Stderr = &log
		cost, err := bench.Run(cmd)
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		bench.Figure(b.name, float64(len(l.AWS.Requests(since))), "requests", b.bound)
		for _, e := range l.AWS.Requests(since) {
			t.Logf("%s:%s", e.Service, e.Action)
		}
		if i == 0 {
			bench.Figure("aws-update-cpu", cost.CPU.Seconds(), "s", 1)
			bench.Figure("aws-update-memory", cost.Megabytes, "MB", 64)
		}
	}
}
