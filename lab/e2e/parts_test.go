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
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/nodes"
	"kamino.dev/kamino/poolstate"
)

// autoArgs are those of an auto-update of a pool which waits no longer than the lab makes it.
func autoArgs(p *pool, more ...string) []string {
	return append([]string{"auto-update", "--pool", p.name, "--minimum-ready-time", "0s", "--minimum-candidates", "1",
		"--grace-period", "20", "--prove-for", "0s", "--max-not-ready", "1000", "--max-unavailable-pools", "all",
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
			Result *engine.Result
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

// TestPackerForPartThree: in place of kamino update, somebody else's program makes versions from a
// machine of its own and puts them into the pool's definition, hidden and with no tags of Kamino's.
// A good one is proved and promoted like ours; one whose kubelet is masked is withdrawn with the
// reason; one without Kamino's agent stays as it was. The pool boots from none that was not proved.
func TestPackerForPartThree(t *testing.T) {
	t.Parallel()
	pools := seedPools(t, shared, emulator.Pool{Name: poolName(t), Count: 2}, emulator.Pool{Name: "packer-builder", Count: 1})
	p, builder := pools[0], pools[1]
	first := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	name := func(days int) string { return kamino.VersionName(time.Now().AddDate(0, 0, days)) }
	prove := func(version string, more ...string) outcome {
		return kaminoRun(t, append([]string{"promote", "--pool", p.name, "--version", version, "--prove", "canary", "--prove-for", "0s", "--boot-budget", "1m",
			"-o", "json"}, more...)...)
	}
	booted := func() map[string]bool {
		images := map[string]bool{}
		for _, in := range shared.Cloud.Instances() {
			if strings.EqualFold(in.PoolID, p.id) {
				images[in.ImageID[strings.LastIndexByte(in.ImageID, '/')+1:]] = true
			}
		}
		return images
	}
	version := func(name string) poolstate.VersionStatus {
		t.Helper()
		for _, v := range p.status().Versions {
			if v.Name == name {
				return v
			}
		}
		t.Fatalf("version %s is not listed", name)
		return poolstate.VersionStatus{}
	}

	bad, bare, good := name(1), name(2), name(3)
	p.bake(builder, bad, func(files map[string]string) {
		nodes.Generalize(files, p.name, true)
		files[nodes.KubeletUnit] = nodes.Masked
	})
	o := prove(bad)
	if o.code == 0 || !strings.Contains(o.log, "--accept-unsealed") || version(bad).Phase != kamino.PhaseHidden {
		t.Fatalf("unsealed, and nobody accepted that: exit code %d, %+v\n%s", o.code, version(bad), o.log)
	}
	if o = prove(bad, "--accept-unsealed"); o.code != 4 || !strings.Contains(o.log, "failed its proof: ready: no node has registered") {
		t.Fatalf("with a masked kubelet: exit code %d\n%s", o.code, o.log)
	}
	if v := version(bad); v.Phase != kamino.PhaseWithdrawn || !strings.Contains(v.Bad, "ready: ") || p.status().Next != first.Version {
		t.Errorf("with a masked kubelet: %+v; the next node boots from %s", v, p.status().Next)
	}

	p.bake(builder, bare, func(files map[string]string) { nodes.Generalize(files, p.name, false) })
	if o = prove(bare, "--accept-unsealed"); o.code != 5 || !strings.Contains(o.log, "is inconclusive: apart: ") {
		t.Fatalf("without the agent: exit code %d\n%s", o.code, o.log)
	}
	if v := version(bare); v.Phase != kamino.PhaseHidden || v.Bad != "" || p.status().Next != first.Version {
		t.Errorf("without the agent: %+v; the next node boots from %s", v, p.status().Next)
	}

	p.bake(builder, good, func(files map[string]string) { nodes.Generalize(files, p.name, true) })
	o = prove(good, "--accept-unsealed")
	var back engine.Rollback
	if err := json.Unmarshal([]byte(o.out), &back); err != nil || o.code != 0 || !back.Changed || back.To != good || back.Proof == nil || back.Proof.By != kamino.ProveCanary || len(back.Proof.Left) != 4 {
		t.Fatalf("a good one: exit code %d, %v\n%s\n%s", o.code, err, o.out, o.log)
	}
	if s := p.status(); s.Next != good || version(good).Phase != kamino.PhasePromoted || len(s.Canaries) > 0 || s.Unfinished != nil {
		t.Errorf("a good one: %+v; the next node boots from %s", version(good), s.Next)
	}
	sku, _ := p.lab.Cloud.Document(p.id)["sku"].(map[string]any)
	p.arm("PATCH", p.id, fmt.Sprintf(`{"sku":{"name":%q,"capacity":3}}`, sku["name"]))
	for _, node := range p.computers() {
		p.awaitNode(node)
	}
	if images := booted(); !images[good] || images[bad] || images[bare] {
		t.Errorf("the pool's instances boot from %v", images)
	}
	if tags, _ := p.lab.Cloud.Document(p.definition() + "/versions/" + good)["tags"].(map[string]any); tags["packer"] != "yes" || tags[kamino.TagRun] != nil {
		t.Errorf("the tags of the version are %v", tags)
	}
}

// definition is the ARM ID of the pool's image definition.
func (p *pool) definition() string {
	group, _, _ := strings.Cut(p.id, "/virtualMachineScaleSets/")
	return group + "/galleries/" + kamino.GalleryName(p.lab.Scenario.ResourceGroup) + "/images/" + kamino.DefinitionName(p.name)
}

// status is what kamino status tells of the pool.
func (p *pool) status() poolstate.PoolStatus {
	p.Helper()
	o := kaminoRun(p.T, "status", "--pool", p.name, "-o", "json")
	var pools []poolstate.PoolStatus
	if err := json.Unmarshal([]byte(o.out), &pools); err != nil || len(pools) != 1 {
		p.Fatalf("%v, %d pools\n%s\n%s", err, len(pools), o.out, o.log)
	}
	return pools[0]
}

// bake makes a version of the pool as an image builder does: it changes the disk of a machine of
// its own, takes a snapshot, and puts a version of that into the pool's definition, hidden.
func (p *pool) bake(builder *pool, version string, script func(files map[string]string)) {
	p.Helper()
	cloud, id := p.lab.Cloud, ""
	group, _, _ := strings.Cut(p.id, "/virtualMachineScaleSets/")
	snapshot, location := group+"/snapshots/packer-"+version, p.lab.Scenario.Location
	disk := ""
	for _, in := range cloud.Instances() {
		if strings.EqualFold(in.PoolID, builder.id) {
			disk, id = in.OSDiskID, in.ID
		}
	}
	if err := cloud.WriteDisk(id, script); err != nil {
		p.Fatal(err)
	}
	succeeded := func(id string) {
		await(p.T, id+" is there", func() string {
			properties, _ := cloud.Document(id)["properties"].(map[string]any)
			if state := fmt.Sprint(properties["provisioningState"]); state != "Succeeded" {
				return state
			}
			return ""
		})
	}
	p.arm("PUT", snapshot, fmt.Sprintf(`{"location":%q,"properties":{"creationData":{"createOption":"Copy","sourceResourceId":%q}}}`, location, disk))
	succeeded(snapshot)
	p.arm("PUT", p.definition()+"/versions/"+version, fmt.Sprintf(`{"location":%q,"tags":{"packer":"yes"},"properties":{
		"publishingProfile":{"excludeFromLatest":true,"targetRegions":[{"name":%[1]q,"regionalReplicaCount":1,"storageAccountType":"Standard_LRS"}]},
		"storageProfile":{"osDiskImage":{"source":{"id":%q}}}}}`, location, snapshot))
	succeeded(p.definition() + "/versions/" + version)
	p.arm("DELETE", snapshot, "")
}
