package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/azure"
)

// The clouds.
const (
	onAzure = "azure"
	onAWS   = "aws"
)

// schemes are the prefixes of IDs by cloud: of instances in Kubernetes, and of pools in Kamino.
var schemes = map[string]string{"azure:": onAzure, "/subscriptions/": onAzure, "aws:": onAWS}

// flagsOf are the flags that only one cloud has.
var flagsOf = map[string][]string{
	onAzure: {"resource-group", "subscription", "in-cluster", "azure-config", "gallery", "keep-extension", "custom-data",
		"keep-custom-data", "protected-settings"},
	onAWS: {"region", "cluster-name"},
}

var cloudNames = map[string]string{onAzure: "Azure", onAWS: "AWS"}

// cloudOf returns the cloud of an ID; "" if unknown.
func cloudOf(id string) string {
	for scheme, cloud := range schemes {
		if strings.HasPrefix(id, scheme) {
			return cloud
		}
	}
	return ""
}

// newProvider makes the provider of the cloud. It is the only switch over clouds.
func newProvider(_ context.Context, g globalOptions) (kamino.Provider, error) {
	switch g.Provider {
	case onAzure:
		return newAzure(g)
	case onAWS:
		p, err := aws.New(aws.Config{Region: g.Region, Cluster: g.ClusterName, Clock: g.clock, Heard: g.heard})
		if err != nil {
			return nil, err // a nil *aws.Provider would not be a nil Provider
		}
		return p, nil
	}
	return nil, kamino.WithHint(fmt.Errorf("unknown provider %q", g.Provider), "use --provider azure or aws, or omit it")
}

func newAzure(g globalOptions) (kamino.Provider, error) {
	config := azure.Config{
		Subscription: g.Subscription, ResourceGroup: g.ResourceGroup, Gallery: g.Gallery, UserAgent: "kamino",
		Clock: g.clock, Heard: g.heard,
	}
	if g.InCluster {
		config.File = cmp.Or(g.AzureConfig, azure.DefaultFile)
	}
	if len(g.KeepExtension) > 0 {
		config.KeepExtensions = azure.BillingExtensions()
	}
	for _, rule := range g.KeepExtension {
		publisher, kind, _ := strings.Cut(rule, "/")
		config.KeepExtensions = append(config.KeepExtensions, azure.ExtensionRule{Publisher: publisher, Type: kind})
	}
	p, err := azure.New(config)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// located returns the options with the cloud of the cluster's nodes, and its region if their IDs
// contain it. If no node shows a cloud, the environment decides; the run's checks report what is
// wrong with the cluster.
func (a *app) located(ctx context.Context, cluster kamino.Cluster) (globalOptions, error) {
	g := a.global
	nodes, err := cluster.Nodes(ctx)
	if ctx.Err() != nil {
		return g, err
	}
	first := map[string]kamino.Node{} // by cloud
	for _, n := range nodes {
		cloud := cloudOf(string(n.ProviderID))
		if _, had := first[cloud]; !had && cloud != "" {
			first[cloud] = n
		}
	}
	switch found := slices.Sorted(maps.Keys(first)); {
	case g.Provider != "" && len(found) > 0 && !slices.Contains(found, g.Provider):
		return g, kamino.WithHint(fmt.Errorf("--provider is %s, and the nodes of this cluster are on %s", g.Provider, cloudNames[found[0]]),
			"omit --provider")
	case g.Provider != "":
	case len(found) == 1:
		g.Provider = found[0]
	case len(found) > 1:
		return g, kamino.WithHint(fmt.Errorf("this cluster has nodes on several clouds: node %s is on AWS, node %s on Azure",
			first[onAWS].Name, first[onAzure].Name),
			"name the cloud of the pools that are meant with --provider azure or aws; nodes on the other are left alone")
	default:
		g.Provider = a.cloudOfEnvironment()
	}
	if n, ok := first[onAWS]; ok && g.Provider == onAWS {
		region := regionOf(string(n.ProviderID))
		if g.Region != "" && region != "" && !slices.ContainsFunc(nodes,
			func(n kamino.Node) bool { return regionOf(string(n.ProviderID)) == g.Region }) {
			return g, kamino.WithHint(fmt.Errorf("--region is %s, and the nodes of this cluster are in %s", g.Region, region),
				"omit --region")
		}
		g.Region = cmp.Or(g.Region, region)
	}
	return g, g.refuseForeign()
}

// cloudOfEnvironment returns AWS if the environment configures its SDK and not Azure's. Pods with a
// role of IRSA have AWS_ROLE_ARN, those of pod identity AWS_CONTAINER_CREDENTIALS_FULL_URI
// (https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html).
func (a *app) cloudOfEnvironment() string {
	told := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return a.env(name) != "" })
	}
	if told("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI") &&
		!told("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_SUBSCRIPTION_ID") {
		return onAWS
	}
	return onAzure
}

// zoneOfRegion matches the zone in a provider ID: the region and a letter, and for local zones more
// between the two
// (https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-availability-zones.html).
var zoneOfRegion = regexp.MustCompile(`^aws:///([a-z]+(?:-[a-z]+)+-[0-9]+)`)

// regionOf returns the region in a node's provider ID; "" if there is none.
func regionOf(id string) string {
	if found := zoneOfRegion.FindStringSubmatch(id); found != nil {
		return found[1]
	}
	return ""
}

// refuseForeign refuses flags that the cluster's cloud does not have.
func (g globalOptions) refuseForeign() error {
	for cloud, flags := range flagsOf {
		for _, flag := range flags {
			if cloud != g.Provider && slices.Contains(g.given, flag) {
				return kamino.WithHint(fmt.Errorf("--%s is for clusters on %s only, and this one is on %s", flag, cloudNames[cloud],
					cloudNames[g.Provider]), "omit --%s", flag)
			}
		}
	}
	return nil
}
