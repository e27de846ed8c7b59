package kamino

import "encoding/json"

// Model is a pool's recipe, as far as Kamino has to know it.
type Model struct {
	Image      string      `json:"image"` // ID of version or definition, or publisher:offer:sku:version
	Extensions []Extension `json:"extensions"`
	// Saved is the part of the provider's own document that is needed to write
	// this model back, opaque to everybody else.
	Saved json.RawMessage `json:"saved,omitempty"`
}

// Extension is a program that the provider runs on every new instance.
type Extension struct {
	Name      string `json:"name"`
	Publisher string `json:"publisher"`
	Type      string `json:"type"`
}

// Target is what a pool's next instance is to boot from: a version, or what it booted from before
// the first prototype.
type Target struct {
	Version   string         // name of an image version of the pool; "" with Former
	Reference ImageReference // how the pool refers to the version; "": as it does now
	// Seen, where set, is the version as it was read: it is offered, where it is withheld. Nil:
	// only the pool's recipe counts.
	Seen *Artifact
	// Former, where set, is a Model.Saved. Its image comes back in the pool's present recipe, with
	// what a promotion removed of that. What belongs to another pool now is not written, and what
	// people have changed since stays.
	Former json.RawMessage
	// Secrets go with Former: what the provider never gives back.
	Secrets Secrets
}

// Secrets is what a pool's recipe has and a provider does not show. It is saved nowhere; to go
// back to a former model, the user must supply it.
type Secrets struct {
	CustomData []byte // nil leaves what the model has
	// Protected are the protected settings of extensions, JSON objects by name; nil
	// for an extension that has none.
	Protected map[string]json.RawMessage
}

// Offers says whether the version of a target has to be offered. One that only a person has
// excluded makes no difference to a pool that refers to versions.
func (t Target) Offers() bool {
	if t.Seen == nil || !t.Seen.Withheld() {
		return false
	}
	return t.Reference == ByDefinition || t.Seen.Tags[TagOffer] != "" || t.Seen.Tags[TagBad] != ""
}

// NextImage is what a pool's next instance boots from once a target was promoted.
type NextImage struct {
	Image string        // as Model.Image
	Diff  []FieldChange // what that changes of the pool's recipe; none: it is so already
	// Needs are what comes back with the target and of whose secrets nothing was said.
	Needs []string
	// NeedsCustomData: the target has custom data that the provider never shows, and that a person
	// has to bring.
	NeedsCustomData bool
}

// FieldChange is one line of a difference between two models.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}
