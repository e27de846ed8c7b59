package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// runFlags are the options of every command that makes an image.
type runFlags struct {
	opts         kamino.Options
	labels       []string
	again        bool
	grace        graceValue
	drainTimeout durationValue
	policy       string
	prove        proveFlags
}

func (r *runFlags) add(a *app, f *pflag.FlagSet) {
	r.opts = kamino.Defaults()
	r.grace.d = r.opts.Grace
	o := &r.opts
	f.IntVar(&o.NewNodes, "new-updated-nodes", o.NewNodes, "how many instances to add at the end, made from the new image")
	f.IntVar(&o.History, "max-history", o.History, "how many promoted image versions to keep, at least 2")
	f.Var(&r.grace, "grace-period", "minimum termination grace period of each pod, for example 5m or 300 (seconds); a pod's own longer period is honored up to --drain-timeout; -1 uses each pod's own")
	f.Var(&r.drainTimeout, "drain-timeout", "time limit for the whole drain; 0 means nine grace periods")
	f.BoolVar(&o.Force, "force", false, "delete pods that have no controller and, once the drain times out, pods protected by a PodDisruptionBudget")
	f.BoolVar(&o.AllowSpot, "allow-spot", false, "allow a spot instance as donor; the cloud may evict it meanwhile, and those of AWS cannot be stopped")
	f.StringArrayVar(&r.labels, "require-label", nil,
		"use only donors with this label, KEY or KEY=VALUE below node-restriction.kubernetes.io, which nodes cannot set on themselves; may be repeated")
	f.StringVar(&r.policy, "seal-policy", "", "`file` with what may stay on the donor's disk besides what Kamino knows (docs/agent.md) (default: the text in $SEAL_POLICY)")
	r.prove.add(f, r.opts.Proof)
	a.addGallery(f)
	f.StringArrayVar(&a.global.KeepExtension, "keep-extension", nil,
		"publisher/type of an extension that stays in the model; * matches any text; may be repeated")
}

// options returns the options of a run. check must have passed.
func (r *runFlags) options(a *app) kamino.Options {
	o := r.opts
	for _, text := range r.labels {
		l, _ := kamino.ParseLabelDemand(text)
		o.RequireLabels = append(o.RequireLabels, l)
	}
	if r.again {
		o.Today = kamino.TodayAgain
	}
	o.Proof = r.prove.options()
	o.Grace, o.DrainTimeout, o.Self = r.grace.d, r.drainTimeout.d, a.global.Self
	return o
}

// check checks the flags, before any call.
func (r *runFlags) check(a *app, donor string) error {
	for _, rule := range a.global.KeepExtension {
		if p, t, ok := strings.Cut(rule, "/"); !ok || p == "" || t == "" {
			return kamino.WithHint(fmt.Errorf("extension rule %q is not publisher/type", rule),
				"for instance --keep-extension Microsoft.AKS/Compute.AKS*Billing")
		}
	}
	for _, text := range r.labels {
		if _, err := kamino.ParseLabelDemand(text); err != nil {
			return err
		}
	}
	if err := r.readPolicy(a); err != nil {
		return err
	}
	if err := r.prove.read(a); err != nil {
		return err
	}
	o := r.options(a)
	o.Donor = donor
	return o.Validate()
}

// readPolicy reads and checks the seal policy before any pod is evicted.
func (r *runFlags) readPolicy(a *app) error {
	data := []byte(a.env("SEAL_POLICY"))
	if r.policy != "" {
		var err error
		if data, err = os.ReadFile(r.policy); err != nil {
			return kamino.WithHint(fmt.Errorf("read --seal-policy: %w", err),
				"name a SealConfig; kamino-agent verify --inventory --write-allow FILE writes one on a node")
		}
	} else if len(data) == 0 {
		return nil
	}
	r.opts.SealPolicy = data
	unreviewed, err := checkPolicy(data)
	if err != nil {
		return kamino.WithHint(err, "kamino-agent verify --inventory --write-allow FILE on a node writes one to begin with")
	}
	if unreviewed > 0 {
		a.global.Log.Warn("the seal policy allows files that nobody has reviewed", "entries", unreviewed,
			"hint", "review each entry with reviewed: false, then remove the entry, or that field")
	}
	return nil
}

// updateCommand is kamino update, which makes an image of a node that the user names.
type updateCommand struct {
	*app
	run     runFlags
	out     outputFlag
	donor   string
	pending []string
	dryRun  bool
	adopt   bool
}

