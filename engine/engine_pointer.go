package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

func resolvedName(newestFirst []kamino.Version) string {
	if v := kamino.Resolved(newestFirst); v != nil {
		return v.Name
	}
	return ""
}

// againstPointer returns why the pool may not refer to its definition; "" if it may. A pool that
// refers to a version moves only while the definition stands for the same version, or for the one
// that Kamino offered last. Otherwise its next image could become a third one.
func againstPointer(pool kamino.Pool, versions []kamino.Version) string {
	now := kamino.Resolved(versions)
	if now != nil && now.Disputed {
		return now.WhyDisputed()
	}
	i := slices.IndexFunc(versions, func(v kamino.Version) bool { return v.ID != "" && strings.EqualFold(v.ID, pool.Model.Image) })
	if i < 0 {
		return ""
	}
	named := versions[i]
	switch {
	case now == nil:
		return "the model names version " + named.Name + ", and the definition stands for nothing"
	case now.Name == named.Name, now.Offer == kamino.TagOfferOffered && now.Ours() && kamino.CompareVersions(now.Name, named.Name) > 0:
		return ""
	}
	return "the model names version " + named.Name + ", and the definition stands for " + now.Name
}

// heed reads whether the definition that a pool refers to is tagged unreliable. The ledger, which
// has the reason, may have been deleted since.
func (e *Engine) heed(ctx context.Context, o *poolstate.State) error {
	if !kamino.Points(o.Pool.Model.Image, o.Versions) {
		return nil
	}
	return e.readTag(ctx, o)
}

func (e *Engine) readTag(ctx context.Context, o *poolstate.State) error {
	found, err := e.Provider.Find(ctx, o.Pool, kamino.KindDefinition, kamino.DefinitionName(o.Pool.Name))
	if err != nil {
		return fmt.Errorf("read the image definition of pool %s: %w", o.Pool.Name, err)
	}
	o.Tagged = len(found) > 0 && found[0].Unreliable()
	return nil
}

// comeToPoint moves a pool whose model refers to a version to the definition, with a promotion, as
// a run would. If a person promotes each version, no run writes the model, and each promotion would
// use up another model.
func (e *Engine) comeToPoint(ctx context.Context, o *poolstate.State, t *poolstate.Destination) error {
	if t.Points || t.Version == nil || t.Offered || o.Pool.Owner != nil || o.Pool.NoPointer != "" || !e.livesIn(kamino.KindDefinition) {
		return nil
	}
	if now := kamino.Resolved(o.Versions); t.Version.Disputed || now != nil && kamino.CompareVersions(now.Name, t.Version.Name) > 0 ||
		o.Strayed() != nil || againstPointer(o.Pool, o.Versions) != "" {
		return nil
	}
	if err := e.readTag(ctx, o); err != nil {
		return err
	}
	if !o.Tagged {
		t.Comes, t.Points = kamino.ByDefinition, true
	}
	return nil
}
