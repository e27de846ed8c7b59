package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
)

// rollbackCommand points a pool's model at another version.
type rollbackCommand struct {
	*app
	out      outputFlag
	opts     kamino.RollbackOptions
	detailed bool
}

func newRollbackCommand(a *app) *cobra.Command {
	c := &rollbackCommand{app: a}
	cmd := &cobra.Command{
		Use:   "rollback --pool POOL [--to VERSION]",
		Short: "Point a pool's model at an earlier image, or forward again",
		Long: `Point a pool's model at an earlier image version, or at the model from before
the first prototype, by one conditional write. Versions newer than the target
are marked as bad and excluded from latest before, and are never chosen again.
--to a version that is marked takes its mark off. Instances that run stay as
they are.`,
		Example: `  kamino rollback --pool k8s-pool1-12345678-vmss --dry-run
  kamino rollback --pool k8s-pool1-12345678-vmss --to 2026.11.02
  kamino rollback --pool k8s-pool1-12345678-vmss --to original`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.opts.Pool, "pool", "", "the pool, by name or ID (required)")
	f.StringVar(&c.opts.To, "to", "", `a version, or "original"; default the good version before the one in the model, else the original`)
	f.BoolVar(&c.opts.DryRun, "dry-run", false, "print what would be done, and do nothing")
	f.BoolVar(&c.detailed, "detailed-exitcode", false, "with --dry-run: exit with 2 when there is something to do")
	f.StringVar(&a.global.Gallery, "gallery", "", "gallery of the image versions (default SIG_ and the resource group)")
	c.out.add(cmd)
	return cmd
}

// Run does it.
func (c *rollbackCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	finish := c.follow(ctx, engine)
	back, err := engine.Rollback(ctx, c.opts)
	finish()
	if err != nil {
		return err
	}
	if err := c.out.print(c.Out, back, func(w io.Writer) { printRollback(w, back, c.opts.DryRun) }); err != nil {
		return err
	}
	if c.opts.DryRun && c.detailed && back.Changed {
		return errToDo
	}
	return nil
}

func printRollback(w io.Writer, r kamino.Rollback, dryRun bool) {
	fmt.Fprintf(w, "Pool:\t%s\n", r.Name)
	if !r.Changed {
		fmt.Fprintf(w, "Nothing to do: the model is at %s.\n", r.To)
		return
	}
	would := ""
	if dryRun {
		would = " (not done)"
	}
	fmt.Fprintf(w, "From:\t%s\n", r.From)
	fmt.Fprintf(w, "To:\t%s%s\n", r.To, would)
	fmt.Fprintf(w, "Marked bad:\t%s\n", shown(strings.Join(r.Bad, ", ")))
	if len(r.Good) > 0 {
		fmt.Fprintf(w, "Marked good:\t%s\n", strings.Join(r.Good, ", "))
	}
	printDiff(w, r.ModelDiff)
}
