package lab

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/kube"
)

// SealImage is the image of seal pods where nobody says otherwise. It cannot be pulled, which
// simulated nodes do not mind.
const SealImage = "registry.invalid/kamino@sha256:1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab0"

// Prepare does to a cluster what "kamino init" does. Pods of the images may seal disks.
func Prepare(ctx context.Context, administrator *rest.Config, images ...string) error {
	manifests, err := charts.Base(images)
	if err != nil {
		return err
	}
	cluster, err := kube.New(administrator, kube.Options{})
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		if _, err := cluster.Apply(ctx, manifest, false); err != nil {
			return fmt.Errorf("prepare the cluster: %w", err)
		}
	}
	return nil
}
