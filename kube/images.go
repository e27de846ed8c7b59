package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// sealImages is the ConfigMap of the images that may seal disks, one a line, in the key images.
const sealImages = "kamino-seal-images"

// helmRelease is the annotation that Helm puts on what it manages
// (https://helm.sh/docs/topics/charts/#how-helm-knows).
const helmRelease = "meta.helm.sh/release-name"

// SealImages reads the images that may seal disks, by digest, and the release of the chart
// kamino-base that manages the list. Both are empty on a cluster that was not prepared.
func (c *Cluster) SealImages(ctx context.Context) (images []string, release string, err error) {
	list, err := c.api.configMaps(kamino.SystemNamespace).Get(ctx, sealImages, metav1.GetOptions{})
	err = explain("get configmaps/"+sealImages+" -n "+kamino.SystemNamespace, err)
	if errors.Is(err, kamino.ErrNotFound) {
		return nil, "", nil
	} else if err != nil {
		return nil, "", fmt.Errorf("read the images that may seal disks: %w", err)
	}
	return strings.Fields(list.Data["images"]), list.Annotations[helmRelease], nil
}
