package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// A canary is a Uniform scale set with one instance, in the resource group of the pool. A single VM
// would be simpler, but would not use the pool's recipe: its document, extensions and rules differ.
var _ kamino.Prover = (*Provider)(nil)

// CanaryFit implements kamino.Prover.
func (p *Provider) CanaryFit(ctx context.Context, pool kamino.Pool) (kamino.CanaryFit, error) {
	at, err := p.place(pool)
	if err != nil {
		return kamino.CanaryFit{}, err
	}
	r, err := p.recipe(ctx, at)
	if err == nil {
		err = p.recipeRights(ctx, at, r)
	}
	return kamino.CanaryFit{Size: text(r.doc, "sku", "name"), Kept: r.kept, LeftOut: r.leftOut, Refusals: r.refusals}, err
}

// beside is a scale set of the pool's resource group, as far as a canary has to know it.
type beside struct {
	Name       string             `json:"name"`
	Tags       map[string]*string `json:"tags"`
	Properties struct {
		ProvisioningState     string `json:"provisioningState"`
		VirtualMachineProfile struct {
			OSProfile struct {
				Prefix string `json:"computerNamePrefix"`
			} `json:"osProfile"`
			StorageProfile struct {
				Image struct {
					ID string `json:"id"`
				} `json:"imageReference"`
			} `json:"storageProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// canaryOf says whether it is a canary of a pool: by its tags, which go along where somebody makes
// a scale set of an exported template of it, and by its name, which follows from them.
func (s beside) canaryOf(pool kamino.Pool) bool {
	return value(s.Tags[kamino.TagCanary]) != "" && strings.EqualFold(value(s.Tags[kamino.TagPool]), pool.Name) &&
		strings.EqualFold(s.Name, kamino.CanaryName(pool.ID, value(s.Tags[kamino.TagRun])))
}

// neighbours are the scale sets of the pool's resource group.
func (p *Provider) neighbours(ctx context.Context, at place) ([]beside, error) {
	link := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/virtualMachineScaleSets?api-version=%s",
		at.subscription, at.group, setVersion)
	look, _ := ctx.Value(lookKey{}).(*Look)
	return look.group(at).once(func() (found []beside, err error) {
		err = list(ctx, at, link, func(s beside) { found = append(found, s) })
		return found, translateList(err, "list the scale sets of resource group %s", at.group)
	})
}

// Canaries implements kamino.Prover.
func (p *Provider) Canaries(ctx context.Context, pool kamino.Pool) ([]kamino.Canary, error) {
	at, err := p.place(pool)
	if err != nil {
		return nil, err
	}
	sets, err := p.neighbours(ctx, at)
	if err != nil {
		return nil, err
	}
	var out []kamino.Canary
	for _, s := range sets {
		if !s.canaryOf(pool) {
			continue
		}
		c := kamino.Canary{Name: s.Name, Version: s.Properties.VirtualMachineProfile.StorageProfile.Image.ID,
			Run: value(s.Tags[kamino.TagRun]), State: state(s.Properties.ProvisioningState, false)}
		// An expiry that cannot be read is one in the past: somebody has changed it.
		c.Expires, _ = time.Parse(time.RFC3339, value(s.Tags[kamino.TagExpires]))
		if err := p.lookAt(ctx, at, &c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// lookAt fills in what the canary's one instance tells.
func (p *Provider) lookAt(ctx context.Context, at place, c *kamino.Canary) error {
	own := at.scaleSet
	own.name = c.Name
	err := list(ctx, at, own.path()+"/virtualMachines?api-version="+vmListVersion+"&$expand=instanceView",
		func(vm armcompute.VirtualMachineScaleSetVM) {
			in := toInstance(kamino.InstanceID(providerScheme+own.path()+"/virtualMachines/"+value(vm.InstanceID)), own.id(), vm)
			c.Instance, c.VMID, c.Hostname, c.Power, c.Zone, c.Failure = in.ID, in.VMID, in.Hostname, in.Power, in.Zone, in.Failure
		})
	// Between two reads it may have been deleted, which the next list will show.
	if err = translate(err, "list the instance of canary %s", c.Name); errors.Is(err, kamino.ErrNotFound) {
		c.State = kamino.Deleting
		return nil
	}
	if err != nil || c.State != kamino.Failed {
		c.Failure = ""
		return err
	}
	code := c.Failure
	if code == "" {
		// What the operation said is known to the process that began it only: a scale set shows no
		// reason.
		told := p.askOperation(ctx, string(own.id()))
		var re *azcore.ResponseError
		if errors.As(told, &re) {
			code = re.ErrorCode
		}
		c.Failure = cmp.Or(p.whyFailed(ctx, string(own.id())), "Azure made no instance, and does not show why")
	}
	c.Blocked = !ofGuest(code)
	return nil
}

// ofGuest says whether a failure tells something of the image: that its guest did not report, or an
// extension not succeed
// (https://learn.microsoft.com/troubleshoot/azure/virtual-machines/linux/linux-virtual-machine-provisioning-errors;
// https://learn.microsoft.com/azure/virtual-machines/extensions/troubleshoot). Everything else
// (AllocationFailed, QuotaExceeded, …) is Azure's: a failure that nobody knows must not convict an
// image.
func ofGuest(code string) bool {
	code = strings.ToLower(code)
	return strings.HasPrefix(code, "osprovisioning") || strings.HasPrefix(code, "vmextension")
}

// LaunchCanary implements kamino.Prover. The PUT carries If-None-Match, so that nothing that exists
// is written over, whoever made it in the meantime.
func (p *Provider) LaunchCanary(ctx context.Context, pool kamino.Pool, order kamino.CanaryOrder) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	sets, err := p.neighbours(ctx, at)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if strings.EqualFold(s.Name, order.Name) {
			return sameOrder(s, pool, order)
		}
		if prefix := s.Properties.VirtualMachineProfile.OSProfile.Prefix; near(prefix, order.Name) {
			return fmt.Errorf("create canary %s: scale set %s names its machines %q: cloud-provider-azure finds the scale set of a node by that, and could take one for the other", order.Name, s.Name, prefix)
		}
	}
	r, err := p.recipe(ctx, at)
	if err != nil {
		return err
	}
	if len(r.refusals) > 0 {
		return &kamino.RefusedError{Subject: "canary of pool " + pool.Name, Refusals: r.refusals}
	}
	body, err := r.ordered(pool, order)
	if err != nil {
		return err
	}
	own := at.scaleSet
	own.name = order.Name
	poller, err := at.put(ctx, own.path()+"?api-version="+setVersion, body)
	if err = poll(p, string(own.id()), poller, err); err == nil {
		return nil
	}
	var re *azcore.ResponseError
	if errors.As(err, &re) && denied(re) {
		return fmt.Errorf("create canary %s: %w: %w", order.Name, kamino.ErrBlocked, classify(err))
	}
	return translate(err, "create canary %s", order.Name) // 412: it has come to exist since
}

// put begins a PUT of what must not exist yet.
func (c *clients) put(ctx context.Context, link string, body any) (*runtime.Poller[map[string]any], error) {
	req, err := runtime.NewRequestForNextLink(ctx, http.MethodPut, c.raw.Endpoint(), link)
	if err != nil {
		return nil, err
	}
	req.Raw().Header.Set("Accept", "application/json")
	req.Raw().Header.Set("If-None-Match", "*")
	if err := runtime.MarshalAsJSON(req, body); err != nil {
		return nil, err
	}
	resp, err := c.raw.Pipeline().Do(req)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(resp, http.StatusOK, http.StatusCreated) {
		return nil, runtime.NewResponseError(resp)
	}
	return runtime.NewPoller[map[string]any](resp, c.raw.Pipeline(), nil)
}

// near says whether one of two prefixes of computer names begins with the other.
func near(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

func sameOrder(s beside, pool kamino.Pool, order kamino.CanaryOrder) error {
	boots := s.Properties.VirtualMachineProfile.StorageProfile.Image.ID
	if s.canaryOf(pool) && value(s.Tags[kamino.TagRun]) == order.Run && strings.EqualFold(boots, order.Version) {
		return nil
	}
	return fmt.Errorf("create canary %s: %w: scale set %s exists and is not that canary", order.Name, kamino.ErrConflict, s.Name)
}

// denials are the codes with which Azure refuses an instance whatever its image is
// (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors,
// https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure). With
// OperationNotAllowed it tells quota too, in the text
// (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota).
var denials = []string{"AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
	"OverconstrainedZonalAllocationRequest",
	"SkuNotAvailable", "QuotaExceeded", "ResourceQuotaExceeded", "RequestDisallowedByPolicy"}

func denied(re *azcore.ResponseError) bool {
	return listed(denials, re.ErrorCode) || strings.EqualFold(re.ErrorCode, "OperationNotAllowed") &&
		strings.Contains(strings.ToLower(message(re)), "quota")
}

// RemoveCanary implements kamino.Prover. Uniform scale sets delete the network cards and disks of
// their instances with them
// (https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes).
// It asks for a deletion by force, which skips the shutdown
// (https://learn.microsoft.com/azure/virtual-machines/delete), and without where that is not
// allowed, as on dedicated hosts (kubernetes/autoscaler, cloudprovider/azure).
func (p *Provider) RemoveCanary(ctx context.Context, pool kamino.Pool, name string) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	own := at.scaleSet
	own.name = name
	var have beside
	err = translate(at.get(ctx, own.path()+"?api-version="+setVersion, &have), "read canary %s", name)
	switch {
	case errors.Is(err, kamino.ErrNotFound):
		return nil
	case err != nil:
		return err
	case !have.canaryOf(pool):
		return fmt.Errorf("delete canary %s: %w: scale set %s is not a canary of pool %s and was left alone", name, kamino.ErrConflict,
			have.Name, pool.Name)
	case state(have.Properties.ProvisioningState, false) == kamino.Deleting:
		return nil
	}
	poller, err := at.sets.BeginDelete(ctx, at.group, name,
		&armcompute.VirtualMachineScaleSetsClientBeginDeleteOptions{ForceDeletion: to.Ptr(true)})
	if err != nil && strings.Contains(err.Error(), "ForceDelete") {
		poller, err = at.sets.BeginDelete(ctx, at.group, name, nil)
	}
	if err = translate(poll(p, string(own.id()), poller, err), "delete canary %s", name); errors.Is(err, kamino.ErrNotFound) {
		return nil
	}
	return err
}
