package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// statusCommand is kamino status.
type statusCommand struct {
	*app
	out       outputFlag
	pools     []string
	lastPatch []string
	diff      bool
	node      string
}

func newStatusCommand(a *app) *cobra.Command {
	c := &statusCommand{app: a}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show each pool's images, and what the next node would boot from",

		SuggestFor: []string{"history", "list", "get", "show"},
		Long: `Show, per pool, the image definition, every image version with its state and
lineage, what the model refers to, how old the image of the next node would be
and how many days of patches it would miss, how far it would be behind the best
node that runs, which NodeConfig the nodes run and which nodes refused one, where
a rollback would go, which NodePrototype or CronJob starts its next run and when,
and unfinished runs.

With --diff --node NODE it names the packages in which the next node of that
node's pool would differ from it. A short pod on the node reads them and is
removed again; nothing else is changed.

With -o html it writes a self-contained page for a browser.`,
		Example: `  kamino status --pool k8s-pool1-12345678-vmss
  kamino status --diff --node k8s-pool1-12345678-vmss000000
  kamino status -o html > status.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	bothNames(f, "pool")
	f.StringArrayVar(&c.pools, "pool", nil, "only this pool, by name or ID; may be repeated")
	f.StringArrayVar(&c.lastPatch, "last-patch-annotation", []string{kamino.KuredLastPatch.String(), kamino.KaminoPatched.String()},
		"annotation, condition:TYPE or label:KEY that says when a node was patched; may be repeated")
	f.BoolVar(&c.diff, "diff", false, "name the packages in which the next node would differ from the one of --node")
	f.StringVar(&c.node, "node", "", "with --diff: the node whose packages are read")
	a.addGallery(f)
	c.out.add(cmd, "html", openMetrics)
	a.completes(cmd, "pool", poolWords)
	a.completes(cmd, "node", nodeWords)
	return cmd
}

// openMetrics is the format that Prometheus reads, for CronJobs.
const openMetrics = "openmetrics"

// Run runs the command.
func (c *statusCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	if c.diff && (c.out.format == openMetrics || c.out.format == "html") {
		return kamino.WithHint(fmt.Errorf("-o %s shows the status, and no --diff", c.out.format), "use another -o, or omit --diff")
	}
	signals, err := parseSignals(c.lastPatch)
	if err != nil {
		return err
	}
	if c.diff || c.node != "" {
		return c.runDiff(ctx)
	}
	engine, err := c.engine(kube.NodesOnce(ctx))
	if err != nil {
		return err
	}
	return c.show(ctx, engine, signals)
}

func (c *statusCommand) runDiff(ctx context.Context) error {
	if !c.diff || c.node == "" || len(c.pools) > 0 {
		return kamino.WithHint(errors.New("--diff and --node go together, and without --pool"), "use --diff --node NODE")
	}
	if err := c.needImage(ctx, false); err != nil {
		return err
	}
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	diff, err := engine.PackageDiff(ctx, c.node)
	if err != nil {
		return err
	}
	return c.out.print(c.app, diff, func(w io.Writer) { printPackages(w, diff) })
}

func printPackages(w io.Writer, d engine.PackageDiff) {
	fmt.Fprintf(w, "Node:\t%s of pool %s\n", d.Node, d.Pool)
	fmt.Fprintf(w, "Next node:\tboots from %s\n", d.Version)
	fmt.Fprintf(w, "Packages:\t%d the same, %d differ\n", d.Same, len(d.Differs))
	fmt.Fprintf(w, "Images:\t%d of the node are not cached\n", len(d.Missing))
	if len(d.Differs) > 0 {
		fmt.Fprintln(w, "\nPACKAGE\tARCHITECTURE\tON THE NODE\tNEXT NODE")
	}
	for _, p := range d.Differs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, view.Shown(p.Arch), view.Shown(p.Node), view.Shown(p.Next))
	}
	if len(d.Missing) > 0 {
		fmt.Fprintln(w, "\nIMAGE NOT CACHED\tMB")
	}
	for _, i := range d.Missing {
		fmt.Fprintf(w, "%s\t%d\n", i.Name, (i.Bytes+500_000)/1_000_000)
	}
}

// read reads the status of the pools, and when their next runs start.
func (c *statusCommand) read(ctx context.Context, e *engine.Engine, signals []kamino.Signal) ([]poolstate.PoolStatus, error) {
	status, err := e.Status(ctx, c.pools, signals)
	if c.out.format != openMetrics && len(status) > 0 {
		c.addNextRuns(ctx, status)
	}
	return status, err
}

func (c *statusCommand) show(ctx context.Context, e *engine.Engine, signals []kamino.Signal) error {
	status, err := c.read(ctx, e, signals)
	if status == nil && err != nil {
		return err
	}
	err = c.out.unread(err, countOf(status, func(p poolstate.PoolStatus) bool { return p.Error != "" }), len(status))
	if c.out.format == "html" {
		return errors.Join(err, view.Page(c.Out, status, c.clock.Now()))
	}
	if c.out.format == openMetrics {
		return errors.Join(err, metrics.Write(c.Out, buildVersion(), status))
	}
	if printErr := c.out.print(c.app, status, func(w io.Writer) { view.Table(w, status, c.out.wide()) }); err == nil {
		err = printErr
	}
	return err
}

func parseSignals(texts []string) ([]kamino.Signal, error) {
	var out []kamino.Signal
	for _, t := range texts {
		s, err := kamino.ParseSignal(t)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
