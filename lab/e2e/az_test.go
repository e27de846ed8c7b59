package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"

	nodeutil "k8s.io/kubernetes/pkg/util/node"
)

// azDriver is azure-cli, entered as its own main does, for one command a line:
// most of the time of an az is the import of its modules. One table is mended:
// Debian's 2.45 asks for compute API 2022-11-01, and Debian's python3-azure ends
// at 2022-08-01, so that every az vmss fails as shipped.
const azDriver = `
import io, json, sys
from azure.cli.core import get_default_cli
from azure.cli.core.profiles import _shared as shared
import azure.mgmt.compute as compute
if not hasattr(compute, 'v2022_11_01'):
    profile = shared.AZURE_API_PROFILES['latest'][shared.ResourceType.MGMT_COMPUTE].profile
    for group, version in profile.items():
        if version == '2022-11-01':
            profile[group] = '2022-08-01'
sys.argv[0] = 'az'
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    out = io.StringIO()
    try:
        code = get_default_cli().invoke(json.loads(line), out_file=out)
    except SystemExit as exit:
        code = exit.code
    print(json.dumps({'code': code, 'out': out.getvalue()}), file=answers, flush=True)
`

// az is Microsoft's client, which knows nothing of Kamino and its emulator.
type az struct {
	*testing.T
	group   string
	input   *json.Encoder
	answers *json.Decoder
	log     string // path of its standard error
}

// newAz starts azure-cli, registers the lab as a cloud and logs in.
func newAz(t *testing.T) *az {
	t.Helper()
	python := azPython(t)
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", azDriver)
	cmd.Env = environment(shared, map[string]string{"AZURE_CONFIG_DIR": filepath.Join(dir, "config")})
	cmd.Stderr = log
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close() // ends the loop
		_ = cmd.Wait()    // its context may have ended it
		log.Close()
	})
	a := &az{T: t, group: shared.Scenario.ResourceGroup, input: json.NewEncoder(input), answers: json.NewDecoder(output), log: log.Name()}
	env, arm := shared.Environment(), shared.ARM
	a.run("cloud", "register", "--name", "lab", "--endpoint-resource-manager", arm+"/", "--endpoint-active-directory", arm+"/adfs",
		"--endpoint-active-directory-resource-id", arm+"/", "--endpoint-active-directory-graph-resource-id", arm+"/graph", "--endpoint-management", arm+"/management")
	a.run("cloud", "set", "--name", "lab")
	a.run("login", "--service-principal", "--username", env["KAMINO_LAB_OPERATOR_ID"], "--password", env["AZURE_CLIENT_SECRET"], "--tenant", env["AZURE_TENANT_ID"])
	return a
}

// azPython is the interpreter of the azure-cli that is installed: Debian's, or that of Microsoft's
// package.
func azPython(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("az"); err == nil {
		for _, python := range []string{"/usr/bin/python3", "/opt/az/bin/python3"} {
			if exec.CommandContext(t.Context(), python, "-c", "import azure.cli").Run() == nil {
				return python
			}
		}
	}
	t.Skip("azure-cli is not installed: apt-get install azure-cli")
	return ""
}

// run returns the JSON that a command printed; the command must succeed.
func (a *az) run(args ...string) string {
	a.Helper()
	out, text, code := a.try(args...)
	if code != 0 {
		a.Fatalf("az %s: exit code %d\n%s", strings.Join(args, " "), code, text)
	}
	return out
}

// try returns what a command printed, what az has ever said on standard error, and the exit code.
func (a *az) try(args ...string) (out, text string, code int) {
	a.Helper()
	var answer struct {
		Code int
		Out  string
	}
	err := a.input.Encode(append(args, "--only-show-errors", "--output", "json"))
	if err == nil {
		err = a.answers.Decode(&answer)
	}
	log, logErr := os.ReadFile(a.log)
	if err = errors.Join(err, logErr); err != nil {
		a.Fatalf("az %s: %v\n%s", strings.Join(args, " "), err, log)
	}
	return answer.Out, string(log), answer.Code
}

