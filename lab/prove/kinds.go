package prove

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

// kind is one thing that can be so with an image or its canary.
type kind struct {
	name string
	want kamino.Outcome
	// check is which row of the table has to catch it; "" for good ones.
	check string
	also  string // another row that may, by what is seen first
	// behave is how the canary's machine differs; nil: not at all.
	behave func(*world) nodes.Behaviour
	// fault is what the cloud does when the canary is asked for. One whose effect takes place is of
	// a machine that runs, and of which the cloud says all the same that it failed.
	fault *emulator.Fault
	// policy denies new scale sets.
	policy  bool
	evicted bool          // the cloud takes the machine away while it is examined
	probe   bool          // an operator's probe is wanted
	budget  time.Duration // for the boot; 0: a minute
	known   bool          // the pool knows how long its canaries take
	tells   string        // part of the evidence; "" any
	alone   bool          // all kubelets lose the API server: nothing else can go on beside it
	pool    emulator.Pool // for what good ones differ in
	point   bool          // the pool points at its definition
}

// speed is how many times faster than published Azure the lab works.
const speed = 200

func always(b nodes.Behaviour) func(*world) nodes.Behaviour {
	return func(*world) nodes.Behaviour { return b }
}

const failed, unclear, fine = kamino.ProofFailed, kamino.ProofInconclusive, kamino.ProofPassed

// badKinds are images that must never be promoted, each with the check meant for it.
func badKinds() []kind {
	return []kind{
		{name: "no kubelet", want: failed, check: "ready", behave: always(nodes.Behaviour{NoKubelet: true})},
		{name: "kernel panic", want: failed, check: "ready", tells: "Kernel panic", behave: always(nodes.Behaviour{NoKubelet: true, Dead: true, Console: "[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs\n"})},
		{name: "no runtime", want: failed, check: "ready", behave: always(nodes.Behaviour{NotReady: "container runtime is down"})},
		{name: "failing extension", want: failed, check: "cloud", tells: "VMExtensionProvisioningError", fault: &emulator.Fault{Kind: emulator.FailOperation, Code: "VMExtensionProvisioningError",
			Message: "VM has reported a failure when processing extension 'vmssCSE'.", Committed: true}},
		{name: "flapping kubelet", want: failed, check: "stable", behave: always(nodes.Behaviour{Restless: true})},
		{name: "duplicate machine ID", want: failed, check: "identity", behave: func(w *world) nodes.Behaviour {
			return nodes.Behaviour{MachineID: w.node(w.donor).Status.NodeInfo.MachineID}
		}},
		{name: "duplicate host name", want: failed, check: "identity", behave: func(w *world) nodes.Behaviour { return nodes.Behaviour{Hostname: w.sibling} }},
		{name: "duplicate host key", want: failed, check: "identity", tells: "SSH host key", behave: func(w *world) nodes.Behaviour { return nodes.Behaviour{SSHKey: w.tag(kamino.TagSSHKeys)} }},
		{name: "not set apart", want: failed, check: "apart", behave: always(nodes.Behaviour{Bare: true})},
		{name: "wrong labels", want: failed, check: "labels", behave: always(nodes.Behaviour{Labels: map[string]string{"kubernetes.azure.com/role": "spare"}})},
		{name: "half the memory", want: failed, check: "capacity", behave: always(nodes.Behaviour{
			Capacity: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(4<<30, resource.BinarySI)}})},
		{name: "full disk", want: failed, check: "pressure", behave: always(nodes.Behaviour{Pressure: corev1.NodeDiskPressure})},
		{name: "clock an hour off", want: failed, check: "clock", behave: always(nodes.Behaviour{Clock: time.Hour})},
		{name: "crashing DaemonSet", want: failed, check: "daemonsets", behave: always(nodes.Behaviour{Daemons: "CrashLoopBackOff"})},
		{name: "DaemonSet that does not land", want: failed, check: "daemonsets", behave: always(nodes.Behaviour{Reserved: true})},
		{name: "slow boot", want: failed, check: "boot", tells: "phase kubelet took", known: true, budget: 4 * time.Minute, behave: always(nodes.Behaviour{Late: 80 * speed * time.Second})},
		{name: "probe fails", want: failed, check: "probe", probe: true, behave: always(nodes.Behaviour{Jobs: nodes.Fails})},
		{name: "probe hangs", want: failed, check: "probe", probe: true, behave: always(nodes.Behaviour{Jobs: nodes.Hangs})},
		{name: "failed unit", want: failed, check: "units", behave: always(nodes.Behaviour{Units: []string{"systemd-networkd-wait-online.service"}})},
		{name: "flapping unit", want: failed, check: "units", tells: "collector.service", known: true, budget: 2 * time.Minute, behave: always(nodes.Behaviour{Unsteady: "collector.service"})},
		{name: "certificate not approved", want: failed, check: "certificate", behave: always(nodes.Behaviour{Denied: true})},
		{name: "empty image cache", want: failed, check: "images", behave: always(nodes.Behaviour{NoImages: true})},
		{name: "reboot pending", want: failed, check: "reboot", behave: always(nodes.Behaviour{Reboot: "/run/reboot-required"})},
	}
}

