package azure

import (
	"errors"
	"net/url"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

func TestGuard(t *testing.T) {
	g := newGuard(cloud.AzurePublic)
	for link, want := range map[string]bool{
		"https://management.azure.com/subscriptions":         true,
		"https://MANAGEMENT.azure.com:443/subscriptions":     true,
		"https://westus2.management.azure.com/subscriptions": true,
		"http://management.azure.com/subscriptions":          false,
		"https://management.azure.com:8443/subscriptions":    false,
		"https://evilmanagement.azure.com/subscriptions":     false,
		"https://management.azure.com.evil.example/":         false,
		"https://management.azure.com@evil.example/":         false,
		"https://azure.com/":                                 false,
		"https://management.usgovcloudapi.net/subscriptions": false,
		"/subscriptions": false,
	} {
		t.Run(link, func(t *testing.T) {
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.check(u); (got == nil) != want || got != nil && !errors.Is(got, errElsewhere) {
				t.Errorf("%s: %v, want allowed %t", link, got, want)
			}
		})
	}
	if err := newGuard(cloud.Configuration{}).check(&url.URL{Scheme: "", Host: ""}); err == nil {
		t.Error("without an endpoint something passes")
	}
}
