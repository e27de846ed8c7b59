package azure

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"kamino.dev/kamino"
)

// Paths on a node of a cluster on Azure.
const (
	DefaultFile     = "/etc/kubernetes/azure.json"
	defaultStackEnv = "/etc/kubernetes/azurestackcloud.json"
)

// Config says where Azure is and who asks.
//
// Credentials come from File where it is set, else from the environment:
// AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_FEDERATED_TOKEN_FILE (workload
// identity) or AZURE_CLIENT_SECRET; with neither, the managed identity of the
// machine, AZURE_CLIENT_ID choosing among several. AZURE_ENVIRONMENT names the
// cloud; AZURE_ENVIRONMENT_FILEPATH the description of a custom one.
type Config struct {
	Subscription  string // GUID; "" takes it from the file or from each node
	ResourceGroup string // "" takes it from the file; used to ask for permissions
	File          string // azure.json
	Gallery       string // "" computes it from the pool's resource group
	// KeepExtensions stay in the model; nil means BillingExtensions.
	KeepExtensions []ExtensionRule
	UserAgent      string       // at most 24 characters
	Clock          kamino.Clock // nil: the wall clock
	Transport      policy.Transporter
	// Heard, if set, is told of each request to Azure Resource Manager as it ends: its method and
	// type of resource, without names, and the status code, or "error" where no answer came.
	Heard func(call, code string)
	// Getenv replaces os.Getenv in tests.
	Getenv func(string) string
}

// file is azure.json as the cloud provider of Kubernetes reads it; fields that
// are not needed here are passed over
// (https://cloud-provider-azure.sigs.k8s.io/install/configs/).
type file struct {
	Cloud                   string `json:"cloud"`
	TenantID                string `json:"tenantId"`
	SubscriptionID          string `json:"subscriptionId"`
	ResourceGroup           string `json:"resourceGroup"`
	ClientID                string `json:"aadClientId"`
	ClientSecret            string `json:"aadClientSecret"`
	ClientCertPath          string `json:"aadClientCertPath"`
	ClientCertPassword      string `json:"aadClientCertPassword"`
	UseManagedIdentity      bool   `json:"useManagedIdentityExtension"`
	UserAssignedIdentity    string `json:"userAssignedIdentityID"`
	UseFederatedToken       bool   `json:"useFederatedWorkloadIdentityExtension"`
	FederatedTokenFile      string `json:"aadFederatedTokenFile"`
	IdentitySystem          string `json:"identitySystem"`
	ResourceManagerEndpoint string `json:"resourceManagerEndpoint"`
}

// settings is the configuration with everything filled in.
type settings struct {
	file
	cloud  cloud.Configuration
	custom bool // no well-known authority: do not ask Microsoft's about it
	getenv func(string) string
}

var guid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// CheckGUID refuses a subscription that is not a GUID.
func CheckGUID(s string) error {
	if s != "" && !guid.MatchString(s) {
		return kamino.WithHint(fmt.Errorf("subscription %q is not a GUID", s), "az account show --query id prints the subscription's")
	}
	return nil
}

func (c Config) load() (settings, error) {
	s := settings{getenv: c.Getenv}
	if s.getenv == nil {
		s.getenv = os.Getenv
	}
	if err := CheckGUID(c.Subscription); err != nil {
		return s, err
	}
	if c.File != "" {
		if err := s.readFile(c.File); err != nil {
			return s, err
		}
	} else {
		s.fromEnvironment()
	}
	return s, s.chooseCloud()
}

func (s *settings) readFile(path string) error {
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kamino.WithHint(fmt.Errorf("azure configuration %s does not exist", path),
			"run on a control plane node (chart value kamino.scheduleOnControlPlane), or name the file with --azure-config")
	case err != nil:
		return kamino.WithHint(fmt.Errorf("read azure configuration: %w", err),
			"the file is readable by root only; run as root or use workload identity")
	}
	if err := json.Unmarshal(raw, &s.file); err != nil {
		// The text itself may be a secret and is not shown.
		return kamino.WithHint(fmt.Errorf("azure configuration %s is not valid: %s", path, jsonProblem(err)),
			"compare it with https://cloud-provider-azure.sigs.k8s.io/install/configs/")
	}
	if err := CheckGUID(s.SubscriptionID); err != nil {
		return fmt.Errorf("azure configuration %s: %w", path, err)
	}
	if s.TenantID == "" && !s.managed() {
		return kamino.WithHint(fmt.Errorf("azure configuration %s has no tenantId", path), "add it, or use a managed identity")
	}
	// As in the cloud provider, the environment of workload identity wins.
	if f := s.getenv("AZURE_FEDERATED_TOKEN_FILE"); f != "" && s.UseFederatedToken {
		s.FederatedTokenFile = f
	}
	return nil
}

func jsonProblem(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("invalid JSON at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Sprintf("field %s must be a %s, not a %s", kind.Field, kind.Type, kind.Value)
	}
	return "invalid JSON"
}

func (s *settings) fromEnvironment() {
	get := s.getenv
	s.file = file{
		Cloud: cmp.Or(get("AZURE_ENVIRONMENT"), get("AZURE_CLOUD")), TenantID: get("AZURE_TENANT_ID"),
		SubscriptionID: get("AZURE_SUBSCRIPTION_ID"),
		ClientID:       get("AZURE_CLIENT_ID"), ClientSecret: get("AZURE_CLIENT_SECRET"),
		ClientCertPath: get("AZURE_CLIENT_CERTIFICATE_PATH"), ClientCertPassword: get("AZURE_CLIENT_CERTIFICATE_PASSWORD"),
		FederatedTokenFile: get("AZURE_FEDERATED_TOKEN_FILE"), ResourceGroup: get("AZURE_RESOURCE_GROUP"),
	}
	s.UseFederatedToken = s.FederatedTokenFile != ""
	if !s.UseFederatedToken && s.ClientSecret == "" && s.ClientCertPath == "" {
		s.UseManagedIdentity, s.UserAssignedIdentity = true, s.ClientID
	}
}

// managed says whether the machine's own identity is meant; aks-engine writes
// the word "msi" as client for that.
func (s *settings) managed() bool {
	return s.UseManagedIdentity || strings.EqualFold(s.ClientID, "msi")
}

func (c Config) clientOptions(cl cloud.Configuration) *arm.ClientOptions {
	agent := c.UserAgent
	if agent == "" {
		agent = "kamino"
	}
	return &arm.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Cloud: cl, Transport: c.Transport,
			// The engine looks before it repeats anything; the SDK would send
			// writes again blindly, and gives up on a Retry-After above 60 s.
			Retry:     policy.RetryOptions{MaxRetries: -1, TryTimeout: time.Minute},
			Telemetry: policy.TelemetryOptions{ApplicationID: agent},
			Logging: policy.LogOptions{AllowedHeaders: []string{
				"x-ms-correlation-request-id", "x-ms-request-id", "x-ms-ratelimit-remaining-resource"}},
		},
		// Registration asks for a right on the whole subscription.
		DisableRPRegistration: true,
	}
}
