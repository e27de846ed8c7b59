package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

func resolvedName(newestFirst []kamino.Artifact) string {
	if v := kamino.Resolved(newestFirst); v != nil {
		return v.Name
	}
	return ""
}

// chooseReference decides how the pool refers to its image: to the definition, unless something
// speaks against it. Where an instance did not follow the definition, the definition is tagged and
// the model names the version, until a person removes the tag.
func (r *Run) chooseReference(versions []kamino.Artifact) (workflow.Next, error) {
	if r.image.reference = kamino.ByDefinition; !r.inDefinition() {
		r.image.reference = kamino.ByPointer
	}
	if err := r.refuseOwned(); err != nil || !r.inDefinition() {
		return workflow.Next{}, err
	}
	against, stray := againstPointer(r.pool, versions), r.held.Lease.Ledger.WhyStrayed(r.pool.Model.Image, versions)
	tagged := r.image.definition.Tags[kamino.TagPointer] == kamino.TagPointerUnreliable
	switch {
	case r.modelIsTheirs():
		if stray != nil {
			r.doubt(kamino.StepVersion, "whether new nodes follow the image definition: "+stray.String())
		}
		return workflow.Next{}, nil
	case stray != nil && !tagged && !kamino.Points(r.pool.Model.Image, versions):
		// The tag was there when the model was written by version, and a person removed it.
		if r.plan == nil {
			return r.tagPointer(nil), nil
		}
	case stray != nil && !tagged && r.plan == nil:
		return r.tagPointer(stray), nil
	case stray != nil:
		against = stray.String()
	case tagged:
		against = "image definition " + kamino.DefinitionName(r.pool.Name) + " has the tag " + kamino.TagPointer + "=" + kamino.TagPointerUnreliable
	}
	if against == "" {
		return workflow.Next{}, nil
	}
	r.image.reference = kamino.ByVersion
	next := "kamino rollback --pool " + r.pool.Name + " --to VERSION sets what it stands for"
	if tagged || stray != nil {
		next = "to trust it again, remove the tag " + kamino.TagPointer + " from the definition"
	}
	r.doubt(kamino.StepVersion, "whether new nodes would follow the image definition: "+against+". The model names the version instead; "+next)
	return workflow.Next{}, nil
}

// modelIsTheirs reports whether this run does not write the recipe.
func (r *Run) modelIsTheirs() bool { return r.opts.ImageOnly || r.pool.Owner != nil }

// refuseOwned refuses to write the recipe of a pool with another owner.
func (r *Run) refuseOwned() error {
	if r.pool.Owner == nil || r.opts.NewNodes == 0 {
		return nil
	}
	return &kamino.RefusedError{Subject: "pool " + r.pool.Name, Refusals: []kamino.Refusal{{Code: "owned", Field: "--new-updated-nodes", Value: fmt.Sprint(r.opts.NewNodes),
		Why: r.pool.Owner.Name + " writes the model and the number of instances, and would undo it", Do: "omit --new-updated-nodes"}}}
}

// tagPointer writes the tag unreliable on the definition, or removes it.
func (r *Run) tagPointer(stray *kamino.Stray) workflow.Next {
	d := r.image.definition
	if d.Tags = maps.Clone(d.Tags); d.Tags == nil {
		d.Tags = map[string]string{}
	}
	delete(d.Tags, kamino.TagPointer)
	what := "trust image definition " + d.Name + " again"
	if stray != nil {
		d.Tags[kamino.TagPointer], what = kamino.TagPointerUnreliable, "distrust image definition "+d.Name+": "+stray.String()
	}
	return workflow.Act(kamino.ActMarkVersion, what, func(ctx context.Context) error {
		err := r.engine.Provider.SetTags(ctx, r.pool, d)
		if err == nil {
			r.image.definition = d
		}
		return err
	}).Of(d.Name).Noting(func(l *kamino.Lease) {
		if l.Ledger.Strayed = stray; stray == nil {
			l.Ledger.Promoted = nil // only later promotions count
		}
	})
}

// distrust tags the definition that an instance did not follow, if it is not tagged.
func (r *Run) distrust(ctx context.Context, stray *kamino.Stray) (workflow.Next, error) {
	if stray == nil || r.image.definition.Tags[kamino.TagPointer] == kamino.TagPointerUnreliable {
		return workflow.Next{}, nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Definition, kamino.DefinitionName(r.pool.Name))
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read the image definition of pool %s: %w", r.pool.Name, err)
	} else if len(found) == 0 {
		return workflow.Next{}, nil // all versions are deleted with it
	}
	if r.image.definition = found[0]; found[0].Tags[kamino.TagPointer] == kamino.TagPointerUnreliable {
		return workflow.Next{}, nil
	}
	return r.tagPointer(stray), nil
}

// againstPointer returns why the pool may not refer to its definition; "" if it may. A pool that
// refers to a version moves only while the definition stands for the same version, or for the one
// that Kamino offered last. Otherwise its next image could become a third one.
func againstPointer(pool kamino.Pool, versions []kamino.Artifact) string {
	now := kamino.Resolved(versions)
	if now != nil && now.Disputed {
		return now.WhyDisputed()
	}
	i := slices.IndexFunc(versions, func(v kamino.Artifact) bool { return v.ID != "" && strings.EqualFold(v.ID, pool.Model.Image) })
	if i < 0 {
		return ""
	}
	named := versions[i]
	switch {
	case now == nil:
		return "the model names version " + named.Name + ", and the definition stands for nothing"
	case now.Name == named.Name, now.Tags[kamino.TagOffer] == kamino.TagOfferOffered && now.Ours() && kamino.CompareVersions(now.Name, named.Name) > 0:
		return ""
	}
	return "the model names version " + named.Name + ", and the definition stands for " + now.Name
}

// refusePinned refuses a pool whose image somebody else chose. Instances created meanwhile are no
// evidence of whether the pool follows its definition.
func (r *Run) refusePinned(ctx context.Context, versions []kamino.Artifact) error {
	pin := r.held.Lease.Ledger.Pinned(r.pool, versions)
	if pin == nil {
		return nil
	}
	if list := r.opts.Unlifted([]kamino.Refusal{pin.Refusal(r.pool)}); len(list) > 0 {
		if r.plan == nil && r.held.Lease.Ledger.Promoted != nil {
			if err := r.held.SetLease(ctx, func(l *kamino.Lease) { l.Ledger.Promoted = nil }); err != nil {
				return err
			}
		}
		return &kamino.RefusedError{Subject: "pool " + r.pool.Name, Refusals: list}
	}
	return nil
}

// refuseUndone refuses to write a model again that somebody may have reverted.
func (r *Run) refuseUndone(pool kamino.Pool) error {
	if r.held.Lease == nil {
		return nil // a plan
	}
	pin := r.held.Lease.Ledger.Pinned(pool, r.image.listed)
	if pin == nil || !pin.Unsure {
		return nil
	}
	if list := r.opts.Unlifted([]kamino.Refusal{pin.Refusal(pool)}); len(list) > 0 {
		return &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	return nil
}
