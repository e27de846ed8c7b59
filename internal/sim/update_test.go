package sim

import (
	"testing"

	"kamino.dev/kamino"
)

// fresh is a world whose pool was never touched.
func fresh(seed uint64) *world {
	w := newWorld(seed)
	w.addPool(poolA, 3)
	w.addPods()
	return w
}

// aged is a world in which prototypes have been made before.
func aged(seed uint64) *world {
	w := newWorld(seed)
	p := w.addPool(poolA, 3)
	w.addPods()
	names := []string{"2026.2.9", "2026.02.10", "2026.03.01", "2026.03.05", "2026.03.09"}
	for _, name := range names {
		w.addVersion(poolA, name)
	}
	id := func(i int) string { return artifactID(poolA, kamino.KindVersion, names[i]) }
	p.image, p.custom, p.exts = id(4), "noop", []string{"monitor"}
	w.machines[w.nodes["a-1"].ProviderID].Image = id(1)
	w.machines[w.nodes["a-2"].ProviderID].Image = id(4)
	w.leases[poolA] = kamino.Lease{Pool: poolA, Epoch: 7, Revision: "1", Ledger: kamino.Ledger{
		Wrote:    &kamino.WrittenModel{Image: id(4), Seen: true},
		Original: &kamino.SavedModel{Image: baseLTS, Saved: []byte(`{"image":"` + baseLTS + `","custom":"bootstrap","exts":["cse","monitor"]}`)}, Former: &kamino.SavedModel{Image: id(2)}}}
	return w
}

// pin points the model at an old version, as a person does who trusts no newer.
func (w *world) pin(version string) {
	if v := w.artifacts[artifactKey(poolA, kamino.KindVersion, version)]; v != nil {
		w.pools[poolA].image = v.ID
	}
}

func (w *world) addPods() {
	for _, n := range []string{"a-0", "a-1", "a-2"} {
		w.pods = append(w.pods,
			&simPod{Pod: kamino.Pod{Namespace: "default", Name: "web-" + n}, node: n},
			&simPod{Pod: kamino.Pod{Namespace: "default", Name: "db-" + n}, node: n},
			&simPod{Pod: kamino.Pod{Namespace: "kube-system", Name: "proxy-" + n}, node: n, daemon: true})
	}
}

// sound fails the test when an invariant was broken.
func (w *world) sound(t *testing.T) {
	t.Helper()
	w.audit.settled()
	for _, v := range w.audit.violations {
		t.Error(v)
	}
	if t.Failed() {
		t.Logf("trace:\n%s", w.tail(400))
	}
}

func TestUpdate(t *testing.T) {
	w := fresh(1)
	w.tracing = true
	p := w.update(options("a-0"))
	if p.err != nil {
		t.Error(p.err)
	}
	w.sound(t)
	t.Logf("%d calls, donor away %s, %s\n%s", p.calls, w.audit.spans(), w.now, w.tail(400))
}
