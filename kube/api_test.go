package kube

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"
)

// NewForClient makes a Cluster of client-go's typed clients, which may be fakes.
func NewForClient(client kubernetes.Interface, opts Options) *Cluster {
	core, policy := client.CoreV1(), client.PolicyV1()
	return &Cluster{opts: opts.withDefaults(), api: api{
		namespaces: core.Namespaces(),
		nodes:      core.Nodes(),
		pods:       func(namespace string) objects[corev1.Pod, corev1.PodList] { return core.Pods(namespace) },
		configMaps: func(namespace string) objects[corev1.ConfigMap, corev1.ConfigMapList] {
			return core.ConfigMaps(namespace)
		},
		events: func(namespace string) objects[corev1.Event, corev1.EventList] { return core.Events(namespace) },
		leases: func(namespace string) objects[coordinationv1.Lease, coordinationv1.LeaseList] {
			return client.CoordinationV1().Leases(namespace)
		},
		volumes: core.PersistentVolumes(),
		budgets: func(namespace string) objects[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList] {
			return policy.PodDisruptionBudgets(namespace)
		},
		jobs: func(namespace string) objects[batchv1.Job, batchv1.JobList] { return client.BatchV1().Jobs(namespace) },
		cronJobs: func(namespace string) objects[batchv1.CronJob, batchv1.CronJobList] {
			return client.BatchV1().CronJobs(namespace)
		},
		daemonSets: func(namespace string) objects[appsv1.DaemonSet, appsv1.DaemonSetList] {
			return client.AppsV1().DaemonSets(namespace)
		},
		deployments: func(namespace string) objects[appsv1.Deployment, appsv1.DeploymentList] {
			return client.AppsV1().Deployments(namespace)
		},
		requests: client.CertificatesV1().CertificateSigningRequests(),
		evict: func(ctx context.Context, e *policyv1.Eviction) error {
			return policy.Evictions(e.Namespace).Evict(ctx, e)
		},
		reviewSelf:  client.AuthenticationV1().SelfSubjectReviews(),
		reviewRules: client.AuthorizationV1().SelfSubjectRulesReviews(),
		reviewOne:   client.AuthorizationV1().SelfSubjectAccessReviews(),
		paths:       core.RESTClient(),
	}}
}
