package choose

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/nodes"
)

// KAMINO_BENCH_POOLS makes it smaller, to see whether it works at all.
var benchPools = envInt("KAMINO_BENCH_POOLS", 50)

const benchNodes = 100 // of each pool

func envInt(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// TestBenchPlan measures kamino plan on 5,000 nodes of 50 pools, half of which
// need a new prototype, beside kubectl get nodes -o json.
func TestBenchPlan(t *testing.T) {
	bench.Need(t)
	dir := t.TempDir()
	var err error
	// Nobody renews the nodes' leases, so they may be silent for long.
	shared, err = lab.Start(t.Context(), lab.Options{Dir: filepath.Join(dir, "lab"), Binary: benchBinary, NodesPerPool: 1, Speed: 100_000, NodeGrace: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Stop()
	shared.Nodes.Stop() // the bench writes the objects itself
	began := time.Now()
	fillCloud(t, benchPools, benchNodes, 1)
	t.Logf("scale sets and images are there after %s", time.Since(began).Round(time.Second))
	fillCluster(t)
	awaitQuiet(t)
	t.Logf("nodes are there, and the controllers are done with them, after %s", time.Since(began).Round(time.Second))

	since := len(shared.Cloud.Requests(0))
	cost, out := measured(t, binary, "plan", "--detailed-exitcode", "--minimum-ready-time", "0s")
	requests, lists := map[string]int{}, 0
	for _, r := range shared.Cloud.Requests(0)[since:] {
		kind := kindOf(r.Path)
		requests[kind]++
		if strings.HasSuffix(r.Path, "/versions") {
			lists++
		}
	}
	if n := strings.Count(out, "make a new prototype of"); n != benchPools/2 {
		t.Errorf("%d pools are to get a new prototype, want %d\n%.3000s", n, benchPools/2, out)
	}
	name := fmt.Sprintf("plan-%d-nodes", benchPools*benchNodes)
	bench.Figure(name, cost.Wall.Seconds(), "s", 3)
	bench.Figure(name+"-memory", cost.Megabytes, "MB", 150)
	// ARM lists the versions of one definition at a time, never those of a
	// gallery. The lab has one pool of its own.
	bench.Figure("plan-version-lists", float64(lists), "requests", float64(benchPools+1))
	bench.Figure("plan-requests-per-instance", float64(requests["virtualmachines/0"]), "requests", float64(benchPools))
	fmt.Printf("processor time of the plan: %s; its ARM requests: %v\n", cost.CPU, requests)
	if kubectl, err := exec.LookPath("kubectl"); err == nil {
		cost, text := measured(t, kubectl, "get", "nodes", "-o", "json")
		fmt.Printf("beside it: kubectl get nodes -o json takes %.2f s and %.0f MB for %d MB of JSON; what it would cost to plan comes on top\n",
			cost.Wall.Seconds(), cost.Megabytes, len(text)>>20)
	}
}

// TestBenchPlanAWS measures kamino plan on as many nodes of 50 Auto Scaling groups. Those with even
// numbers have an image of ten days ago, and newer patches; the others have none yet.
func TestBenchPlanAWS(t *testing.T) {
	bench.Need(t)
	tags := map[string]string{"kubernetes.io/cluster/lab": "owned"}
	var err error
	shared, err = lab.Start(t.Context(), lab.Options{On: lab.OnAWS, Dir: filepath.Join(t.TempDir(), "lab"), Binary: benchBinary, Speed: 100_000, NodeGrace: 24 * time.Hour,
		Groups: []awsemulator.Group{{Name: "one", Count: 1, Tags: tags}}})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Stop()
	shared.Nodes.Stop() // the bench writes the objects itself
	var groups []awsemulator.Group
	for n := range benchPools {
		groups = append(groups, awsemulator.Group{Name: fmt.Sprintf("bench%02d", n), Count: benchNodes, Min: 1, Tags: tags})
	}
	shared.AWS.Seed(groups...)
	fillAWS(t)
	instances := nodes.AWS(shared.AWS).Instances()
	inParallel(t, len(instances), func(ctx context.Context, i int) error {
		in := instances[i]
		if in.Pool == "one" {
			return nil
		}
		n := benchNode(in, i, even(in.Pool))
		n.Spec.ProviderID = in.ID
		_, err := shared.Client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		return err
	})
	awaitQuiet(t)
	since := len(shared.AWS.Requests(0))
	cost, out := measured(t, binary, "plan", "--detailed-exitcode", "--minimum-ready-time", "0s")
	if n := strings.Count(out, "make a new prototype of"); n != benchPools {
		t.Errorf("%d pools are to get a new prototype, want %d\n%.3000s", n, benchPools, out)
	}
	name := fmt.Sprintf("plan-aws-%d-nodes", benchPools*benchNodes)
	bench.Figure(name, cost.Wall.Seconds(), "s", 3)
	bench.Figure(name+"-memory", cost.Megabytes, "MB", 200) // each group tells of its hundred instances
	requests := map[string]int{}
	for _, r := range shared.AWS.Requests(since) {
		requests[r.Action]++
	}
	fmt.Printf("processor time of the plan: %s; its requests: %v\n", cost.CPU, requests)
}

// kindOf is the resource type of a path, and for single instances "/0".
func kindOf(path string) string {
	parts := strings.Split(strings.ToLower(path), "/")
	for i := len(parts) - 1; i >= 0; i-- {
		switch parts[i] {
		case "virtualmachines":
			if i == len(parts)-1 {
				return "virtualmachines"
			}
			return "virtualmachines/0"
		case "versions", "images", "galleries", "snapshots", "virtualmachinescalesets", "permissions", "token":
			return parts[i]
		}
	}
	return "other"
}

// measured runs a program against the lab and tells what it cost.
func measured(t *testing.T, program string, args ...string) (cost bench.Cost, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = os.Environ()
	for name, value := range shared.Environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var text, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &errs
	cost, err := bench.Run(cmd)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) {
		t.Fatalf("%s %v: %v\n%s", program, args, err, errs.String())
	}
	return cost, text.String()
}

func benchPool(n int) string { return fmt.Sprintf("k8s-bench%02d-vmss", n) }

// scenarioOf is where the n-th pool is, of a bench that has several subscriptions.
func scenarioOf(n, subscriptions int) emulator.Scenario {
	scenario := shared.Scenario
	if subscriptions > 1 {
		scenario.Subscription = fmt.Sprintf("00000000-0000-0000-0000-%012d", 100+n%subscriptions)
	}
	scenario.Pools = nil
	return scenario
}

// fillCloud seeds the scale sets, in turn in so many subscriptions, and gives each an image of ten
// days ago.
func fillCloud(t *testing.T, pools, nodes, subscriptions int) {
	t.Helper()
	began := time.Now()
	roles := []emulator.Role{shared.Role()}
	for first := range subscriptions {
		scenario := scenarioOf(first, subscriptions)
		role := shared.Role()
		role.Scope = "/subscriptions/" + scenario.Subscription + "/resourceGroups/" + scenario.ResourceGroup
		roles = append(roles, role)
		for n := first; n < pools; n += subscriptions {
			scenario.Pools = append(scenario.Pools, emulator.Pool{Name: benchPool(n), Count: nodes})
		}
		shared.Cloud.Seed(scenario)
	}
	shared.Cloud.SetRoles(shared.Environment()["AZURE_CLIENT_ID"], roles...)
	t.Logf("seeded in %s", time.Since(began).Round(time.Millisecond))
	e := newEngine(t, 0)
	if subscriptions > 1 {
		e.Provider = providerOfAll(t)
	}
	built := time.Now().UTC().Add(-10 * day)
	inParallel(t, pools, func(ctx context.Context, n int) error {
		at := scenarioOf(n, subscriptions).PoolID(benchPool(n))
		pool, err := e.Provider.Pool(ctx, kamino.PoolID(strings.ToLower(at)))
		if err != nil {
			return err
		}
		in, err := e.Provider.Instance(ctx, kamino.InstanceID("azure://"+at+"/virtualMachines/0"))
		if err != nil {
			return err
		}
		tags := map[string]string{kamino.TagBuiltFrom: "old", kamino.TagBuiltAt: built.Format(kamino.BuiltAtFormat), kamino.TagRun: "old"}
		snapshot := kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: in.Disk, Tags: tags, Machine: kamino.Machine{Generation: "V2"}}
		address := e.Provider.(*azure.Provider)
		version := kamino.Artifact{Kind: kamino.KindVersion, Name: kamino.VersionName(built), Storage: kamino.StorageLRS, Tags: tags,
			Source: address.Address(pool, kamino.KindSnapshot, snapshot.Name)}
		for _, a := range []kamino.Artifact{
			{Kind: kamino.KindGallery, Name: pool.Gallery},
			{Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name), Machine: kamino.Machine{Generation: "V2", Architecture: "x64", SecurityType: "Standard"}}, snapshot, version,
		} {
			if err := make1(ctx, e, pool, a); err != nil {
				return err
			}
		}
		if err := e.Provider.Delete(ctx, pool, snapshot); err != nil {
			return err
		}
		return e.Provider.Promote(ctx, pool, kamino.Target{Version: version.Name})
	})
}

