package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
)

// jobEnder is a cluster that can end the jobs of a release.
type jobEnder interface {
	EndJobs(ctx context.Context, namespace, release string) (left int, err error)
}

// endJobs ends the jobs of a release in this pod's namespace and waits until they are gone. How
// long they may take to give back is said by their pods, so nothing limits it here.
func (c *restoreCommand) endJobs(ctx context.Context, cluster kamino.Cluster) error {
	ender, ok := cluster.(jobEnder)
	namespace := c.env("POD_NAMESPACE")
	if !ok || namespace == "" {
		return kamino.WithHint(fmt.Errorf("end the jobs of release %s: %w", c.release, kamino.ErrUnsupported),
			"the environment variable POD_NAMESPACE names the release's namespace; the chart sets it")
	}
	var said time.Time
	for told := -1; ; {
		left, err := ender.EndJobs(ctx, namespace, c.release)
		switch {
		case errors.Is(err, kamino.ErrUnavailable):
			c.global.Log.Warn("the cluster does not answer", "error", err)
		case err != nil:
			return fmt.Errorf("end the jobs of release %s: %w", c.release, err)
		case left == 0:
			return nil
		case left != told || c.clock.Now().Sub(said) >= stillWaiting:
			c.global.Log.Info("waiting for jobs to give back what they took, and to end", "release", c.release, "left", left)
			told, said = left, c.clock.Now()
		}
		if err := c.clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}
