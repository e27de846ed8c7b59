package poolstate

import "kamino.dev/kamino"

// Strayed returns why the pool's definition is not trusted; nil if it is.
func (o State) Strayed() *kamino.Stray {
	return o.Lease.Ledger.WhyStrayed(o.Pool.Model.Image, o.Versions)
}

// Newest returns the newest version that new nodes may boot from, as a target.
func (o State) Newest(opts kamino.AutoOptions) Destination {
	return Destination{Version: o.promotable(opts), Points: o.Follows(), Verb: kamino.VerbPromote, Nobody: &opts.Proof}
}

// Follows reports whether the pool refers to its definition, and will continue to.
func (o State) Follows() bool {
	return kamino.Points(o.Pool.Model.Image, o.Versions) && (o.Pool.Owner != nil || o.Strayed() == nil && !o.Tagged)
}

// Pin returns the image that somebody else chose for the pool; nil if nobody did.
func (o State) Pin() *kamino.Pin { return o.Lease.Ledger.Pinned(o.Pool, o.Versions) }
