package main

import (
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
)

// ownerFlags are for pools whose model somebody else writes.
type ownerFlags struct{ imageOnly, bootstrap bool }

func (o *ownerFlags) add(f *pflag.FlagSet) {
	f.BoolVar(&o.imageOnly, "image-only", false, "make an image version, and never write the model: for pools whose model another program owns, such as cluster-api-provider-azure; prints what has to be written there")
	f.BoolVar(&o.bootstrap, "accept-bootstrap", false, "with --image-only: offer the version, although every node made of it runs the model's own bootstrap; without it, the version stays hidden")
}

func (o *ownerFlags) apply(opts *kamino.Options) {
	opts.ImageOnly, opts.AcceptBootstrap = o.imageOnly, o.bootstrap
}
