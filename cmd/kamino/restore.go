package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// restoreCommand is kamino restore.
type restoreCommand struct {
	*app
	out  outputFlag
	opts engine.RestoreOptions
	// everything also lists what Kamino made and no run removes.
	everything bool
	// release is the Helm release whose jobs are ended first, controllerRelease the one whose
	// controller is.
	release, controllerRelease string
}

func newRestoreCommand(a *app) *cobra.Command {
	c := &restoreCommand{app: a}
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Give back what interrupted runs left in the cluster",
		Long: `Give back what interrupted runs left in the whole cluster: donors that are off,
blocked or protected, snapshots, failed image versions, leases. It needs
nothing but the marks that the runs left. A run whose process lives is left
alone (exit code 3); to find that out, its lease is watched for a minute.
Pools are restored side by side.

A pool that cannot be read keeps its marks, whatever the reason. If it was
deleted for good, --pool P --pool-is-gone removes what is left in the cluster.

--everything is for uninstalling Kamino: it also prints what remains in the cloud
and in the cluster, with the command that removes each item, and removes none of
it itself.`,
		Example: `  kamino restore --dry-run
  kamino restore --everything --dry-run`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	bothNames(cmd.Flags(), "pool")
	cmd.Flags().BoolVar(&c.opts.DryRun, "dry-run", false, "list what would be given back, and change nothing")
	cmd.Flags().StringArrayVar(&c.opts.Pools, "pool", nil, "only this pool, by name or ID; may be repeated")
	cmd.Flags().BoolVar(&c.opts.PoolIsGone, "pool-is-gone", false,
		"give up the donors and the lease of the named pool, which was deleted for good")
	cmd.Flags().BoolVar(&c.everything, "everything", false,
		"also print what remains of Kamino, with the command that removes each item: for an uninstall")
	cmd.Flags().StringVar(&c.release, "end-jobs-of", "",
		"first stop the jobs of this release in $POD_NAMESPACE, and wait until they have given back what they took; used by \"helm uninstall\"")
	cmd.Flags().StringVar(&c.controllerRelease, "end-controller-of", "",
		"first stop the controller of this release in $POD_NAMESPACE, and wait until it has ended; used by \"helm uninstall\"")
	a.addGallery(cmd.Flags())
	c.out.add(cmd)
	a.completes(cmd, "pool", poolWords)
	return cmd
}

// Run runs the command.
func (c *restoreCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	ends := c.release != "" || c.controllerRelease != ""
	if ends {
		if err := c.endWork(ctx, engine.Cluster); err != nil {
			return err
		}
	}
	finish := c.follow(ctx, engine)
	left, err := engine.Restore(ctx, c.opts)
	finish()
	if ends && err != nil && refused(err) {
		c.global.Log.Warn("other runs are still active, and are left alone", "error", err)
		err = nil // the release may be uninstalled
	}
	if left == nil {
		left = []poolstate.Leftover{}
	}
	if !c.everything {
		if printErr := c.out.print(c.app, left, func(w io.Writer) { printLeft(w, left, c.opts.DryRun, err) }); err == nil {
			err = printErr
		}
		return err
	}
	all, remainErr := c.remains(ctx, engine)
	return errors.Join(err, remainErr, c.out.print(c.app, map[string]any{"left": left, "remains": all}, func(w io.Writer) {
		printLeft(w, left, c.opts.DryRun, err)
		printRemains(w, all)
	}))
}

// printLeft prints what was left. If a pool could not be read, it does not claim that nothing was
// left.
func printLeft(w io.Writer, left []poolstate.Leftover, dryRun bool, failed error) {
	if len(left) == 0 {
		if failed == nil {
			fmt.Fprintln(w, "Nothing was left.")
		}
		return
	}
	fmt.Fprintln(w, "POOL\tRUN\tNODE\tLEFT\tDONE")
	for _, l := range left {
		did := cmp.Or(l.Done, l.Reason)
		if did == "" && dryRun {
			did = "would be given back"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", view.Shown(l.Pool.Name()), view.Shown(l.Run), view.Shown(l.Node), l.What,
			cmp.Or(view.OneLine(did), "-"))
	}
}
