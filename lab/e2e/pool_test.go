package e2e

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// pool is a scale set of one test.
type pool struct {
	*testing.T
	lab  *lab.Lab
	name string
	id   string // ARM ID
}

// newPool seeds a scale set named after the test, and waits for its nodes. It
// is deleted after the test, so that its nodes cost nothing any more.
func newPool(t *testing.T, count int, change ...func(*emulator.Pool)) *pool {
	t.Helper()
	spec := emulator.Pool{Name: poolName(t), Count: count}
	for _, f := range change {
		f(&spec)
	}
	return seedPools(t, shared, spec)[0]
}

func seedPools(t *testing.T, l *lab.Lab, specs ...emulator.Pool) []*pool {
	t.Helper()
	sc := l.Scenario
	sc.Pools = specs
	l.Cloud.Seed(sc)
	var pools []*pool
	for _, spec := range specs {
		p := &pool{T: t, lab: l, name: spec.Name, id: sc.PoolID(spec.Name)}
		t.Cleanup(func() { p.arm("DELETE", p.id, "") })
		pools = append(pools, p)
	}
	for _, p := range pools {
		for _, name := range p.computers() {
			p.awaitNode(name)
		}
	}
	return pools
}

// computers are the names of the pool's nodes; those of Flexible sets follow no pattern.
func (p *pool) computers() []string {
	var names []string
	for _, in := range p.lab.Cloud.Instances() {
		if strings.EqualFold(in.PoolID, p.id) {
			names = append(names, strings.ToLower(in.ComputerName))
		}
	}
	return names
}

// poolName makes the name of a scale set of the last part of a test's name.
func poolName(t *testing.T) string {
	name := strings.ToLower(t.Name())
	name = strings.TrimPrefix(name, "test")
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name), "-")
}

// node is the name of the n-th node, as Azure forms computer names.
func (p *pool) node(n int) string { return fmt.Sprintf("%s%06d", p.name, n) }

// instance is the ARM ID of the n-th instance.
func (p *pool) instance(n int) string { return fmt.Sprintf("%s/virtualMachines/%d", p.id, n) }

// arm sends a request to the emulator that must succeed, as a person's tool would.
func (p *pool) arm(method, id, body string) string {
	p.Helper()
	r := httptest.NewRequest(method, p.lab.ARM+id+"?api-version=2024-07-01", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+p.lab.Cloud.Token())
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	p.lab.Cloud.ServeHTTP(w, r)
	if w.Code >= 300 {
		p.Fatalf("%s %s: %d %s", method, id, w.Code, w.Body)
	}
	return w.Body.String()
}

// await polls until check returns "".
func await(t *testing.T, what string, check func() string) {
	t.Helper()
	labtest.Await(t, time.Minute, what, check)
}

// awaitNode waits until a node is Ready and the controllers have written on it
// what they write on a new node.
func (p *pool) awaitNode(name string) {
	p.Helper()
	await(p.T, "node "+name+" is Ready", func() string {
		node, err := p.lab.Client.CoreV1().Nodes().Get(p.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if !nodeutil.IsNodeReady(node) {
			return "not Ready"
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
				return "still tainted: " + taint.ToString()
			}
		}
		if node.Annotations["node.alpha.kubernetes.io/ttl"] == "" || node.Labels["beta.kubernetes.io/os"] == "" {
			return "without what the ttl and node lifecycle controllers write"
		}
		if node.Labels["kubernetes.azure.com/node-image"] == "" {
			return "without what the cloud node manager writes"
		}
		return ""
	})
}

// cleanupContext outlives the test, whose own context has ended when it cleans up.
func cleanupContext(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

func (p *pool) get(node string) *corev1.Node {
	p.Helper()
	object, err := p.lab.Client.CoreV1().Nodes().Get(p.Context(), node, metav1.GetOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return object
}

// patch changes a node as a person does.
func (p *pool) patch(node, patch string) {
	p.Helper()
	if _, err := p.lab.Client.CoreV1().Nodes().Patch(p.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}

// model is what the emulator has as image of the pool's model.
func (p *pool) model() string {
	p.Helper()
	document := p.lab.Cloud.Document(p.id)
	for _, key := range []string{"properties", "virtualMachineProfile", "storageProfile", "imageReference"} {
		document, _ = document[key].(map[string]any)
	}
	return fmt.Sprint(document)
}
