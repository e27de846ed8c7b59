package main

import (
	"context"
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
	g := a.global
	c, err := kube.New(config, kube.Options{Namespace: g.Namespace, SealImage: g.SealImage, Version: g.Version, Clock: a.clock})
	if err != nil {
		return nil, err
	}
	return c, nil
}
