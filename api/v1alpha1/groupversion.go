// Package v1alpha1 is the kind NodePrototype: the declared wish for a pool of nodes, and what a
// controller found of it. Its CustomResourceDefinition is made from these types by controller-gen,
// see "make generate".
//
// +kubebuilder:object:generate=true
// +groupName=kamino.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and its version.
var GroupVersion = schema.GroupVersion{Group: "kamino.dev", Version: "v1alpha1"}

// AddToScheme makes a scheme know the kinds of this group.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodePrototype{}, &NodePrototypeList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
