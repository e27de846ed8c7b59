package engine

import (
	"context"
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// addLacks tells which images the next node of each pool would have to pull: 1 request for each
// whose version has a list. Who may not read it is told nothing.
func (e *Engine) addLacks(ctx context.Context, all []poolstate.State, out []poolstate.PoolStatus) {
	shelf, ok := e.Cluster.(kamino.PackageStore)
	if !ok {
		return
	}
	for i, o := range all {
		b := out[i].Behind
		if b == nil {
			continue
		}
		list, err := shelf.List(ctx, o.Next().Tags[kamino.TagRun])
		at := slices.IndexFunc(o.Nodes, func(n kamino.Node) bool { return n.Name == b.Node })
		if err == nil && at >= 0 {
			b.Missing = list.Lacks(o.Nodes[at])
		}
	}
}
