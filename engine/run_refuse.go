package engine

import (
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/selection"
)

// refuse joins the refusals of node, instance and pool that the options do not override.
func (r *Run) refuse(midRun bool) error {
	all := selection.RefuseNode(r.donor.node, r.opts, midRun)
	if mark, err := r.donor.node.Mark(); r.plan != nil && err == nil && mark.Patches() && mark.Begun && r.work() == "" {
		// A run would give the node back, and find it blocked then.
		all = append(all, kamino.Refusal{Code: kamino.CodePatchFailed, Why: mark.Patching(), Do: kamino.GoesOn(r.donor.node.Name)})
	}
	if !kamino.SameVM(r.donor.instance.VMID, r.donor.node.SystemUUID) {
		all = append(all, kamino.Refusal{Code: "identity", Field: "status.nodeInfo.systemUUID", Value: r.donor.node.SystemUUID,
			Why: fmt.Sprintf("instance %s is VM %s, not the machine that the node runs on", r.donor.instance.ID, r.donor.instance.VMID),
			Do:  "check whether the instance was replaced under the same name; if so, delete the stale Node object"})
	}
	all = append(all, r.donor.instance.Refusals...)
	all = append(all, r.pool.Refusals...)
	kept := r.opts.Unlifted(all)
	if len(kept) == 0 {
		return nil
	}
	return &kamino.RefusedError{Subject: "node " + r.donor.node.Name, Refusals: kept}
}

// refusedFirst reports whether a run was refused before it took anything: it is not adopted, and
// its donor has no mark.
func (r *Run) refusedFirst(err error) bool {
	var step *kamino.StepError
	if !errors.As(err, &step) || !step.Refused || r.held.Adopted {
		return false
	}
	mark, markErr := r.donor.node.Claimed(r.pool.ID)
	rec := r.held.Lease.Record
	return mark == nil && markErr == nil && !rec.Sealing && rec.Canary == ""
}
