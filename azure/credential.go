package azure

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"kamino.dev/kamino"
)

// credential chooses as the cloud provider of Kubernetes does: workload
// identity, managed identity, client secret, client certificate
// (https://cloud-provider-azure.sigs.k8s.io/install/configs/).
func (s *settings) credential(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	switch {
	case s.UseFederatedToken:
		return made(azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: s.custom, TokenFilePath: s.FederatedTokenFile,
			ClientID: cmp.Or(s.getenv("AZURE_CLIENT_ID"), s.ClientID), TenantID: cmp.Or(s.getenv("AZURE_TENANT_ID"), s.TenantID),
		}))
	case s.managed():
		return made(azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
			ClientOptions: options, ID: identity(s.UserAssignedIdentity),
		}))
	case s.ClientSecret != "":
		return made(azidentity.NewClientSecretCredential(s.TenantID, s.ClientID, s.ClientSecret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: s.custom}))
	case s.ClientCertPath != "":
		return s.certificate(options)
	}
	return nil, kamino.WithHint(fmt.Errorf("the azure configuration holds no credentials"),
		"add aadClientSecret, a managed identity (useManagedIdentityExtension) or workload identity")
}

// identity is nil for the machine's system-assigned identity.
func identity(id string) azidentity.ManagedIDKind {
	switch {
	case id == "":
		return nil
	case strings.Contains(strings.ToLower(id), "/subscriptions/"):
		return azidentity.ResourceID(id)
	}
	return azidentity.ClientID(id)
}

func (s *settings) certificate(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	raw, err := os.ReadFile(s.ClientCertPath)
	if err != nil {
		return made[azcore.TokenCredential](nil, fmt.Errorf("read aadClientCertPath: %w", err))
	}
	certs, key, err := azidentity.ParseCertificates(raw, []byte(s.ClientCertPassword))
	if err != nil {
		return made[azcore.TokenCredential](nil, fmt.Errorf("read certificate %s: %w", s.ClientCertPath, err))
	}
	return made(azidentity.NewClientCertificateCredential(s.TenantID, s.ClientID, certs, key,
		&azidentity.ClientCertificateCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: s.custom}))
}

// made keeps a nil credential from becoming an interface that is not nil.
func made[T azcore.TokenCredential](c T, err error) (azcore.TokenCredential, error) {
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("use the azure credentials: %w", err),
			"check AZURE_TENANT_ID, AZURE_CLIENT_ID and the azure configuration")
	}
	return c, nil
}
