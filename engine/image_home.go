package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// mendTime is how long a failed gallery or definition is requested again.
const mendTime = 5 * time.Minute

// ensure is a look that creates an artifact that does not exist.
func (m *image) ensure(ctx context.Context, want kamino.Artifact, check func(kamino.Artifact) error) (workflow.Next, error) {
	found, err := m.engine.Provider.Find(ctx, m.pool, want.Kind, want.Name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read %s %s: %w", want.Kind, want.Name, err)
	}
	create := workflow.Act(createAct(want.Kind), createText(want.Kind, want.Name), func(ctx context.Context) error {
		return m.engine.Provider.Create(ctx, m.pool, want)
	})
	if len(found) == 0 && !m.held.Lease.Ledger.Empty { // versions exist in it
		return create.Noting(func(l *kamino.Lease) { l.Ledger.Empty = true }), nil
	} else if len(found) == 0 {
		return create, nil
	}
	have := found[0]
	switch have.State {
	case kamino.Succeeded:
		return workflow.Done(have.Name), check(have)
	case kamino.Failed:
		// The same request again completes a half-made artifact.
		if m.runner.Spent() > mendTime {
			return workflow.Next{}, kamino.WithHint(fmt.Errorf("%s %s has failed: %s", have.Kind, have.Name, have.Failure),
				"delete it if it is empty, then run again")
		}
		return create, nil
	}
	return workflow.Wait(fmt.Sprintf("%s %s, which is %s", have.Kind, have.Name, have.State)), nil
}

func (m *image) inGallery() bool { return m.engine.livesIn(kamino.KindGallery) }

func (m *image) inDefinition() bool { return m.engine.livesIn(kamino.KindDefinition) }

func createAct(kind kamino.Kind) kamino.Act {
	if kind == kamino.KindGallery {
		return kamino.ActCreateGallery
	}
	return kamino.ActCreateDefinition
}

func createText(kind kamino.Kind, name string) string { return fmt.Sprintf("create %s %s", kind, name) }

func (m *image) lookGallery(ctx context.Context) (workflow.Next, error) {
	want := kamino.Artifact{Kind: kamino.KindGallery, Name: m.pool.Gallery}
	next, err := m.ensure(ctx, want, func(kamino.Artifact) error { return nil })
	return next.Announcing(kamino.ActCreateDefinition, createText(kamino.KindDefinition, kamino.DefinitionName(m.pool.Name))), err
}

func (m *image) lookDefinition(ctx context.Context) (workflow.Next, error) {
	want := m.wantedDefinition()
	return m.ensure(ctx, want, func(have kamino.Artifact) error {
		m.definition = have
		if list := misfits(have, want); len(list) > 0 {
			return kamino.InTheWay{Err: kamino.WithHint(errors.New(list[0].Why), "%s", list[0].Do)}
		}
		return nil
	})
}

// wantedDefinition returns the definition that fits the donor's disk.
func (m *image) wantedDefinition() kamino.Artifact {
	in := m.donor.instance
	return kamino.Artifact{
		Kind: kamino.KindDefinition, Name: kamino.DefinitionName(m.pool.Name),
		Machine: kamino.Machine{Generation: in.Generation, Architecture: in.Architecture, SecurityType: in.SecurityType,
			Controller: in.Controller},
	}
}

// misfits returns the differences of a definition that can never be changed. A definition without
// an architecture or a security type was made by the original script: x64, Standard. A definition
// for TrustedLaunchSupported is always refused: its versions cannot be made of snapshots
// (https://github.com/hashicorp/packer-plugin-azure/issues/304).
func misfits(have, want kamino.Artifact) (list []kamino.Refusal) {
	for _, f := range []struct{ name, have, want, absent string }{
		{"generation", have.Generation, want.Generation, "V1"},
		{"architecture", have.Architecture, want.Architecture, "x64"},
		{"security type", have.SecurityType, want.SecurityType, "Standard"},
	} {
		if f.have == "" {
			f.have = f.absent
		}
		if f.want != "" && !strings.EqualFold(f.have, f.want) {
			list = append(list, kamino.Refusal{Code: kamino.CodeFit, Field: f.name + " of image definition " + have.Name, Value: f.have,
				Why: fmt.Sprintf("image definition %s has %s %s, the donor %s, and it can never be changed", have.Name, f.name,
					f.have, f.want),
				Do: "if no instance uses its versions, delete the definition; else choose another gallery with --gallery"})
		}
	}
	return list
}

// keepWithdrawn is how many withdrawn versions are kept, and how many that were never offered.
const keepWithdrawn = 1
