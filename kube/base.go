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

const noBase = "a cluster administrator creates the namespace, its roles and its admission policies with the chart kamino-base or with: kamino init"

// unprepared is err of a cluster that kamino init, or its chart, was not applied to.
func unprepared(err error) error {
	return kamino.WithHint(fmt.Errorf("this cluster is not prepared: %w", err), noBase)
}

// Preflight checks that the namespace of leases and seal pods was made for them, and that these
// credentials have every right that a run with these options uses.
func (c *Cluster) Preflight(ctx context.Context, opts kamino.DrainOptions) (doubts []kamino.Warning, err error) {
	space, err := c.api.namespaces.Get(ctx, kamino.SystemNamespace, metav1.GetOptions{})
	if err == nil {
		c.space.Store(&seenSpace{space, c.opts.Clock.Now()})
	}
	err = explain("get namespaces/"+kamino.SystemNamespace, err)
	switch {
	case errors.Is(err, kamino.ErrNotFound):
		return nil, unprepared(err)
	case errors.Is(err, kamino.ErrForbidden):
		// That right is most likely not the only one that is missing.
		if _, all := c.checkRights(ctx, opts); all != nil {
			return nil, all
		}
		return nil, err
	case err != nil:
		return nil, err
	case space.Labels[labelBase] == "":
		return nil, unprepared(fmt.Errorf("namespace %s has no label %s", space.Name, labelBase))
	}
	return c.checkRights(ctx, opts)
}
