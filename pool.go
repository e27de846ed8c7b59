// Package kamino holds the words of the project and its ports to the outside world. Kamino applies
// the Prototype Pattern to pools of Kubernetes nodes: it takes the best node running in a pool and
// makes its OS disk the pool's image, so that every new node is like it. Running nodes are not
// changed.
//
//   - [Provider] is the port to the cloud; packages azure and aws implement it.
//   - [Cluster] is the port to Kubernetes; package kube implements it.
//   - Package engine has the runs that use both.
//
// Nothing is kept in files or databases: names can be computed, and what a run needs to be resumed
// is on the pool's [Lease], on the donor's [Mark] and in the tags of what it made. The package
// imports the standard library only.
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
	// UID identifies the pool, also against a later pool of the same name; "" where the provider
	// has none.
	UID string `json:"uid,omitempty"`
	// Created is when this pool was created; zero if not known.
	Created time.Time `json:"-"`
	// Revision makes the next write conditional: it fails if anybody changed the pool since this
	// read.
	Revision string `json:"revision"`
	// Stamp changes with every write of the pool and never returns to a former value; "" where the
	// provider has none. Revision may return, if a change is reverted.
	Stamp string `json:"-"`
	// Owner is a program that manages the pool's recipe; nil if none is known. Kamino never writes
	// an owned recipe.
	Owner *Owner `json:"owner,omitempty"`
	// NoPointer is why the pool's recipe cannot refer to a pointer (ByPointer); "" if it can.
	NoPointer string `json:"noPointer,omitempty"`
	// MostModels is how many recipes the pool's instances may refer to together (each keeps the one
	// that it was made with); 0: any number.
	MostModels int `json:"mostModels,omitempty"`
	// Updating: the provider is busy applying an earlier change.
	Updating bool      `json:"updating,omitempty"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Owner is a program that manages a pool's recipe.
type Owner struct {
	Name string `json:"name"`
	// Spec is what the owner's document must contain so that the pool refers to its image
	// definition, in the document's language. Needs is what must hold besides; nobody checks it.
	Spec  string `json:"spec"`
	Needs string `json:"needs,omitempty"`
}

// MadeOfFormer reports whether Kamino made an artifact of an earlier pool with this pool's name. An
// artifact that names no pool counts as this pool's, unless it is older than the pool. An artifact
// without a run was made by another program, or by the original script.
func (p Pool) MadeOfFormer(a Artifact) bool {
	switch c := ParseCopy(a); {
	case p.UID == "" || c.Run == "":
		return false
	case c.poolUID == "":
		return !a.Created.IsZero() && a.Created.Before(p.Created)
	default:
		return c.poolUID != p.UID
	}
}

// Identify adds the pool's UID to the tags of an artifact that is made of it.
func (p Pool) Identify(tags map[string]string) map[string]string {
	if p.UID == "" {
		return tags
	}
	return Artifact{Tags: tags}.WithTag(TagPoolUID, p.UID).Tags
}

// Named reports whether a user's text is the pool's name or ID.
func (p PoolID) Named(name string) bool {
	return strings.EqualFold(p.Name(), name) || strings.EqualFold(string(p), name)
}
