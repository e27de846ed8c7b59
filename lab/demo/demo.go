package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/poolstate"
)

// Options of Run. Lab, Kamino and Dir are required.
type Options struct {
	Lab    string // path of kamino-lab, whose components the lab runs
	Kamino string // path of kamino, the product
	Dir    string // of the lab's files
	On     string // the cloud, as lab.Options has it
	Nodes  int    // 0 means 3
	Speed  float64
	Err    io.Writer // progress, for people
	Logger *slog.Logger
	// Keep is called before the lab is stopped; nil stops it at once.
	Keep func(*lab.Lab)
}

// Report is what the demonstration found. Its JSON is read by programs.
type Report struct {
	OK               bool                 `json:"ok"`
	Failures         []string             `json:"failures"`
	Pool             string               `json:"pool"`
	Donor            string               `json:"donor"`
	Version          string               `json:"version"`
	Steps            []kamino.StepTime    `json:"steps"`
	Seconds          float64              `json:"seconds"`
	DonorAwaySeconds float64              `json:"donorAwaySeconds"`
	Speed            float64              `json:"speed"` // how many times faster than the cloud it ran
	BudgetViolations int                  `json:"budgetViolations"`
	LowestAvailable  int                  `json:"lowestAvailable"`
	ModelDiff        []kamino.FieldChange `json:"modelDiff"`
	Clone            Clone                `json:"clone"`
}

// Clone is the node that booted from the new image.
type Clone struct {
	Node         string  `json:"node"`
	ImageVersion string  `json:"imageVersion"`
	ReadySeconds float64 `json:"readySeconds"` // from the end of the run to Ready
	MachineID    string  `json:"machineID"`
	Ancestry     string  `json:"ancestry"` // its /var/log/ancestry.log
}

// stage is a demonstration under way.
type stage struct {
	Options
	lab    *lab.Lab
	donor  *corev1.Node
	image  string // ID of the version
	first  string // that the pool booted from before
	report Report
}

// Run does the main job once: a pool under load, a donor, an image, a clone. The
// report says what did not hold; an error means that it could not be shown.
func Run(ctx context.Context, opts Options) (Report, error) {
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	if opts.Err == nil {
		opts.Err = io.Discard
	}
	s := &stage{Options: opts, report: Report{Speed: opts.Speed, Failures: []string{}}}
	s.say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, %s and %d nodes",
		map[bool]string{true: "AWS", false: "Azure"}[opts.On == lab.OnAWS], opts.Nodes)
	l, err := lab.Start(ctx, lab.Options{On: opts.On, Dir: opts.Dir, Binary: opts.Lab, NodesPerPool: opts.Nodes, Speed: opts.Speed,
		Logger: opts.Logger})
	if err != nil {
		return s.report, err
	}
	defer l.Stop()
	s.lab = l
	err = s.play(ctx)
	if opts.Keep != nil && ctx.Err() == nil {
		opts.Keep(l)
	}
	s.report.OK = err == nil && len(s.report.Failures) == 0
	return s.report, err
}

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.Err, "demo: "+format+"\n", args...) }

// expect notes what did not hold.
func (s *stage) expect(holds bool, format string, args ...any) {
	if !holds {
		s.report.Failures = append(s.report.Failures, fmt.Sprintf(format, args...))
	}
}

func (s *stage) play(ctx context.Context) error {
	w := Workload{Name: "web", Replicas: 2 * s.Nodes, MinAvailable: 2*s.Nodes - 2}
	s.say("starting a workload of %d pods, of which %d must always be available", w.Replicas, w.MinAvailable)
	if err := w.Start(ctx, s.lab.Client); err != nil {
		return err
	}
	witness, err := w.Watch(ctx, s.lab.Client)
	if err != nil {
		return err
	}
	defer witness.Stop()
	before, err := s.lab.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.donor = &before.Items[1%len(before.Items)]
	if instances := s.lab.Instances(); len(instances) > 0 {
		s.first = instances[0].ImageID
	}
	s.say("kamino update --target-node %s --new-updated-nodes 1", s.donor.Name)
	if err := s.update(ctx); err != nil {
		return err
	}
	s.say("waiting for the node that boots from the new image")
	if err := s.awaitClone(ctx, before); err != nil {
		return err
	}
	account := witness.Stop()
	s.report.BudgetViolations, s.report.LowestAvailable = account.Violations, account.Lowest
	s.expect(account.Violations == 0, "the workload's budget was violated %d times", account.Violations)
	if err := s.inspect(ctx, before); err != nil || s.lab.AWS == nil {
		return err
	}
	return s.rollBack(ctx) // on Azure the former model has secrets that a person must bring
}

