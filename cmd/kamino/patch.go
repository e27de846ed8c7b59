package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/view"
)

// patchFlags are the options of a patch.
type patchFlags struct {
	order           kamino.PatchOrder
	within, returns durationValue
	minReady        durationValue
	reboot          string
	held            bool
	nodes, retries  int
}

// add adds the options of a patch.
func (p *patchFlags) add(f *pflag.FlagSet) {
	d := kamino.PatchDefaults()
	p.within.d, p.returns.d, p.minReady.d = d.Order.Within, d.Order.Return, d.Order.Settle
	f.StringVar(&p.order.Manager, "manager", "", "what upgrades the packages: unattended-upgrades, apt, dnf, or command, which is /etc/kamino/patch of the node (default unattended-upgrades if installed, else the package manager)")
	f.StringVar(&p.order.Scope, "scope", "", "which updates to install: all or security (default: as the manager is configured)")
	f.StringVar(&p.order.Release, "releasever", "", "release for dnf; required on Amazon Linux 2023")
	f.IntVar(&p.nodes, "nodes", d.Nodes, "how many nodes of a pool to patch, 1 to 3; the image renews the others")
	f.StringVar(&p.reboot, "reboot", string(d.Order.Reboot),
		"whether to restart the node: auto (if an upgraded package requires it), always or never")
	f.IntVar(&p.retries, "retries", d.Retries, "how many further candidates to try if one cannot be patched or is not healthy afterwards")
	f.BoolVar(&p.held, "held", false, "upgrade packages on hold too, and put them on hold again")
	f.StringVar(&p.order.Phased, "phased", "", "whether to install Ubuntu's phased updates: always or never (default: apt's choice, by the machine's ID)")
	f.IntVar(&p.order.RoomMiB, "room", defaultRoom, "free space in MiB that the node's disk must have before the upgrade")
	f.Var(&p.within, "timeout", "time limit for the package manager")
	f.Var(&p.returns, "return", "time limit for a node to boot; after it the node is power-cycled once, and given up after the same time again")
	f.Var(&p.minReady, "min-ready", "how long a node must be healthy before it counts as patched")
}

// defaultRoom is the free space in MiB that an upgrade needs.
const defaultRoom = 1024

// options returns the options of a patch, with the options of its runs.
func (p *patchFlags) options(run kamino.Options) kamino.PatchOptions {
	o := kamino.PatchDefaults()
	order := p.order
	order.Within, order.Return, order.Settle, order.Reboot = p.within.d, p.returns.d, p.minReady.d, kamino.RebootMode(p.reboot)
	if p.held {
		order.Held = "upgrade"
	}
	o.Order, o.Nodes, o.Retries = order, p.nodes, p.retries
	return o.In(run)
}

func (p *patchFlags) check() error {
	for _, f := range []struct {
		name, value string
		words       []string
	}{
		{"manager", p.order.Manager, []string{"", "unattended-upgrades", "apt", "dnf", "command"}},
		{"scope", p.order.Scope, []string{"", "all", "security"}}, {"phased", p.order.Phased, []string{"", "always", "never"}},
	} {
		if !slices.Contains(f.words, f.value) {
			return kamino.WithHint(fmt.Errorf("invalid %s %q", f.name, f.value), "use %s", strings.Join(f.words[1:], ", "))
		}
	}
	if p.order.RoomMiB < 1 {
		return kamino.WithHint(fmt.Errorf("invalid room %d", p.order.RoomMiB), "use --room 1 or more, in MiB")
	}
	return nil
}

// patchCommand is kamino patch.
type patchCommand struct {
	*app
	flags        patchFlags
	out          outputFlag
	opts         kamino.PatchOptions
	grace        graceValue
	drainTimeout durationValue
	maxAway      string
	dryRun       bool
}