// in runs a command in the lab's resource group and compares what a query finds
// with want, both as JSON.
func (a *az) in(want, query string, args ...string) {
	a.Helper()
	args = append(args, "--resource-group", a.group)
	if query == "" {
		a.run(args...)
		return
	}
	var got, wanted any
	out := a.run(append(args, "--query", query)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		a.Fatalf("az %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		a.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		a.Errorf("az %s: %s is %s, want %s", strings.Join(args, " "), query, strings.TrimSpace(out), want)
	}
}

// TestAzureCLI lets a foreign client do with the lab what it does with Azure:
// everything a prototype is made of, by hand.
func TestAzureCLI(t *testing.T) {
	t.Parallel()
	a := newAz(t)
	p := newPool(t, 1)
	a.in(`1`, fmt.Sprintf("length([?name=='%s'])", p.name), "vmss", "list")
	a.in(`["Manual",1]`, "[upgradePolicy.mode, sku.capacity]", "vmss", "show", "--name", p.name)
	a.in(`["0","Succeeded"]`, "[0].[instanceId, provisioningState]", "vmss", "list-instances", "--name", p.name)

	a.in("", "", "vmss", "stop", "--name", p.name, "--instance-ids", "0")
	a.in(`["PowerState/stopped"]`, "statuses[?starts_with(code,'Power')].code", "vmss", "get-instance-view", "--name", p.name, "--instance-id", "0")
	await(t, "the node of the stopped machine is NotReady", func() string {
		if nodeutil.IsNodeReady(p.get(p.node(0))) {
			return "Ready"
		}
		return ""
	})
	source := strings.Trim(strings.TrimSpace(a.run("vmss", "show", "--name", p.name, "--instance-id", "0", "--resource-group", a.group,
		"--query", "storageProfile.osDisk.managedDisk.id")), `"`)
	a.in(`["Succeeded",100]`, "[provisioningState, completionPercent]", "snapshot", "create", "--name", "az-snapshot", "--source", source, "--hyper-v-generation", "V2")
	a.in("", "", "vmss", "start", "--name", p.name, "--instance-ids", "0")
	p.awaitNode(p.node(0))
	a.galleries(p)
	a.resources(p)

	a.in(`["az"]`, "[tags.owner]", "vmss", "update", "--name", p.name, "--set", "tags.owner=az")
	a.in("", "", "snapshot", "delete", "--name", "az-snapshot")
	a.in(`0`, "length([?name=='az-snapshot'])", "snapshot", "list")
	if _, text, code := a.try("snapshot", "show", "--name", "az-snapshot", "--resource-group", a.group); code != 3 || !strings.Contains(text, "(ResourceNotFound)") {
		t.Errorf("a snapshot that is gone: exit code %d, want 3\n%s", code, text)
	}
}

// galleries makes an image version of the snapshot, lets a machine boot from it, and deletes it
// all.
func (a *az) galleries(p *pool) {
	a.Helper()
	const gallery, definition, version = "az_gallery", "az-definition", "1.0.0"
	a.in(`"Succeeded"`, "provisioningState", "sig", "create", "--gallery-name", gallery)
	a.in(`1`, "length([?name=='az_gallery'])", "sig", "list")
	a.in(`"V2"`, "hyperVGeneration", "sig", "image-definition", "create", "--gallery-name", gallery, "--gallery-image-definition", definition,
		"--publisher", "p", "--offer", "o", "--sku", "s", "--os-type", "Linux", "--hyper-v-generation", "V2")
	a.in(`["az-definition"]`, "[].name", "sig", "image-definition", "list", "--gallery-name", gallery)
	one := []string{"--gallery-name", gallery, "--gallery-image-definition", definition, "--gallery-image-version", version}
	a.in(`["Succeeded",3]`, "[provisioningState, publishingProfile.targetRegions[0].regionalReplicaCount]",
		append([]string{"sig", "image-version", "create", "--os-snapshot", "az-snapshot", "--target-regions", "westeurope=3"}, one...)...)
	a.in(`["1.0.0"]`, "[].name", append([]string{"sig", "image-version", "list"}, one[:4]...)...)

	id := p.lab.Scenario.PoolID(p.name)
	id = id[:strings.LastIndex(id, "/virtualMachineScaleSets/")] + "/galleries/" + gallery + "/images/" + definition + "/versions/" + version
	const reference = "virtualMachineProfile.storageProfile.imageReference"
	a.in(`"`+id+`"`, reference+".id", "vmss", "update", "--name", p.name, "--set", reference+`={"id":"`+id+`"}`)
	a.in(`2`, "sku.capacity", "vmss", "scale", "--name", p.name, "--new-capacity", "2")
	a.in(`"`+id+`"`, "[?instanceId=='1'] | [0].storageProfile.imageReference.id", "vmss", "list-instances", "--name", p.name)
	a.in("", "", "vmss", "delete-instances", "--name", p.name, "--instance-ids", "1")
	a.pointer(p, gallery, definition)

	a.in("", "", append([]string{"sig", "image-version", "delete"}, one...)...)
	a.in("", "", append([]string{"sig", "image-definition", "delete"}, one[:4]...)...)
	a.in("", "", "sig", "delete", "--gallery-name", gallery)
	a.in(`0`, "length([?name=='az_gallery'])", "sig", "list")
}

// pointer points the pool at the image definition, and moves what latest means.
func (a *az) pointer(p *pool, gallery, definition string) {
	a.Helper()
	of := []string{"--gallery-name", gallery, "--gallery-image-definition", definition}
	version := func(name string, args ...string) []string {
		return append(append([]string{"sig", "image-version"}, args...), append(of, "--gallery-image-version", name)...)
	}
	a.in(`"Succeeded"`, "provisioningState", version("1.1.0", "create", "--os-snapshot", "az-snapshot", "--target-regions", "westeurope=1")...)
	id := p.id[:strings.LastIndex(p.id, "/virtualMachineScaleSets/")] + "/galleries/" + gallery + "/images/" + definition
	const reference = "virtualMachineProfile.storageProfile.imageReference"
	a.in(`"`+id+`"`, reference+".id", "vmss", "update", "--name", p.name, "--set", reference+`={"id":"`+id+`"}`)
	a.boots(p, "1.1.0")
	a.in(`true`, "publishingProfile.excludeFromLatest", version("1.1.0", "update", "--set", "publishingProfile.excludeFromLatest=true")...)
	a.boots(p, "1.0.0")
	a.in(`false`, "publishingProfile.excludeFromLatest", version("1.1.0", "update", "--set", "publishingProfile.excludeFromLatest=false")...)
	a.boots(p, "1.1.0")
	a.in("", "", version("1.1.0", "delete")...)
	a.in(`["1.0.0"]`, "[].name", append([]string{"sig", "image-version", "list"}, of...)...)
}

// definitionOf is the image definition of a version.
func definitionOf(version string) string { return version[:strings.LastIndex(version, "/versions/")] }

// boots asks what the pool's next instance would boot from, as far as az can tell, and then lets
// one boot.
func (a *az) boots(p *pool, want string) {
	a.Helper()
	if got := a.next(p); got != want {
		a.Errorf("az: the next instance of pool %s would boot from %q, want %q", p.name, got, want)
	}
	before := len(p.computers())
	a.in(fmt.Sprint(before+1), "sku.capacity", "vmss", "scale", "--name", p.name, "--new-capacity", fmt.Sprint(before+1))
	var instances []struct{ InstanceID, Exact string }
	out := a.run("vmss", "list-instances", "--name", p.name, "--resource-group", a.group, "--query", "[].{instanceId:instanceId, exact:storageProfile.imageReference.exactVersion}")
	if err := json.Unmarshal([]byte(out), &instances); err != nil || len(instances) != before+1 {
		a.Fatalf("az vmss list-instances: %v\n%s", err, out)
	}
	born := instances[before]
	if born.Exact != want {
		a.Errorf("az: instance %s of pool %s booted from %q, want %q", born.InstanceID, p.name, born.Exact, want)
	}
	a.in("", "", "vmss", "delete-instances", "--name", p.name, "--instance-ids", born.InstanceID)
}

// next is the version that the pool's next instance would boot from: the model's, or the highest
// of the definition that is provisioned and not excluded.
func (a *az) next(p *pool) string {
	a.Helper()
	image := strings.Trim(strings.TrimSpace(a.run("vmss", "show", "--name", p.name, "--resource-group", a.group,
		"--query", "virtualMachineProfile.storageProfile.imageReference.id")), `"`)
	parts := strings.Split(image, "/")
	if len(parts) > 2 && parts[len(parts)-2] == "versions" {
		return parts[len(parts)-1]
	}
	if len(parts) < 4 || parts[len(parts)-2] != "images" {
		a.Fatalf("the model of pool %s refers to %s", p.name, image)
	}
	var names []string
	out := a.run("sig", "image-version", "list", "--resource-group", a.group, "--gallery-name", parts[len(parts)-3], "--gallery-image-definition", parts[len(parts)-1],
		"--query", "[?provisioningState=='Succeeded' && !(publishingProfile.excludeFromLatest)].name")
	if err := json.Unmarshal([]byte(out), &names); err != nil {
		a.Fatalf("az sig image-version list: %v\n%s", err, out)
	}
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, kamino.CompareVersions)
}

