package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// autoUpdateCommand is kamino auto-update, which chooses the donors itself.
type autoUpdateCommand struct {
	*app
	sel    selectFlags
	out    outputFlag
	dryRun bool
	watch  durationValue
	patch  bool
	only   bool
	notify notifyFlag
}

func newAutoUpdateCommand(a *app) *cobra.Command {
	c := &autoUpdateCommand{app: a}
	cmd := &cobra.Command{
		Use:   "auto-update",
		Short: "Make a new prototype for every pool that needs one, from its best node",
		Long: `Find out which pools need a new prototype, choose the best node of each, and
make it. Pools run side by side, but only so many donors are away at the same
time; their images are built together. When a candidate cannot be drained, the
next one is taken. It ends with the status. With --dry-run it prints what
kamino plan prints.`,
		Example: `  kamino auto-update --dry-run
  kamino auto-update --target-vmss k8s-pool1-12345678-vmss --minimum-ready-time 1h --maximum-image-age 30`,
		RunE: func(cmd *cobra.Command, args []string) error {
			// The original script accepted several values after one --target-vmss.
			if len(args) > 0 && len(c.sel.pools) == 0 {
				return kamino.WithHint(fmt.Errorf("unexpected argument %q", args[0]), "name pools with --target-vmss")
			}
			c.sel.pools = append(c.sel.pools, args...)
			return c.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	c.sel.add(a, f, "target-vmss")
	c.sel.addCluster(f)
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would be done, and change nothing")
	f.Var(&c.watch, "watch", "how long to watch nodes that come from the new images afterwards: if two of the first three, or more than a fifth of at least five, are not Ready within --boot-budget, the version is withdrawn; 0 disables this")
	f.BoolVar(&c.patch, "patch", false, "first patch the best candidate of each pool, as kamino patch does by default; the donor is then chosen and proved with the patches")
	addImageOnly(f, &c.only)
	c.notify.add(f)
	c.out.add(cmd)
	c.sel.completes(a, cmd, "target-vmss")
	return cmd
}

// autoReport is the output of auto-update.
type autoReport struct {
	OK     bool                   `json:"ok"`
	Pools  []engine.PoolResult    `json:"pools"`
	Status []poolstate.PoolStatus `json:"status"`
}

// Run runs the command.
func (c *autoUpdateCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	opts, err := c.sel.options(c.app)
	if err != nil {
		return err
	}
	opts.ImageOnly = c.only
	if err := opts.Validate(); err != nil {
		return err
	}
	if c.patch {
		patch := kamino.PatchDefaults().In(opts.Options)
		patch.MaxAway, patch.MaxNotReady, patch.Pool = opts.MaxAway, opts.MaxNotReady, "each"
		if err := patch.Validate(); err != nil {
			return err
		}
		opts.Patch = &patch
	}
	if err := c.notify.open(c.clock); err != nil {
		return err
	}
	if err := c.needImage(ctx, c.dryRun); err != nil {
		return c.refuse(ctx, err, c.dryRun, func(e *engine.Engine) error {
			_, err := e.Restore(ctx, engine.RestoreOptions{Pools: opts.Pools})
			return err
		})
	}
	if c.dryRun {
		ctx = kube.NodesBare(kube.NodesOnce(ctx))
	}
	eng, err := c.engine(ctx)
	if err != nil {
		return err
	}
	if c.dryRun {
		return c.plan(ctx, eng, opts, c.out, false)
	}
	finish, began := c.follow(ctx, eng), c.clock.Now()
	results, err := eng.AutoUpdate(ctx, opts)
	if ctx.Err() == nil && results != nil {
		err = errors.Join(err, eng.Watch(ctx, results, engine.Watching{For: c.watch.d, Proof: opts.Proof}))
	}
	finish()
	pools := make([]string, len(results))
	for i, p := range results {
		pools[i] = string(p.Pool)
	}
	c.notify.tell(ctx, c.app, eng, pools, began, err)
	if results == nil {
		return err
	}
	for _, p := range results {
		if p.Action == poolstate.DoNothing && p.Error == "" && len(p.Held) > 0 {
			c.global.Log.Warn("nothing was done for a pool that needs it", "pool", p.Name, "because", texts(p.Why), "held", texts(p.Held),
				"hint", "kamino plan --pool "+p.Name)
		}
	}
	report := autoReport{Pools: results}
	if ctx.Err() == nil {
		var statusErr error
		if report.Status, statusErr = eng.Status(ctx, opts.Pools, opts.Rules.LastPatch); err == nil {
			err = statusErr
		}
	}
	report.OK = err == nil
	if printErr := c.out.print(c.app, report, func(w io.Writer) { report.table(w, c.out.wide()) }); err == nil {
		err = printErr
	}
	return err
}

func (r autoReport) table(w io.Writer, wide bool) {
	fmt.Fprintln(w, "POOL\tDONOR\tVERSION\tDONOR AWAY\tRESULT")
	for _, p := range r.Pools {
		version, away := "", ""
		if p.Result != nil {
			version = p.Result.Version
		}
		if p.Result != nil && p.Result.AwaySeconds > 0 {
			away = view.Seconds(p.Result.AwaySeconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Name, view.Shown(p.Donor), view.Shown(version), view.Shown(away), outcome(p))
	}
	for _, p := range r.Pools {
		if p.Result != nil && (p.Result.Owner != nil || p.Result.Hidden) {
			fmt.Fprintf(w, "\nPool:\t%s\n", p.Name)
			updateReport{Result: *p.Result}.owner(w)
		}
		if p.Result != nil && p.Result.Waiting && !p.Result.Hidden {
			fmt.Fprintf(w, "\nPool:\t%s\n", p.Name)
			printWaits(w, p.Pool, p.Result.Version)
		}
	}
	if len(r.Status) > 0 {
		fmt.Fprintln(w)
		view.Table(w, r.Status, wide)
	}
}

func texts(verdicts []kamino.Verdict) string {
	words := make([]string, len(verdicts))
	for i, v := range verdicts {
		words[i] = v.Text
	}
	return strings.Join(words, "; ")
}

// outcome describes the result of a pool in a few words.
func outcome(p engine.PoolResult) string {
	switch {
	case p.Error != "":
		return "failed: " + view.Cut(p.Error, 120)
	case p.Action == poolstate.DoNothing && len(p.Held) > 0:
		return "held: " + texts(p.Held)
	case p.Action == poolstate.DoNothing && len(p.Why) > 0:
		return "nothing to do: " + p.Why[0].Text
	case p.Action == poolstate.DoModel:
		return "model pointed at the newest image"
	case p.Result == nil:
		return "given back what was left"
	case p.Result.Waiting:
		return "waits to be promoted"
	case !p.Result.Changed:
		return "unchanged"
	}
	return "updated"
}
