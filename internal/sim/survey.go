package sim

import (
	"context"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
)

// surveyTime is how long an inventory takes, longer than cluster-autoscaler is given to settle.
const surveyTime = 40 * time.Second

func (c simCluster) survey(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	w, run := c.p.w, order.Run
	return c.call(ctx, call{method: "Survey", subject: run, write: true}, func(*fault) error {
		if w.nodes[node.Name] == nil {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		}
		asked := c.p.onNode(node, invariant.Survey)
		asked.Run = run
		w.audit.before(asked)
		pod, err := w.newPod(node.Name, order)
		if err != nil || w.surveys[run] != nil {
			return err
		}
		w.happened("%s creates the inventory's pod of %s", c.p.name, run)
		w.play(w.surveys, run, pod, node, kamino.TaskInventory, order, "")
		return nil
	})
}
