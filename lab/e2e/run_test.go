package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// TestHeld: a second run of a pool whose first run lives leaves, says who holds
// the pool, and does not disturb. The first waits for the autoscaler until the
// second has ended.
func TestHeld(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	before := []*corev1.Node{p.get(p.node(0)), p.get(p.node(1))}
	second := make(chan outcome, 1)
	met := false
	c := call{binary: usersBinary(t, "", ""), onLine: func(line logLine, process *os.Process) {
		if line.step != "protect" || line.kind != string(kamino.EventActed) || met {
			return
		}
		met = true
		go func() {
			second <- kaminoRun(t, updateArgs(p.node(1))...)
			if err := process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}()
	}}
	first := c.run(t, updateArgs(p.node(0))...)
	if !met {
		t.Fatalf("no line of the log told that the donor is protected:\n%s", first.log)
	}
	o := <-second
	if o.code != 3 {
		t.Errorf("exit code %d of the second run, want 3", o.code)
	}
	for _, want := range []string{"pool " + p.name + " is held by run " + first.report(t).Run, p.node(0), "kamino status"} {
		if !strings.Contains(o.log, want) {
			t.Errorf("the message does not mention %q:\n%s", want, o.log)
		}
	}
	if first.code != 1 {
		t.Errorf("exit code %d of the first run, want 1\n%s", first.code, first.log)
	}
	for _, node := range before {
		p.expectSame(node, p.get(node.Name))
	}
	p.expectFree()
}

// TestAzureConfig takes everything from the azure.json of a node, with nothing
// of Azure in the environment but where the description of the cloud is.
func TestAzureConfig(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1)
	c := call{env: map[string]string{
		"AZURE_ENVIRONMENT": "", "AZURE_TENANT_ID": "", "AZURE_SUBSCRIPTION_ID": "", "AZURE_RESOURCE_GROUP": "",
		"AZURE_CLIENT_ID": "", "AZURE_CLIENT_SECRET": "", "AZURE_AUTHORITY_HOST": "",
	}}
	o := c.run(t, "update", "--target-node", p.node(0), "--azure-config", filepath.Join(shared.Dir, "azure.json"), "--dry-run", "-o", "json")
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.log)
	}
	var plan poolstate.Plan
	if err := json.Unmarshal([]byte(o.out), &plan); err != nil {
		t.Fatalf("%v\n%s", err, o.out)
	}
	if plan.Donor != p.node(0) || plan.Nothing || len(plan.Steps) != len(engine.Pipeline()) || len(plan.ModelDiff) == 0 {
		t.Errorf("the plan is %+v", plan)
	}
}
