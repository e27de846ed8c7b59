package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lab"
)

// autoArgs are those of an auto-update of a pool which waits no longer than the lab makes it.
func autoArgs(p *pool, more ...string) []string {
	return append([]string{"auto-update", "--pool", p.name, "--minimum-ready-time", "0s", "--minimum-candidates", "1", "--autoscaler-settle", "0s",
		"--grace-period", "20", "--prove-for", "0s", "--poll-interval", "50ms", "--max-not-ready", "1000", "--max-unavailable-pools", "all",
		"--image", lab.SealImage, "-o", "json"}, more...)
}

// TestKuredForPartOne: in place of kamino patch, kured restarts nodes after somebody else has
// patched them, and its annotation alone tells auto-update which one is the donor.
func TestKuredForPartOne(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3)
	for i, ago := range []time.Duration{72 * time.Hour, time.Hour, 48 * time.Hour} {
		p.as("kured", p.node(i), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredLastPatch.Annotation, time.Now().Add(-ago).Format(time.RFC3339)))
	}
	// The best one is about to be restarted again: kured says so, and it is passed over.
	p.as("kured", p.node(1), fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredPendingReboot.Annotation, time.Now().Format(time.RFC3339)))
	signals := []string{"--last-patch-annotation", kamino.KuredLastPatch.Annotation, "--pending-reboot-annotation", kamino.KuredPendingReboot.Annotation}
	o := kaminoRun(t, autoArgs(p, signals...)...)
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	var r struct {
		Pools []struct {
			Donor  string
			Result *kamino.Result
		}
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || len(r.Pools) != 1 || r.Pools[0].Donor != p.node(2) || r.Pools[0].Result == nil || !r.Pools[0].Result.Changed {
		t.Errorf("want donor %s: %v\n%s", p.node(2), err, o.out)
	}
}

// as changes a node as another program does.
func (p *pool) as(manager, node, patch string) {
	p.Helper()
	if _, err := p.lab.Client.CoreV1().Nodes().Patch(p.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}); err != nil {
		p.Fatal(err)
	}
}

// TestLabelForPartTwo: a person's choice takes the place of kamino plan: a label that no kubelet
// can write vouches for one node, and no other is taken.
func TestLabelForPartTwo(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3)
	const label = "node-restriction.kubernetes.io/golden"
	p.as("kubectl-label", p.node(2), fmt.Sprintf(`{"metadata":{"labels":{%q:"yes"}}}`, label))
	o := kaminoRun(t, updateArgs(p.node(0), "--require-label", label+"=yes")...)
	if o.code != 3 || !strings.Contains(o.log, label) {
		t.Errorf("a node that nobody vouched for: exit code %d\n%s", o.code, o.log)
	}
	if r := kaminoRun(t, updateArgs(p.node(2), "--require-label", label+"=yes")...).mustSucceed(t); r.Donor != p.node(2) || !r.Changed {
		t.Errorf("donor %s, changed %t", r.Donor, r.Changed)
	}
}
