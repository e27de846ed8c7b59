package poolstate

import (
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
)

// Models is how many recipes the instances of a pool refer to, as far as known, and how many they
// may. No cloud reports it: it is computed from when instances were created and when Kamino wrote
// the recipe. Writes of others are not included.
type Models struct {
	Known int `json:"known"`
	Most  int `json:"most"`
}

// Warning is what to do if few recipes are left; "" if enough are.
func (m *Models) Warning() string {
	if m == nil || m.Known < m.Most-2 {
		return ""
	}
	return fmt.Sprintf("the instances refer to %d of at most %d models, as far as is known; at the limit the pool takes no update or no further node: "+
		"replace the nodes of the oldest images; a model that names the image definition is written once", m.Known, m.Most)
}

// models counts recipes. Instances created before the first known write count by their version,
// because each version was then written by itself.
func (o State) models() *Models {
	writes := o.Lease.Ledger.Writes
	if o.Pool.MostModels == 0 || len(writes) == 0 && kamino.Points(o.Pool.Model.Image, o.Versions) {
		return nil
	}
	known, counted := map[string]bool{}, 0
	for _, v := range o.Versions {
		counted += v.Instances
		for _, born := range v.Births {
			if n := slices.IndexFunc(writes, func(at time.Time) bool { return !at.After(born) }); n >= 0 {
				known[writes[n].String()] = true
			} else {
				known[v.Name] = true
			}
		}
	}
	m := &Models{Known: len(known), Most: o.Pool.MostModels}
	if o.Pool.Capacity > counted {
		m.Known++ // instances of the former image
	}
	return m
}

// Halfway reports whether a promotion ended between its two writes: the definition stands for a
// version that passed its proof, and the model still names an older version, or none.
func (o State) Halfway(v kamino.Version) bool {
	now, offered := o.Next(), kamino.Resolved(o.Versions)
	return !kamino.Points(o.Pool.Model.Image, o.Versions) && offered != nil && offered.Name == v.Name && v.Ours() &&
		v.Offer == kamino.TagOfferOffered &&
		v.Proof == kamino.TagProofPassed && (now == nil || kamino.CompareVersions(now.Name, v.Name) < 0)
}
