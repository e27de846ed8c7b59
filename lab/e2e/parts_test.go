package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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

// TestPackerForPartThree: a version that another client of the cloud made and hid is proved by a
// canary and promoted like ours; a bad one, or one that is offered already, is not.
func TestPackerForPartThree(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	first := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	version := first.Image[:strings.LastIndexByte(first.Image, '/')+1] + kamino.VersionName(time.Now().AddDate(0, 0, 1))
	name := version[strings.LastIndexByte(version, '/')+1:]
	p.packer(version, true, func(files map[string]string) {
		files["/var/lib/dpkg/packages"] = strings.Replace(files["/var/lib/dpkg/packages"], "openssl 3.0.15 ", "openssl 3.0.17 ", 1)
	})
	model := p.model()
	if o := kaminoRun(t, "promote", "--pool", p.name, "--version", name); o.code == 0 || !strings.Contains(o.log, "--version "+name) || p.model() != model {
		t.Errorf("promoted unproved: exit code %d\n%s", o.code, o.log)
	}
	r := kaminoRun(t, updateArgs(p.node(0), "--version", name, "--new-updated-nodes", "1")...).mustSucceed(t)
	steps := stepsOf(r)
	if !r.Changed || r.Version != name || slices.Contains(steps, kamino.InSeal) || !slices.Contains(steps, kamino.InLaunch) || !slices.Contains(steps, kamino.InExamine) {
		t.Errorf("version %s, changed %t by %v", r.Version, r.Changed, steps)
	}
	p.awaitNode(p.node(2))
	if in, ok := shared.Cloud.Instance(p.instance(2)); !ok || !strings.HasSuffix(in.ImageID, "/versions/"+name) {
		t.Errorf("the next node boots from %q", in.ImageID)
	}
	o := kaminoRun(t, "status", "--pool", p.name, "-o", "json")
	var pools []kamino.PoolStatus
	if err := json.Unmarshal([]byte(o.out), &pools); err != nil || len(pools) != 1 || pools[0].Next != name {
		t.Errorf("status: %v\n%s", err, o.out)
	}
	// A disk whose identity stayed on it is convicted; one that is offered already is refused.
	for i, hidden := range []bool{true, false} {
		next := version[:strings.LastIndexByte(version, '/')+1] + kamino.VersionName(time.Now().AddDate(0, 0, 2+i))
		p.packer(next, hidden, func(files map[string]string) {
			files["/etc/machine-id"] = p.get(p.node(1)).Status.NodeInfo.MachineID + "\n"
		})
		model := p.model()
		o := kaminoRun(t, updateArgs(p.node(0), "--version", next[strings.LastIndexByte(next, '/')+1:], "--adopt-model")...)
		if want := map[bool]string{true: "failed its proof", false: "is offered already"}[hidden]; o.code == 0 || !strings.Contains(o.log, want) || p.model() != model {
			t.Errorf("hidden %t: exit code %d, model %s\n%s", hidden, o.code, p.model(), o.log)
		}
	}
}

// packer makes an image version as Packer does: of the disk of a builder, on which it ran
// kamino-agent seal, with nothing of Kamino's in the cloud. A machine of the pool plays the
// builder for the moment of the copy.
func (p *pool) packer(version string, hidden bool, change func(map[string]string)) {
	p.Helper()
	cloud, id := p.lab.Cloud, p.instance(1)
	in, _ := cloud.Instance(id)
	was := map[string]string{}
	if err := cloud.WriteDisk(id, func(files map[string]string) {
		maps.Copy(was, files)
		for _, path := range []string{"/etc/machine-id", "/etc/hostname", "/etc/ssh/ssh_host_ed25519_key.pub", "/var/lib/kubelet/pki/kubelet-client-current.pem"} {
			delete(files, path)
		}
		files["/var/lib/kamino/receipt.json"] = `{"run":"packer"}`
		change(files)
	}); err != nil {
		p.Fatal(err)
	}
	group := p.id[:strings.Index(p.id, "/providers/")]
	snapshot := group + "/providers/Microsoft.Compute/snapshots/packer-" + p.name + "-" + version[strings.LastIndexByte(version, '/')+1:]
	location := in.Location
	p.arm("PUT", snapshot, fmt.Sprintf(`{"location":%q,"properties":{"creationData":{"createOption":"Copy","sourceResourceId":%q}}}`, location, in.OSDiskID))
	p.awaitMade(snapshot)
	if err := cloud.WriteDisk(id, func(files map[string]string) { clear(files); maps.Copy(files, was) }); err != nil {
		p.Fatal(err)
	}
	p.arm("PUT", version, fmt.Sprintf(`{"location":%q,"properties":{"publishingProfile":{"excludeFromLatest":%t,"targetRegions":[{"name":%[1]q,"regionalReplicaCount":1}]},
		"storageProfile":{"osDiskImage":{"source":{"id":%[3]q}}}}}`, location, hidden, snapshot))
	p.awaitMade(version)
	p.arm("DELETE", snapshot, "")
}

func (p *pool) awaitMade(id string) {
	p.Helper()
	await(p.T, id+" is made", func() string {
		properties, _ := p.lab.Cloud.Document(id)["properties"].(map[string]any)
		if state, _ := properties["provisioningState"].(string); state != "Succeeded" {
			return state
		}
		return ""
	})
}
