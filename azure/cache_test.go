package azure

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// anyone is a credential, and an Azure that answers every question with an empty list.
type anyone struct{ asked []string }

func (a *anyone) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "t", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func (a *anyone) Do(req *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, req.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(`{"value":[]}`))}, nil
}

// TestCachesOfSubscriptions: what is known of a group and of a region is known of one subscription
// only.
func TestCachesOfSubscriptions(t *testing.T) {
	cloud := &anyone{}
	p := &Provider{cred: cloud, options: &arm.ClientOptions{ClientOptions: policy.ClientOptions{Transport: cloud}, DisableRPRegistration: true},
		clients: map[string]*clients{}, regions: map[string]region{}, asked: map[string]bool{"one/rg": true, "rg": true}, granted: map[string][]permission{}}
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
