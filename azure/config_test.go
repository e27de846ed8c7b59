package azure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"kamino.dev/kamino"
)

const testSubscription = "11111111-2222-3333-4444-555555555555"

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(vars map[string]string) func(string) string { return func(k string) string { return vars[k] } }

func TestCredentials(t *testing.T) {
	token := write(t, "token", "jwt")
	tests := []struct {
		name, file string
		env        map[string]string
		want       string // type of credential, or the error
	}{
		{"secret from a file", `{"tenantId":"t","aadClientId":"c","aadClientSecret":"s","unknownField":1}`, nil, "secret"},
		{"msi in a file", `{"aadClientId":"msi","aadClientSecret":"msi"}`, nil, "managed"},
		{"managed identity in a file", `{"useManagedIdentityExtension":true,"userAssignedIdentityID":"c"}`, nil, "managed"},
		{"managed identity by resource ID", `{"useManagedIdentityExtension":true,"userAssignedIdentityID":"/subscriptions/s/x"}`, nil, "managed"},
		{"workload identity in a file", `{"tenantId":"t","aadClientId":"c","useFederatedWorkloadIdentityExtension":true,"aadFederatedTokenFile":"` + token + `"}`, nil, "workload"},
		{"nothing in a file", `{"tenantId":"t","aadClientId":"c"}`, nil, "holds no credentials"},
		{"no tenant", `{"aadClientId":"c","aadClientSecret":"s"}`, nil, "has no tenantId"},
		{"no JSON", `{"tenantId":`, nil, "is not valid: invalid JSON at byte"},
		{"wrong type", `{"tenantId":7}`, nil, "field tenantId must be a string, not a number"},
		{"bad subscription", `{"tenantId":"t","subscriptionId":"mine","aadClientId":"c","aadClientSecret":"s"}`, nil, `subscription "mine" is not a GUID`},
		{"unknown cloud", `{"cloud":"Nimbus","tenantId":"t","aadClientId":"c","aadClientSecret":"s"}`, nil, `cloud "Nimbus" is unknown`},
		{"certificate that is none", `{"tenantId":"t","aadClientId":"c","aadClientCertPath":"` + token + `"}`, nil, "read certificate"},
		{"secret from the environment", "", map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}, "secret"},
		{"workload identity from the environment", "", map[string]string{"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_FEDERATED_TOKEN_FILE": token}, "workload"},
		{"nothing in the environment", "", nil, "managed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Getenv: env(tt.env)}
			if tt.file != "" {
				c.File = write(t, "azure.json", tt.file)
			}
			p, err := New(c)
			got := ""
			if err != nil {
				got = err.Error()
				if kamino.Hint(err) == "" {
					t.Errorf("error %q gives no hint", err)
				}
			} else {
				switch p.cred.(type) {
				case *azidentity.ClientSecretCredential:
					got = "secret"
				case *azidentity.ManagedIdentityCredential:
					got = "managed"
				case *azidentity.WorkloadIdentityCredential:
					got = "workload"
				}
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if strings.Contains(got, `aadClientSecret":"`) {
				t.Errorf("the error shows the file: %q", got)
			}
		})
	}
}

func TestFileMissing(t *testing.T) {
	_, err := New(Config{File: filepath.Join(t.TempDir(), "azure.json"), Getenv: env(nil)})
	if err == nil || !strings.Contains(err.Error(), "does not exist") || kamino.Hint(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestClouds(t *testing.T) {
	stack := write(t, "stack.json", `{"name":"AzureStackCloud","resourceManagerEndpoint":"https://localhost:8443/",
		"activeDirectoryEndpoint":"https://localhost:8443/adfs","serviceManagementEndpoint":"https://localhost:8443/mgmt","tokenAudience":"https://localhost:8443/"}`)
	for _, tt := range []struct{ name, authority, endpoint, tenant string }{
		{"", cloud.AzurePublic.ActiveDirectoryAuthorityHost, "https://management.azure.com", "t"},
		{"AzurePublicCloud", cloud.AzurePublic.ActiveDirectoryAuthorityHost, "https://management.azure.com", "t"},
		{"AzureCloud", cloud.AzurePublic.ActiveDirectoryAuthorityHost, "https://management.azure.com", "t"},
		{"azureusgovernment", cloud.AzureGovernment.ActiveDirectoryAuthorityHost, "https://management.usgovcloudapi.net", "t"},
		{"AzureUSGovernmentCloud", cloud.AzureGovernment.ActiveDirectoryAuthorityHost, "https://management.usgovcloudapi.net", "t"},
		{"AzureChinaCloud", cloud.AzureChina.ActiveDirectoryAuthorityHost, "https://management.chinacloudapi.cn", "t"},
		{"AzureStackCloud", "https://localhost:8443/", "https://localhost:8443", "adfs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{
				File:   write(t, "azure.json", `{"cloud":"`+tt.name+`","tenantId":"t","subscriptionId":"`+testSubscription+`","aadClientId":"c","aadClientSecret":"s"}`),
				Getenv: env(map[string]string{"AZURE_ENVIRONMENT_FILEPATH": stack}),
			}
			s, err := c.load()
			if err != nil {
				t.Fatal(err)
			}
			if s.cloud.ActiveDirectoryAuthorityHost != tt.authority || s.cloud.Services[cloud.ResourceManager].Endpoint != tt.endpoint || s.TenantID != tt.tenant {
				t.Errorf("got %+v, tenant %s", s.cloud, s.TenantID)
			}
		})
	}
}

// TestEndpoint: an endpoint to which nothing can be sent is told of before anything is tried.
func TestEndpoint(t *testing.T) {
	for _, endpoint := range []string{"localhost:8443", "http://localhost:8443/", "https:///", "https://local host/", "https://localhost:x/"} {
		c := Config{
			File:   write(t, "azure.json", `{"tenantId":"t","subscriptionId":"`+testSubscription+`","aadClientId":"c","aadClientSecret":"s","resourceManagerEndpoint":"`+endpoint+`"}`),
			Getenv: env(nil),
		}
		if _, err := c.load(); err == nil || !strings.Contains(err.Error(), "is not an https URL") || kamino.Hint(err) == "" {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
