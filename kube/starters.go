package kube

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CronJobs are those of all namespaces. Its errors are those of the API server.
func (c *Cluster) CronJobs(ctx context.Context) ([]batchv1.CronJob, error) {
	list, err := c.api.cronJobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Raw is the JSON text at a path of the API server. Its errors are those of the API server.
func (c *Cluster) Raw(ctx context.Context, path string) ([]byte, error) {
	answer := c.api.paths.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx)
	if err := answer.Error(); err != nil { // Raw returns "unknown" for a refusal
		return nil, err
	}
	return answer.Raw()
}