// rollBack lets the next node boot from what the pool booted from at first.
func (s *stage) rollBack(ctx context.Context) error {
	s.say("kamino rollback --pool %s --to original", s.report.Pool)
	var back engine.Rollback
	if err := s.kamino(ctx, &back, "rollback", "--pool", s.report.Pool, "--to", poolstate.ToOriginal); err != nil {
		return err
	}
	s.expect(back.Changed, "the rollback changed nothing")
	var status []poolstate.PoolStatus
	if err := s.kamino(ctx, &status, "status", "--pool", s.report.Pool); err != nil {
		return err
	}
	s.expect(len(status) == 1 && status[0].Model == s.first, "after the rollback the pool boots not from %s: %+v", s.first, status)
	return nil
}

// kamino runs the product as a user would, and reads the JSON that it prints.
func (s *stage) kamino(ctx context.Context, into any, args ...string) error {
	cmd := exec.CommandContext(ctx, s.Kamino, append(args, "-o", "json")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute // giving the donor back takes a while
	cmd.Env = os.Environ()
	for name, value := range s.lab.Environment() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, s.Err
	runErr := cmd.Run()
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return fmt.Errorf("run kamino %s: %v; its output is no JSON: %w", args[0], runErr, err)
	}
	if runErr != nil {
		return fmt.Errorf("run kamino %s: %w", args[0], runErr)
	}
	return nil
}

// update runs the product as a user would.
func (s *stage) update(ctx context.Context) error {
	args := []string{"update", "--target-node", s.donor.Name, "--new-updated-nodes", "1", "--prove-for", "1s",
		"--grace-period", "30", "--image", lab.SealImage}
	var result struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
		engine.Result
	}
	runErr := s.kamino(ctx, &result, args...)
	r := &s.report
	s.image = result.Image
	r.Pool, r.Donor, r.Version, r.Steps = result.Pool.Name(), result.Donor, result.Version, result.Steps
	r.DonorAwaySeconds, r.ModelDiff = result.AwaySeconds, result.ModelDiff
	for _, step := range result.Steps {
		r.Seconds += step.Seconds
	}
	if runErr != nil {
		return fmt.Errorf("%w: %s", runErr, result.Error)
	}
	return nil
}

// awaitClone waits for a Ready node that was not there before.
func (s *stage) awaitClone(ctx context.Context, before *corev1.NodeList) error {
	old := map[string]bool{}
	for _, n := range before.Items {
		old[n.Name] = true
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		list, err := s.lab.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("wait for the clone: %w", err)
		}
		for _, n := range list.Items {
			if !old[n.Name] && nodeutil.IsNodeReady(&n) {
				s.report.Clone = Clone{Node: n.Name, ReadySeconds: time.Since(began).Seconds(), MachineID: n.Status.NodeInfo.MachineID}
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the clone: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// inspect looks at what the run left, everywhere.
func (s *stage) inspect(ctx context.Context, before *corev1.NodeList) error {
	for _, was := range before.Items {
		now, err := s.lab.Client.CoreV1().Nodes().Get(ctx, was.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read node %s: %w", was.Name, err)
		}
		s.expect(nodeutil.IsNodeReady(now), "node %s is not Ready", now.Name)
		s.expect(now.Spec.Unschedulable == was.Spec.Unschedulable && len(now.Spec.Taints) == len(was.Spec.Taints),
			"node %s is not as schedulable as before: %v", now.Name, now.Spec.Taints)
		for key := range now.Annotations {
			_, had := was.Annotations[key]
			s.expect(had || !strings.Contains(key, "kamino") && key != kamino.AnnotationProtect, "node %s kept annotation %s",
				now.Name, key)
		}
		rebooted := now.Status.NodeInfo.BootID != was.Status.NodeInfo.BootID
		s.expect(rebooted == (now.Name == s.donor.Name), "node %s: rebooted is %t", now.Name, rebooted)
		s.expect(now.Name == s.donor.Name || now.Status.NodeInfo.MachineID != s.report.Clone.MachineID,
			"the clone is the double of %s", now.Name)
	}
	s.inspectClone()
	for _, id := range s.lab.Snapshots() {
		s.expect(false, "a snapshot was left: %s", id)
	}
	return nil
}

// inspectClone compares the clone's machine with the version and the donor.
func (s *stage) inspectClone() {
	clone := &s.report.Clone
	for _, in := range s.lab.Instances() {
		if !strings.EqualFold(in.ComputerName, clone.Node) {
			continue
		}
		clone.ImageVersion = filepath.Base(in.ImageID)
		if s.lab.AWS != nil && in.ImageID == s.image { // whose ID has no version in it
			clone.ImageVersion = s.report.Version
		}
		disk, err := s.lab.Disk(in.ID)
		s.expect(err == nil, "read the clone's disk: %v", err)
		clone.Ancestry = strings.TrimSpace(disk["/var/log/ancestry.log"])
	}
	s.expect(clone.ImageVersion == s.report.Version, "node %s booted from %q, not from %s", clone.Node,
		clone.ImageVersion, s.report.Version)
	s.expect(strings.Contains(clone.Ancestry, s.report.Donor), "the clone's ancestry %q does not name donor %s",
		clone.Ancestry, s.report.Donor)
}
