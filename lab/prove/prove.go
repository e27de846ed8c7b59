package prove

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/nodes"
)

// Options of Run. Dir and Binary are required.
type Options struct {
	Dir      string // of the lab, made if absent
	Binary   string // path of kamino-lab
	Workers  int    // how many images are put to the proof side by side; 0: 6
	Match    *regexp.Regexp
	Progress func(Image) // nil: nobody listens
}

// Image is how one image fared.
type Image struct {
	Kind     string         `json:"kind"`
	Verdict  kamino.Outcome `json:"verdict"`
	CaughtBy string         `json:"caughtBy,omitempty"`
	Promoted bool           `json:"promoted"`
	// Without is the check that was switched off for it.
	Without  string   `json:"without,omitempty"`
	Evidence string   `json:"evidence,omitempty"`
	Seconds  float64  `json:"seconds"`
	Wrong    []string `json:"wrong,omitempty"` // what is not as it must be
}

// Report is how all fared.
type Report struct {
	Images       []Image `json:"images"`
	Bad          int     `json:"bad"`          // kinds of images that must not be promoted
	Inconclusive int     `json:"inconclusive"` // kinds that say nothing of the image
	Good         int     `json:"good"`
	SwitchedOff  int     `json:"switchedOff"` // checks without which a bad image is promoted
	Wrong        int     `json:"wrong"`       // images that did not fare as they must
}

// trial is one image to be put to the proof.
type trial struct {
	kind    kind
	without string
}

func trials(match *regexp.Regexp) (all []trial) {
	add := func(k kind, without string) {
		name := k.name
		if without != "" {
			name += " without " + without
		}
		if match == nil || match.MatchString(name) {
			all = append(all, trial{k, without})
		}
	}
	for _, k := range slices.Concat(badKinds(), unclearKinds(), goodKinds()) {
		add(k, "")
	}
	for _, k := range offKinds() {
		add(k, k.check)
	}
	// What takes longest first; what wants the lab for itself last.
	slices.SortStableFunc(all, func(a, b trial) int { return int(b.kind.budget - a.kind.budget) })
	slices.SortStableFunc(all, func(a, b trial) int {
		switch {
		case a.kind.alone == b.kind.alone:
			return 0
		case a.kind.alone:
			return 1
		}
		return -1
	})
	return all
}

// Run puts all images to the proof in one lab.
func Run(ctx context.Context, o Options) (Report, error) {
	s := &stage{worlds: map[string]*world{}, asked: map[string]bool{}, progress: o.Progress}
	l, err := lab.Start(ctx, lab.Options{Configure: s.configure,
		Latencies: emulator.Latencies{ProvisioningTimeout: 40 * speed * time.Minute},                        // by this machine's clock
		Dir:       filepath.Join(o.Dir, "lab"), Binary: o.Binary, Speed: speed, NodeGrace: 30 * time.Second, // 65 pools share the processors
		Scenario: emulator.Scenario{Pools: []emulator.Pool{{Name: "system", Count: 1}}}, NodeLatencies: nodes.Latencies{Boot: 2 * speed * time.Second, Bootstrap: 2 * speed * time.Second, PodStart: -1, PodStop: -1, Seal: -1}})
	if err != nil {
		return Report{}, err
	}
	defer l.Stop()
	if err := daemons(ctx, l); err != nil {
		return Report{}, err
	}
	s.lab = l
	l.Nodes.Behave(s.behaviour)
	if o.Workers == 0 {
		o.Workers = 6
	}
	all := trials(o.Match)
	n := slices.IndexFunc(all, func(t trial) bool { return t.kind.alone })
	if n < 0 {
		n = len(all)
	}
	work := make(chan int)
	images := make([]Image, len(all))
	var group sync.WaitGroup
	for range o.Workers {
		group.Go(func() {
			for i := range work {
				images[i] = s.play(ctx, all[i], fmt.Sprintf("p%02d", i))
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	for i := n; i < len(all); i++ {
		images[i] = s.play(ctx, all[i], fmt.Sprintf("p%02d", i))
	}
	return report(all, images), ctx.Err()
}

func report(all []trial, images []Image) Report {
	r := Report{Images: images}
	for i, t := range all {
		switch {
		case t.without != "":
			r.SwitchedOff++
		case t.kind.want == failed:
			r.Bad++
		case t.kind.want == unclear:
			r.Inconclusive++
		default:
			r.Good++
		}
		if len(images[i].Wrong) > 0 {
			r.Wrong++
		}
	}
	return r
}

// daemons makes the DaemonSets that every node of the lab runs: one like any other, and one that
// tolerates all taints, as network plugins do, whose pods start before the node is Ready.
func daemons(ctx context.Context, l *lab.Lab) error {
	for name, tolerated := range map[string][]corev1.Toleration{"agent": nil, "network": {{Operator: corev1.TolerationOpExists}}} {
		labels := map[string]string{"app": name}
		_, err := l.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Tolerations: tolerated, Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/" + name + ":1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}}}}}}}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create DaemonSet %s: %w", name, err)
		}
	}
	return nil
}