// resources looks at the scale set and the snapshot as at any resource of Azure.
func (a *az) resources(p *pool) {
	a.Helper()
	check := func(want, query string, args ...string) {
		a.Helper()
		var got, wanted any
		out := a.run(append(args, "--query", query)...)
		if err := errors.Join(json.Unmarshal([]byte(out), &got), json.Unmarshal([]byte(want), &wanted)); err != nil || fmt.Sprint(got) != fmt.Sprint(wanted) {
			a.Errorf("az %s: %s is %s (%v), want %s", strings.Join(args, " "), query, strings.TrimSpace(out), err, want)
		}
	}
	id := p.lab.Scenario.PoolID(p.name)
	check(`true`, "@", "group", "exists", "--name", a.group)
	check(`false`, "@", "group", "exists", "--name", "no-such-group")
	check(`"1"`, "properties.tags.shift", "tag", "update", "--resource-id", id, "--operation", "Merge", "--tags", "shift=1")
	check(`"1"`, "properties.tags.shift", "tag", "list", "--resource-id", id)
	check(fmt.Sprintf(`[%q]`, p.name), "[].name", "resource", "list", "--tag", "shift=1")
	check(`["az-snapshot"]`, "[?name=='az-snapshot'].name", "resource", "list", "--resource-group", a.group, "--resource-type", "Microsoft.Compute/snapshots")
	check(fmt.Sprintf("%q", p.name), "name", "resource", "show", "--ids", id)
	check(fmt.Sprintf("%q", p.name), "name", "resource", "show", "--resource-group", a.group, "--name", p.name, "--resource-type", "Microsoft.Compute/virtualMachineScaleSets")
	check(`"late"`, "tags.shift", "resource", "tag", "--ids", id, "--tags", "shift=late", "--is-incremental")
	check(`1`, "length([?name=='westeurope'])", "account", "list-locations")
	check(`"Standard_D2s_v3"`, "[0].sku.name", "vmss", "list-skus", "--resource-group", a.group, "--name", p.name)
	check(`true`, "starts_with(accessSas, 'https://')", "snapshot", "grant-access", "--resource-group", a.group, "--name", "az-snapshot", "--duration-in-seconds", "60")
}

