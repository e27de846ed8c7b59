package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

const otherImage = "registry.invalid/other@sha256:2ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab0"

// barePod puts a pod without a controller on a node: only force would remove it.
func barePod(t *testing.T, node string) {
	t.Helper()
	pods := shared.Client.CoreV1().Pods("default")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bare-" + node},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/c"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := int64(0)
		if err := pods.Delete(cleanupContext(t), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
	})
}

// listTwo lets a second image seal disks until the test ends: of two, none is the default.
func listTwo(t *testing.T) {
	t.Helper()
	maps := shared.Client.CoreV1().ConfigMaps(kamino.SystemNamespace)
	list, err := maps.Get(t.Context(), "kamino-seal-images", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, images string) error {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"images": images}})
		if err == nil {
			_, err = maps.Patch(ctx, list.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	was := list.Data["images"]
	t.Cleanup(func() {
		if err := write(cleanupContext(t), was); err != nil {
			t.Error(err)
		}
	})
	if err := write(t.Context(), strings.TrimSpace(was)+"\nregistry.invalid/second@sha256:"+strings.Repeat("5e", 32)+"\n"); err != nil {
		t.Fatal(err)
	}
}

// TestDoctor: on a prepared cluster, with an image that may seal, everything passes; what would
// stop a run is told with what to do about it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	barePod(t, p.node(1))
	for _, tt := range []struct {
		name   string
		args   []string
		failed string // check, and a part of what to do
		do     string
	}{
		{name: "all is well", args: []string{"--target-node", p.node(0)}},
		{name: "a pod without a controller", args: []string{"--target-node", p.node(1)}, failed: "drain", do: "--force"},
		{name: "an image that may not seal", args: []string{"--target-node", p.node(0), "--image", otherImage},
			failed: "seal-pod", do: "kamino init --seal-image " + otherImage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := kaminoRun(t, append([]string{"doctor", "-o", "json"}, tt.args...)...)
			var checks []engine.Check
			if err := json.Unmarshal([]byte(o.out), &checks); err != nil {
				t.Fatal(err, o.log)
			}
			for _, c := range checks {
				if (c.Name == tt.failed) != (c.State == engine.CheckFailed) || c.Name == tt.failed && !strings.Contains(c.Do, tt.do) {
					t.Errorf("check %s is %s: %s; do: %s", c.Name, c.State, c.Found, c.Do)
				}
			}
			if want := min(len(tt.failed), 1); o.code != want {
				t.Errorf("exit code %d, want %d\n%s", o.code, want, o.log)
			}
			if tt.failed != "" && !slices.ContainsFunc(checks, func(c engine.Check) bool { return c.Name == tt.failed }) {
				t.Errorf("no check %s in %s", tt.failed, o.out)
			}
		})
	}
}

// TestRefused: what is refused before the donor was touched is refused by the dry run with the
// same code, ends with exit code 3, gives nothing back, and is no run in the ledger.
func TestRefused(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3)
	barePod(t, p.node(1))
	listTwo(t)
	made := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	for _, tt := range []struct {
		name, node string
		refusal    kamino.Code
		args       []string
	}{
		{"a pod without a controller", p.node(1), "drain", []string{"--again"}},
		{"an image that may not seal", p.node(2), kamino.CodeSealPod, []string{"--again", "--image", otherImage}},
		{"no image", p.node(2), kamino.CodeSealPod, []string{"--again", "--image", ""}},
		{"a version of another node", p.node(2), "version", nil},
		{"no such node", "nowhere", "unknown-node", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := call{env: map[string]string{"POD_IMAGE": ""}}
			dry := c.run(t, updateArgs(tt.node, append(tt.args, "--dry-run")...)...)
			var plan poolstate.Plan
			if err := json.Unmarshal([]byte(dry.out), &plan); err != nil {
				t.Fatal(err, dry.log)
			}
			if len(plan.Refusals) != 1 || plan.Refusals[0].Code != tt.refusal || dry.code != 3 {
				t.Errorf("the dry run ends with exit code %d and refuses %+v", dry.code, plan.Refusals)
			}
			live := c.run(t, updateArgs(tt.node, tt.args...)...)
			if live.code != 3 {
				t.Errorf("exit code %d, want 3\n%s", live.code, live.log)
			}
			for _, line := range live.lines {
				if line.kind == string(kamino.EventGivingBack) || line.step == "unseal" || line.step == "return" {
					t.Errorf("nothing was taken, and given back: %s", line.text)
				}
			}
			p.expectFree()
		})
	}
	var status []poolstate.PoolStatus
	o := kaminoRun(t, "status", "--pool", p.name, "-o", "json")
	if err := json.Unmarshal([]byte(o.out), &status); err != nil {
		t.Fatal(err, o.log)
	}
	if runs := status[0].Runs; len(runs) != 1 || runs[0].Run != made.Run {
		t.Errorf("the runs are %+v", runs)
	}
}
