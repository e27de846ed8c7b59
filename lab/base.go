package lab

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"kamino.dev/kamino/charts"
	"kamino.dev/kamino/kube"
)

// SealImage is the image of seal pods where nobody says otherwise. It cannot be pulled, which
// simulated nodes do not mind.
const SealImage = "registry.invalid/kamino@sha256:1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab1ab0"

// Prepare does to a cluster what "kamino init" does. Pods of the images may seal disks.
func Prepare(ctx context.Context, client kubernetes.Interface, images ...string) error {
	manifests, err := charts.Base(charts.BaseValues{SealImages: images, Migrate: true})
	if err != nil {
		return err
	}
	cluster := kube.NewForClient(client, kube.Options{})
	for _, manifest := range manifests {
		if _, err := cluster.Apply(ctx, manifest, false); err != nil {
			return fmt.Errorf("prepare the cluster: %w", err)
		}
	}
	return nil
}
