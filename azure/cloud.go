package azure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"kamino.dev/kamino"
)

// stack describes a custom cloud, in the format of go-autorest's Environment
// that clusters keep as azurestackcloud.json
// (https://cloud-provider-azure.sigs.k8s.io/install/configs/).
type stack struct {
	ResourceManagerEndpoint   string `json:"resourceManagerEndpoint"`
	ActiveDirectoryEndpoint   string `json:"activeDirectoryEndpoint"`
	ServiceManagementEndpoint string `json:"serviceManagementEndpoint"`
	TokenAudience             string `json:"tokenAudience"`
}

// adfs is the tenant that azidentity wants where an AD FS answers instead of
// Entra ID.
const adfs = "adfs"

// chooseCloud finds endpoints by the cloud's name, which is compared without
// case and with or without "Cloud" at its end, as clusters and az write it.
func (s *settings) chooseCloud() error {
	name := strings.TrimSuffix(strings.ToLower(s.Cloud), "cloud")
	switch name {
	case "", "azure", "azurepublic":
		s.cloud = cloud.AzurePublic
	case "azureusgovernment":
		s.cloud = cloud.AzureGovernment
	case "azurechina":
		s.cloud = cloud.AzureChina
	case "azurestack":
		return s.readStack()
	default:
		return kamino.WithHint(fmt.Errorf("cloud %q is unknown", s.Cloud),
			"use AzurePublicCloud, AzureUSGovernmentCloud, AzureChinaCloud, or AzureStackCloud with AZURE_ENVIRONMENT_FILEPATH")
	}
	if e := s.ResourceManagerEndpoint; e != "" {
		rm := s.cloud.Services[cloud.ResourceManager]
		rm.Endpoint = strings.TrimRight(e, "/")
		services := map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: rm}
		s.cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: s.cloud.ActiveDirectoryAuthorityHost, Services: services}
	}
	return s.checkEndpoint()
}

// checkEndpoint finds before any request what none could be sent to: the SDK gives a token to no
// other scheme. It checks the authority itself.
func (s *settings) checkEndpoint() error {
	endpoint := s.cloud.Services[cloud.ResourceManager].Endpoint
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" || u.Host == "" {
		return kamino.WithHint(fmt.Errorf("resourceManagerEndpoint %q is not an https URL", endpoint),
			"set it to https://HOST in azure.json, or in the description of the custom cloud (AZURE_ENVIRONMENT_FILEPATH)")
	}
	return nil
}

func (s *settings) readStack() error {
	path := s.getenv("AZURE_ENVIRONMENT_FILEPATH")
	if path == "" {
		path = defaultStackEnv
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return kamino.WithHint(fmt.Errorf("read the description of the custom cloud: %w", err), "name it with AZURE_ENVIRONMENT_FILEPATH")
	}
	var st stack
	if err := json.Unmarshal(raw, &st); err != nil {
		return fmt.Errorf("custom cloud %s is not valid: %s", path, jsonProblem(err))
	}
	if st.ResourceManagerEndpoint == "" || st.ActiveDirectoryEndpoint == "" {
		return fmt.Errorf("custom cloud %s lacks resourceManagerEndpoint or activeDirectoryEndpoint", path)
	}
	audience := cmp.Or(st.TokenAudience, st.ServiceManagementEndpoint, st.ResourceManagerEndpoint)
	authority, isADFS := strings.CutSuffix(strings.TrimRight(st.ActiveDirectoryEndpoint, "/"), "/"+adfs)
	if isADFS || strings.EqualFold(s.IdentitySystem, adfs) {
		s.TenantID = adfs
	}
	s.custom = true
	s.cloud = cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority + "/",
		Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {
			Endpoint: strings.TrimRight(cmp.Or(s.ResourceManagerEndpoint, st.ResourceManagerEndpoint), "/"),
			Audience: strings.TrimRight(audience, "/"),
		}},
	}
	return s.checkEndpoint()
}
