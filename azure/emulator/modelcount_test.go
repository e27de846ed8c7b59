package emulator

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const tooMany = "Virtual Machine Scale Set 'pool1' has reached its limit of 10 models that may be referenced by one or more VMs belonging to the Virtual Machine Scale Set. Upgrade the VMs to the latest model"

// TestTenModels lets one instance refer to each model, until an eleventh is refused.
func TestTenModels(t *testing.T) {
	c := pointed(t, nil)
	c.build("1.0.0")
	c.build("1.1.0")
	image := func(n int) string { return fmt.Sprintf("%s/versions/1.%d.0", definitionURL, n%2) }
	for n := range 9 { // the first two instances refer to a tenth
		c.point(image(n))
		c.grow()
	}
	wantText(t, c.tryPoint(image(9)), http.StatusConflict, "OperationNotAllowed", tooMany)
	c.grow() // to the model that others refer to
	finish[armcompute.VirtualMachineScaleSetVMsClientDeleteResponse](c, "delete")(
		c.factory.NewVirtualMachineScaleSetVMsClient().BeginDelete(c.context, sdkGroup, "pool1", "2", nil))
	c.point(image(9)) // churn frees a model
	c.grow()
	wantText(t, c.tryPoint(image(10)), http.StatusConflict, "OperationNotAllowed", tooMany)
}

func TestTheEleventhModelStopsScaleOut(t *testing.T) {
	c := pointed(t, func(s *Server) { s.Models.WritesPassTheLimit = true })
	c.build("1.0.0")
	for range 9 {
		c.point(definitionURL) // the same again, and a model again
		c.grow()
	}
	c.point(definitionURL)
	wantText(t, c.tryGrow(), http.StatusConflict, "OperationNotAllowed", tooMany)
	if n := len(c.s.Instances()); n != 11 {
		t.Fatalf("%d instances after the refusal", n)
	}
	sets := c.factory.NewVirtualMachineScaleSetsClient()
	all := armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{}
	for _, i := range c.s.Instances() {
		all.InstanceIDs = append(all.InstanceIDs, &i.InstanceID)
	}
	finish[armcompute.VirtualMachineScaleSetsClientUpdateInstancesResponse](c, "manual upgrade")(sets.BeginUpdateInstances(c.context, sdkGroup, "pool1", all, nil))
	c.grow()
}

func TestEqualWritesMakeModelsUnlessSwitched(t *testing.T) {
	for none := range map[bool]bool{false: true, true: true} {
		c := pointed(t, func(s *Server) { s.Models.EqualWritesMakeNone = none }, "1.0.0")
		c.grow()
		c.point(definitionURL)
		if applied := *c.vm("2").Properties.LatestModelApplied; applied != none {
			t.Errorf("EqualWritesMakeNone %t: after an equal write latestModelApplied is %t", none, applied)
		}
		c.grow() // capacity alone
		if !*c.vm("3").Properties.LatestModelApplied {
			t.Error("a new instance is not at the model")
		}
	}
}

// TestAYearOfNights is why the pool points: a pool of twenty nodes gets a new image every night.
// With a twentieth of the nodes replaced a day, or one node added a night, a model a night ends at
// the limit; a pointer that is moved never does.
func TestAYearOfNights(t *testing.T) {
	for _, test := range []struct {
		name         string
		pointer, add bool
		nights       int // until the limit; 365: never
	}{
		{"by version, churn", false, false, 10}, {"by version, one node a night", false, true, 10},
		{"by pointer, churn", true, false, 365}, {"by pointer, one node a night", true, true, 365},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 20}}}, instant)
			w.build("0", "1.0.0")
			w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
			night := 0
			for ; night < 365; night++ {
				version := fmt.Sprintf("1.%d.0", night+1)
				w.must(201, http.MethodPut, definitionURL+"/versions/"+version, versionDoc("s-1.0.0"))
				if !test.pointer {
					if a := w.do(http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/"+version)); a.code() == "OperationNotAllowed" {
						break
					} else if a.status != 200 {
						t.Fatalf("%s, night %d: %v", test.name, night, a.body)
					}
				}
				if !test.add {
					w.must(200, http.MethodDelete, fmt.Sprintf("%s/virtualMachines/%d", poolPath, night), "")
				}
				born := 20 + night
				capacity := map[bool]int{true: born + 1, false: 20}[test.add]
				w.must(200, http.MethodPatch, poolPath, fmt.Sprintf(`{"sku":{"capacity":%d}}`, capacity))
				if got := w.instance(fmt.Sprint(born)).ExactVersion; got != version {
					t.Fatalf("%s, night %d: the new node boots %s", test.name, night, got)
				}
				if night > 2 && test.pointer {
					w.must(200, http.MethodDelete, fmt.Sprintf("%s/versions/1.%d.0", definitionURL, night-2), "")
				}
				w.clock.Advance(24 * time.Hour)
			}
			if night != test.nights && (test.pointer || night < test.nights-2 || night > test.nights) {
				t.Errorf("%s: refused in night %d, want %d", test.name, night, test.nights)
			}
		})
	}
}
