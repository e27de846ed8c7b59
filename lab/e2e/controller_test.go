package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// kept is a lab of its own, whose pools a controller keeps: at most one donor is away in a cluster.
type kept struct {
	*testing.T
	lab    *lab.Lab
	protos dynamic.ResourceInterface
	env    map[string]string // of processes, besides the lab's
	binary string            // "": the one that is tested

	crd, noCRD func() // apply the kind, and take it away
}

func newKept(t *testing.T, change ...func(*lab.Options)) *kept {
	t.Helper()
	opts := lab.Options{Dir: filepath.Join(t.TempDir(), "lab"), Binary: labBinary, NodesPerPool: 1, Speed: speed}
	for _, f := range change {
		f(&opts)
	}
	l, err := lab.Start(mainContext, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	client, err := dynamic.NewForConfig(l.RESTConfig())
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
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	k := &kept{T: t, lab: l, protos: client.Resource(v1alpha1.GroupVersion.WithResource("nodeprototypes"))}
	k.crd = func() {
		if _, err := crds.Create(context.WithoutCancel(t.Context()), crd.DeepCopy(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		k.served()
	}
	k.noCRD = func() {
		if err := crds.Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	k.crd()
	return k
}

// served waits until the API server knows the kind.
func (k *kept) served() {
	k.Helper()
	await(k.T, "NodePrototypes are served", func() string {
		if _, err := k.protos.List(k.Context(), metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// process is a controller that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	log   strings.Builder
	watch func(logLine)
}

// start starts a controller, which is killed after the test if it still runs then.
func (k *kept) start(more ...string) *process {
	k.Helper()
	args := append([]string{"controller", "--image", lab.SealImage, "--grace-period", "20", "--minimum-ready-time", "0",
		"--metrics-address", "0", "--health-address", "0", "--resync", "2s", "--retry", "1s", "--passes-per-second", "100"}, more...)
	p := &process{cmd: exec.Command(cmp.Or(k.binary, binary), args...), ended: make(chan struct{})}
	p.cmd.Env = environment(k.lab, k.env)
	log, err := p.cmd.StderrPipe()
	if err != nil {
		k.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		k.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			watch := p.watch
			p.mu.Unlock()
			if watch != nil {
				watch(parseLine(lines.Text()))
			}
		}
		_ = p.cmd.Wait() // the state tells
	}()
	k.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if k.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			k.Logf("the log of %v:\n%s", p.cmd.Args, p.log.String())
		}
	})
	return p
}

// onLine sees each line of the log from now on.
func (p *process) onLine(see func(logLine)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = see
}

// pool is one whose nodes were patched just now.
func (k *kept) pool(name string, count int, change ...func(*emulator.Pool)) *pool {
	k.Helper()
	spec := emulator.Pool{Name: name, Count: count}
	for _, f := range change {
		f(&spec)
	}
	p := seedPools(k.T, k.lab, spec)[0]
	for _, node := range p.computers() {
		p.patch(node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredLastPatch.Annotation, time.Now().UTC().Format(time.RFC3339)))
	}
	return p
}

// apply is a person with kubectl apply.
func (k *kept) apply(name, spec string) {
	k.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, "apiVersion: kamino.dev/v1alpha1\nkind: NodePrototype\nmetadata: {name: %s}\nspec: %s\n", name, spec), &o.Object); err != nil {
		k.Fatal(err)
	}
	if _, err := k.protos.Apply(k.Context(), name, o, metav1.ApplyOptions{FieldManager: "person"}); err != nil {
		k.Fatal(err)
	}
}

