package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
)

// restoreCommand gives back what interrupted runs left.
type restoreCommand struct {
	*app
	out    outputFlag
	dryRun bool
}

func newRestoreCommand(a *app) *cobra.Command {
	c := &restoreCommand{app: a}
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Give back what interrupted runs left in the cluster",
		Long: `Give back what interrupted runs left in the whole cluster: donors that are off,
blocked or protected, snapshots, failed image versions, leases. It needs
nothing but the marks that the runs left. A run whose process lives is left
alone; a lease is watched for a minute to know.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "list what was left, and give nothing back")
	a.addGallery(cmd.Flags())
	c.out.add(cmd)
	return cmd
}

// Run does it.
func (c *restoreCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	finish := c.follow(ctx, engine)
	left, err := engine.Restore(ctx, c.dryRun)
	finish()
	if left == nil {
		left = []kamino.Left{}
	}
	if printErr := c.out.print(c.Out, left, func(w io.Writer) { printLeft(w, left, c.dryRun) }); err == nil {
		err = printErr
	}
	return err
}

func printLeft(w io.Writer, left []kamino.Left, dryRun bool) {
	if len(left) == 0 {
		fmt.Fprintln(w, "Nothing was left.")
		return
	}
	fmt.Fprintln(w, "POOL\tRUN\tNODE\tLEFT\tDONE")
	for _, l := range left {
		did := firstOf(l.Done, l.Reason)
		if did == "" && dryRun {
			did = "would be given back"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", shown(l.Pool.Name()), shown(l.Run), shown(l.Node), l.What, shown(did))
	}
}
