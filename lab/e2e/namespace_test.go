package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
)

// TestTwoNamespaces: while a donor is off, others who believe themselves in other namespaces look
// at the run, want it given back, and want another donor of the pool. All see the one lock.
func TestTwoNamespaces(t *testing.T) {
	t.Parallel()
	const donor, other = "twons000000", "twons000001"
	l, err := lab.Start(t.Context(), lab.Options{Dir: filepath.Join(t.TempDir(), "lab"), Binary: labBinary, Speed: 60,
		Scenario: emulator.Scenario{Pools: []emulator.Pool{{Name: "twons", Count: 2}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	for _, name := range []string{"kamino", "elsewhere"} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := l.Client.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var beside sync.WaitGroup
	var begun bool
	var restored, second, seen outcome
	first := call{lab: l, env: map[string]string{"POD_NAMESPACE": "kamino"}, onLine: func(line logLine, _ *os.Process) {
		if begun || line.step != "stop" || line.kind != string(kamino.StepDone) {
			return
		}
		begun = true
		beside.Go(func() { restored = call{lab: l}.run(t, "restore", "-o", "json") })
		beside.Go(func() { second = call{lab: l}.run(t, updateArgs(other, "-n", "elsewhere")...) })
		beside.Go(func() { seen = call{lab: l}.run(t, "status", "-o", "json") })
	}}.run(t, updateArgs(donor, "-n", "kamino")...)
	beside.Wait()

	first.mustSucceed(t)
	if !strings.Contains(first.log, "--namespace is ignored") {
		t.Errorf("no word about the namespace:\n%s", first.log)
	}
	if second.code != 3 || !strings.Contains(second.log+second.out, "is held by run") {
		t.Errorf("another donor of the pool: exit code %d\n%s\n%s", second.code, second.out, second.log)
	}
	var left []kamino.Left
	if err := json.Unmarshal([]byte(restored.out), &left); err != nil || restored.code != 3 || len(left) == 0 {
		t.Fatalf("restore: exit code %d, %v\n%s\n%s", restored.code, err, restored.out, restored.log)
	}
	for _, what := range left {
		if what.Done != "" || !strings.Contains(what.Reason, "is held by run") {
			t.Errorf("restore took away what a live run needs: %+v", what)
		}
	}
	var status []kamino.PoolStatus
	if err := json.Unmarshal([]byte(seen.out), &status); err != nil || len(status) != 1 {
		t.Fatalf("status: %v\n%s\n%s", err, seen.out, seen.log)
	}
	if u := status[0].Unfinished; u == nil || u.Donor != donor {
		t.Errorf("status shows the run as %+v", u)
	}
}