// probe is an operator's.
const probe = `apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: default}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "registry.invalid/probe:1"}]
`

// stage is what all trials share.
type stage struct {
	lab      *lab.Lab
	progress func(Image)

	mu     sync.Mutex
	worlds map[string]*world // by pool
	asked  map[string]bool   // canaries
}

// behaviour is that of a canary of one of the worlds; all other machines are ordinary.
func (s *stage) behaviour(i emulator.Instance) nodes.Behaviour {
	s.mu.Lock()
	w := s.worlds[i.Tags[kamino.TagPool]]
	s.mu.Unlock()
	if i.Tags[kamino.TagCanary] == "" || w == nil || w.ordinary() {
		return nodes.Behaviour{}
	}
	return w.kind.behave(w)
}

// play puts one image to the proof and judges how that went.
func (s *stage) play(ctx context.Context, t trial, pool string) (out Image) {
	begun := time.Now()
	out = Image{Kind: t.kind.name, Without: t.without}
	ctx, cancel := context.WithTimeout(ctx, 12*time.Minute)
	defer cancel()
	defer func() {
		out.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds()
		if s.progress != nil {
			s.progress(out)
		}
	}()
	w, err := begin(ctx, s.lab, t.kind, pool)
	if err == nil {
		s.mu.Lock()
		s.worlds[pool] = w
		s.mu.Unlock()
		err = s.prepare(ctx, w)
	}
	if err != nil {
		out.Wrong = append(out.Wrong, err.Error())
		return out
	}
	growing := make(chan error, 1)
	asked, ask := context.WithCancel(ctx)
	undo := s.interfere(w)
	go func() { growing <- w.grow(ctx, t, func() bool { return asked.Err() != nil || s.proving(w) }) }()
	version, err := w.update(ctx, t.without)
	ask()
	undo()
	if err := <-growing; err != nil {
		out.Wrong = append(out.Wrong, err.Error())
	}
	w.verdict(ctx, &out, version, err)
	out.judge(t)
	if err := w.end(ctx); err != nil {
		out.Wrong = append(out.Wrong, err.Error())
	}
	return out
}

// judge says what is not as it must be.
func (i *Image) judge(t trial) {
	want, check, promoted := t.kind.want, t.kind.check, t.kind.want == fine
	if t.without != "" {
		want, check, promoted = fine, "", true
	}
	if i.Verdict != want || i.CaughtBy != check && (t.kind.also == "" || i.CaughtBy != t.kind.also) || i.Promoted != promoted || t.without == "" && !strings.Contains(i.Evidence, t.kind.tells) {
		i.Wrong = append(i.Wrong, fmt.Sprintf("want verdict %s by %q, promoted: %t, with %q in the evidence", want, check, promoted, t.kind.tells))
	}
}

// prepare lets a pool know what its canaries usually are like, where that matters: three of them
// count. How long their phases took and what was started again they tell themselves, however slow
// this machine looks at them.
func (s *stage) prepare(ctx context.Context, w *world) error {
	if !w.kind.known {
		return nil
	}
	w.tunes(true)
	defer w.tunes(false)
	for range 3 {
		var err error
		if w.former, err = w.update(ctx, ""); err != nil {
			return fmt.Errorf("a good image before: %w", err)
		}
	}
	status, err := w.engine.Status(ctx, []string{string(w.id)}, nil)
	if err != nil {
		return fmt.Errorf("read how long canaries took: %w", err)
	}
	if b := status[0].Boots; b == nil || len(b.Phases) < 3 {
		return errors.New("three good images before, and the boots of less than three are known")
	}
	return nil
}

// interfere does to the cloud and the cluster what the kind says, until undo.
func (s *stage) interfere(w *world) (undo func()) {
	switch {
	case w.kind.alone:
		stop := beside(func(ctx context.Context) {
			if until(ctx, "a canary", func() bool { return s.proving(w) }) == nil {
				s.lab.Nodes.Cut(true)
			}
		})
		return func() { stop(); s.lab.Nodes.Cut(false) }
	case w.kind.evicted:
		return s.evicts(w)
	case w.kind.policy:
		s.lab.Cloud.SetPolicies(emulator.Policy{Name: w.pool, Type: "Microsoft.Compute/virtualMachineScaleSets", Denies: func(r map[string]any) bool {
			tags, _ := r["tags"].(map[string]any)
			return tags[kamino.TagPool] == w.pool
		}})
		return func() { s.lab.Cloud.SetPolicies() }
	case w.kind.fault != nil:
		f := *w.kind.fault
		f.Method, f.Path = "PUT", "**/virtualMachineScaleSets/"+kamino.CanaryName(w.id, "run-"+w.pool+"-1")
		id := s.lab.Cloud.AddFault(f)
		given := func() {}
		if f.Committed {
			given = s.givesUp(w)
		}
		return func() { given(); s.lab.Cloud.RemoveFault(id) }
	}
	return func() {}
}

