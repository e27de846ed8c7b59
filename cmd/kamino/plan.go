package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// planCommand is kamino plan, which shows what auto-update would do.
type planCommand struct {
	*app
	sel      selectFlags
	out      outputFlag
	detailed bool
}

func newPlanCommand(a *app) *cobra.Command {
	c := &planCommand{app: a}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show which pools need a new prototype, why, and from which node",
		Long: `Show, per pool, whether a new prototype is needed and why, evaluate every node,
and print what a run with the best one would do: pods that would be evicted and
budgets in their way, minutes expected from past runs, the model's diff, image
versions that would be pruned. Nothing is changed.`,
		Example: `  kamino plan
  kamino plan --pool k8s-pool1-12345678-vmss --detailed-exitcode -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	c.sel.add(a, f, "pool")
	f.BoolVar(&c.detailed, "detailed-exitcode", false, "exit with 2 when there is something to do")
	c.out.add(cmd)
	c.sel.completes(a, cmd, "pool")
	return cmd
}

// Run runs the command.
func (c *planCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	opts, err := c.sel.options(c.app)
	if err != nil {
		return err
	}
	if err := c.needImage(ctx, true); err != nil {
		return err
	}
	ctx = kube.NodesBare(kube.NodesOnce(ctx))
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	return c.plan(ctx, engine, opts, c.out, c.detailed)
}

// plan prints the plan of all pools, also for the dry run of auto-update.
func (a *app) plan(ctx context.Context, e *engine.Engine, opts kamino.AutoOptions, out outputFlag, detailed bool) error {
	plans, err := e.PlanPools(ctx, opts)
	if plans == nil && err != nil {
		return err
	}
	err = out.unread(err, countOf(plans, func(p poolstate.PoolPlan) bool { return kamino.Has(p.Held, kamino.CodeError) }), len(plans))
	if printErr := out.print(a, plans, func(w io.Writer) { printPools(w, plans) }); err == nil {
		err = printErr
	}
	if err != nil {
		return err
	}
	for _, p := range plans {
		if len(p.Refusals) > 0 {
			err = errors.Join(err, &kamino.RefusedError{Subject: "pool " + p.Name, Refusals: p.Refusals})
		}
	}
	if err != nil {
		return err
	}
	for _, p := range plans {
		if detailed && p.Action != poolstate.DoNothing {
			return errToDo
		}
	}
	return nil
}

func printPools(w io.Writer, plans []poolstate.PoolPlan) {
	if len(plans) == 0 {
		fmt.Fprintln(w, "No node of this cluster belongs to a pool.")
		return
	}
	if paused := plans[0].Paused; paused != nil { // the pause is the same for all pools
		fmt.Fprintf(w, "Paused:\t%s; no run begins before kamino resume\n\n", paused)
	}
	for i, p := range plans {
		if i > 0 {
			fmt.Fprintln(w)
		}
		printPool(w, p)
	}
}

// actions describes the actions of auto-update.
var actions = map[poolstate.Action]string{
	poolstate.DoNothing: "nothing",
	poolstate.DoUpdate:  "make a new prototype of %s",
	poolstate.DoModel:   "point the model at %s",
	poolstate.DoFinish:  "finish the unfinished run",
}

func printPool(w io.Writer, p poolstate.PoolPlan) {
	fmt.Fprintf(w, "Pool:\t%s\n", p.Name)
	if i := slices.IndexFunc(p.Held, func(v kamino.Verdict) bool { return v.Code == kamino.CodeError }); i >= 0 &&
		p.Action == poolstate.DoNothing && len(p.Candidates) == 0 {
		fmt.Fprintf(w, "Error:\t%s\n", p.Held[i].Text) // image and nodes are not known
		return
	}
	does := p.Action
	if p.AfterResume != "" {
		does = p.AfterResume
	}
	action := actions[does]
	switch does {
	case poolstate.DoUpdate:
		action = fmt.Sprintf(action, p.Donor)
	case poolstate.DoModel:
		action = fmt.Sprintf(action, p.Image)
	}
	if does == poolstate.DoNothing && slices.ContainsFunc(p.Held, func(v kamino.Verdict) bool { return v.Code == kamino.CodeTooFew }) {
		action = "nothing yet: a new image is needed, and too few nodes can be its donor"
	}
	if p.AfterResume != "" {
		action = "nothing before kamino resume; then: " + action
	}
	if len(p.Patches) > 0 {
		fmt.Fprintf(w, "Patched first:\t%s; the rest is decided again afterwards\n", p.Patches[0])
	}
	fmt.Fprintf(w, "To do:\t%s\n", action)
	for _, v := range p.Why {
		fmt.Fprintf(w, "Because:\t%s\n", v.Text)
	}
	for _, v := range p.Held {
		if v.Code == kamino.CodePaused {
			v.Text = "the cluster is paused" // the reason is printed once, above all pools
		}
		fmt.Fprintf(w, "Held:\t%s\n", v.Text)
		if v.Code == kamino.CodeTooFew && lackPatchOnly(p.Candidates) {
			fmt.Fprintf(w, "Instead:\tname the donor: kamino update --target-node NODE; or patch one: kamino patch --pool %s\n", p.Name)
		}
	}
	if warning := p.Models.Warning(); warning != "" {
		fmt.Fprintf(w, "Warning:\t%s\n", warning)
	}
	fmt.Fprintf(w, "Image:\t%s\n", cmp.Or(p.Image, "none"))
	printCandidates(w, p.Candidates)
	if p.Run != nil {
		fmt.Fprintln(w)
		printRun(w, p.Run)
	} else if does == poolstate.DoModel {
		printDiff(w, p.ModelDiff)
	}
}

// lackPatchOnly reports whether a node would be a candidate if anything recorded when it was
// patched.
func lackPatchOnly(candidates []kamino.Candidate) bool {
	return slices.ContainsFunc(candidates, func(c kamino.Candidate) bool {
		return len(c.Reasons) == 1 &&
			c.Reasons[0].Code == kamino.CodeNoPatch
	})
}

func printCandidates(w io.Writer, candidates []kamino.Candidate) {
	if len(candidates) == 0 {
		fmt.Fprintln(w, "Nodes:\tnone")
		return
	}
	fmt.Fprintln(w, "\nRANK\tNODE\tPATCHED\tREADY FOR\tREJECTED BECAUSE")
	for _, c := range candidates {
		rank := "-"
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		reasons := make([]string, len(c.Reasons))
		for i, r := range c.Reasons {
			reasons[i] = r.Text
		}
		ready := c.ReadyFor
		if ready == "0s" {
			ready = "under 1m"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", rank, c.Node, view.Shown(c.Patched), view.Shown(ready),
			cmp.Or(strings.Join(reasons, "; "), "-"))
	}
}
