package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndJobs asks for the end of the jobs and cron jobs of a release of the chart vmss-prototype,
// and says how many are still there. A job is there until its pods are gone, which get SIGTERM
// and the time of their spec to give back what they took. It is idempotent.
func (c *Cluster) EndJobs(ctx context.Context, namespace, release string) (left int, err error) {
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=run,app.kubernetes.io/instance=" + release}
	dependents := metav1.DeletePropagationForeground
	crons, err := c.api.cronJobs(namespace).List(ctx, selector)
	if err != nil {
		return 0, explain("list cronjobs.batch -n "+namespace, err)
	}
	for i := range crons.Items {
		err := c.api.cronJobs(namespace).Delete(ctx, crons.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: &dependents})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, explain("delete cronjobs.batch -n "+namespace, err)
		}
	}
	jobs, err := c.api.jobs(namespace).List(ctx, selector)
	if err != nil {
		return 0, explain("list jobs.batch -n "+namespace, err)
	}
	for i := range jobs.Items {
		if jobs.Items[i].DeletionTimestamp != nil {
			continue
		}
		err := c.api.jobs(namespace).Delete(ctx, jobs.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: &dependents})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, explain("delete jobs.batch -n "+namespace, err)
		}
	}
	return len(crons.Items) + len(jobs.Items), nil
}

// EndController asks for the end of the controller of a release of the chart kamino, and says how
// many of its objects are still there: until its pods are gone, which get SIGTERM, it is.
func (c *Cluster) EndController(ctx context.Context, namespace, release string) (left int, err error) {
	dependents := metav1.DeletePropagationForeground
	all, err := c.api.deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=run,app.kubernetes.io/instance=" + release})
	if err != nil {
		return 0, explain("list deployments.apps -n "+namespace, err)
	}
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp != nil {
			continue
		}
		err := c.api.deployments(namespace).Delete(ctx, all.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: &dependents})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, explain("delete deployments.apps -n "+namespace, err)
		}
	}
	return len(all.Items), nil
}