func newUpdateCommand(a *app) *cobra.Command {
	c := &updateCommand{app: a}
	cmd := &cobra.Command{
		Use:   "update --target-node NODE",
		Short: "Make new nodes of a pool like this node",
		Long: `Make new nodes of a pool like this node: drain it, seal its disk, switch it off,
snapshot the disk, bring the node back, build an image version from the
snapshot and point the pool's model at it. A run that an ended process left is
found and finished. If today's version was built from this node already, nothing
is done. If it was built from another node, or withdrawn, --again builds another.`,
		Example: `  kamino update --target-node k8s-pool1-12345678-vmss000000 --dry-run
  kamino update --target-node k8s-pool1-12345678-vmss000000 --new-updated-nodes 1
  kamino update --target-node k8s-pool1-12345678-vmss000001 --again`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return kamino.WithHint(fmt.Errorf("unexpected argument %q", args[0]), "kamino update --target-node %s, if that is the node",
				args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&c.donor, "target-node", "", "the node whose OS disk becomes the image (required)")
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would be done, and change nothing")
	f.BoolVar(&c.run.again, "again", false, "make another image version even if there is already one of today; it is named YYYY.MM.DDNN")
	addImageOnly(f, &c.run.opts.ImageOnly)
	f.BoolVar(&c.adopt, "adopt-model", false, "replace an image that someone else has set in the model since kamino last wrote one")
	addPendingReboot(f, &c.pending)
	c.run.add(a, f)
	c.out.add(cmd)
	a.completes(cmd, "target-node", nodeWords)
	return cmd
}

// Run runs the command.
func (c *updateCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	if err := c.run.check(c.app, c.donor); err != nil {
		return err
	}
	opts := c.run.options(c.app)
	opts.Donor, opts.AdoptModel = c.donor, c.adopt
	var err error
	if opts.PendingReboot, err = parseSignals(c.pending); err != nil {
		return err
	}
	if err := c.needImage(ctx, c.dryRun); err != nil {
		return c.refuse(ctx, err, c.dryRun, func(e *engine.Engine) error { return e.GiveBack(ctx, c.donor) })
	}
	eng, err := c.engine(ctx)
	if err != nil {
		return err
	}
	if c.dryRun {
		return c.plan(ctx, eng, opts)
	}
	finish := c.follow(ctx, eng)
	result, err := eng.Update(ctx, opts)
	finish()
	report := updateReport{Result: result, OK: err == nil}
	if err != nil {
		report.Error, report.Hints = err.Error(), kamino.Advice(err)
	}
	if err != nil && c.out.format == "table" {
		return err
	}
	if printErr := c.out.print(c.app, report, report.table); err == nil {
		err = printErr
	}
	return err
}

func (c *updateCommand) plan(ctx context.Context, e *engine.Engine, opts kamino.Options) error {
	plan, err := e.Plan(ctx, opts)
	if err != nil {
		return err
	}
	// In a table the error already shows the refusals.
	if c.out.format != "table" || len(plan.Refusals) == 0 {
		if err := c.out.print(c.app, plan, func(w io.Writer) { printPlan(w, plan) }); err != nil {
			return err
		}
	}
	if len(plan.Refusals) > 0 {
		return &kamino.RefusedError{Subject: "node " + plan.Donor, Refusals: plan.Refusals}
	}
	return nil
}

// updateReport is the output of an update.
type updateReport struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	// Hints are what to do about the error.
	Hints []string `json:"hints,omitempty"`
	engine.Result
}

