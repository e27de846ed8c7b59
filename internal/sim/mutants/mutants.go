// Package mutants holds known bad behaviours of the engine, and of providers, as patches of their
// source, to show that tests notice them. Each is a unified diff with a heading: what it does, the
// defect of the original that it translates (Like), the invariant that must find it (By, empty for
// any), whether only the simulated world has what it needs (Sim: only), the command that it spoils
// (Work, empty for an update), and the folder of the provider that it changes (In).
//
// The product knows nothing of them. [Overlay] applies every patch to copies, for go test -overlay.
// All are in one binary, which is linked once: a function that a patch changes begins, in the
// overlay only, with the question whether that mutant is switched on, and the patched function
// stands beside it under another name.
package mutants

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Mutant is one patch.
type Mutant struct {
	Name string // of the file, without ".patch"
	What string // it does
	Like string // the original's defect that it translates, "" another
	By   string // the invariant that must find it, "" any
	Sim  bool   // what it needs is in the simulated world only
	Work string // the command that it spoils, "" an update
	In   string // the folder of the provider that it changes, "" the engine

	patch []byte
}

// All lists the mutants, by name.
func All() []Mutant {
	entries, err := patches.ReadDir(".")
	if err != nil {
		panic(err) // the binary holds them
	}
	out := make([]Mutant, 0, len(entries))
	for _, e := range entries {
		text, err := patches.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		m := Mutant{Name: strings.TrimSuffix(e.Name(), path.Ext(e.Name())), patch: text}
		heading := bufio.NewScanner(strings.NewReader(string(text)))
		for heading.Scan() && !strings.HasPrefix(heading.Text(), "---") {
			key, value, _ := strings.Cut(heading.Text(), ":")
			switch value = strings.TrimSpace(value); key {
			case "What":
				m.What = value
			case "Like":
				m.Like = value
			case "By":
				m.By = value
			case "In":
				m.In = value
			case "Work":
				m.Work = value
			case "Sim":
				m.Sim = value == "only"
			}
		}
		out = append(out, m)
	}
	return out
}

// set is what the overlay puts here.
var set func(name string)

// ErrNoOverlay says that this binary was built from the product's own source.
var ErrNoOverlay = errors.New("built without the overlay of the mutants")

// Built says whether this binary holds the mutants.
func Built() bool { return set != nil }

// Switch switches one mutant on and all others off; "" switches all off. It must not be called
// while an engine runs.
func Switch(name string) error {
	if set == nil {
		if name == "" {
			return nil
		}
		return fmt.Errorf("switch on mutant %q: %w", name, ErrNoOverlay)
	}
	set(name)
	return nil
}
