// Package kamino holds the words of the project and its ports to the outside world. Kamino applies the
// Prototype Pattern to pools of Kubernetes nodes: take the best node running in a pool, make its OS
// disk the pool's image, and every new node is like it. Running nodes stay untouched.
//
//   - [Provider] is the port to a factory of VMs; packages azure and aws implement it.
//   - [Cluster] is the port to Kubernetes; package kube implements it.
//   - Package engine has the runs that work through both.
//
// Nothing is kept in files or databases: names can be computed, and what a run
// needs to be resumed stands on the pool's [Lease], on the donor's [Mark] and
// in the tags of what it made. The package imports the standard library only.
package kamino

import (
	"strings"
	"time"
)

// PoolID identifies a pool at its provider; on Azure it is the resource ID of
// the scale set in lower case.
type PoolID string

// Name is the last segment of the ID, the pool's own name.
func (p PoolID) Name() string {
	s := string(p)
	return s[strings.LastIndexByte(s, '/')+1:]
}

// Pool is a set of nodes built from one recipe, freshly read.
type Pool struct {
	ID       PoolID `json:"id"`
	Name     string `json:"name"`
	Group    string `json:"group"`
	Location string `json:"location"`
	Gallery  string `json:"gallery"` // name of the gallery of its images
	Capacity int    `json:"capacity"`
	Model    Model  `json:"model"`
	// UID is given to no other pool, also not to a later one of the same name; "" where the
	// provider has none.
	UID string `json:"uid,omitempty"`
	// Created is when this pool came into being; zero where that is not known.
	Created time.Time `json:"-"`
	// Revision makes the next write conditional on nobody having changed the
	// pool since this read.
	Revision string `json:"revision"`
	// Stamp is another after every write of the pool, and never again what it was before; "" where
	// the provider has none. What is set and taken back has the former Revision, perhaps.
	Stamp string `json:"-"`
	// Owner is who writes the pool's recipe back; nil for nobody that is known. Its recipe is never
	// written.
	Owner *Owner `json:"owner,omitempty"`
	// NoPointer says why the pool's recipe cannot refer to a pointer (ByPointer); "" where it can.
	NoPointer string `json:"noPointer,omitempty"`
	// MostModels is how many recipes the instances of the pool may refer to together, each keeping
	// the one that it was made with; 0: any number.
	MostModels int `json:"mostModels,omitempty"`
	// Updating says that the provider is busy applying an earlier change.
	Updating bool      `json:"updating,omitempty"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Owner is a program that writes a pool's recipe.
type Owner struct {
	Name string `json:"name"`
	// Spec is what its own document must hold so that the pool refers to its image definition, in
	// the document's language, and Needs what must hold besides, which nobody checks.
	Spec  string `json:"spec"`
	Needs string `json:"needs,omitempty"`
}

// The kinds of artifact.
const (
	Gallery    Kind = "gallery"
	Definition Kind = "image definition"
	Version    Kind = "image version"
	Snapshot   Kind = "snapshot"
	// Parameter is what the recipes of pools refer to in place of an image, where that stands by
	// itself. It is only found: Promote makes it.
	Parameter Kind = "parameter"
)

// MadeOfFormer says whether an artifact is one that Kamino made of an earlier pool of this pool's
// name. One that names no pool, as a kamino without this tag made it, counts as this pool's unless
// it is older than the pool. What is of no run was made by another program, or the original.
func (p Pool) MadeOfFormer(a Artifact) bool {
	switch of := a.Tags[TagPoolUID]; {
	case p.UID == "" || a.Tags[TagRun] == "":
		return false
	case of == "":
		return !a.Created.IsZero() && a.Created.Before(p.Created)
	default:
		return of != p.UID
	}
}

// Identify adds the pool's UID to the tags of what is made of it.
func (p Pool) Identify(tags map[string]string) map[string]string {
	if p.UID == "" {
		return tags
	}
	return Artifact{Tags: tags}.WithTag(TagPoolUID, p.UID).Tags
}

// Named compares a pool with a name or an ID that a user typed.
func (p PoolID) Named(name string) bool {
	return strings.EqualFold(p.Name(), name) || strings.EqualFold(string(p), name)
}
