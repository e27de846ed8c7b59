package lab

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/pki"
)

// The lab's service principals: the only ones its cloud gives tokens to. Kamino's has the roles of
// docs/azure-role.json and docs/azure-role-canary.json; the operator's may do everything.
const (
	operatorID   = "33333333-3333-3333-3333-333333333333"
	clientID     = "22222222-2222-2222-2222-222222222222"
	clientSecret = "lab-secret" // opens nothing but a lab on loopback; az takes a secret for a path if there is a file of that name
)

// startAzure seeds the emulator and serves it over HTTPS.
func (l *Lab) startAzure(opts Options) (*pki.Authority, error) {
	l.fleet = l.Cloud
	return l.serve(l.Cloud, l.Cloud.Close, func() {
		l.ARM = l.Endpoint
		l.Cloud.BaseURL = l.ARM
		l.Cloud.Identities = []emulator.Identity{
			{ClientID: clientID, Secret: clientSecret, Tenant: l.Scenario.Tenant, Roles: []emulator.Role{l.Role()}},
			{ClientID: operatorID, Secret: clientSecret, Tenant: l.Scenario.Tenant},
		}
		if opts.Configure != nil {
			opts.Configure(l.Cloud)
		}
		l.Cloud.Seed(l.Scenario)
	})
}