// providerOfAll is a provider that no subscription is named to.
func providerOfAll(t *testing.T) *azure.Provider {
	t.Helper()
	environment := shared.Environment()
	delete(environment, "AZURE_SUBSCRIPTION_ID")
	delete(environment, "AZURE_RESOURCE_GROUP")
	provider, err := azure.New(azure.Config{Transport: &http.Client{Transport: labTransport(t)}, Getenv: func(name string) string { return environment[name] }})
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// fillAWS gives every other group an image of ten days ago, which its parameter holds.
func fillAWS(t *testing.T) {
	t.Helper()
	for name, value := range shared.Environment() {
		t.Setenv(name, value)
	}
	provider, err := aws.New(aws.Config{Cluster: "lab", Transport: &http.Client{Transport: labTransport(t)}})
	if err != nil {
		t.Fatal(err)
	}
	e := &engine.Engine{Provider: provider, Clock: kamino.WallClock{}}
	built := time.Now().UTC().Add(-10 * day)
	tags := map[string]string{kamino.TagBuiltFrom: "old", kamino.TagBuiltAt: built.Format(kamino.BuiltAtFormat), kamino.TagRun: "old"}
	first := map[string]kamino.InstanceID{}
	for _, m := range shared.AWS.Machines() {
		first[m.Group] = kamino.InstanceID("aws:///" + m.Zone + "/" + m.ID)
	}
	inParallel(t, benchPools, func(ctx context.Context, n int) error {
		name := fmt.Sprintf("bench%02d", n)
		if !even(name) {
			return nil
		}
		id, err := provider.PoolOf(ctx, first[name])
		if err != nil {
			return err
		}
		pool, err := provider.Pool(ctx, id)
		if err != nil {
			return err
		}
		in, err := provider.Instance(ctx, first[name])
		if err != nil {
			return err
		}
		snapshot := kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(name), Source: in.Disk, Tags: tags}
		if err := make1(ctx, e, pool, snapshot); err != nil {
			return err
		}
		found, err := provider.Find(ctx, pool, kamino.KindSnapshot, snapshot.Name)
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d snapshots: %w", len(found), err)
		}
		version := kamino.Artifact{Kind: kamino.KindVersion, Name: kamino.VersionName(built), Tags: tags, Source: found[0].ID}
		if err := make1(ctx, e, pool, version); err != nil {
			return err
		}
		return provider.Promote(ctx, pool, kamino.Target{Version: version.Name, Reference: kamino.ByPointer})
	})
}

