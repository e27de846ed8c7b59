package poolstate

import "kamino.dev/kamino"

// Strayed is why the pool's definition is not believed; nil where it is.
func (o State) Strayed() *kamino.Stray {
	return o.Lease.Ledger.WhyStrayed(o.Pool.Model.Image, o.Versions)
}

// Newest is the newest version that new nodes may be made of, as a target.
func (o State) Newest(opts kamino.AutoOptions) Destination {
	return Destination{Version: o.promotable(opts), Points: o.Follows(opts.ImageReference), Verb: kamino.VerbPromote, Nobody: &opts.Proof}
}

// Follows says whether the pool refers to its definition, and shall go on doing so.
func (o State) Follows(reference kamino.ImageReference) bool {
	return kamino.Points(o.Pool.Model.Image, o.Versions) && (reference == kamino.ByDefinition || o.Pool.Owner != nil || o.Strayed() == nil && !o.Tagged)
}

// Pin is the image that somebody else chose for the pool; nil where nobody did.
func (o State) Pin() *kamino.Pin { return o.Lease.Ledger.Pinned(o.Pool, o.Versions) }
