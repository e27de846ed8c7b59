package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/view"
)

// doctorCommand is kamino doctor, which checks whether a run would get as far as its first change.
type doctorCommand struct {
	*app
	sel   selectFlags
	out   outputFlag
	donor string
}

func newDoctorCommand(a *app) *cobra.Command {
	c := &doctorCommand{app: a}
	cmd := &cobra.Command{
		Use:   "doctor [--target-node NODE]",
		Short: "Run the checks of an update, and change nothing",
		Long: `Run every check that an update makes before it changes anything: credentials
and rights in cloud and cluster, the image of the seal pod, the donor and its
pool, the lease, the gallery, and drain and seal as dry runs. Without
--target-node, each pool is checked with its best candidate. The exit code is 1
when a check failed; warnings do not count.`,
		Example: `  kamino doctor --image registry.example/kamino@sha256:DIGEST
  kamino doctor --target-node k8s-pool1-12345678-vmss000000 -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.donor, "target-node", "", "check the run with this node (default the best candidate of each pool)")
	c.sel.add(a, f, "pool")
	c.out.add(cmd)
	a.completes(cmd, "target-node", nodeWords)
	return cmd
}

// Run runs the command.
func (c *doctorCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	opts, err := c.sel.options(c.app)
	if err != nil {
		return err
	}
	checks := []engine.Check{c.image(ctx)}
	ctx = kube.NodesOnce(ctx)
	eng, err := c.engine(ctx)
	if err != nil {
		return err
	}
	c.allowed(ctx, eng.Cluster, &checks[0])
	more, err := eng.Doctor(ctx, opts, c.donor)
	if err != nil {
		return err
	}
	checks = append(checks, more...)
	if err := c.out.print(c.app, checks, func(w io.Writer) { printChecks(w, checks) }); err != nil {
		return err
	}
	failed := 0
	for _, check := range checks {
		if check.State == engine.CheckFailed {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}

// image finds the image of the seal pod as an update does. Without an image the seal pod is not
// rehearsed.
func (c *doctorCommand) image(ctx context.Context) engine.Check {
	if err := c.needImage(ctx, false); err != nil {
		c.global.SealImage = ""
		if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) {
			r := refused.Refusals[0]
			return engine.Check{Name: "image", State: engine.CheckFailed, Found: r.Why, Do: r.Do}
		}
		return engine.Check{Name: "image", State: engine.CheckFailed, Found: err.Error(), Do: kamino.Hint(err)}
	}
	return engine.Check{Name: "image", State: engine.CheckPassed, Found: c.global.SealImage}
}

// allowed warns of an image that the cluster does not allow to seal disks, which nothing else tries
// if there is no candidate. Without the right to read the list it prints nothing.
func (c *doctorCommand) allowed(ctx context.Context, cluster kamino.Cluster, check *engine.Check) {
	p, ok := cluster.(interface {
		SealImages(ctx context.Context) (images []string, release string, err error)
	})
	if !ok || check.State != engine.CheckPassed {
		return
	}
	images, _, err := p.SealImages(ctx)
	if err != nil || slices.Contains(images, c.global.SealImage) {
		return
	}
	check.State, check.Found = engine.CheckWarned, c.global.SealImage+" is not one of the images that may seal disks"
	check.Do = "kamino init --seal-image " + c.global.SealImage + ", or the value sealImages of the chart kamino-base"
}

func printChecks(w io.Writer, checks []engine.Check) {
	fmt.Fprintln(w, "CHECK\tOF\tRESULT\tFOUND\tWHAT TO DO")
	for _, c := range checks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.Name, view.Shown(cmp.Or(c.Node, c.Pool)), c.State, view.OneLine(c.Found),
			cmp.Or(view.OneLine(c.Do), "-"))
	}
}