// make1 creates an artifact and waits until it is there.
func make1(ctx context.Context, e *engine.Engine, pool kamino.Pool, a kamino.Artifact) error {
	for range 200 {
		found, err := e.Provider.Find(ctx, pool, a.Kind, a.Name)
		if err != nil {
			return err
		}
		if len(found) > 0 && found[0].State == kamino.Succeeded && found[0].Ready {
			return nil
		}
		if len(found) == 0 {
			if err := e.Provider.Create(ctx, pool, a); err != nil && !errors.Is(err, kamino.ErrInProgress) && !errors.Is(err, kamino.ErrConflict) {
				return err
			}
		}
		if err := e.Clock.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s %s is not there", a.Kind, a.Name)
}

func inParallel(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	places := make(chan struct{}, 16)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := do(t.Context(), i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// fillCluster writes the nodes as a kubelet with fifty images would.
func fillCluster(t *testing.T) {
	t.Helper()
	instances := shared.Cloud.Instances()
	inParallel(t, len(instances), func(ctx context.Context, i int) error {
		in := instances[i]
		if !strings.Contains(in.ID, "k8s-bench") {
			return nil
		}
		_, err := shared.Client.CoreV1().Nodes().Create(ctx, benchNode(in, i, even(in.Pool)), metav1.CreateOptions{})
		return err
	})
}

// awaitQuiet waits until nobody has written a node for a while: the controllers
// have much to say about five thousand new ones, and would share the processors
// with what is measured.
func awaitQuiet(t *testing.T) {
	t.Helper()
	const quiet = 3 * time.Second
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		w, err := shared.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for open := true; open; { // the API server ends a watch that does not keep up
			select {
			case _, open = <-w.ResultChan():
				timer.Reset(quiet)
			case <-timer.C:
				w.Stop()
				return
			}
		}
	}
}

// even says whether the number of a pool is even.
func even(pool string) bool {
	pool = strings.TrimSuffix(pool, "-vmss")
	return strings.ContainsAny(pool[len(pool)-1:], "02468")
}

func benchNode(in emulator.Instance, i int, newer bool) *corev1.Node {
	now := time.Now().UTC()
	name := strings.ToLower(in.ComputerName)
	patched := now.Add(-20 * day)
	if newer {
		patched = now.Add(-time.Duration(24+i%48) * time.Hour)
	}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: "Kubelet" + string(kind), Message: "kubelet says so about " + string(kind),
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(2+i%500) * time.Hour))}
	}
	quantities := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("120Gi")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{
			kamino.KuredLastPatch.Annotation:                         patched.Format(time.RFC3339),
			"volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"node.alpha.kubernetes.io/ttl":                           "0",
			"csi.volume.kubernetes.io/nodeid":                        `{"disk.csi.azure.com":"` + name + `","file.csi.azure.com":"` + name + `"}`,
		}},
		Spec: corev1.NodeSpec{ProviderID: "azure://" + in.ID, PodCIDR: fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256)},
		Status: corev1.NodeStatus{
			Capacity: quantities, Allocatable: quantities,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.240.%d.%d", i/256, i%256)}},
			NodeInfo: corev1.NodeSystemInfo{MachineID: strings.ReplaceAll(in.VMID, "-", ""), SystemUUID: strings.ToLower(in.VMID), BootID: strings.ToLower(in.VMID),
				KernelVersion: "5.15.0-1071-azure", OSImage: "Ubuntu 22.04.4 LTS", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://1.7.20", KubeletVersion: "v1.36.3"},
			Conditions: []corev1.NodeCondition{condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
				condition("KernelDeadlock", "False"), condition("ReadonlyFilesystem", "False"), condition(corev1.NodeReady, "True")},
		},
	}
	for k := range 25 {
		n.Labels[fmt.Sprintf("kubernetes.azure.com/label-%02d", k)] = fmt.Sprintf("value-%d-of-pool-%s", k, in.Pool)
	}
	for k := range 50 {
		repository := fmt.Sprintf("registry.example.com/platform/team-%02d/service-%02d", k%7, k)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{SizeBytes: int64(k+1) << 22,
			Names: []string{repository + "@sha256:" + strings.Repeat(fmt.Sprintf("%04x", k*i%65536), 16), repository + ":v1.2." + fmt.Sprint(k)}})
	}
	return n
}
