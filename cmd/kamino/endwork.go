package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
)

// ender is a cluster that can end the jobs and the controller of a Helm release.
type ender interface {
	EndJobs(ctx context.Context, namespace, release string) (left int, err error)
	EndController(ctx context.Context, namespace, release string) (left int, err error)
}

// endWork ends the jobs or the controller of a release in this pod's namespace and waits until they
// are gone. Their pods define how long they may take to restore their donors, so there is no limit
// here.
func (c *restoreCommand) endWork(ctx context.Context, cluster kamino.Cluster) error {
	e, ok := cluster.(ender)
	what, release, end := "jobs", c.release, ender.EndJobs
	if c.controllerRelease != "" {
		what, release, end = "controller", c.controllerRelease, ender.EndController
	}
	namespace := c.env("POD_NAMESPACE")
	if !ok || namespace == "" {
		return kamino.WithHint(fmt.Errorf("end the %s of release %s: %w", what, release, kamino.ErrUnsupported),
			"the environment variable POD_NAMESPACE names the release's namespace; the chart sets it")
	}
	var said time.Time
	for told := -1; ; {
		left, err := end(e, ctx, namespace, release)
		switch {
		case errors.Is(err, kamino.ErrUnavailable):
			c.global.Log.Warn("the cluster does not answer", "error", err)
		case err != nil:
			return fmt.Errorf("end the %s of release %s: %w", what, release, err)
		case left == 0:
			return nil
		case left != told || c.clock.Now().Sub(said) >= stillWaiting:
			c.global.Log.Info("waiting for "+what+" to give back what they took, and to end", "release", release, "left", left)
			told, said = left, c.clock.Now()
		}
		if err := c.clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}
