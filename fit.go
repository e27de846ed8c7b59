package kamino

import (
	"context"
	"fmt"
	"slices"
)

// fit compares the donor with the pool's model and image definition, before
// anything is touched: what of these can never be changed later would otherwise
// be found out when the donor is off, or when the pool can no longer grow.
func (r *Run) fit(ctx context.Context) error {
	found, err := r.Provider.Find(ctx, r.pool, Definition, DefinitionName(r.pool.Name))
	if err != nil {
		return fmt.Errorf("read image definition of pool %s: %w", r.pool.Name, err)
	}
	var all []Refusal
	var definition *Artifact
	if len(found) > 0 && found[0].State == Succeeded {
		definition = &found[0]
		all = misfits(found[0], r.wantedDefinition())
	}
	if f, ok := r.Provider.(Fitter); ok {
		refusals, doubts, err := f.Fit(ctx, r.pool, r.instance, definition)
		if err != nil {
			return fmt.Errorf("compare node %s with pool %s: %w", r.node.Name, r.pool.Name, err)
		}
		r.doubt(InValidate, doubts)
		all = append(all, refusals...)
	}
	if len(all) > 0 {
		return &RefusedError{Subject: "node " + r.node.Name, Refusals: all}
	}
	return nil
}

// doubt tells what could not be found out, once.
func (r *Run) doubt(step string, doubts []string) {
	for _, d := range doubts {
		if slices.Contains(r.doubts, d) {
			continue
		}
		r.doubts = append(r.doubts, d)
		r.tell(Event{Kind: Warned, Step: step, Percent: -1, Message: d})
	}
}
