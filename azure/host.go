package azure

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// errElsewhere: a reply named a host that is no part of the configured cloud.
// The SDK follows the URLs of operations, pages and redirects without looking at
// their host, and would send the bearer token along.
var errElsewhere = errors.New("a reply named a host outside the configured cloud")

// guard lets requests pass to Azure Resource Manager only. It stands behind the
// policy that adds the token: nothing after it changes the URL.
type guard struct{ endpoint *url.URL }

// newGuard takes the cloud's endpoint; one that is not a URL lets nothing pass.
func newGuard(c cloud.Configuration) guard {
	endpoint, err := url.Parse(c.Services[cloud.ResourceManager].Endpoint)
	if err != nil {
		endpoint = &url.URL{}
	}
	return guard{endpoint}
}

// Do implements policy.Policy.
func (g guard) Do(req *policy.Request) (*http.Response, error) {
	if err := g.check(req.Raw().URL); err != nil {
		return nil, err
	}
	return req.Next()
}

// check refuses what is not the endpoint. Regional endpoints are below the
// global one (https://westus2.management.azure.com stands in recorded replies of
// Azure's own SDKs), and belong to whoever owns that.
func (g guard) check(u *url.URL) error {
	host, own := strings.ToLower(u.Hostname()), strings.ToLower(g.endpoint.Hostname())
	inside := own != "" && (host == own || strings.HasSuffix(host, "."+own))
	if inside && u.Scheme == g.endpoint.Scheme && port(u) == port(g.endpoint) {
		return nil
	}
	return fmt.Errorf("%w: %s://%s instead of %s://%s; nothing was sent there", errElsewhere, u.Scheme, u.Host,
		g.endpoint.Scheme, g.endpoint.Host)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" || u.Scheme != "https" {
		return p
	}
	return "443"
}

// client is the HTTP client of requests with a token. Redirects are made below
// the SDK's policies, and Go keeps the token where only port or scheme differ.
func (g guard) client(transport policy.Transporter) policy.Transporter {
	given, ok := transport.(*http.Client)
	if transport != nil && !ok {
		return transport
	}
	if given == nil {
		given = &http.Client{Transport: defaultTransport()}
	}
	c := *given
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return g.check(req.URL)
	}
	return &c
}

// defaultTransport is Go's, with pings as the SDK's own has them: a connection
// that died without a word is noticed in seconds.
func defaultTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return t
}
