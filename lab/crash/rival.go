package crash

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

// Rival is what others do just before a call of the process.
type Rival struct {
	Name   string
	Column string // of the matrix
	Act    func(*World, *Process)
	Mend   func(*World)  // what a person does about it before the re-run
	Freeze time.Duration // for how long the process is frozen, its call under way
	// Same: the end must be that of an undisturbed run.
	Same bool
	// Rows, if set, are those of the matrix where it can matter.
	Rows []string
}

// frozen is longer than any lease lasts, and than a run takes to be adopted.
const frozen = 4 * time.Minute

// rivals lists them all.
func rivals() []*Rival {
	second := func(w *World, _ *Process) { w.update(w.prepare(nil), w.options()) }
	onDonor := func(do func(*World, *machine)) func(*World, *Process) {
		return func(w *World, _ *Process) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if m := w.machineNamed(w.donor); m != nil {
				do(w, m)
			}
		}
	}
	fated := func(f fate) func(*World, *Process) { return onDonor(func(_ *World, m *machine) { m.fate = f }) }
	return []*Rival{
		{Name: "a second kamino", Column: "8", Same: true, Act: second},
		{Name: "a second kamino while this one is frozen", Column: "8", Same: true, Act: second, Freeze: frozen},
		{Name: "kamino restore while this one is frozen", Column: "8", Same: true, Freeze: frozen,
			Act: func(w *World, _ *Process) { w.restore(w.prepare(nil)) }},
		{Name: "an autoscaler deletes the donor's VM", Column: "9", Act: onDonor((*World).deleteMachine)},
		{Name: "the instance is replaced under the same name", Column: "9", Act: onDonor((*World).replaceMachine)},
		{Name: "a person cordons the node", Column: "11", Act: func(w *World, _ *Process) { w.cordon(true) }},
		{Name: "a person cordons and uncordons the node", Column: "11", Same: true, Act: func(w *World, _ *Process) { w.cordon(true); w.cordon(false) }},
		{Name: "a person changes the model's image", Column: "11", Act: func(w *World, _ *Process) { w.personSetsModel() }},
		{Name: "an autoscaler changes the capacity", Column: "11", Act: func(w *World, _ *Process) { w.autoscale() }},
		{Name: "the API server is away for two minutes", Column: "3", Same: true, Act: func(w *World, _ *Process) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.apiAway = w.clock.Now().Add(2 * time.Minute)
		}},
		{Name: "a budget never yields", Column: "12", Same: true, Rows: []string{"S0", "S3", "S4"},
			Act:  func(w *World, _ *Process) { w.budgetAllows(0) },
			Mend: func(w *World) { w.budgetAllows(1) }},
		{Name: "the node does not come back", Column: "12", Same: true, Rows: []string{"S5", "S6", "S7", "S8", "S9"}, Act: fated(neverBoots), Mend: (*World).repair},
		{Name: "the seal hangs", Column: "12", Same: true, Rows: []string{"S5"}, Act: fated(sealHangs), Mend: (*World).repair},
		{Name: "the seal fails", Column: "5b", Same: true, Rows: []string{"S5"}, Act: fated(sealFails), Mend: (*World).repair},
		{Name: "the seal reports nothing", Column: "4", Same: true, Rows: []string{"S5"}, Act: fated(sealIsMute), Mend: (*World).repair},
	}
}

// deleteMachine is what cluster-autoscaler does to a node that it removes.
func (w *World) deleteMachine(m *machine) {
	w.arm(http.MethodDelete, m.id, nil, nil)
}

// replaceMachine gives the instance another VM under the same ID and name, with a
// fresh disk, which takes over the Node object.
func (w *World) replaceMachine(m *machine) {
	in, ok := w.cloud.Instance(m.id)
	if !ok {
		return
	}
	w.replaced[in.VMID] = strings.Replace(in.VMID, in.VMID[:8], "99999999", 1)
	w.writeDisk(m, func(files map[string]string) {
		clear(files)
		files[machineIDFile] = "machine-id of the replacement\n"
	})
	m.boots++
	m.vm, m.fate, m.kubelet = w.vmOf(in.VMID), healthy, false
	if m.on {
		w.later(m, bootTime, func() { w.booted(m) })
		return
	}
	// A new VM is switched on.
	w.arm(http.MethodPost, m.id+"/start", nil, nil)
}

// cordon is a person's kubectl cordon or uncordon of the donor.
func (w *World) cordon(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	patch, _ := json.Marshal(map[string]any{"spec": map[string]any{"unschedulable": yes}}) // booleans
	_, err := w.station.admin.CoreV1().Nodes().Patch(w.ctx, w.donor, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	w.check("cordon", err)
	w.dirty.nodes = true
	w.refresh()
	w.audit.Person(&w.state, w.donor)
}

const personsImage = "Canonical:ubuntu-24_04-lts:server:latest"

// personSetsModel writes another image into the model.
func (w *World) personSetsModel() {
	parts := strings.Split(personsImage, ":")
	w.arm(http.MethodPatch, w.scenario.PoolID(poolName), map[string]any{"properties": map[string]any{"virtualMachineProfile": map[string]any{
		"storageProfile": map[string]any{"imageReference": map[string]string{"publisher": parts[0], "offer": parts[1], "sku": parts[2], "version": parts[3]}}}}}, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	// Before the run has looked at the model, it finds what the person wrote there.
	if w.lease().Holder != "" {
		w.person = personsImage
	}
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
	w.refresh()
}

// autoscale asks for one more instance.
func (w *World) autoscale() {
	id := w.scenario.PoolID(poolName)
	doc := w.cloud.Document(id)
	w.arm(http.MethodPatch, id, map[string]any{"sku": map[string]any{"name": textAt(doc, "sku", "name"), "capacity": intAt(doc, "sku", "capacity") + 1}}, nil)
}

// repair is what a person does to a machine that does not come back: the cause
// is mended, and who stands there without a kubelet boots.
func (w *World) repair() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		stuck := m.fate == neverBoots && m.on && !m.kubelet
		m.fate = healthy
		if stuck {
			w.later(m, bootTime, func() { w.booted(m) })
		}
	}
}

// mended says that a person has put the model back, or that the run which it
// disturbed is over: the next run may replace what stands there.
func (w *World) mended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.person = ""
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
}

// freshDonor chooses another donor where the first one is gone.
func (w *World) freshDonor() kamino.Options {
	o := w.options()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty.nodes = true
	w.refresh()
	if w.donorGone() {
		o.Donor = w.spare
	}
	o.AdoptModel = true // whoever runs it again means it, whatever a person chose meanwhile
	return o
}
