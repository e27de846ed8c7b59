package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino/azure/emulator"
)

// bad is one input that must be refused.
type bad struct {
	name string
	// node is the donor named; "" is the good one. "-" leaves the option out.
	node string
	args []string
	env  map[string]string
	with func(*testing.T) // sets the stage; what it undoes, it undoes in Cleanup
	code int
	want []string // in the message: the thing, its value, and what to do
}

// TestBadInput: each bad input gets a message that names the thing, its value
// and what to do, an exit code that is not 0, and nothing is changed anywhere.
// It does not run beside other tests, so that every change would be its own.
func TestBadInput(t *testing.T) {
	specs := refusedPools()
	for _, name := range []string{"badinput", "switched-off", "master", "rebooting", "leaving", "newer", "replaced"} {
		specs = append(specs, emulator.Pool{Name: name})
	}
	for i := range specs {
		specs[i].Count = 1
	}
	pools := map[string]*pool{}
	for _, p := range seedPools(t, shared, specs...) {
		pools[p.name] = p
	}
	good, api := pools["badinput"], newProxy(t, shared)
	list := append(badOptions(t), badAccess(t, good)...)
	list = append(list, badNodes(t, pools)...)
	list = append(list, badPools(pools)...)
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			if b.with != nil {
				b.with(t)
			}
			b.run(t, good, api)
		})
	}
}

func (b bad) run(t *testing.T, good *pool, api *proxy) {
	env := map[string]string{"KUBECONFIG": api.kubeconfig}
	for name, value := range b.env {
		env[name] = value
	}
	node := b.node
	if node == "" {
		node = good.node(0)
	}
	args := updateArgs(node)
	if node == "-" {
		args = append(args[:1], args[3:]...)
	}
	before, since, passed := photograph(t, shared), lastRequest(shared), len(api.writes())
	o := call{env: env}.run(t, append(args, b.args...)...)
	if o.code != b.code {
		t.Errorf("exit code %d, want %d", o.code, b.code)
	}
	for _, want := range b.want {
		if !strings.Contains(o.log+o.out, want) {
			t.Errorf("the message does not mention %q", want)
		}
	}
	if writes := api.writes()[passed:]; len(writes) > 0 {
		t.Errorf("sent to the API server: %q", writes)
	}
	if writes := armWrites(shared, since); len(writes) > 0 {
		t.Errorf("sent to Azure: %q", writes)
	}
	for _, d := range before.differences(photograph(t, shared)) {
		t.Errorf("changed: %s", d)
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("exit code %d\n%s%s", o.code, o.log, o.out)
	}
}