// givesUp lets the cloud call the canary's set failed, once its machine runs.
func (s *stage) givesUp(w *world) (undo func()) {
	return beside(func(ctx context.Context) {
		if until(ctx, "the canary to be made", func() bool {
			properties, _ := s.lab.Cloud.Document(w.address(w.canary()))["properties"].(map[string]any)
			return properties["provisioningState"] == "Succeeded"
		}) == nil {
			s.lab.Cloud.Change(w.address(w.canary()), `{"properties":{"provisioningState":"Failed"}}`)
		}
	})
}

// beside does something while a run works, until undo.
func beside(do func(context.Context)) (undo func()) {
	ctx, cancel := context.WithCancel(context.Background()) // undo ends it
	var done sync.WaitGroup
	done.Go(func() { do(ctx) })
	return func() { cancel(); done.Wait() }
}

// evicts deletes the canary's machine once its node is Ready, as the cloud does with one that it
// needs for somebody else.
func (s *stage) evicts(w *world) (undo func()) {
	return beside(func(ctx context.Context) {
		set := w.canary
		if until(ctx, "a canary that takes part", func() bool { return w.node(set() + "000000").Spec.Unschedulable }) == nil {
			_ = until(ctx, "its end", func() bool {
				return w.send(http.MethodDelete, w.address(set())+"/virtualMachines/0", "") == nil
			})
		}
	})
}

// proving says whether the canary of a world's present run was asked for.
func (s *stage) proving(w *world) bool {
	name := w.canary()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// configure lets Kamino ask why an operation failed, which a role at the resource group cannot, and
// listens.
func (s *stage) configure(c *emulator.Server) {
	c.OnRequest = s.hears
	c.RequireReady = true // a set whose guest does not report stays Creating
	c.Identities[0].Roles = append(c.Identities[0].Roles, emulator.Role{Actions: []string{"Microsoft.Compute/locations/*/read"}})
}

// hears notes which canaries are asked for.
func (s *stage) hears(r *http.Request) {
	if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/virtualMachineScaleSets/") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[path.Base(r.URL.Path)] = true
}

// update makes an image of the donor's disk, and returns the name of its version.
func (w *world) update(ctx context.Context, without string) (version string, err error) {
	o := kamino.Defaults()
	o.Donor, o.Grace, o.Settle, o.Replicas, o.Today = w.donor, time.Second, 100*time.Millisecond, 1, kamino.TodayAgain
	if w.kind.point {
		o.ImageReference = kamino.ByDefinition
	}
	o.Proof = kamino.Proving{Mode: kamino.ProveCanary, For: 20 * time.Second, Budget: max(w.kind.budget, time.Minute), Promote: kamino.PromoteAuto}
	if w.kind.probe {
		o.Proof.Probe = []byte(probe)
	}
	if without != "" {
		o.Proof.Without = []string{without}
	}
	_, err = w.engine.Update(ctx, o)
	versions, listErr := w.versions(ctx)
	if listErr != nil || len(versions) == 0 {
		return "", errors.Join(err, listErr)
	}
	return versions[0].Name, err
}

func (w *world) versions(ctx context.Context) ([]kamino.Artifact, error) {
	pool, err := w.engine.Provider.Pool(ctx, w.id)
	if err != nil {
		return nil, err
	}
	return w.engine.Provider.Find(ctx, pool, kamino.Version, "")
}

// verdict reads how an update ended, and whether it left what it must.
func (w *world) verdict(ctx context.Context, out *Image, version string, err error) {
	var proof *kamino.ProofError
	switch {
	case errors.As(err, &proof):
		out.Verdict = proof.Outcome
		if len(proof.Findings) > 0 {
			out.CaughtBy, out.Evidence = proof.Findings[0].Check, proof.Findings[0].Evidence
		}
	case err != nil:
		out.Verdict, out.Evidence = "error", err.Error()
	default:
		out.Verdict = fine
	}
	versions, err := w.versions(ctx)
	if err != nil {
		out.Wrong = append(out.Wrong, err.Error())
		return
	}
	for _, v := range versions {
		if v.Name != version {
			continue
		}
		out.Promoted = v.InModel
		if withdrawn := v.Tags[kamino.TagBad] != ""; withdrawn != (out.Verdict == failed) {
			out.Wrong = append(out.Wrong, fmt.Sprintf("verdict %s, and its version is withdrawn: %t", out.Verdict, withdrawn))
		}
	}
	if doc := w.lab.Cloud.Document(w.address(w.canary())); doc != nil {
		out.Wrong = append(out.Wrong, "the canary is still there")
	}
	if n := w.node(w.canary() + "000000"); n.Name != "" {
		out.Wrong = append(out.Wrong, "the canary's Node object is still there")
	}
	if n := w.node(w.donor); n.Spec.Unschedulable || n.Annotations[kamino.AnnotationRun] != "" {
		out.Wrong = append(out.Wrong, "the donor was not given back")
	}
}
