package choose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/lab"
)

// KAMINO_BENCH_PROTOTYPES makes it smaller; KAMINO_BENCH_IDLE is for how many minutes nothing
// happens. They pass in real time: the queue of client-go, which decides when a prototype is looked at
// again, runs by the clock of the machine, and without these looks there is nothing to measure. The idle hour is, in lab/,
//
//	KAMINO_BENCH=1 KAMINO_BENCH_IDLE=60 go test -count=1 -timeout 100m -v -run BenchController ./choose
var (
	benchPrototypes = envInt("KAMINO_BENCH_PROTOTYPES", 1000)
	benchIdle       = time.Duration(envInt("KAMINO_BENCH_IDLE", 6)) * time.Minute
)

const (
	eachPrototype = 15 // nodes
	subscriptions = 10
	resync        = 5 * time.Minute
)

// TestBenchController measures a controller of 1,000 prototypes and 15,000 nodes in ten
// subscriptions, with the flags it has by default: its first pass of all, what it asks for and
// takes where nothing happens, and how soon it acts on a change.
func TestBenchController(t *testing.T) {
	bench.Need(t)
	var err error
	// Nobody renews the nodes' leases, so they may be silent for long.
	shared, err = lab.Start(t.Context(), lab.Options{Dir: filepath.Join(t.TempDir(), "lab"), Binary: benchBinary, NodesPerPool: 1, Speed: 100_000, NodeGrace: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Stop()
	shared.Nodes.Stop() // the bench writes the objects itself
	began := time.Now()
	fillCloud(t, benchPrototypes, eachPrototype, subscriptions)
	instances := shared.Cloud.Instances()
	inParallel(t, len(instances), func(ctx context.Context, i int) error {
		if !strings.Contains(instances[i].ID, "k8s-bench") {
			return nil
		}
		_, err := shared.Client.CoreV1().Nodes().Create(ctx, benchNode(instances[i], i, false), metav1.CreateOptions{})
		return err
	})
	awaitQuiet(t)
	t.Logf("%d prototypes, %d nodes; pools and nodes are there after %s", benchPrototypes, len(instances), time.Since(began).Round(time.Second))
	k := declare(t)

	c := k.start()
	began = time.Now()
	first := k.await(10*time.Minute, 2*time.Second, "all prototypes were looked at", func() bool { return k.upToDate() == benchPrototypes })
	bench.Figure("controller-first-pass", first.Seconds(), "s", 120)
	t.Logf("the first pass took %s of processor time", k.cpu(c))

	requests, revisions, cpu := len(shared.Cloud.Requests(0)), k.revisions(), k.cpu(c)
	k.pass(benchIdle)
	took := k.cpu(c) - cpu
	count, all := map[string]int{}, shared.Cloud.Requests(0)[requests:]
	sets, most := map[string]int{}, 0 // reads of scale sets by subscription
	for _, r := range all {
		count[r.Method+" "+kindOf(r.Path)]++
		if parts := strings.Split(r.Path, "/"); len(parts) > 2 && kindOf(r.Path) == "virtualmachinescalesets" {
			sets[parts[2]]++
			most = max(most, sets[parts[2]])
		}
	}
	if len(sets) != min(subscriptions, benchPrototypes) && len(sets) != min(subscriptions, benchPrototypes)+1 { // the lab has a pool of its own
		t.Errorf("scale sets of %d subscriptions were read", len(sets))
	}
	bench.Figure("controller-idle-cpu", 100*took.Seconds()/benchIdle.Seconds(), "%", 5)
	bench.Figure("controller-memory", bench.Resident(c.Process.Pid), "MB", 300)
	writes := 0
	for what, revision := range k.revisions() {
		if revisions[what] != revision && what != "leases/kamino-controller" {
			writes++
			t.Logf("written in an idle time: %s", what)
		}
	}
	bench.Figure("controller-idle-writes", float64(writes), "objects", 0)
	// Half of what the published buckets are refilled with: in a region of a subscription 800 reads
	// of scale sets a minute (Microsoft.Compute), and for each principal 25 of anything a second
	// (ARM).
	// https://learn.microsoft.com/azure/virtual-machines/compute-throttling-limits
	// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
	minutes := benchIdle.Minutes()
	bench.Figure("controller-idle-scaleset-reads", float64(most)/minutes, "a minute", 400)
	bench.Figure("controller-idle-reads", float64(len(all))/minutes, "a minute", 750)
	fmt.Printf("of each pool, in an hour: %.1f requests to Azure; %v in %s for %d pools\n", float64(len(all))/benchIdle.Hours()/float64(benchPrototypes), count, benchIdle, benchPrototypes)
	if len(all) == 0 {
		t.Error("nothing was looked at in the idle time")
	}

	name := benchPool(0)
	if _, err := k.protos.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	acted := k.await(time.Minute, 100*time.Millisecond, "the change was acted on", func() bool {
		o, err := k.protos.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		return observed == o.GetGeneration()
	})
	bench.Figure("controller-acts", acted.Seconds(), "s", 2)
}

// keeping is a cluster with prototypes, and a controller.
type keeping struct {
	*testing.T
	client dynamic.Interface
	protos dynamic.ResourceInterface
	log    bytes.Buffer
}

// declare applies a prototype of each pool.
func declare(t *testing.T) *keeping {
	t.Helper()
	config := shared.RESTConfig()
	config.QPS = -1
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
	if _, err := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k := &keeping{T: t, client: client, protos: client.Resource(v1alpha1.GroupVersion.WithResource("nodeprototypes"))}
	k.await(time.Minute, 100*time.Millisecond, "prototypes are served", func() bool { _, err := k.protos.List(t.Context(), metav1.ListOptions{}); return err == nil })
	inParallel(t, benchPrototypes, func(ctx context.Context, i int) error {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodePrototype",
			"metadata": map[string]any{"name": benchPool(i)}, "spec": map[string]any{"pool": benchPool(i)}}}
		_, err := k.protos.Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return k
}

func (k *keeping) start() *exec.Cmd {
	k.Helper()
	cmd := exec.CommandContext(k.Context(), binary, "controller", "--image", lab.SealImage, "--metrics-address", "0", "--health-address", "0", "--minimum-ready-time", "0s", "--resync", resync.String(),
		"--lease-time", "1m") // where much else runs, the API server may be silent for seconds
	cmd.Env = os.Environ()
	for name, value := range shared.Environment() {
		if name != "AZURE_SUBSCRIPTION_ID" && name != "AZURE_RESOURCE_GROUP" { // nodes tell of theirs
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stderr = &k.log
	if err := cmd.Start(); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if k.Failed() {
			k.Logf("the log of the controller:\n%.5000s", k.log.String())
		}
	})
	return cmd
}

// await is how long it takes until something is so, which is looked at again after a pause.
func (k *keeping) await(limit, pause time.Duration, what string, is func() bool) time.Duration {
	k.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > limit {
			k.Fatalf("waited in vain until %s; %d are up to date", what, k.upToDate())
		}
		k.pass(pause)
	}
	return time.Since(began)
}

func (k *keeping) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-k.Context().Done():
	}
}