// badOptions are wrong by themselves.
func badOptions(t *testing.T) []bad {
	malformed := filepath.Join(t.TempDir(), "azure.json")
	if err := os.WriteFile(malformed, []byte(`{"tenantId": "x", "aadClientSecret": "hunter2", `), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "absent.json")
	return []bad{
		{name: "no-node", node: "-", code: 1, want: []string{"no donor named", "--target-node", "kubectl get nodes"}},
		{name: "history", args: []string{"--max-history", "1"}, code: 1, want: []string{"history 1", "--max-history 2"}},
		{name: "guid", args: []string{"--subscription", "not-a-guid"}, code: 1, want: []string{`subscription "not-a-guid" is not a GUID`, "az account show"}},
		{name: "new-nodes", args: []string{"--new-updated-nodes", "-1"}, code: 1, want: []string{"-1", "--new-updated-nodes 0"}},
		{name: "no-number", args: []string{"--max-history", "many"}, code: 1, want: []string{`"many"`, "--max-history", "--max-history 3"}},
		{name: "duration", args: []string{"--grace-period", "soon"}, code: 1, want: []string{`"soon"`, "--grace-period"}},
		{name: "keep-extension", args: []string{"--keep-extension", "Billing"}, code: 1, want: []string{`"Billing"`, "publisher/type"}},
		{name: "output", args: []string{"-o", "xml"}, code: 1, want: []string{`"xml"`, "json"}},
		{name: "log-level", args: []string{"--log-level", "LOUD"}, code: 1, want: []string{`"LOUD"`, "DEBUG"}},
		{name: "unknown-option", args: []string{"--target"}, code: 1, want: []string{"--target", "kamino update --help"}},
		{name: "argument", args: []string{"node-1"}, code: 1, want: []string{`"node-1"`, "--target-node"}},
		{name: "no-image", args: []string{"--image", ""}, env: map[string]string{"POD_IMAGE": ""}, with: listTwo, code: 3, want: []string{"--image", "POD_IMAGE"}},
		{name: "probe-kind", env: map[string]string{"PROBE": "apiVersion: v1\nkind: Pod\n"}, code: 1, want: []string{"contains a Pod of v1, not a Job of batch/v1"}},
		{name: "probe-namespace", env: map[string]string{"PROBE": probeOf("nonens")}, code: 3, want: []string{`namespace "nonens"`, "does not exist"}},
		{name: "image-by-tag", args: []string{"--image", "registry.invalid/kamino:1"}, code: 1, want: []string{"not pinned by a digest", "@sha256:"}},
		{name: "azure-json-missing", args: []string{"--azure-config", missing}, code: 1, want: []string{missing, "does not exist", "--azure-config"}},
		{name: "azure-json-malformed", args: []string{"--azure-config", malformed}, code: 1, want: []string{malformed, "invalid JSON", "cloud-provider-azure"}},
		{name: "cloud", env: map[string]string{"AZURE_ENVIRONMENT": "Mars"}, code: 1, want: []string{`cloud "Mars" is unknown`, "AzurePublicCloud"}},
		{name: "stack-missing", env: map[string]string{"AZURE_ENVIRONMENT_FILEPATH": missing}, code: 1, want: []string{missing, "AZURE_ENVIRONMENT_FILEPATH"}},
		{name: "kubeconfig-missing", args: []string{"--kubeconfig", missing}, code: 1, want: []string{missing, "--kubeconfig"}},
		{name: "context", args: []string{"--context", "nowhere"}, code: 1, want: []string{`"nowhere"`, "kubectl config get-contexts"}},
	}
}

// badAccess is right by itself, but the other side does not let it in.
func badAccess(t *testing.T, good *pool) []bad {
	return []bad{
		{name: "secret", env: map[string]string{"AZURE_CLIENT_SECRET": "wrong"}, code: 1,
			want: []string{"AADSTS7000215", shared.Environment()["AZURE_CLIENT_ID"], "AZURE_CLIENT_SECRET"}},
		{name: "client", env: map[string]string{"AZURE_CLIENT_ID": "99999999-9999-9999-9999-999999999999"}, code: 1,
			want: []string{"99999999-9999-9999-9999-999999999999", "AZURE_CLIENT_ID"}},
		{name: "action-denied", with: func(t *testing.T) {
			takeAway(t, "Microsoft.Compute/snapshots/write")
		}, code: 1, want: []string{"Microsoft.Compute/snapshots/write", shared.Scenario.ResourceGroup, "az role assignment create"}},
		{name: "read-denied", with: func(t *testing.T) {
			takeAway(t, "Microsoft.Compute/virtualMachineScaleSets/read", "Microsoft.Authorization/*")
		}, code: 1, want: []string{"Microsoft.Compute/virtualMachineScaleSets/read", good.name, "docs/azure-role.json"}},
		{name: "group", args: []string{"-g", "no-such-group"}, code: 1, want: []string{"no-such-group", "could not be found", "az vmss list"}},
		{name: "subscription", args: []string{"--subscription", "12345678-1234-1234-1234-123456789012"}, code: 1,
			want: []string{"12345678-1234-1234-1234-123456789012", "--subscription"}},
	}
}

// takeAway takes actions from the role of kamino's identity until the test ends.
func takeAway(t *testing.T, actions ...string) {
	id, role := shared.Environment()["AZURE_CLIENT_ID"], shared.Role()
	role.NotActions = actions
	shared.Cloud.SetRoles(id, role)
	t.Cleanup(func() { shared.Cloud.SetRoles(id, shared.Role()) })
}

