package controller

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
)

// objects are what passes read and write in the API server.
type objects interface {
	// Prototype is a copy of a NodePrototype; apierrors.IsNotFound knows the error of one that is gone.
	Prototype(ctx context.Context, name string) (*v1alpha1.NodePrototype, error)
	// Prototypes are all of them. The caller changes nothing in them.
	Prototypes(ctx context.Context) ([]v1alpha1.NodePrototype, error)
	// Nodes are all nodes. The caller changes nothing in them.
	Nodes(ctx context.Context) ([]*corev1.Node, error)
	// Patch applies a JSON merge patch to a prototype, or to a subresource of it.
	Patch(ctx context.Context, name string, patch []byte, subresources ...string) error
}

// server is the API server, which is asked at each call. It knows a few kinds only: client-go's
// client set, and controller-runtime with it, link every group of the API that there is, which
// takes 15 MB of the program and 11 MB of the memory of each command.
type server struct {
	core, own, coordination, authentication, authorization rest.Interface
	metadata                                               metadata.Interface
}

// kinds are those that a controller reads and writes.
func kinds() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	return scheme, nil
}

// connect makes the clients of a configuration, which share their connections. It makes no request.
func connect(from *rest.Config) (*server, error) {
	scheme, err := kinds()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(from)
	config.QPS = -1 // the server's priority and fairness is the limit that matters
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make Kubernetes client: %w", err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	group := func(gv schema.GroupVersion) rest.Interface {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, "/apis", codecs
		if gv.Group == "" {
			c.APIPath = "/api"
		}
		if gv != v1alpha1.GroupVersion { // the API server keeps custom resources as JSON only
			c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
				"application/vnd.kubernetes.protobuf,application/json"
		}
		made, failed := rest.RESTClientForConfigAndClient(c, connections)
		if failed != nil && err == nil {
			err = fmt.Errorf("make Kubernetes client for %s: %w", gv, failed)
		}
		return made
	}
	s := &server{core: group(corev1.SchemeGroupVersion), own: group(v1alpha1.GroupVersion),
		coordination:   group(coordinationv1.SchemeGroupVersion),
		authentication: group(authenticationv1.SchemeGroupVersion), authorization: group(authorizationv1.SchemeGroupVersion)}
	if err != nil {
		return nil, err
	}
	s.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), connections)
	return s, err
}

// prototypes is the resource of the kind NodePrototype.
const prototypes = "nodeprototypes"

// Prototype implements objects.
func (s *server) Prototype(ctx context.Context, name string) (*v1alpha1.NodePrototype, error) {
	p := &v1alpha1.NodePrototype{}
	return p, s.own.Get().Resource(prototypes).Name(name).Do(ctx).Into(p)
}

// Prototypes implements objects.
func (s *server) Prototypes(ctx context.Context) ([]v1alpha1.NodePrototype, error) {
	var list v1alpha1.NodePrototypeList
	err := s.own.Get().Resource(prototypes).Do(ctx).Into(&list)
	return list.Items, err
}

// Nodes implements objects.
func (s *server) Nodes(ctx context.Context) (all []*corev1.Node, err error) {
	var list corev1.NodeList
	err = s.core.Get().Resource("nodes").Do(ctx).Into(&list)
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, err
}

// Patch implements objects.
func (s *server) Patch(ctx context.Context, name string, patch []byte, subresources ...string) error {
	return s.own.Patch(types.MergePatchType).Resource(prototypes).Name(name).SubResource(subresources...).Body(patch).Do(ctx).Error()
}

// leader is the lease of the process that leads.
func (s *server) leader(r *rest.Request) *rest.Request {
	return r.Namespace(kamino.SystemNamespace).Resource("leases")
}

// Lease implements seat.
func (s *server) Lease(ctx context.Context) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, s.leader(s.coordination.Get()).Name(leaderLease).Do(ctx).Into(l)
}

// CreateLease implements seat.
func (s *server) CreateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{}
	return out, s.leader(s.coordination.Post()).Body(l).Do(ctx).Into(out)
}

// UpdateLease implements seat.
func (s *server) UpdateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	out := &coordinationv1.Lease{}
	return out, s.leader(s.coordination.Put()).Name(leaderLease).Body(l).Do(ctx).Into(out)
}

// creator puts a question that is written as an object, as client-go's typed clients do.
type creator[T any] interface {
	Create(ctx context.Context, question *T, opts metav1.CreateOptions) (*T, error)
}

type question[T any, PT interface {
	*T
	runtime.Object
}] struct {
	rest     rest.Interface
	resource string
}

func (q question[T, PT]) Create(ctx context.Context, asked *T, _ metav1.CreateOptions) (*T, error) {
	answer := new(T)
	return answer, q.rest.Post().Resource(q.resource).Body(PT(asked)).Do(ctx).Into(PT(answer))
}
