package controller

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/kube"
)

// informed is the API server as informers know it: of nodes what passes read, of the leases of pools
// their metadata, of namespaces the one with the stop switch. What is written goes to the API
// server.
type informed struct {
	*server
	prototypes, nodes, leases, namespace cache.SharedIndexInformer
}

// inform makes the informers, which list nothing before they are run.
func (s *server) inform() (*informed, error) {
	pools := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/managed-by": "kamino"}).String()
	all := func(*metav1.ListOptions) {}
	one := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", kamino.SystemNamespace).String()
	}
	leases := s.metadata.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(kamino.SystemNamespace)
	watched := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = pools
			return leases.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = pools
			return leases.Watch(ctx, o)
		},
	}
	i := &informed{server: s}
	for _, made := range []struct {
		into *cache.SharedIndexInformer
		from cache.ListerWatcher
		kind runtime.Object
		trim cache.TransformFunc
	}{
		{&i.prototypes, cache.NewFilteredListWatchFromClient(s.own, prototypes, "", all), &v1alpha1.NodePrototype{}, trimManaged},
		{&i.nodes, cache.NewFilteredListWatchFromClient(s.core, "nodes", "", all), &corev1.Node{}, trimNode},
		{&i.namespace, cache.NewFilteredListWatchFromClient(s.core, "namespaces", "", one), &corev1.Namespace{}, trimManaged},
		{&i.leases, watched, &metav1.PartialObjectMetadata{}, trimLease},
	} {
		*made.into = cache.NewSharedIndexInformer(made.from, made.kind, 0, cache.Indexers{})
		if err := (*made.into).SetTransform(made.trim); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Prototype implements objects.
func (i *informed) Prototype(_ context.Context, name string) (*v1alpha1.NodePrototype, error) {
	object, there, err := i.prototypes.GetStore().GetByKey(name)
	p, ok := object.(*v1alpha1.NodePrototype)
	if err == nil && (!there || !ok) {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(prototypes).GroupResource(), name)
	} else if err != nil {
		return nil, err
	}
	return p.DeepCopy(), nil
}

// Prototypes implements objects.
func (i *informed) Prototypes(context.Context) (all []v1alpha1.NodePrototype, _ error) {
	for _, object := range i.prototypes.GetStore().List() {
		if p, ok := object.(*v1alpha1.NodePrototype); ok {
			all = append(all, *p)
		}
	}
	return all, nil
}

// Nodes implements objects.
func (i *informed) Nodes(context.Context) (all []*corev1.Node, _ error) {
	for _, object := range i.nodes.GetStore().List() {
		if n, ok := object.(*corev1.Node); ok {
			all = append(all, n)
		}
	}
	return all, nil
}

// trimManaged drops who wrote which field.
func trimManaged(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// trimLease leaves of a pool's lease what tells that its run has come on.
func trimLease(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	m.ManagedFields = nil
	kube.TrimLease(m.Annotations)
	return m, nil
}
