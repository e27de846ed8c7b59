package azure

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"kamino.dev/kamino"
)

// anyone is a credential, and an Azure that answers every question with an empty list.
type anyone struct {
	asked []string
	says  string // in place of that
}

func (a *anyone) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "t", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func (a *anyone) Do(req *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, req.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(cmp.Or(a.says, `{"value":[]}`)))}, nil
}

// provider asks it.
func (a *anyone) provider() *Provider {
	return &Provider{cred: a, options: &arm.ClientOptions{ClientOptions: policy.ClientOptions{Transport: a}, DisableRPRegistration: true},
		clients: map[string]*clients{}, regions: map[string]region{}, granted: map[string][]permission{}}
}

// TestCopyFailed: why a snapshot's disk was not copied stands on the snapshot, for a process too
// that did not begin it.
func TestCopyFailed(t *testing.T) {
	cloud := &anyone{says: `{"id":"s","properties":{"provisioningState":"Succeeded","copyCompletionError":{"errorCode":"CopySourceNotFound","errorMessage":"the disk is gone"}}}`}
	pool := kamino.Pool{ID: "/subscriptions/one/resourcegroups/rg/providers/microsoft.compute/virtualmachinescalesets/set", Name: "set", Group: "rg"}
	found, err := cloud.provider().Find(t.Context(), pool, kamino.KindSnapshot, "s")
	if err != nil || len(found) != 1 || found[0].State != kamino.Failed || found[0].Failure != "the disk is gone" {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestCanaryDoubt: what a canary may lack is in the role of canaries, and not in that of runs.
func TestCanaryDoubt(t *testing.T) {
	p := (&anyone{says: `{"value":[{"actions":["Microsoft.Compute/virtualMachineScaleSets/delete"]}]}`}).provider()
	p.config.Subscription, p.config.ResourceGroup = "one", "rg"
	doubts, err := p.PreflightCanary(t.Context())
	if err != nil || len(doubts) == 0 {
		t.Fatal(doubts, err)
	}
	for _, d := range doubts {
		if !strings.Contains(d.Do, p.CanaryRights()) {
			t.Errorf("%s: %s", d.Found, d.Do)
		}
	}
}

// TestCachesOfSubscriptions: what is known of a group and of a region is known of one subscription
// only.
func TestCachesOfSubscriptions(t *testing.T) {
	cloud := &anyone{}
	p := cloud.provider()
	p.asked = map[string]bool{"one/rg": true, "rg": true}
	at := func(subscription string) place {
		c, err := p.of(subscription)
		if err != nil {
			t.Fatal(err)
		}
		return place{clients: c, scaleSet: scaleSet{subscription: subscription, group: "RG"}, location: "West Europe"}
	}
	for _, subscription := range []string{"ONE", "two", "two"} {
		if _, err := p.region(t.Context(), at(subscription)); err != nil {
			t.Fatal(err)
		}
	}
	if len(cloud.asked) != 2 || !strings.Contains(cloud.asked[0], "/ONE/") || !strings.Contains(cloud.asked[1], "/two/") {
		t.Errorf("offers of regions were asked for with %q", cloud.asked)
	}
	cloud.asked = nil
	if _, err := p.poolRights(t.Context(), at("ONE")); err != nil || len(cloud.asked) > 0 {
		t.Errorf("rights that are known were asked for: %q, %v", cloud.asked, err)
	}
	if _, _ = p.poolRights(t.Context(), at("two")); len(cloud.asked) == 0 { // nothing is allowed there
		t.Error("the rights in the second subscription were not asked for")
	}
}
