package main

import "github.com/spf13/pflag"

// addImageOnly adds the flag for pools whose model has another owner.
func addImageOnly(f *pflag.FlagSet, only *bool) {
	f.BoolVar(only, "image-only", false, "make a hidden image version and never write the model, which another program owns; kamino promote --version offers it")
}
