package kamino

import "encoding/json"

// Model is a pool's recipe, as far as Kamino needs it.
type Model struct {
	Image      string      `json:"image"` // ID of version or definition, or publisher:offer:sku:version
	Extensions []Extension `json:"extensions"`
	// Saved is the part of the provider's document that is needed to write this model back. Only
	// the provider reads it.
	Saved json.RawMessage `json:"saved,omitempty"`
}

// Extension is a program that the provider runs on every new instance.
type Extension struct {
	Name      string `json:"name"`
	Publisher string `json:"publisher"`
	Type      string `json:"type"`
}

// Target is what a promotion or a rollback makes a pool's next instance boot from: a version, or
// the original image.
type Target struct {
	Version   string         // name of an image version of the pool; "" if Former is set
	Reference ImageReference // how the pool refers to the version; "": as it does now
	// Seen, if set, is the version as it was read; the promotion offers it if it is withheld. Nil:
	// only the pool's recipe counts.
	Seen *Version
	// Former, if set, is a Model.Saved. Its image returns in the pool's present recipe, with what a
	// promotion removed from the recipe. Parts that now belong to another pool are not written;
	// later changes by people stay.
	Former json.RawMessage
	// Secrets belong to Former: the values that the provider never returns.
	Secrets Secrets
}

// Secrets are the parts of a pool's recipe that the provider does not show. Kamino saves them
// nowhere; to return to a former model, the user must supply them.
type Secrets struct {
	CustomData []byte // nil leaves what the model has
	// Protected are the protected settings of extensions, JSON objects by name; nil for an
	// extension without any.
	Protected map[string]json.RawMessage
}

// Offers reports whether the version of a target has to be offered. A version that only a person
// has excluded makes no difference to a pool that refers to versions.
func (t Target) Offers() bool {
	if t.Seen == nil || !t.Seen.Withheld() {
		return false
	}
	return t.Reference == ByDefinition || t.Seen.Offer != "" || t.Seen.Bad != ""
}

// NextImage is what a pool's next instance boots from once a target is promoted.
type NextImage struct {
	Image string        // as Model.Image
	Diff  []FieldChange // the changes to the pool's recipe; empty if the target is promoted already
	// Needs are the parts of the target whose secrets were not supplied.
	Needs []string
	// NeedsCustomData: the target has custom data that the provider never shows, so a person has to
	// supply it.
	NeedsCustomData bool
}

// FieldChange is one line of a difference between two models.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}