// badNodes cannot be donors.
func badNodes(t *testing.T, pools map[string]*pool) []bad {
	made := func(name, providerID string) string {
		makeNode(t, name, providerID)
		return name
	}
	good, off, replaced := pools["badinput"], pools["switched-off"], pools["replaced"]
	shared.Cloud.PowerOffFromGuest(off.instance(0))
	await(t, "the node that was switched off is NotReady", func() string {
		if nodeutil.IsNodeReady(off.get(off.node(0))) {
			return "Ready"
		}
		return ""
	})
	gone := shared.Scenario.PoolID("gone-vmss") + "/virtualMachines/0"
	marked := func(name, patch string) *pool {
		p := pools[name]
		p.patch(p.node(0), patch)
		return p
	}
	master := marked("master", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	rebooting := marked("rebooting", `{"metadata":{"annotations":{"weave.works/kured-reboot-in-progress":"now"}}}`)
	leaving := marked("leaving", `{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","value":"1700000000","effect":"NoSchedule"}]}}`)
	newer := marked("newer", `{"metadata":{"annotations":{"kamino.dev/run":"{\"format\":99,\"run\":\"r\"}"}}}`)
	return []bad{
		{name: "unknown-node", node: "no-such-node", code: 3, want: []string{`node "no-such-node"`, "not found", "kubectl get nodes"}},
		{name: "not-ready", node: off.node(0), code: 3, want: []string{off.node(0), "Ready", "choose another node"}},
		{name: "control-plane", node: master.node(0), code: 3, want: []string{master.node(0), "node-role.kubernetes.io/control-plane", "worker"}},
		{name: "pending-reboot", node: rebooting.node(0), code: 3,
			want: []string{rebooting.node(0), "weave.works/kured-reboot-in-progress", "wait for the reboot"}},
		{name: "scale-down", node: leaving.node(0), code: 3, want: []string{leaving.node(0), "ToBeDeletedByClusterAutoscaler", "another node"}},
		{name: "newer-mark", node: newer.node(0), code: 3, want: []string{newer.node(0), "kamino.dev/run", "format 99"}},
		{name: "self", env: map[string]string{"NODE_ID": good.node(0)}, code: 3, want: []string{good.node(0), "NODE_ID", "choose another node"}},
		{name: "no-provider-id", node: made("bare-metal-1", ""), code: 3, want: []string{"bare-metal-1", "spec.providerID", "choose a node"}},
		{name: "other-cloud", node: made("ip-10-0-0-1", "gce://project/europe-west1-b/ip-10-0-0-1"), code: 3,
			want: []string{"ip-10-0-0-1", "gce://project/europe-west1-b/ip-10-0-0-1", "choose a node"}},
		{name: "single-vm", node: made("vm-1", "azure://"+strings.Replace(gone, "virtualMachineScaleSets/gone-vmss/virtualMachines/0", "virtualMachines/vm-1", 1)), code: 3,
			want: []string{"vm-1", "Uniform", "choose a node"}},
		{name: "pool-gone", node: made("orphan-1", "azure://"+gone), code: 1, want: []string{"orphan-1", "gone-vmss", "not found", "kubectl delete node orphan-1"}},
		{name: "instance-gone", node: made("orphan-2", "azure://"+good.instance(7)), code: 1, want: []string{"orphan-2", good.name, "not found", "kubectl delete node orphan-2"}},
		{name: "other-vm", node: made("twin-1", "azure://"+replaced.instance(0)), code: 3, want: []string{"twin-1", "systemUUID", "delete the stale Node"}},
	}
}

// refused are pools of ARCHITECTURE's list: a prototype would do harm there.
var refused = []struct {
	name string
	pool emulator.Pool
	want []string
}{
	{"rolling", emulator.Pool{UpgradePolicy: "Rolling"}, []string{"properties.upgradePolicy.mode", `"Rolling"`, "upgradePolicy.mode=Manual"}},
	{"automatic", emulator.Pool{UpgradePolicy: "Automatic"}, []string{"properties.upgradePolicy.mode", `"Automatic"`, "upgradePolicy.mode=Manual"}},
	{"auto-os", emulator.Pool{AutomaticOSUpgrade: true}, []string{"enableAutomaticOSUpgrade", `"true"`, "--enable-auto-os-upgrade false"}},
	{"repairs", emulator.Pool{AutomaticRepairs: true}, []string{"automaticRepairsPolicy.enabled", `"true"`, "--enable-automatic-repairs false"}},
	{"ephemeral", emulator.Pool{Ephemeral: true}, []string{"diffDiskSettings.option", `"Local"`, "managed OS disk"}},
	{"windows", emulator.Pool{Windows: true}, []string{"operatingSystem", `"windows"`, "Linux"}},
	{"confidential", emulator.Pool{SecurityType: "ConfidentialVM"}, []string{"securityType", `"ConfidentialVM"`, "choose another pool"}},
	{"spot", emulator.Pool{Spot: true}, []string{"priority", `"Spot"`, "--allow-spot"}},
	{"aks", emulator.Pool{Tags: map[string]string{"aks-managed-poolName": "np1"}}, []string{"aks-managed-poolName", "AKS", "node image upgrades"}},
	{"flexible", emulator.Pool{Flexible: true}, []string{"Flexible", "Uniform"}},
}

func refusedPools() []emulator.Pool {
	var specs []emulator.Pool
	for _, r := range refused {
		r.pool.Name = "bad-" + r.name
		specs = append(specs, r.pool)
	}
	return specs
}

func badPools(pools map[string]*pool) []bad {
	var list []bad
	for _, r := range refused {
		node := pools["bad-"+r.name].computers()[0]
		list = append(list, bad{name: r.name, node: node, code: 3, want: append(r.want, node)})
	}
	return list
}

// makeNode makes a Node object that nobody keeps alive.
func makeNode(t *testing.T, name, providerID string) {
	t.Helper()
	nodes := shared.Client.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(cleanupContext(t), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	status := fmt.Sprintf(`{"status":{"nodeInfo":{"operatingSystem":"linux","systemUUID":"5eb63bbb-e01e-4ed0-93cb-22bb8f5acdc3"},
 "conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%[1]q,"lastTransitionTime":%[1]q}]}}`, time.Now().UTC().Format(time.RFC3339))
	if _, err := nodes.PatchStatus(t.Context(), name, []byte(status)); err != nil {
		t.Fatal(err)
	}
	await(t, "the controllers have written on node "+name, func() string {
		node, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if _, ok := node.Annotations["node.alpha.kubernetes.io/ttl"]; !ok || len(node.Spec.Taints) > 0 {
			return fmt.Sprint(node.Annotations, node.Spec.Taints)
		}
		return ""
	})
}

// TestUnreachable: an address at which nobody answers is named, after half a
// minute of trying again, and the other side is not touched.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	p, api, closed := newPool(t, 1), newProxy(t, shared), closedPort(t)
	for name, b := range map[string]bad{
		"api-server": {env: map[string]string{"KUBECONFIG": writeKubeconfig(t, "http://"+closed)}, want: []string{"kubectl"}},
		"azure":      {env: map[string]string{"KUBECONFIG": api.kubeconfig, "AZURE_ENVIRONMENT_FILEPATH": stackAt(t, closed)}, want: []string{"AZURE_ENVIRONMENT"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := p.get(p.node(0))
			o := call{env: b.env}.run(t, updateArgs(before.Name)...)
			if o.code != 1 {
				t.Errorf("exit code %d, want 1", o.code)
			}
			_, last, _ := strings.Cut(o.log, "Error: ")
			for _, want := range append(b.want, closed, "connection refused", "Hint: ") {
				if !strings.Contains(last, want) {
					t.Errorf("the message does not mention %q:\n%s", want, last)
				}
			}
			if writes := api.writes(); len(writes) > 0 {
				t.Errorf("sent to the API server: %q", writes)
			}
			p.expectSame(before, p.get(before.Name))
		})
	}
}

// closedPort is an address on which nobody listens, and nobody else can.
func closedPort(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) }) // it held a port and nothing else
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// stackAt describes a custom cloud whose Resource Manager is at another address.
func stackAt(t *testing.T, address string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(shared.Dir, "azurestackcloud.json"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(raw), `"resourceManagerEndpoint": "`+shared.ARM, `"resourceManagerEndpoint": "https://`+address)
	path := filepath.Join(t.TempDir(), "azurestackcloud.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