// serve serves a cloud on a free loopback port, once it is seeded with its address known. It
// returns the authority that signed the server's certificate.
func (l *Lab) serve(cloud http.Handler, end, seed func()) (*pki.Authority, error) {
	authority, err := pki.NewAuthority("kamino-lab-cloud")
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(pki.Leaf{CommonName: "localhost", Hosts: []string{"localhost", "127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate of the cloud: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the cloud: %w", err)
	}
	l.Endpoint = "https://localhost:" + strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	seed()
	server := &http.Server{
		Handler:   cloud,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:  slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.ServeTLS(listener, "", ""); err != http.ErrServerClosed {
			l.logger.Error("cloud stopped serving", "error", err)
		}
	}()
	l.stops = append(l.stops, func() {
		_ = server.Close() // closes listener and connections; nothing to flush
		<-served
		end()
	})
	return authority, nil
}

// Role is what kamino's identity may do: what docs/azure-role.json and
// docs/azure-role-canary.json grant, at the resource group of the scale sets.
func (l *Lab) Role() emulator.Role {
	return emulator.Role{Scope: "/subscriptions/" + l.Scenario.Subscription + "/resourceGroups/" + l.Scenario.ResourceGroup,
		Actions: slices.Concat(azure.Actions(), azure.CanaryActions())}
}

// Environment is what a program needs in its environment to use the lab, by name.
func (l *Lab) Environment() map[string]string {
	if l.AWS != nil {
		return l.awsEnvironment()
	}
	return map[string]string{
		"KUBECONFIG": l.Kubeconfig,
		"POD_IMAGE":  l.SealImage,

		"AZURE_ENVIRONMENT":          "AzureStackCloud",
		"AZURE_ENVIRONMENT_FILEPATH": filepath.Join(l.Dir, "azurestackcloud.json"),
		"AZURE_TENANT_ID":            l.Scenario.Tenant,
		"AZURE_SUBSCRIPTION_ID":      l.Scenario.Subscription,
		"AZURE_RESOURCE_GROUP":       l.Scenario.ResourceGroup,
		"AZURE_CLIENT_ID":            clientID,
		"AZURE_CLIENT_SECRET":        clientSecret,
		"AZURE_AUTHORITY_HOST":       l.ARM + "/",

		// Programs in Go, and those with OpenSSL; then Python's requests, as in azure-cli.
		"SSL_CERT_FILE":                filepath.Join(l.Dir, "ca.pem"),
		"REQUESTS_CA_BUNDLE":           filepath.Join(l.Dir, "ca.pem"),
		"AZURE_CONFIG_DIR":             filepath.Join(l.Dir, "azure-cli"),
		"AZURE_CORE_COLLECT_TELEMETRY": "0",
		"NO_PROXY":                     "localhost,127.0.0.1",
		"KAMINO_LAB_ARM":               l.ARM,
		"KAMINO_LAB_DIR":               l.Dir,
		"KAMINO_LAB_OPERATOR_ID":       operatorID, // for az; its secret is AZURE_CLIENT_SECRET too
	}
}

// writeFiles writes what clients need to find and trust the lab.
func (l *Lab) writeFiles(authority *pki.Authority) error {
	config, err := json.MarshalIndent(map[string]any{
		"cloud":           "AzureStackCloud",
		"tenantId":        l.Scenario.Tenant,
		"subscriptionId":  l.Scenario.Subscription,
		"resourceGroup":   l.Scenario.ResourceGroup,
		"location":        l.Scenario.Location,
		"aadClientId":     clientID,
		"aadClientSecret": clientSecret,
		"vmType":          "vmss",
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode azure.json: %w", err)
	}
	// The fields of go-autorest's Environment. An authority that ends in /adfs
	// keeps clients from asking Microsoft whether they may trust it.
	stack, err := json.MarshalIndent(map[string]any{
		"name":                      "AzureStackCloud",
		"managementPortalURL":       l.ARM + "/portal",
		"publishSettingsURL":        l.ARM + "/publishsettings",
		"serviceManagementEndpoint": l.ARM + "/",
		"resourceManagerEndpoint":   l.ARM + "/",
		"activeDirectoryEndpoint":   l.ARM + "/adfs",
		"galleryEndpoint":           l.ARM + "/gallery",
		"graphEndpoint":             l.ARM + "/graph",
		"tokenAudience":             l.ARM + "/",
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode azurestackcloud.json: %w", err)
	}
	files := map[string][]byte{"ca.pem": authority.PEM, "env": []byte(shell(l.Environment()))}
	if l.AWS == nil {
		files["azure.json"], files["azurestackcloud.json"], files["az-login"] = config, stack, []byte(azLogin)
	}
	for name, content := range files {
		path := filepath.Join(l.Dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// azLogin makes az know the lab as a cloud, in a configuration of the lab's own.
const azLogin = `# sh DIR/az-login
set -e
. "$(dirname "$0")/env"
known=register
if az cloud show --name kamino-lab --only-show-errors --output none 2>/dev/null; then known=update; fi
az cloud "$known" --name kamino-lab --endpoint-resource-manager "$KAMINO_LAB_ARM/" --endpoint-management "$KAMINO_LAB_ARM/management" \
  --endpoint-active-directory "$KAMINO_LAB_ARM/adfs" --endpoint-active-directory-resource-id "$KAMINO_LAB_ARM/" \
  --endpoint-active-directory-graph-resource-id "$KAMINO_LAB_ARM/graph"
az cloud set --name kamino-lab --only-show-errors
az login --service-principal --username "$KAMINO_LAB_OPERATOR_ID" --password "$AZURE_CLIENT_SECRET" --tenant "$AZURE_TENANT_ID" --output none
`

// removeFiles removes everything a lab makes in its directory, and the directory if the lab made
// it.
func (l *Lab) removeFiles() {
	for _, name := range []string{
		"azure.json", "azurestackcloud.json", "ca.pem", "env", "az-login", "azure-cli",
		"kubeconfig", "etcd", "pki", "logs",
	} {
		if err := os.RemoveAll(filepath.Join(l.Dir, name)); err != nil {
			l.logger.Error("file of the lab stays", "error", err)
		}
	}
	if l.madeDir {
		_ = os.Remove(l.Dir) // fails if somebody else keeps files there, which is right
	}
}

// shell writes variables as lines that a POSIX shell can source.
func shell(environment map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(environment[name], "'", `'\''`))
	}
	return b.String()
}
