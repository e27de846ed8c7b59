package kube

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// labelBase on the namespace is the format of the manifests that made it (charts/kamino-base).
const labelBase = "kamino.dev/base"

const noBase = "a cluster administrator makes the namespace, its roles and its admission policies with the chart kamino-base or with: kamino init"

// Preflight checks that the namespace of leases and seal pods was made for them. It
// leaves no doubt.
func (c *Cluster) Preflight(ctx context.Context) (doubts []string, err error) {
	space, err := c.client.CoreV1().Namespaces().Get(ctx, kamino.SystemNamespace, metav1.GetOptions{})
	err = explain("get namespaces/"+kamino.SystemNamespace, err)
	switch {
	case errors.Is(err, kamino.ErrNotFound):
		return nil, kamino.WithHint(fmt.Errorf("this cluster is not prepared: %w", err), noBase)
	case err != nil:
		return nil, err
	case space.Labels[labelBase] == "":
		return nil, kamino.WithHint(fmt.Errorf("this cluster is not prepared: namespace %s has no label %s", space.Name, labelBase), noBase)
	}
	return nil, nil
}