// unclearKinds say nothing of the image: it is neither promoted nor withdrawn.
func unclearKinds() []kind {
	return []kind{
		{name: "allocation", want: unclear, check: "cloud", fault: &emulator.Fault{Kind: emulator.FailOperation, Code: "AllocationFailed",
			Message: "Allocation failed. We do not have sufficient capacity for the requested VM size in this region."}},
		{name: "quota", want: unclear, check: "cloud", fault: &emulator.Fault{Kind: emulator.Reply, Status: http.StatusConflict, Code: "OperationNotAllowed",
			Message: "Operation could not be completed as it results in exceeding approved standardDSv3Family Cores quota. Additional details - Current Limit: 10, Current Usage: 10, Additional Required: 2"}},
		{name: "throttled", want: unclear, check: "cloud", fault: &emulator.Fault{Kind: emulator.Reply, Status: http.StatusTooManyRequests, RetryAfter: 2 * time.Hour, Times: -1}},
		{name: "policy", want: unclear, check: "cloud", policy: true},
		{name: "registry", want: unclear, check: "daemonsets", behave: always(nodes.Behaviour{Daemons: "ImagePullBackOff"})},
		{name: "registry of the network plugin", want: unclear, check: "ready", tells: "wait there for images",
			behave: always(nodes.Behaviour{NotReady: "container runtime network not ready: cni plugin not initialized", Daemons: "ImagePullBackOff"})},
		{name: "probe's pull", want: unclear, check: "probe", probe: true, behave: always(nodes.Behaviour{Jobs: "ErrImagePull"})},
		{name: "evicted", want: unclear, check: "cloud", also: "stable", evicted: true},
		{name: "other packages", want: unclear, check: "report", tells: "packages", behave: always(nodes.Behaviour{Packages: "0123"})},
		{name: "silent agent", want: unclear, check: "report", behave: always(nodes.Behaviour{Silent: true})},
		{name: "API server away", want: unclear, check: "ready", alone: true, budget: 2 * time.Minute},
	}
}

// goodKinds are pools of many forms whose images are as they should be.
func goodKinds() (all []kind) {
	group := emulator.Scenario{}.Defaults()
	identity := "/subscriptions/" + group.Subscription + "/resourceGroups/" + group.ResourceGroup + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes"
	forms := []kind{
		{name: "plain"},
		{name: "with a probe", probe: true},
		{name: "pointer", point: true},
		{name: "a moment late", behave: always(nodes.Behaviour{Late: 5 * speed * time.Second})},
		{name: "zones", pool: emulator.Pool{Zones: []string{"1", "2", "3"}}},
		{name: "autoscaled", pool: emulator.Pool{Tags: map[string]string{"min": "1", "max": "9", "cluster-autoscaler-enabled": "true"}}},
		{name: "identities", pool: emulator.Pool{UserAssignedIdentities: []string{identity}}},
		{name: "trusted launch", pool: emulator.Pool{SecurityType: "TrustedLaunch"}},
		{name: "user data", pool: emulator.Pool{UserData: "dXNlcg=="}},
		{name: "no extensions", pool: emulator.Pool{NoExtensions: true}},
	}
	for range 2 {
		for _, k := range forms {
			k.name, k.want = "good: "+k.name, fine
			all = append(all, k)
		}
	}
	return all
}

// offKinds switch each check off once that a kind of bad image is for, and take that image. Of
// those that never become a node at all no run can go on, so for "ready" it is one that does.
func offKinds() (all []kind) {
	seen := map[string]bool{}
	for _, k := range append(badKinds(), unclearKinds()...) {
		if k.name == "no kubelet" || k.name == "kernel panic" || seen[k.check] {
			continue
		}
		seen[k.check] = true
		all = append(all, k)
	}
	return all
}
