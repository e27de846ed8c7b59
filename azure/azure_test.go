package azure

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino"
)

const uniform = "azure:///subscriptions/" + testSubscription +
	"/resourceGroups/rg-1/providers/Microsoft.Compute/virtualMachineScaleSets/k8s-Pool1-vmss/virtualMachines/17"

func TestPoolOf(t *testing.T) {
	p := &Provider{}
	got, err := p.PoolOf(t.Context(), uniform)
	want := kamino.PoolID("/subscriptions/" + testSubscription + "/resourcegroups/rg-1/providers/microsoft.compute/virtualmachinescalesets/k8s-pool1-vmss")
	if err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for _, id := range []kamino.InstanceID{
		"", "aws:///eu-west-1a/i-0123", "azure:///nothing",
		"azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/flex_0a1b2c3d",
	} {
		if _, err := p.PoolOf(t.Context(), id); !errors.Is(err, kamino.ErrUnsupported) {
			t.Errorf("PoolOf(%q) = %v, want ErrUnsupported", id, err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	resp := func(h map[string]string) *http.Response {
		r := &http.Response{Header: http.Header{}}
		for k, v := range h {
			r.Header.Set(k, v)
		}
		return r
	}
	for _, tt := range []struct {
		headers map[string]string
		want    time.Duration
	}{
		{map[string]string{"Retry-After": "1200"}, 20 * time.Minute},
		{map[string]string{"Retry-After": "0"}, 0},
		{map[string]string{"Retry-After": "soon"}, defaultRetryAfter},
		{map[string]string{"Retry-After": "Fri, 20 Nov 2026 22:00:30 GMT", "Date": "Fri, 20 Nov 2026 22:00:00 GMT"}, 30 * time.Second},
		{nil, defaultRetryAfter},
	} {
		if got := retryAfter(resp(tt.headers)); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.headers, got, tt.want)
		}
	}
}

// TestRole: the role that the documentation tells people to make grants what
// the program asks for, neither less nor more.
func TestRole(t *testing.T) {
	raw, err := os.ReadFile("../docs/azure-role.json")
	if err != nil {
		t.Fatal(err)
	}
	var role struct{ Actions []string }
	if err := json.Unmarshal(raw, &role); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Actions(), role.Actions); diff != "" {
		t.Errorf("docs/azure-role.json differs from Actions():\n%s", diff)
	}
}

func TestAllowed(t *testing.T) {
	const start = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/start/action"
	for _, tt := range []struct {
		list []permission
		want bool
	}{
		{nil, false},
		{[]permission{{Actions: []string{"*"}}}, true},
		{[]permission{{Actions: []string{"*/read"}}}, false},
		{[]permission{{Actions: []string{"microsoft.compute/*/start/action"}}}, true},
		{[]permission{{Actions: []string{"*"}, NotActions: []string{"Microsoft.Compute/virtualMachineScaleSets/*"}}}, false},
		{[]permission{{Actions: []string{"*"}, NotActions: []string{"*/action"}}, {Actions: []string{start}}}, true},
	} {
		if got := allowed(tt.list, start); got != tt.want {
			t.Errorf("%+v: got %t, want %t", tt.list, got, tt.want)
		}
	}
}

// TestManagedByAKS: of several tags of AKS the same one is told each time, as a status and
// notifications repeat it.
func TestManagedByAKS(t *testing.T) {
	tags := map[string]*string{"aks-managed-poolName": nil, "aks-managed-createOperationID": nil, "aks-managed-orchestrator": nil, "team": nil}
	for range 20 {
		if r := refusePool(armcompute.VirtualMachineScaleSet{Tags: tags}, "rg"); len(r) != 1 || r[0].Code != "aks" || r[0].Value != "aks-managed-createOperationID" {
			t.Fatalf("%+v", r)
		}
	}
}

