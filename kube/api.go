package kube

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// api is what this package asks of the API server, with the methods of client-go's typed
// clients, so that those and their fakes fit too. The product does without package
// k8s.io/client-go/kubernetes, which links every group of the API that there is.
type api struct {
	namespaces  objects[corev1.Namespace, corev1.NamespaceList]
	nodes       objects[corev1.Node, corev1.NodeList]
	pods        func(namespace string) objects[corev1.Pod, corev1.PodList]
	configMaps  func(namespace string) objects[corev1.ConfigMap, corev1.ConfigMapList]
	events      func(namespace string) objects[corev1.Event, corev1.EventList]
	leases      func(namespace string) objects[coordinationv1.Lease, coordinationv1.LeaseList]
	volumes     objects[corev1.PersistentVolume, corev1.PersistentVolumeList]
	budgets     func(namespace string) objects[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList]
	jobs        func(namespace string) objects[batchv1.Job, batchv1.JobList]
	cronJobs    func(namespace string) objects[batchv1.CronJob, batchv1.CronJobList]
	daemonSets  func(namespace string) objects[appsv1.DaemonSet, appsv1.DaemonSetList]
	deployments func(namespace string) objects[appsv1.Deployment, appsv1.DeploymentList]
	requests    objects[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList]

	evict       func(context.Context, *policyv1.Eviction) error
	reviewSelf  creator[authenticationv1.SelfSubjectReview]
	reviewRules creator[authorizationv1.SelfSubjectRulesReview]
	reviewOne   creator[authorizationv1.SelfSubjectAccessReview]

	paths rest.Interface // any object by its path
}

// creator makes objects, or puts questions that are written as objects.
type creator[T any] interface {
	Create(ctx context.Context, object *T, opts metav1.CreateOptions) (*T, error)
}

// objects are one kind of object in a namespace; or in none, or in all.
type objects[T, L any] interface {
	creator[T]
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*T, error)
	List(ctx context.Context, opts metav1.ListOptions) (*L, error)
	Patch(ctx context.Context, name string, how types.PatchType, patch []byte, opts metav1.PatchOptions, subresources ...string) (*T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// newAPI makes the clients of a configuration, which share their connections.
func newAPI(cfg *rest.Config) (api, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return api{}, err
	}
	group := func(gv schema.GroupVersion) rest.Interface {
		c := rest.CopyConfig(cfg)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", codecs
		if gv.Group == "" {
			c.APIPath = "/api"
		}
		made, failed := rest.RESTClientForConfigAndClient(c, client)
		if failed != nil && err == nil {
			err = fmt.Errorf("%s: %w", gv, failed)
		}
		return made
	}
	core, policy, batch := group(corev1.SchemeGroupVersion), group(policyv1.SchemeGroupVersion), group(batchv1.SchemeGroupVersion)
	apps, certificates := group(appsv1.SchemeGroupVersion), group(certificatesv1.SchemeGroupVersion)
	authentication, authorization := group(authenticationv1.SchemeGroupVersion), group(authorizationv1.SchemeGroupVersion)
	coordination := group(coordinationv1.SchemeGroupVersion)
	return api{
		namespaces:  in[corev1.Namespace, corev1.NamespaceList](core, "namespaces")(""),
		nodes:       in[corev1.Node, corev1.NodeList](core, "nodes")(""),
		pods:        in[corev1.Pod, corev1.PodList](core, "pods"),
		configMaps:  in[corev1.ConfigMap, corev1.ConfigMapList](core, "configmaps"),
		events:      in[corev1.Event, corev1.EventList](core, "events"),
		leases:      in[coordinationv1.Lease, coordinationv1.LeaseList](coordination, "leases"),
		volumes:     in[corev1.PersistentVolume, corev1.PersistentVolumeList](core, "persistentvolumes")(""),
		budgets:     in[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](policy, "poddisruptionbudgets"),
		jobs:        in[batchv1.Job, batchv1.JobList](batch, "jobs"),
		cronJobs:    in[batchv1.CronJob, batchv1.CronJobList](batch, "cronjobs"),
		daemonSets:  in[appsv1.DaemonSet, appsv1.DaemonSetList](apps, "daemonsets"),
		deployments: in[appsv1.Deployment, appsv1.DeploymentList](apps, "deployments"),
		requests: in[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](certificates,
			"certificatesigningrequests")(""),
		evict: func(ctx context.Context, e *policyv1.Eviction) error {
			return core.Post().Namespace(e.Namespace).Resource("pods").Name(e.Name).SubResource("eviction").Body(e).Do(ctx).Error()
		},
		reviewSelf:  in[authenticationv1.SelfSubjectReview, metav1.List](authentication, "selfsubjectreviews")(""),
		reviewRules: in[authorizationv1.SelfSubjectRulesReview, metav1.List](authorization, "selfsubjectrulesreviews")(""),
		reviewOne:   in[authorizationv1.SelfSubjectAccessReview, metav1.List](authorization, "selfsubjectaccessreviews")(""),
		paths:       core,
	}, err
}

// scheme knows the objects that are read and written here.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme,
		batchv1.AddToScheme, appsv1.AddToScheme, certificatesv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

var (
	codecs     = serializer.NewCodecFactory(scheme).WithoutConversion()
	parameters = runtime.NewParameterCodec(scheme)
)

// pointer is one to an object.
type pointer[T any] interface {
	*T
	runtime.Object
}

// client is the objects of one kind on the API server, under the name of their resource.
type client[T, L any, PT pointer[T], PL pointer[L]] struct {
	rest      rest.Interface
	name      string
	namespace string // "": none, or all
}

// in makes clients of a kind of object, by namespace.
func in[T, L any, PT pointer[T], PL pointer[L]](r rest.Interface, name string) func(namespace string) objects[T, L] {
	return func(namespace string) objects[T, L] { return client[T, L, PT, PL]{r, name, namespace} }
}

// to addresses a request.
func (c client[T, L, PT, PL]) to(r *rest.Request) *rest.Request {
	return r.NamespaceIfScoped(c.namespace, c.namespace != "").Resource(c.name)
}

func (c client[T, L, PT, PL]) answer(ctx context.Context, r *rest.Request) (*T, error) {
	out := new(T)
	return out, r.Do(ctx).Into(PT(out))
}

func (c client[T, L, PT, PL]) Get(ctx context.Context, name string, opts metav1.GetOptions) (*T, error) {
	return c.answer(ctx, c.to(c.rest.Get()).Name(name).VersionedParams(&opts, parameters))
}

func (c client[T, L, PT, PL]) List(ctx context.Context, opts metav1.ListOptions) (*L, error) {
	out := new(L)
	return out, c.to(c.rest.Get()).VersionedParams(&opts, parameters).Do(ctx).Into(PL(out))
}

func (c client[T, L, PT, PL]) Create(ctx context.Context, object *T, opts metav1.CreateOptions) (*T, error) {
	return c.answer(ctx, c.to(c.rest.Post()).VersionedParams(&opts, parameters).Body(PT(object)))
}

func (c client[T, L, PT, PL]) Patch(ctx context.Context, name string, how types.PatchType, patch []byte, opts metav1.PatchOptions,
	subresources ...string) (*T, error) {
	return c.answer(ctx, c.to(c.rest.Patch(how)).Name(name).SubResource(subresources...).VersionedParams(&opts, parameters).Body(patch))
}

func (c client[T, L, PT, PL]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return c.to(c.rest.Delete()).Name(name).Body(&opts).Do(ctx).Error()
}
