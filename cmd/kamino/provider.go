package main

import (
	"context"
	"fmt"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
)

// newProvider is the one switch over providers.
func newProvider(_ context.Context, g globalOptions) (kamino.Provider, error) {
	switch g.Provider {
	case "azure":
		return newAzure(g)
	}
	return nil, kamino.WithHint(fmt.Errorf("provider %q is unknown", g.Provider), "use --provider azure")
}

func newAzure(g globalOptions) (kamino.Provider, error) {
	config := azure.Config{
		Subscription: g.Subscription, ResourceGroup: g.ResourceGroup, Gallery: g.Gallery, UserAgent: "kamino",
	}
	if g.InCluster {
		config.File = firstOf(g.AzureConfig, azure.DefaultFile)
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
