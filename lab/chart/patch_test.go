package chart

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lab/labtest"
	"kamino.dev/kamino/lab/nodes"
)

// TestPatchJob: a nightly job that patches first does all of it with the rights that the chart
// gives it: one node is patched, restarted and signed, and becomes the pool's image.
func TestPatchJob(t *testing.T) {
	t.Parallel()
	r := newRelease(t, []string{"kamino.targetVMSS=POOL", kured1, kured2, "kamino.auto.minimumReadyTime=0", "kamino.drain.gracePeriod=1",
		"kamino.auto.maxUnavailablePools=all", "kamino.auto.maxNotReady=1000", "kamino.auto.patch=true"}, nil)
	r.workload(t, false)
	id := shared.Scenario.PoolID(r.pool)
	ask := httptest.NewRequest("PATCH", shared.ARM+id+"?api-version=2024-07-01", strings.NewReader(`{"sku":{"capacity":2}}`))
	ask.Header.Set("Authorization", "Bearer "+shared.Cloud.Token())
	ask.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	if shared.Cloud.ServeHTTP(answer, ask); answer.Code >= 300 {
		t.Fatalf("ask for a second node: %d %s", answer.Code, answer.Body)
	}
	labtest.Await(t, time.Minute, "the second node is Ready", func() string {
		n, err := shared.Client.CoreV1().Nodes().Get(t.Context(), r.pool+"000001", metav1.GetOptions{})
		if err != nil || !nodeutil.IsNodeReady(n) || len(n.Spec.Taints) > 0 {
			return fmt.Sprint("not yet: ", err)
		}
		return ""
	})
	for i := range 2 {
		if err := shared.Cloud.WriteDisk(fmt.Sprintf("%s/virtualMachines/%d", id, i), func(files map[string]string) {
			files[nodes.UpgradesFile] = "libc6 2.36-10 amd64 " + nodes.NeedsReboot + "\n"
		}); err != nil {
			t.Fatal(err)
		}
	}
	o := r.run(t, "", quick...)
	if o.code != 0 || !strings.Contains(o.out, "updated") || strings.Contains(o.log, "forbidden") {
		t.Fatalf("exit code %d, output:\n%s\nlog:\n%s", o.code, o.out, tail(o.log))
	}
	var signed []string
	for i := range 2 {
		n, err := shared.Client.CoreV1().Nodes().Get(t.Context(), fmt.Sprintf("%s%06d", r.pool, i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n.Labels[kamino.LabelPatched] != "" && len(n.Spec.Taints) == 0 {
			signed = append(signed, n.Name)
		}
	}
	if len(signed) != 1 || !strings.Contains(o.out, signed[0]) {
		t.Errorf("signed are %v, output:\n%s", signed, o.out)
	}
}
