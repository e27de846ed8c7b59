package main

import (
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
)

// ownerFlags are for pools whose model somebody else writes.
type ownerFlags struct{ imageOnly, bootstrap bool }

func (o *ownerFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&o.imageOnly, "image-only", false, "make an image version, and never write the model: for pools whose model somebody else writes, as cluster-api-provider-azure does; prints what its owner has to write")
	f.BoolVar(&o.bootstrap, "accept-bootstrap", false, "with --image-only: offer the version, although every node made of it runs the model's own bootstrap; without, it stays hidden")
}

func (o *ownerFlags) apply(opts *kamino.Options) {
	opts.ImageOnly, opts.AcceptBootstrap = o.imageOnly, o.bootstrap
}
