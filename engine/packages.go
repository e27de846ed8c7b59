package engine

import (
	"context"
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// addLacks adds the images that the next node of each pool would have to pull: one request for each
// version with a list. Without the right to read lists it adds nothing.
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