func newPatchCommand(a *app) *cobra.Command {
	c := &patchCommand{app: a, opts: kamino.PatchDefaults()}
	cmd := &cobra.Command{
		Use:   "patch (--pool POOL | --target-node NODE)",
		Short: "Upgrade the packages of one to three nodes, for the next image",
		Long: `Upgrade the packages of one to three nodes of a pool, those that would be the
best donors: protect and drain the node, upgrade by its own package manager,
restart it if needed, examine it, and mark it as patched.
The last node of a pool that serves pods is never patched. A node that does not boot
is power-cycled once. A node that is not healthy afterwards stays blocked, and the
next candidate is tried. kamino update, or kamino auto-update --patch, then makes
its disk the pool's image, and autoscaling replaces the other nodes over time.`,
		Example: `  kamino patch --pool k8s-pool1-12345678-vmss --dry-run
  kamino patch --pool k8s-pool1-12345678-vmss --nodes 2
  kamino patch --target-node k8s-pool1-12345678-vmss000001 --scope security --reboot always`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	bothNames(f, "pool")
	f.StringVar(&c.opts.Pool, "pool", "", "the pool, by name or ID")
	f.StringVar(&c.opts.Donor, "target-node", "", "patch only this node, instead of --pool")
	f.BoolVar(&c.dryRun, "dry-run", false, "print which nodes would be patched, and change nothing")
	c.flags.add(f)
	c.grace.d = c.opts.Grace
	f.Var(&c.grace, "grace-period", "minimum termination grace period of each pod, for example 5m or 300 (seconds); a pod's own longer period is honored up to --drain-timeout; -1 uses each pod's own")
	f.Var(&c.drainTimeout, "drain-timeout", "time limit for the whole drain; 0 means nine grace periods")
	f.BoolVar(&c.opts.Force, "force", false, "delete pods that have no controller and, once the drain times out, pods protected by a PodDisruptionBudget")
	f.BoolVar(&c.opts.AllowSpot, "allow-spot", false, "allow a spot instance")
	f.StringVar(&c.maxAway, "max-unavailable-pools", "1", "maximum number of donors away in the cluster at the same time, or all")
	f.IntVar(&c.opts.MaxNotReady, "max-not-ready", c.opts.MaxNotReady, "take no node while more than this many other nodes are NotReady")
	a.addGallery(f)
	c.out.add(cmd)
	a.completes(cmd, "pool", poolWords)
	a.completes(cmd, "target-node", nodeWords)
	return cmd
}

// Run runs the command.
func (c *patchCommand) Run(ctx context.Context) error {
	if err := errors.Join(c.out.check(), c.flags.check()); err != nil {
		return err
	}
	run := c.opts.Options
	run.Self, run.Grace, run.DrainTimeout = c.global.Self, c.grace.d, c.drainTimeout.d
	opts := c.flags.options(run)
	opts.Pool, opts.MaxNotReady = c.opts.Pool, c.opts.MaxNotReady
	var err error
	if opts.MaxAway, err = parseMaxAway(c.maxAway); err != nil {
		return err
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	if err := c.needImage(ctx, c.dryRun); err != nil {
		return err
	}
	engine, err := c.engine(ctx)
	if err != nil {
		return err
	}
	if c.dryRun {
		plan, err := engine.PlanPatch(ctx, opts)
		if plan.Pool == "" {
			return err
		}
		if printErr := c.out.print(c.app, plan, func(w io.Writer) { printPatchPlan(w, plan) }); err == nil {
			err = printErr
		}
		return err
	}
	finish := c.follow(ctx, engine)
	result, err := engine.Patch(ctx, opts)
	finish()
	if len(result.Nodes) == 0 {
		return err
	}
	for _, n := range result.Nodes {
		if err == nil && n.Error != "" { // another node was patched in its place, so no error has the hints
			c.global.Log.Warn("a node was not patched", "node", n.Node, "error", n.Error, "hint", strings.Join(n.Hints, "; "))
		}
	}
	if printErr := c.out.print(c.app, result, func(w io.Writer) { printPatch(w, result) }); err == nil {
		err = printErr
	}
	return err
}

func printPatchPlan(w io.Writer, p engine.PatchResult) {
	fmt.Fprintf(w, "Pool:\t%s\n", p.Pool.Name())
	if p.Unfinished != nil {
		view.Unfinished(w, p.Unfinished, false)
	}
	printCandidates(w, p.Candidates)
}

// signed returns when a node was patched, formatted as other times; a label's value has no colons.
func signed(n engine.PatchedNode) string {
	at, err := time.Parse(kamino.PatchedFormat, n.Signed)
	if err != nil {
		return n.Signed
	}
	return view.Instant(at)
}

func printPatch(w io.Writer, r engine.PatchResult) {
	fmt.Fprintln(w, "NODE\tPACKAGES\tRESTARTED\tRESULT")
	for _, n := range r.Nodes {
		packages := "-"
		if n.Report != nil {
			packages = fmt.Sprint(len(n.Report.Changed))
		}
		restarted := map[bool]string{true: "yes", false: "no"}[n.Restarted]
		if n.Cycled {
			restarted += ", power-cycled"
		}
		result := "patched " + signed(n)
		if n.Report != nil && len(n.Report.Changed) == 0 {
			result = fmt.Sprintf("nothing to upgrade, according to %s: counts as patched %s", n.Report.Manager, signed(n))
		}
		if n.Error != "" {
			result = "failed: " + view.Cut(n.Error, 120)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Node, packages, restarted, result)
	}
	for _, n := range r.Nodes {
		if n.Report == nil || len(n.Report.Changed) == 0 {
			continue
		}
		fmt.Fprintf(w, "\nPACKAGE OF %s\tFROM\tTO\n", n.Node)
		for _, p := range n.Report.Changed {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, view.Shown(p.From), view.Shown(p.To))
		}
	}
}
