package main

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// newCluster connects to the cluster of the kubeconfig, or to the one that this pod runs in.
func newCluster(_ context.Context, a *app) (kamino.Cluster, error) {
	config, err := restConfig(a)
	if err != nil {
		return nil, err
	}
	g := a.global
	c, err := kube.New(config, kube.Options{SealImage: g.SealImage, PullSecret: g.PullSecret, Version: g.Version, Clock: a.clock})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// restConfig returns the client configuration of the cluster.
func restConfig(a *app) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.global.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: a.global.kubeContext})
	if raw, err := loader.RawConfig(); err == nil && len(raw.Clusters) == 0 && a.env("KUBERNETES_SERVICE_HOST") == "" {
		// The library would use localhost:8080.
		if file := a.env("KUBECONFIG"); file != "" && a.global.kubeconfig == "" {
			return nil, kamino.WithHint(fmt.Errorf("read kubeconfig: $KUBECONFIG is %q, which does not exist or names no cluster", file),
				"name another one with --kubeconfig or $KUBECONFIG")
		}
		return nil, kamino.WithHint(errors.New("no kubeconfig found and not running in a pod"), "name one with --kubeconfig or $KUBECONFIG")
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("read kubeconfig: %w", err),
			"name one with --kubeconfig or $KUBECONFIG; kubectl config get-contexts lists the contexts")
	}
	return config, nil
}
