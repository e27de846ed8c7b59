package engine

import (
	"context"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// chooseReference decides how the pool refers to its image: to the definition, unless something
// speaks against it. Where an instance did not follow the definition, the definition is tagged and
// the model names the version, until a person removes the tag.
func (p *pointer) chooseReference(versions []kamino.Version) (workflow.Next, error) {
	if p.reference = kamino.ByDefinition; !p.image.inDefinition() {
		p.reference = kamino.ByPointer
	}
	if err := p.refuseOwned(); err != nil || !p.image.inDefinition() {
		return workflow.Next{}, err
	}
	against, stray := againstPointer(p.pool, versions), p.held.Lease.Ledger.WhyStrayed(p.pool.Model.Image, versions)
	tagged := p.image.definition.Unreliable()
	switch {
	case p.modelIsTheirs():
		if stray != nil {
			p.doubt(kamino.StepVersion, "whether new nodes follow the image definition: "+stray.String())
		}
		return workflow.Next{}, nil
	case stray != nil && !tagged && !kamino.Points(p.pool.Model.Image, versions):
		// The tag was there when the model was written by version, and a person removed it.
		if p.plan == nil {
			return p.tagPointer(nil), nil
		}
	case stray != nil && !tagged && p.plan == nil:
		return p.tagPointer(stray), nil
	case stray != nil:
		against = stray.String()
	case tagged:
		against = "image definition " + kamino.DefinitionName(p.pool.Name) + " has the tag " + kamino.TagPointer + "=" +
			kamino.TagPointerUnreliable
	}
	if against == "" {
		return workflow.Next{}, nil
	}
	p.reference = kamino.ByVersion
	next := "kamino rollback --pool " + p.pool.Name + " --to VERSION sets what it stands for"
	if tagged || stray != nil {
		next = "to trust it again, remove the tag " + kamino.TagPointer + " from the definition"
	}
	p.doubt(kamino.StepVersion, "whether new nodes would follow the image definition: "+against+". The model names the version instead; "+
		next)
	return workflow.Next{}, nil
}

// modelIsTheirs reports whether this run does not write the recipe.
func (p *pointer) modelIsTheirs() bool { return p.opts.ImageOnly || p.pool.Owner != nil }

// refuseOwned refuses to write the recipe of a pool with another owner.
func (p *pointer) refuseOwned() error {
	if p.pool.Owner == nil || p.opts.NewNodes == 0 {
		return nil
	}
	return &kamino.RefusedError{Subject: "pool " + p.pool.Name,
		Refusals: []kamino.Refusal{{Code: kamino.CodeOwned, Field: "--new-updated-nodes", Value: fmt.Sprint(p.opts.NewNodes),
			Why: p.pool.Owner.Name + " writes the model and the number of instances, and would undo it", Do: "omit --new-updated-nodes"}}}
}

// tagPointer writes the tag unreliable on the definition, or removes it.
func (p *pointer) tagPointer(stray *kamino.Stray) workflow.Next {
	d := p.image.definition.WithTag(kamino.TagPointer, kamino.TagPointerUnreliable)
	what := "trust image definition " + d.Name + " again"
	if stray != nil {
		what = "distrust image definition " + d.Name + ": " + stray.String()
	} else {
		delete(d.Tags, kamino.TagPointer)
	}
	return workflow.Act(kamino.ActMarkVersion, what, func(ctx context.Context) error {
		err := p.engine.Provider.SetTags(ctx, p.pool, d)
		if err == nil {
			p.image.definition = d
		}
		return err
	}).Of(d.Name).Noting(func(l *kamino.Lease) {
		if l.Ledger.Strayed = stray; stray == nil {
			l.Ledger.Promoted = nil // only later promotions count
		}
	})
}

// distrust tags the definition that an instance did not follow, if it is not tagged.
func (p *pointer) distrust(ctx context.Context, stray *kamino.Stray) (workflow.Next, error) {
	if stray == nil || p.image.definition.Unreliable() {
		return workflow.Next{}, nil
	}
	found, err := p.engine.Provider.Find(ctx, p.pool, kamino.KindDefinition, kamino.DefinitionName(p.pool.Name))
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the image definition of pool %s: %w", p.pool.Name, err)
	} else if len(found) == 0 {
		return workflow.Next{}, nil // all versions are deleted with it
	}
	if p.image.definition = found[0]; found[0].Unreliable() {
		return workflow.Next{}, nil
	}
	return p.tagPointer(stray), nil
}

// refusePinned refuses a pool whose image somebody else chose. Instances created meanwhile are no
// evidence of whether the pool follows its definition.
func (p *pointer) refusePinned(ctx context.Context, versions []kamino.Version) error {
	pin := p.held.Lease.Ledger.Pinned(p.pool, versions)
	if pin == nil {
		return nil
	}
	if list := p.opts.Unlifted([]kamino.Refusal{pin.Refusal(p.pool)}); len(list) > 0 {
		if p.plan == nil && p.held.Lease.Ledger.Promoted != nil {
			if err := p.held.SetLease(ctx, func(l *kamino.Lease) { l.Ledger.Promoted = nil }); err != nil {
				return err
			}
		}
		return &kamino.RefusedError{Subject: "pool " + p.pool.Name, Refusals: list}
	}
	return nil
}

// refuseUndone refuses to write a model again that somebody may have reverted.
func (p *pointer) refuseUndone(pool kamino.Pool) error {
	if p.held.Lease == nil {
		return nil // a plan
	}
	pin := p.held.Lease.Ledger.Pinned(pool, p.image.listed)
	if pin == nil || !pin.Unsure {
		return nil
	}
	if list := p.opts.Unlifted([]kamino.Refusal{pin.Refusal(pool)}); len(list) > 0 {
		return &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	return nil
}