// TestAzureCLISeesPrototype reads with a foreign client what an update has made.
func TestAzureCLISeesPrototype(t *testing.T) {
	t.Parallel()
	a := newAz(t)
	p := newPool(t, 1)
	r := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	gallery, definition := kamino.GalleryName(a.group), kamino.DefinitionName(p.name)
	a.in(`["Linux","Generalized","V2"]`, "[osType, osState, hyperVGeneration]", "sig", "image-definition", "show", "--gallery-name", gallery, "--gallery-image-definition", definition)
	a.in(fmt.Sprintf(`[[%q,%q,%q]]`, r.Version, p.node(0), r.Run), `[].[name, tags.BuiltFrom, tags."kamino-run"]`,
		"sig", "image-version", "list", "--gallery-name", gallery, "--gallery-image-definition", definition)
	a.in(`"`+definitionOf(r.Image)+`"`, "virtualMachineProfile.storageProfile.imageReference.id", "vmss", "show", "--name", p.name)
	a.in(`0`, fmt.Sprintf("length([?name=='%s'])", kamino.SnapshotName(p.name)), "snapshot", "list")
}

// TestAzureCLISeesPointer asks a foreign client, after each move of the pointer, what the pool's
// next instance would boot from, and lets one boot.
func TestAzureCLISeesPointer(t *testing.T) {
	t.Parallel()
	a := newAz(t)
	p := newPool(t, 1)
	first := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	definition := definitionOf(first.Image)
	named := func() {
		t.Helper()
		a.in(`"`+definition+`"`, "virtualMachineProfile.storageProfile.imageReference.id", "vmss", "show", "--name", p.name)
	}
	named()
	a.boots(p, first.Version)
	second := kaminoRun(t, updateArgs(p.node(0), "--again")...).mustSucceed(t)
	named()
	a.boots(p, second.Version)
	rollback := func(to string) {
		t.Helper()
		if o := kaminoRun(t, "rollback", "--pool", p.name, "--to", to); o.code != 0 {
			t.Fatalf("rollback to %s: exit code %d\n%s", to, o.code, o.log)
		}
		named()
		a.boots(p, to)
	}
	gallery := kamino.GalleryName(a.group)
	state := func(version, want string) {
		t.Helper()
		a.in(want, `[publishingProfile.excludeFromLatest, tags."kamino-offer", starts_with(not_null(tags."kamino-bad", ''), 'rolled back to')]`, "sig", "image-version", "show",
			"--gallery-name", gallery, "--gallery-image-definition", kamino.DefinitionName(p.name), "--gallery-image-version", version)
	}
	rollback(first.Version)
	state(second.Version, `[true,"withdrawn",true]`)
	rollback(second.Version)
	state(second.Version, `[false,"offered",false]`)
	third := kaminoRun(t, updateArgs(p.node(0), "--again", "--promote", "manual")...).mustSucceed(t)
	state(third.Version, `[true,"hidden",false]`)
	a.boots(p, second.Version)
	if o := kaminoRun(t, "promote", "--pool", p.name, "--version", third.Version); o.code != 0 {
		t.Fatalf("promote %s: exit code %d\n%s", third.Version, o.code, o.log)
	}
	named()
	a.boots(p, third.Version)
	if o := kaminoRun(t, "withdraw", "--pool", p.name, "--version", third.Version, "--reason", "a test"); o.code != 0 {
		t.Fatalf("withdraw %s: exit code %d\n%s", third.Version, o.code, o.log)
	}
	named()
	state(third.Version, `[true,"withdrawn",false]`)
	a.boots(p, second.Version)
	a.in(`true`, "publishingProfile.excludeFromLatest", "sig", "image-version", "update", "--gallery-name", gallery, "--gallery-image-definition", kamino.DefinitionName(p.name),
		"--gallery-image-version", second.Version, "--set", "publishingProfile.excludeFromLatest=true")
	a.boots(p, first.Version)
	o := kaminoRun(t, updateArgs(p.node(0), "--again")...)
	if o.code != 3 || !strings.Contains(o.log, "set by someone else") {
		t.Errorf("an update after a person excluded the version: exit code %d\n%s", o.code, o.log)
	}
	a.boots(p, first.Version)
}
