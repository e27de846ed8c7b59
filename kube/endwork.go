package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// EndJobs asks for the end of the jobs and cron jobs of a release of the chart vmss-prototype,
// and says how many are still there. A job is there until its pods are gone, which get SIGTERM
// and the time of their spec to give back what they took. It is idempotent.
func (c *Cluster) EndJobs(ctx context.Context, namespace, release string) (left int, err error) {
	crons, err := end(ctx, c.api.cronJobs(namespace), "cronjobs.batch -n "+namespace, release)
	if err != nil {
		return 0, err
	}
	jobs, err := end(ctx, c.api.jobs(namespace), "jobs.batch -n "+namespace, release)
	return crons + jobs, err
}

// EndController asks for the end of the controller of a release of the chart kamino, and says how
// many of its objects are still there: until its pods are gone, which get SIGTERM, it is.
func (c *Cluster) EndController(ctx context.Context, namespace, release string) (left int, err error) {
	return end(ctx, c.api.deployments(namespace), "deployments.apps -n "+namespace, release)
}

// end deletes what a release runs of one kind, after what depends on it, and counts what was there.
func end[T, L any, PL pointer[L]](ctx context.Context, of objects[T, L], what, release string) (left int, err error) {
	dependents := metav1.DeletePropagationForeground
	list, err := of.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=run,app.kubernetes.io/instance=" + release})
	if err != nil {
		return 0, explain("list "+what, err)
	}
	err = meta.EachListItem(PL(list), func(object runtime.Object) error {
		left++
		one, err := meta.Accessor(object)
		if err != nil || one.GetDeletionTimestamp() != nil {
			return err
		}
		err = of.Delete(ctx, one.GetName(), metav1.DeleteOptions{PropagationPolicy: &dependents})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return explain("delete "+what, err)
	})
	return left, err
}