func TestPower(t *testing.T) {
	status := func(codes ...string) (out []*armcompute.InstanceViewStatus) {
		for _, c := range codes {
			out = append(out, &armcompute.InstanceViewStatus{Code: to.Ptr(c), Message: to.Ptr("why")})
		}
		return out
	}
	for _, tt := range []struct {
		codes   []string
		want    kamino.Power
		failure string
	}{
		{nil, kamino.PowerBetween, ""},
		{[]string{"ProvisioningState/succeeded", "PowerState/running"}, kamino.PowerOn, ""},
		{[]string{"PowerState/stopped"}, kamino.PowerOff, ""},
		{[]string{"PowerState/deallocated"}, kamino.PowerOff, ""},
		{[]string{"ProvisioningState/updating", "PowerState/stopping"}, kamino.PowerBetween, ""},
		{[]string{"ProvisioningState/failed/AllocationFailed", "PowerState/deallocated"}, kamino.PowerOff, "AllocationFailed: why"},
	} {
		t.Run(tt.failure, func(t *testing.T) {
			got, failure := power(status(tt.codes...))
			if got != tt.want || failure != tt.failure {
				t.Errorf("%v: got %s %q, want %s %q", tt.codes, got, failure, tt.want, tt.failure)
			}
		})
	}
}

// TestZone: an instance names its zone as the label of its node does.
func TestZone(t *testing.T) {
	for want, zones := range map[string][]*string{"": nil, "westeurope-2": {to.Ptr("2")}} {
		if got := toInstance("i", "p", armcompute.VirtualMachineScaleSetVM{Location: to.Ptr("WestEurope"), Zones: zones}).Zone; got != want {
			t.Errorf("zone %q, want %q", got, want)
		}
	}
}

func TestExtensionRules(t *testing.T) {
	keep := func(e kamino.Extension) bool {
		return slices.ContainsFunc(BillingExtensions(), func(r ExtensionRule) bool { return r.keeps(e) })
	}
	for _, tt := range []struct {
		e    kamino.Extension
		want bool
	}{
		{kamino.Extension{Name: "x-computeAksLinuxBilling", Publisher: "Microsoft.AKS", Type: "Compute.AKS-Engine.Linux.Billing"}, true},
		{kamino.Extension{Name: "x-AKSLinuxBilling", Publisher: "microsoft.aks", Type: "compute.aks.linux.billing"}, true},
		{kamino.Extension{Name: "vmssCSE", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript"}, false},
		{kamino.Extension{Name: "AKSLinuxBilling", Publisher: "Somebody", Type: "CustomScript"}, false},
	} {
		if got := keep(tt.e); got != tt.want {
			t.Errorf("%+v: got %t, want %t", tt.e, got, tt.want)
		}
	}
	if !(ExtensionRule{"Microsoft.ManagedServices", "ApplicationHealth*"}).keeps(kamino.Extension{Publisher: "microsoft.managedservices", Type: "ApplicationHealthLinux"}) {
		t.Error("a rule with a star does not match")
	}
}

// TestUpdateDisk: the whole OS disk goes back, since what a PATCH leaves out is
// reset.
func TestUpdateDisk(t *testing.T) {
	disk := &armcompute.VirtualMachineScaleSetOSDisk{
		CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesFromImage), OSType: to.Ptr(armcompute.OperatingSystemTypesLinux),
		Caching: to.Ptr(armcompute.CachingTypesReadWrite), DiskSizeGB: to.Ptr[int32](100), WriteAcceleratorEnabled: to.Ptr(true),
		DeleteOption: to.Ptr(armcompute.DiskDeleteOptionTypesDelete),
		ManagedDisk: &armcompute.VirtualMachineScaleSetManagedDiskParameters{
			StorageAccountType: to.Ptr(armcompute.StorageAccountTypesPremiumLRS),
			DiskEncryptionSet:  &armcompute.DiskEncryptionSetParameters{ID: to.Ptr("des")},
		},
	}
	got, err := updateDisk(disk)
	if err != nil {
		t.Fatal(err)
	}
	if !sameJSON(got, map[string]any{
		"caching": "ReadWrite", "diskSizeGB": 100, "writeAcceleratorEnabled": true, "deleteOption": "Delete",
		"managedDisk": map[string]any{"storageAccountType": "Premium_LRS", "diskEncryptionSet": map[string]any{"id": "des"}},
	}) {
		t.Errorf("got %s", asJSON(got))
	}
}