func (r updateReport) table(w io.Writer) {
	if !r.Changed && r.AwaySeconds == 0 {
		use := "in use"
		if r.Hidden {
			use = "hidden"
		} else if r.Waiting {
			use = "waits for " + poolstate.HowToPromote(r.Pool.Name(), r.Version)
		}
		fmt.Fprintf(w, "Nothing to do: version %s of pool %s is there, built from node %s, and %s.\n", r.Version,
			r.Pool.Name(), r.Donor, use)
		r.owner(w)
		return
	}
	fmt.Fprintf(w, "Pool:\t%s\n", r.Pool.Name())
	fmt.Fprintf(w, "Run:\t%s\n", r.Run)
	fmt.Fprintf(w, "Donor:\t%s\n", r.Donor)
	away := view.Seconds(r.AwaySeconds)
	switch {
	case r.Adopted && r.AwaySeconds == 0:
		away = "unknown (the previous process of this run recorded no time)"
	case r.AwaySeconds == 0:
		away = "0s (an earlier snapshot or version was used)"
	}
	fmt.Fprintf(w, "Donor away:\t%s\n", away)
	fmt.Fprintf(w, "Version:\t%s\n", r.Version)
	r.next(w)
	if len(r.Pruned) > 0 {
		fmt.Fprintf(w, "Pruned:\t%s\n", strings.Join(r.Pruned, ", "))
	}
	var total float64
	for _, s := range r.Steps {
		total += s.Seconds
	}
	fmt.Fprintf(w, "Time:\t%s\n", view.Seconds(total))
	printDiff(w, r.ModelDiff)
	r.owner(w)
	fmt.Fprintln(w, "\nSTEP\tTIME")
	for _, s := range r.Steps {
		if s.Skipped {
			fmt.Fprintf(w, "%s\t-\n", s.Name)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\n", s.Name, view.Seconds(s.Seconds))
	}
}

// next prints how the version was proved, and what happens next.
func (r updateReport) next(w io.Writer) {
	printProved(w, r.Proof)
	switch {
	case r.Waiting:
		printWaits(w, r.Pool, r.Version)
	case r.Next != "":
		fmt.Fprintf(w, "Next node:\tboots from %s\n", r.Next)
	}
}

// printProved prints how a version passed its proof, and what no check could compare.
func printProved(w io.Writer, p *kamino.Proved) {
	if p == nil {
		return
	}
	fmt.Fprintf(w, "Proved:\tby canary %s, Ready in %s; %d checks passed\n", p.Node, view.Seconds(p.ReadySeconds), p.Checks)
	for _, f := range p.Left {
		fmt.Fprintf(w, "Not applicable:\t%s\n", f)
	}
}

// printWaits prints what a version waits for.
func printWaits(w io.Writer, pool kamino.PoolID, version string) {
	fmt.Fprintf(w, "Pending:\tversion %s: %s\n", version, poolstate.HowToPromote(pool.Name(), version))
}

// owner prints what the owner of the model has to do.
func (r updateReport) owner(w io.Writer) {
	if r.Owner == nil && !r.Hidden {
		return
	}
	if r.Hidden {
		fmt.Fprintf(w, "Hidden:\tno node boots from version %s; %s offers it\n", r.Version,
			poolstate.HowToPromote(r.Pool.Name(), r.Version))
	}
	names := make([]string, len(r.Extensions))
	for i, e := range r.Extensions {
		names[i] = fmt.Sprintf("%s (%s/%s)", e.Name, e.Publisher, e.Type)
	}
	if cloudOf(string(r.Pool)) == onAWS {
		fmt.Fprintf(w, "Image:\t%s, to be named where the owner of the launch template has its image\n", r.Image)
		fmt.Fprintln(w, "Bootstrap:\tevery new node runs the user data of the launch template")
	} else {
		fmt.Fprintf(w, "Bootstrap:\tevery new node runs the model's extensions: %s; and its custom data, which Azure does not return\n",
			cmp.Or(strings.Join(names, ", "), "none"))
	}
	if r.Owner == nil {
		return
	}
	when := ""
	if r.Hidden {
		when = " a version is offered (before that, new nodes would boot from none or from an older one)"
	}
	fmt.Fprintf(w, "Owner:\t%s writes the model; set in its spec, once%s:\n%s\n", r.Owner.Name, when, indent(r.Owner.Spec))
	if r.Owner.Needs != "" {
		fmt.Fprintf(w, "Needed, not checked:\t%s\n", r.Owner.Needs)
	}
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// printPlan prints what an update of one donor would do.
func printPlan(w io.Writer, p *poolstate.Plan) {
	fmt.Fprintf(w, "Pool:\t%s\n", p.Pool.Name())
	printRun(w, p)
}

// printRun is printPlan below a line that names the pool.
func printRun(w io.Writer, p *poolstate.Plan) {
	fmt.Fprintf(w, "Donor:\t%s\n", p.Donor)
	for _, d := range p.Doubts {
		fmt.Fprintf(w, "Unknown:\t%s\n", d)
	}
	if p.Unfinished != nil && !p.Unfinished.Alive {
		view.Unfinished(w, p.Unfinished, false)
	}
	if len(p.Refusals) > 0 {
		fmt.Fprintln(w, "Refused:")
		for _, r := range p.Refusals {
			fmt.Fprintf(w, "  %s\n", r)
		}
		return
	}
	fmt.Fprintf(w, "Version:\t%s\n", p.Version)
	if p.ExpectedSeconds > 0 && !p.Nothing {
		fmt.Fprintf(w, "Expected:\t%s, donor away %s\n", view.Seconds(p.ExpectedSeconds), view.Seconds(p.ExpectedAwaySeconds))
	}
	if u := p.Unfinished; u != nil && u.Alive {
		fmt.Fprintf(w, "Running:\t%s: donor %s, at step %s, begun %s; an update would leave\n", u.Run, view.Shown(u.Donor),
			view.Shown(u.Step), view.Instant(u.Started))
	}
	if p.Waiting {
		printWaits(w, p.Pool, p.Version)
	}
	if p.Nothing {
		fmt.Fprintln(w, "Nothing to do.")
		return
	}
	fmt.Fprintln(w, "\nSTEP\tWOULD")
	for _, s := range p.Steps {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.Would)
	}
	if len(p.Evictions) > 0 {
		fmt.Fprintln(w, "\nEVICTED POD\tHELD BY")
		for _, pod := range p.Evictions {
			fmt.Fprintf(w, "%s\t%s\n", pod, view.Shown(pod.Reason))
		}
	}
	printDiff(w, p.ModelDiff)
	fmt.Fprintf(w, "\nWould be pruned:\t%s\n", cmp.Or(strings.Join(p.Prune, ", "), "nothing"))
}
