package emulator

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
)

// CAPZ plays the controller of cluster-api-provider-azure that owns a Uniform scale set as an
// AzureMachinePool, as its source of August 2026 reads (azure/types.go, HasModelChanges and
// HasLatestModelApplied; azure/services/scalesets; docs/book/src/self-managed/machinepools.md).
// Nobody has compared it with the real one.
type CAPZ struct {
	Pool     string         // ARM ID of the scale set
	Image    map[string]any // imageReference that the AzureMachinePool's spec makes
	Replicas int
	MaxSurge int
	// SkipModelReconciliation is its gate SkipMachinePoolModelReconciliation (alpha in v1.25):
	// instances of another image are left alone; model and surge are written as ever.
	SkipModelReconciliation bool
	// Call is an ARM request; body and reply are JSON documents.
	Call func(method, path string, body map[string]any) (reply map[string]any, err error)
}

// CAPZTags are those by which a scale set tells that CAPZ owns it.
func CAPZTags(cluster string) map[string]string {
	return map[string]string{
		"sigs.k8s.io_cluster-api-provider-azure_cluster_" + cluster: "owned",
		"sigs.k8s.io_cluster-api-provider-azure_role":               "node",
		"capz-custom-data-hash":                                     derived("bootstrap", cluster),
	}
}

// CAPZWork is what one reconciliation did.
type CAPZWork struct {
	WroteModel bool
	Capacity   int      // that it asked for; 0: none
	Deleted    []string // instance IDs
}

// Reconcile runs the controller once: it puts its image back, surges, and deletes instances that
// failed or are too many, those of another image first.
func (z CAPZ) Reconcile() (CAPZWork, error) {
	pool, err := z.Call(http.MethodGet, z.Pool, nil)
	if err != nil {
		return CAPZWork{}, err
	}
	instances, err := z.Call(http.MethodGet, z.Pool+"/virtualMachines", nil)
	if err != nil {
		return CAPZWork{}, err
	}
	image := part(pool, "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	var stale, failed, rest []string
	for _, i := range items(instances, "value") {
		id := text(i, "instanceId")
		switch {
		case text(i, "properties", "provisioningState") == "Failed":
			failed = append(failed, id)
		case !z.SkipModelReconciliation && !sameImage(part(i, "properties", "storageProfile", "imageReference"), image):
			stale = append(stale, id)
		default:
			rest = append(rest, id)
		}
	}
	var did CAPZWork
	did.WroteModel = !sameImage(image, z.Image)
	capacity, _ := number(pool, "sku", "capacity")
	if wanted := z.surged(did.WroteModel || len(stale) > 0); did.WroteModel || wanted > capacity {
		if err := z.put(pool, max(wanted, capacity)); err != nil {
			return did, err
		}
		did.Capacity = max(wanted, capacity)
	}
	surplus := max(0, len(stale)+len(rest)-z.Replicas)
	doomed := slices.Concat(stale, rest)
	for _, id := range append(failed, doomed[:min(surplus, len(doomed))]...) {
		if _, err := z.Call(http.MethodDelete, z.Pool+"/virtualMachines/"+id, nil); err != nil {
			return did, fmt.Errorf("delete instance %s: %w", id, err)
		}
		did.Deleted = append(did.Deleted, id)
	}
	return did, nil
}

func (z CAPZ) surged(rolling bool) int {
	if rolling {
		return z.Replicas + z.MaxSurge
	}
	return z.Replicas
}

// put writes the whole scale set as the spec generates it.
func (z CAPZ) put(pool map[string]any, capacity int) error {
	set(pool, capacity, "sku", "capacity")
	set(pool, z.Image, "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	_, err := z.Call(http.MethodPut, z.Pool, pool)
	return err
}

// sameImage compares as reflect.DeepEqual does, so with regard to case; CAPZ reads no exactVersion.
func sameImage(a, b map[string]any) bool {
	strip := func(o map[string]any) map[string]any {
		o = clone(o)
		delete(o, "exactVersion")
		return o
	}
	return reflect.DeepEqual(strip(a), strip(b))
}
