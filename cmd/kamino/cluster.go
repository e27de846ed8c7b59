package main

import (
	"context"
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// newCluster joins the cluster of the kubeconfig, or the one this pod runs in.
func newCluster(_ context.Context, a *app) (kamino.Cluster, error) {
	config, err := a.kube.ToRESTConfig()
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("read kubeconfig: %w", err),
			"name one with --kubeconfig or $KUBECONFIG; kubectl config get-contexts lists the contexts")
	}
	if raw, err := a.kube.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && a.env("KUBERNETES_SERVICE_HOST") == "" {
		// The library would go on with localhost:8080.
		if file := a.env("KUBECONFIG"); file != "" && *a.kube.KubeConfig == "" {
			return nil, kamino.WithHint(fmt.Errorf("read kubeconfig: $KUBECONFIG is %q, which does not exist or names no cluster", file), "name another one with --kubeconfig or $KUBECONFIG")
		}
		return nil, kamino.WithHint(errors.New("no kubeconfig is named, and this is no pod of a cluster"), "name one with --kubeconfig or $KUBECONFIG")
	}
	g := a.global
	c, err := kube.New(config, kube.Options{Former: g.former, SealImage: g.SealImage, PullSecret: g.PullSecret, Version: g.Version, Clock: a.clock})
	if err != nil {
		return nil, err
	}
	return c, nil
}