// upToDate counts the prototypes whose pool was read and needs nothing. What it takes is taken from
// the API server and the cloud that are measured, so it reads no more than it must.
func (k *keeping) upToDate() (n int) {
	for _, o := range k.list(k.protos) {
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		if err != nil {
			k.Fatal(err)
		}
		for _, c := range conditions {
			c, _ := c.(map[string]any)
			switch {
			case c["type"] != v1alpha1.ConditionReady:
			case c["reason"] == v1alpha1.ReasonUpToDate:
				n++
			default:
				k.Logf("%s: %s: %s", o.GetName(), c["reason"], c["message"])
			}
		}
	}
	return n
}

func (k *keeping) list(of dynamic.ResourceInterface) []unstructured.Unstructured {
	k.Helper()
	list, err := of.List(k.Context(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	return list.Items
}

// revisions are those of what a controller could write.
func (k *keeping) revisions() map[string]string {
	out := map[string]string{}
	for what, of := range map[string]dynamic.ResourceInterface{
		"prototypes": k.protos,
		"nodes":      k.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}),
		"events":     k.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}),
		"leases":     k.client.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace("kamino-system"),
		"configmaps": k.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("kamino-system"),
	} {
		for _, o := range k.list(of) {
			out[what+"/"+o.GetName()] = o.GetResourceVersion()
		}
	}
	return out
}

// cpu is the processor time that a process took so far.
func (k *keeping) cpu(cmd *exec.Cmd) time.Duration {
	k.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil {
		k.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		k.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // of 100 a second (proc(5))
}
