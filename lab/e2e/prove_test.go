package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

// TestFirstRoleAlone: without the rights of a canary connect tells that versions are proved in the
// pool. The pool's first one has to be taken unproved by a person; the next is promoted, and the
// node of it that is asked for is examined.
func TestFirstRoleAlone(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	first := call{env: map[string]string{"AZURE_CLIENT_ID": firstRoleID}}
	model := p.model()
	o := first.run(t, updateArgs(p.node(0))...)
	told := slices.ContainsFunc(o.lines, func(l logLine) bool {
		return l.step == kamino.InConnect && strings.Contains(l.text, "no canary can be created: ") && strings.Contains(l.text, "virtualMachineScaleSets/delete")
	})
	if o.code != 3 || !told || !strings.Contains(o.log, "--prove none") || p.model() != model {
		t.Fatalf("exit code %d, connect tells: %t\n%s", o.code, told, o.log)
	}
	r := first.run(t, updateArgs(p.node(0), "--prove", "none")...).mustSucceed(t)
	if steps := stepsOf(r); !r.Changed || slices.Contains(steps, kamino.InLaunch) || slices.Contains(steps, kamino.InWatch) {
		t.Errorf("unproved: changed %t by %v", r.Changed, steps)
	}
	r = first.run(t, updateArgs(p.node(0), "--again")...).mustSucceed(t)
	if steps := stepsOf(r); !r.Changed || slices.Contains(steps, kamino.InLaunch) || !slices.Contains(steps, kamino.InWatch) || len(p.computers()) != 3 {
		t.Errorf("in the pool: changed %t, %d nodes, by %v", r.Changed, len(p.computers()), steps)
	}
}

// stepsOf are the steps that a run went through.
func stepsOf(r report) (names []string) {
	for _, s := range r.Steps {
		if !s.Skipped {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestProvedByDefault: a user who sets nothing gets a version that a canary has proved.
func TestProvedByDefault(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	r := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	if steps := stepsOf(r); !r.Changed || !slices.Contains(steps, kamino.InExamine) || !slices.Contains(steps, kamino.InRetire) {
		t.Errorf("changed %t by %v", r.Changed, steps)
	}
	for _, in := range shared.Cloud.Instances() {
		if kamino.CanaryName(kamino.PoolID(strings.ToLower(p.id)), r.Run) == in.Pool {
			t.Errorf("canary %s is left", in.Name)
		}
	}
}

// TestProbeEnds: a probe is started once, and its end is seen soon after it: one that fails
// convicts the version, one that succeeds lets the run go on.
func TestProbeEnds(t *testing.T) {
	t.Parallel()
	probe := filepath.Join(t.TempDir(), "probe.yaml")
	if err := os.WriteFile(probe, []byte(probeOf("default")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, 2)
	for i, jobs := range []string{"", nodes.Fails} {
		shared.Nodes.Behave(func(in emulator.Instance) nodes.Behaviour {
			if in.Tags[kamino.TagCanary] == "" || in.Tags[kamino.TagPool] != p.name {
				return nodes.Behaviour{}
			}
			return nodes.Behaviour{Jobs: jobs}
		})
		model := p.model()
		o := kaminoRun(t, updateArgs(p.node(i), "--again", "--probe", probe)...)
		if convicted := strings.Contains(o.report(t).Error, "failed its proof: probe: it failed"); convicted != (jobs == nodes.Fails) || (p.model() == model) != convicted {
			t.Errorf("jobs %q: exit code %d, convicted: %t, model before %s, after %s\n%s", jobs, o.code, convicted, model, p.model(), o.log)
		}
		if n := strings.Count(o.log, "start the operator's probe"); n != 1 {
			t.Errorf("jobs %q: the probe was started %d times\n%s", jobs, n, o.log)
		}
	}
}

// probeOf is an operator's Job in a namespace.
func probeOf(namespace string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: ` + namespace + `}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "registry.invalid/probe:1"}]}}}
`
}
