package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// Provider is kamino.Provider on Azure. It may be used by several goroutines.
type Provider struct {
	config  Config
	cred    azcore.TokenCredential
	options *arm.ClientOptions

	mu         sync.Mutex
	clients    map[string]*clients                  // by subscription, lower case
	operations map[string]operation                 // begun by this process, by lower-case resource ID
	written    map[kamino.PoolID]writtenVM          // storage profiles this process wrote
	galleries  map[string]string                    // names that were looked up, by subscription/group
	regions    map[string]region                    // by lower-case subscription/name
	encryption map[string]armcompute.EncryptionType // of disk encryption sets, by lower-case ID
	asked      map[string]bool                      // resource groups whose rights are known, by lower-case subscription/name
	granted    map[string][]permission              // what is allowed at a scope, by its lower-case ID
	others     map[string]neighbor                  // scale sets beside pools, by lower-case path
	caller     string                               // object ID of the credentials, once Preflight knows it
}

// operation asks Azure how an operation that this process began has ended.
// Nil: well, or not at all yet.
type operation func(context.Context) error

// clients are the API clients of one subscription.
type clients struct {
	sets        *armcompute.VirtualMachineScaleSetsClient
	vms         *armcompute.VirtualMachineScaleSetVMsClient
	snapshots   *armcompute.SnapshotsClient
	galleries   *armcompute.GalleriesClient
	definitions *armcompute.GalleryImagesClient
	versions    *armcompute.GalleryImageVersionsClient
	raw         *arm.Client
}

// get reads a resource into a JSON value: for what the typed clients lack or
// decode too slowly. The link is an absolute URL, or a path below the endpoint.
func (c *clients) get(ctx context.Context, link string, into any) error {
	req, err := runtime.NewRequestForNextLink(ctx, http.MethodGet, c.raw.Endpoint(), link)
	if err != nil {
		return err
	}
	req.Raw().Header.Set("Accept", "application/json")
	resp, err := c.raw.Pipeline().Do(req)
	if err != nil {
		return err
	}
	if !runtime.HasStatusCode(resp, http.StatusOK) {
		return runtime.NewResponseError(resp)
	}
	return runtime.UnmarshalAsJSON(resp, into)
}

var _ kamino.Provider = (*Provider)(nil)

// New makes a provider. It reads the files that the configuration names and
// makes no call.
func New(config Config) (*Provider, error) {
	settings, err := config.load()
	if err != nil {
		return nil, err
	}
	options := config.clientOptions(settings.cloud)
	cred, err := settings.credential(options.ClientOptions)
	if err != nil {
		return nil, err
	}
	g := newGuard(settings.cloud) // not for the credential: it asks Entra ID
	options.PerRetryPolicies = append(options.PerRetryPolicies, g)
	if config.Heard != nil {
		options.PerRetryPolicies = append(options.PerRetryPolicies, heard(config.Heard))
	}
	options.Transport = g.client(options.Transport)
	config.Subscription = cmp.Or(config.Subscription, settings.SubscriptionID)
	config.ResourceGroup = cmp.Or(config.ResourceGroup, settings.ResourceGroup)
	if config.Clock == nil {
		config.Clock = kamino.WallClock{}
	}
	if len(config.KeepExtensions) == 0 {
		config.KeepExtensions = BillingExtensions()
	}
	return &Provider{
		config: config, cred: cred, options: options,
		clients: map[string]*clients{}, operations: map[string]operation{},
		written: map[kamino.PoolID]writtenVM{}, galleries: map[string]string{}, regions: map[string]region{},
		encryption: map[string]armcompute.EncryptionType{}, asked: map[string]bool{},
		granted: map[string][]permission{}, others: map[string]neighbor{},
	}, nil
}

// of returns the clients of a subscription. Where the configuration names one,
// no other is touched.
func (p *Provider) of(subscription string) (*clients, error) {
	key := strings.ToLower(subscription)
	if want := p.config.Subscription; want != "" && !strings.EqualFold(want, subscription) {
		return nil, kamino.WithHint(fmt.Errorf("the pool is in subscription %s, the configuration names %s", subscription, want),
			"omit --subscription, or choose a node of that subscription")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[key]; c != nil {
		return c, nil
	}
	f, err := armcompute.NewClientFactory(subscription, p.cred, p.options)
	if err != nil {
		return nil, fmt.Errorf("make clients of subscription %s: %w", subscription, err)
	}
	raw, err := arm.NewClient("kamino/azure", "v1.0.0", p.cred, p.options)
	if err != nil {
		return nil, fmt.Errorf("make client of subscription %s: %w", subscription, err)
	}
	c := &clients{raw: raw,
		sets: f.NewVirtualMachineScaleSetsClient(), vms: f.NewVirtualMachineScaleSetVMsClient(),
		snapshots: f.NewSnapshotsClient(), galleries: f.NewGalleriesClient(),
		definitions: f.NewGalleryImagesClient(), versions: f.NewGalleryImageVersionsClient(),
	}
	p.clients[key] = c
	return c, nil
}

// began keeps the poller of an operation, to learn later why it failed.
func began[T any](p *Provider, id string, poller *runtime.Poller[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.operations[strings.ToLower(id)] = func(ctx context.Context) error {
		if !poller.Done() {
			if _, err := poller.Poll(ctx); err != nil {
				return err
			}
		}
		if !poller.Done() {
			return nil
		}
		_, err := poller.Result(ctx)
		return err
	}
}

// whyFailed is Azure's word on the operation that this process last began on a
// resource, or "" where it began none or the operation did not fail.
func (p *Provider) whyFailed(ctx context.Context, id string) string {
	err := p.askOperation(ctx, id)
	if errors.Is(classify(err), kamino.ErrForbidden) {
		// The address of an operation lies at the subscription; a role at the
		// resource group may begin it and not ask for it
		// (https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations).
		return "these credentials may not read why (Microsoft.Compute/locations/*/read at the subscription)"
	} else if err != nil {
		return message(err)
	}
	return ""
}

// askOperation asks how the last operation on a resource went; nil where it went
// well, or none is known.
func (p *Provider) askOperation(ctx context.Context, id string) error {
	p.mu.Lock()
	ask := p.operations[strings.ToLower(id)]
	p.mu.Unlock()
	if ask == nil {
		return nil
	}
	return ask(ctx)
}

// hasFailed says whether the last operation on a resource is known to have failed.
// Where the credentials may not ask, nothing is known: who wrote again for that
// would write for ever.
func (p *Provider) hasFailed(ctx context.Context, id string) bool {
	err := p.askOperation(ctx, id)
	return err != nil && !errors.Is(classify(err), kamino.ErrForbidden)
}

// value dereferences what the SDK points to; the zero value for nil.
func value[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

func tagsOut(tags map[string]*string) map[string]string {
	out := make(map[string]string, len(tags))
	for k, v := range tags {
		out[kamino.Plain(k)] = kamino.Plain(value(v)) // whoever may tag writes anything
	}
	return out
}

func tagsIn(tags map[string]string) map[string]*string {
	out := make(map[string]*string, len(tags))
	for k, v := range tags {
		out[k] = &v
	}
	return out
}