func (k *kept) get(name string) (p v1alpha1.NodePrototype) {
	k.Helper()
	o, err := k.protos.Get(k.Context(), name, metav1.GetOptions{})
	if err != nil {
		k.Fatal(err)
	}
	text, err := o.MarshalJSON()
	if err != nil {
		k.Fatal(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		k.Fatal(err)
	}
	return p
}

func (k *kept) patch(name, patch string, subresources ...string) {
	k.Helper()
	if _, err := k.protos.Patch(k.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
		k.Fatal(err)
	}
}

// awaitReason waits until Ready has a reason, for the spec as it is.
func (k *kept) awaitReason(name, reason string) v1alpha1.NodePrototype {
	k.Helper()
	var p v1alpha1.NodePrototype
	labtest.Await(k, 3*time.Minute, name+" is "+reason, func() string {
		p = k.get(name)
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != reason || ready.ObservedGeneration != p.Generation {
			return fmt.Sprintf("%+v", p.Status)
		}
		return ""
	})
	return p
}

func is(p v1alpha1.NodePrototype, kind string) bool {
	return meta.IsStatusConditionTrue(p.Status.Conditions, kind)
}

// timeless is a status without its transition times.
func timeless(s v1alpha1.NodePrototypeStatus) v1alpha1.NodePrototypeStatus {
	out := *s.DeepCopy()
	for i := range out.Conditions {
		out.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return out
}

const quick = `prove: {bake: 0s}`

// TestController: what is applied becomes an image, proved and promoted, and the status says so;
// and whatever cannot be kept is told, and nothing done.
func TestController(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	blue := k.pool("blue", 2)
	heard := newHeard(t)
	leader := k.start("--notify-file", heard.file)
	k.apply("blue", `{pool: blue, `+quick+`}`)
	p := k.awaitReason("blue", v1alpha1.ReasonUpToDate)
	if s := p.Status; s.Pool != "blue" || s.Next == nil || s.Image != s.Next.Version || s.Next.Built == nil || s.Run != nil || s.Donor != "" || s.ObservedGeneration != p.Generation ||
		!is(p, v1alpha1.ConditionReady) || !is(p, v1alpha1.ConditionProven) || is(p, v1alpha1.ConditionStale) || is(p, v1alpha1.ConditionProgressing) {
		t.Errorf("after the run: %+v", s)
	}
	if o := (call{lab: k.lab}).run(t, "status", "--pool", "blue"); !strings.Contains(o.out, "boots from "+p.Status.Image) || strings.Count(o.out, "run-") > 1 {
		t.Errorf("kamino status says\n%s", o.out)
	}
	blue.expectFree()

	k.patch("blue", `{"status":null}`, "status")
	if again := k.awaitReason("blue", v1alpha1.ReasonUpToDate); !equality.Semantic.DeepEqual(timeless(again.Status), timeless(p.Status)) {
		t.Errorf("made again, the status is\n%+v, was\n%+v", again.Status, p.Status)
	}

	t.Run("troubled", func(t *testing.T) { k.at(t).troubled() })
	t.Run("held", func(t *testing.T) { k.at(t).held() })
	t.Run("killed", func(t *testing.T) { k.at(t).killed(leader, heard) })
}

func (k *kept) at(t *testing.T) *kept { return &kept{T: t, lab: k.lab, protos: k.protos} }

// troubled are those for which nothing can be done.
func (k *kept) troubled() {
	owned := k.pool("owned", 1, func(s *emulator.Pool) { s.Tags = emulator.CAPZTags("prod-1") })
	model := owned.model()
	k.apply("second", `{nodeSelector: {kubernetes.azure.com/agentpool: none}}`)
	k.awaitReason("second", v1alpha1.ReasonPoolNotFound)
	k.apply("second", `{pool: BLUE}`)
	k.awaitReason("second", v1alpha1.ReasonConflict)
	k.awaitReason("blue", v1alpha1.ReasonConflict)
	if err := k.protos.Delete(k.Context(), "second", metav1.DeleteOptions{}); err != nil {
		k.Fatal(err)
	}
	k.awaitReason("blue", v1alpha1.ReasonUpToDate)
	k.apply("gone", `{pool: nobody}`)
	k.awaitReason("gone", v1alpha1.ReasonPoolNotFound)
	k.apply("owned", `{pool: owned, `+quick+`}`)
	if p := k.awaitReason("owned", v1alpha1.ReasonOwned); !is(p, v1alpha1.ConditionRefused) || owned.model() != model {
		k.Errorf("an owner's pool: %+v", p.Status)
	}
	k.apply("zone", `{pool: nobody, window: {start: "01:00", end: "02:00", timeZone: Europe/Atlantis}}`)
	k.awaitReason("zone", v1alpha1.ReasonInvalid)
}

// held are those that wait: for a window, for spec.suspend, for the stop switch and for a person.
func (k *kept) held() {
	k.pool("green", 2)
	later := time.Now().UTC().Add(12 * time.Hour)
	k.apply("green", fmt.Sprintf(`{pool: green, promote: Manual, %s, window: {start: %q, end: %q}}`, quick, later.Format("15:04"), later.Add(time.Hour).Format("15:04")))
	if p := k.awaitReason("green", v1alpha1.ReasonWindow); p.Status.NextRun == nil || !p.Status.NextRun.Time.Equal(later.Truncate(time.Minute)) || p.Status.Candidate == "" {
		k.Errorf("outside the window: %+v, want %s", p.Status, later)
	}
	k.apply("green", `{pool: green, promote: Manual, suspend: true, `+quick+`}`)
	if p := k.awaitReason("green", v1alpha1.ReasonSuspended); !is(p, v1alpha1.ConditionPaused) || !is(p, v1alpha1.ConditionStale) || p.Status.Image != "" {
		k.Errorf("suspended: %+v", p.Status)
	}
	c := call{lab: k.lab}
	c.run(k.T, "pause", "--reason", "a test")
	k.apply("green", `{pool: green, promote: Manual, suspend: false, `+quick+`}`)
	if p := k.awaitReason("green", v1alpha1.ReasonPaused); !is(p, v1alpha1.ConditionPaused) {
		k.Errorf("paused: %+v", p.Status)
	}
	c.run(k.T, "resume")
	p := k.awaitReason("green", v1alpha1.ReasonAwaits)
	version := p.Status.Image
	if p.Status.Next != nil {
		k.Errorf("before its promotion: %+v", p.Status)
	}
	k.patch("green", `{"metadata":{"annotations":{"kamino.dev/promote":"2001.01.01"}}}`)
	k.awaitReason("green", v1alpha1.ReasonPromotion)
	k.patch("green", `{"metadata":{"annotations":{"kamino.dev/promote":""}}}`)
	p = k.awaitReason("green", v1alpha1.ReasonUpToDate)
	if _, left := p.Annotations[v1alpha1.AnnotationPromote]; left || p.Status.Next == nil || version != "" && p.Status.Next.Version != version || !is(p, v1alpha1.ConditionProven) {
		k.Errorf("promoted by annotation: %v %+v", p.Annotations, p.Status)
	}
	// The same by command.
	k.pool("grey", 2)
	k.apply("grey", `{pool: grey, promote: Manual, `+quick+`}`)
	k.awaitReason("grey", v1alpha1.ReasonAwaits)
	if o := c.run(k.T, "promote", "--pool", "grey"); o.code != 0 {
		k.Errorf("kamino promote: exit code %d\n%s", o.code, o.log)
	}
	k.awaitReason("grey", v1alpha1.ReasonUpToDate)
}

// killAtSeal kills a leader once its run in a pool is about to seal a donor.
func (k *kept) killAtSeal(leader *process, pool string) (killed chan struct{}) {
	killed = make(chan struct{})
	var once sync.Once
	leader.onLine(func(line logLine) {
		if line.step == kamino.StepSeal && line.kind == string(kamino.EventActed) && strings.Contains(line.text, "pool="+pool) {
			once.Do(func() { _ = leader.cmd.Process.Kill(); close(killed) })
		}
	})
	return killed
}

// killed: of two processes the one that leads is killed while its donor is being sealed; the other
// adopts the run and ends it, and the donor is back.
func (k *kept) killed(leader *process, heard *heard) {
	red := k.pool("red", 2)
	killed := k.killAtSeal(leader, "red")
	next := k.start("--notify-file", heard.file)
	k.apply("red", `{pool: red, `+quick+`}`)
	select {
	case <-killed:
		<-leader.ended
	case <-time.After(2 * time.Minute):
		k.Fatal("no donor came to be sealed")
	}
	run := red.holder()
	p := k.awaitReason("red", v1alpha1.ReasonUpToDate)
	if p.Status.Next == nil || p.Status.Next.Run != run || run == "" {
		k.Errorf("run %s was not adopted: %+v", run, p.Status)
	}
	red.expectRunning(0)
	red.expectRunning(1)
	red.expectFree()
	heard.expect(k.T, "blue", "green", "grey", "red")
	k.events(map[string]int{"Normal KaminoPromoted blue": 1, "Normal KaminoPromoted green": 1, "Normal KaminoPromoted grey": 1, "Normal KaminoPromoted red": 1, "Warning KaminoRefused owned": 1})
	next.endsInOrder(k.T, heard)
	leader.secret(k.T, heard)
}

// endsInOrder: told to end, a process that leads ends well, and says nothing of errors.
func (p *process) endsInOrder(t *testing.T, heard *heard) {
	t.Helper()
	p.mu.Lock()
	before := p.log.Len()
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if said := p.secret(t, heard)[before:]; p.cmd.ProcessState.ExitCode() != 0 || strings.Contains(said, "ERROR") {
		t.Errorf("exit code %d, and it said\n%s", p.cmd.ProcessState.ExitCode(), said)
	}
}

// secret: the log, which it returns, holds nothing of a URL of --notify-file.
func (p *process) secret(t *testing.T, heard *heard) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.Contains(p.log.String(), heard.secret) {
		t.Error("the log tells the URL of a notification")
	}
	return p.log.String()
}

// events: each of prototypes is there as often as it is to be.
func (k *kept) events(want map[string]int) {
	k.Helper()
	labtest.Await(k, time.Minute, fmt.Sprintf("there are the events %v", want), func() string {
		list, err := k.lab.Client.CoreV1().Events("").List(k.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=NodePrototype"})
		if err != nil {
			return err.Error()
		}
		got := map[string]int{}
		for _, e := range list.Items {
			got[e.Type+" "+e.Reason+" "+e.InvolvedObject.Name] += int(e.Count)
			if (e.Type == "Warning") != strings.Contains(e.Message, `Type "kamino `) || e.InvolvedObject.UID != k.get(e.InvolvedObject.Name).UID {
				return fmt.Sprintf("%+v", e)
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// heard is a receiver of notifications: what it was told.
type heard struct {
	file, secret string

	mu    sync.Mutex
	texts []string
}

func newHeard(t *testing.T) *heard {
	t.Helper()
	h := &heard{secret: "s3cr3t"}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Title, Message string }
		err := json.NewDecoder(r.Body).Decode(&body)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.texts = append(h.texts, body.Title+": "+body.Message); err != nil || r.URL.Path != "/"+h.secret {
			h.texts = append(h.texts, fmt.Sprintf("%s: %v", r.URL, err))
		}
	}))
	t.Cleanup(s.Close)
	h.file = filepath.Join(t.TempDir(), "urls")
	if err := os.WriteFile(h.file, []byte(s.URL+"/"+h.secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.texts)
}

// expect: the promotion of each of these pools was told, once, and nothing else.
func (h *heard) expect(t *testing.T, pools ...string) {
	t.Helper()
	labtest.Await(t, time.Minute, fmt.Sprintf("promotions of %v were told", pools), func() string {
		texts := h.all()
		for _, pool := range pools {
			if n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
				return !strings.HasPrefix(s, "Kamino: pool "+pool+": version ") || !strings.Contains(s, "new nodes of pool "+pool+" boot from")
			})); n != 1 {
				return fmt.Sprintf("%d of %s: %q", n, pool, texts)
			}
		}
		if len(texts) != len(pools) {
			return fmt.Sprintf("%q", texts)
		}
		return ""
	})
}

// TestNotify: auto-update tells of what it did, and of what it could not.
func TestNotify(t *testing.T) {
	t.Parallel()
	h := newHeard(t)
	p := newPool(t, 1)
	p.as("kured", p.node(0), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredLastPatch.Annotation, time.Now().Add(-time.Hour).Format(time.RFC3339)))
	kaminoRun(t, autoArgs(p, "--notify-file", h.file)...).mustSucceed(t)
	h.expect(t, p.name)
	kaminoRun(t, autoArgs(p, "--notify-file", h.file)...).mustSucceed(t)
	h.expect(t, p.name) // nothing was done
	o := kaminoRun(t, autoArgs(p, "--pool", "nobody", "--notify-file", h.file)...)
	texts := h.all()
	if o.code == 0 || len(texts) != 2 || !strings.HasPrefix(texts[1], "Kamino: a run failed: ") || !strings.Contains(texts[1], "nobody") || strings.Contains(o.log, h.secret) {
		t.Errorf("exit code %d, and was told %q\n%s", o.code, texts, o.log)
	}
}
