package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/view"
)

// proveFlags are the options of a proof.
type proveFlags struct {
	mode, promote string
	bake          durationValue
	budget        budgetValue
	probe         string
	job           []byte
	without       []string
}

func (p *proveFlags) add(f *pflag.FlagSet, o kamino.Proving) {
	f.StringVar(&p.mode, "prove", string(o.Mode), "canary: prove each version by one instance beside the pool before the pool boots from it; none: accept versions unproved")
	f.StringVar(&p.promote, "promote", string(o.Promote), "auto, or manual (a version that passed waits for kamino promote)")
	p.addLimits(f, o)
}

// addNamed is add for a version that a person names.
func (p *proveFlags) addNamed(f *pflag.FlagSet, o kamino.Proving) {
	p.promote = string(o.Promote)
	f.StringVar(&p.mode, "prove", string(kamino.ProveNone),
		"prove the version first: canary (one instance beside the pool; a version that fails is withdrawn), or none")
	p.addLimits(f, o)
}

func (p *proveFlags) addLimits(f *pflag.FlagSet, o kamino.Proving) {
	p.bake.d, p.budget = o.For, budgetValue{durationValue: durationValue{o.Budget}}
	f.Var(&p.bake, "prove-for", "how long a canary is watched once its node is Ready, a plain number is in seconds")
	f.Var(&p.budget, "boot-budget", "time limit from a running machine to a Ready node: a duration, or a multiple of the usual time of the pool's canaries, for example 2x, which takes effect after three passed canaries (10m until then)")
	f.StringVar(&p.probe, "probe", "", "`file` with a Kubernetes Job that must succeed on the canary (default: the text in $PROBE)")
	f.StringArrayVar(&p.without, "prove-without", nil, "skip this check of the proof; may be repeated")
}

func (p *proveFlags) options() kamino.Proving {
	return kamino.Proving{Mode: kamino.ProveMode(p.mode), For: p.bake.d, Budget: p.budget.d, Times: p.budget.times,
		Promote: kamino.PromoteMode(p.promote), Probe: p.job, Without: p.without}
}

// read reads and checks the probe, before any call. Errors that its text does not show, such as a
// namespace that does not exist, are reported by the API server before anything is touched.
func (p *proveFlags) read(a *app) error {
	if text := a.env("PROBE"); text != "" {
		p.job = []byte(text)
	}
	if p.probe == "" && p.job != nil && kamino.ProveMode(p.mode) != kamino.ProveNone {
		return checkProbe(p.job)
	} else if p.probe == "" {
		return nil
	}
	if kamino.ProveMode(p.mode) == kamino.ProveNone {
		return kamino.WithHint(errors.New("--probe has no effect: nothing is proved"), "use --prove canary, or omit --probe")
	}
	data, err := os.ReadFile(p.probe)
	if err != nil {
		return kamino.WithHint(fmt.Errorf("read --probe: %w", err), "name a file with one Job of batch/v1 in it")
	}
	p.job = data
	return checkProbe(p.job)
}

// checkProbe returns an error for a mistake in the text of a Job, which the user made and no
// cluster has to refuse.
func checkProbe(job []byte) error {
	err := kube.CheckProbe(job)
	if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) {
		return kamino.WithHint(fmt.Errorf("%s: %s", refused.Subject, refused.Refusals[0].Why), "%s", refused.Refusals[0].Do)
	}
	return err
}

// pointCommand is promote or withdraw: both change the pool's next image.
type pointCommand struct {
	*app
	out     outputFlag
	promote engine.PromoteOptions
	prove   proveFlags
	reason  string
	done    string // what it did, in a word
	yes     bool
	asking  bool // ask before the change
}

func newPromoteCommand(a *app) *cobra.Command {
	c := &pointCommand{app: a, done: "Promoted"}
	cmd := &cobra.Command{
		Use:   "promote --pool POOL [--version VERSION] [--prove canary]",
		Short: "Promote a version: new nodes of the pool boot from it",
		Long: `Make a hidden version the one that the pool's next node boots from. Without --version
it is the newest that passed its proof and waits, as with --promote manual. A version
that you name need not be proved. A withdrawn version can be used again with kamino
rollback only. An image that someone else has set in the model is kept, unless
--adopt-model is given. Running nodes are not touched.

With --prove canary the version is proved first, as in an update: one instance
boots from it beside the pool, joins and is examined. A version that passes is
promoted; one that fails is withdrawn, and the pool's next node boots from the same
image as before; if the proof is inconclusive, nothing changes. A version that
someone else put into the pool's gallery, for example with Packer, is proved in the
same way. It has no seal receipt, which --accept-unsealed accepts.`,
		Example: `  kamino promote --pool k8s-pool1-12345678-vmss
  kamino promote --pool k8s-pool1-12345678-vmss --version 2026.11.22 --prove canary --accept-unsealed`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.readProof(cmd.Flags()); err != nil {
				return err
			}
			return c.run(cmd.Context(), func(ctx context.Context, e *engine.Engine) (engine.Rollback, error) {
				return e.PromoteVersion(ctx, c.promote)
			})
		},
	}
	c.add(cmd, "the version; default the newest that passed and waits")
	f := cmd.Flags()
	f.BoolVar(&c.promote.AdoptModel, "adopt-model", false, "replace an image that someone else has set in the model")
	c.prove.addNamed(f, kamino.Defaults().Proof)
	f.BoolVar(&c.promote.AcceptUnsealed, "accept-unsealed", false,
		"accept a version without a seal receipt: every node made of it may have the identity (machine ID, host keys, certificates) and the secrets of the machine that it was made of, and no proof finds all of them")
	return cmd
}

func newWithdrawCommand(a *app) *cobra.Command {
	c := &pointCommand{app: a, done: "Withdrawn"}
	cmd := &cobra.Command{
		Use:   "withdraw --pool POOL --reason TEXT [--version VERSION]",
		Short: "Withdraw a version, so that it is never chosen again unless named",
		Long: `Withdraw a version: it is never chosen again by plan, auto-update or a rollback that
does not name it, and the reason is recorded on it. If the pool's next node would
boot from it, the good version before it takes its place; if there is none, nothing
is changed. Running it again with the same reason has no effect: to withdraw also the
version that took its place, use --version. Running nodes are not touched. Versions
that descend from it are listed.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.asking = !c.yes && !c.promote.DryRun && c.asks()
			return c.run(cmd.Context(), func(ctx context.Context, e *engine.Engine) (engine.Rollback, error) {
				return e.WithdrawVersion(ctx, c.withdrawal())
			})
		},
	}
	c.add(cmd, "the version; default the one that the next node would boot from")
	cmd.Flags().StringVar(&c.reason, "reason", "", "reason, recorded on the version (required)")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask for confirmation; without a terminal nothing is asked")
	return cmd
}

// readProof reads the options of the proof. Limits without a proof have no effect and are an error,
// because the user expects a proof.
func (c *pointCommand) readProof(f *pflag.FlagSet) error {
	proof := c.prove.options()
	if proof.Mode == kamino.ProveNone {
		for _, name := range []string{"prove-for", "boot-budget", "probe", "prove-without"} {
			if f.Changed(name) {
				return kamino.WithHint(fmt.Errorf("--%s has no effect: nothing is proved", name), "use --prove canary, or omit --%s", name)
			}
		}
		return nil
	}
	if err := c.prove.read(c.app); err != nil {
		return err
	}
	proof = c.prove.options()
	c.promote.Proof, c.promote.PendingReboot = &proof, []kamino.Signal{kamino.KuredPendingReboot}
	return nil
}

func (c *pointCommand) withdrawal() kamino.WithdrawOptions {
	return kamino.WithdrawOptions{Pool: c.promote.Pool, Version: c.promote.Version, DryRun: c.promote.DryRun, Reason: c.reason}
}

// agree asks whether a version is to be withdrawn.
func (c *pointCommand) agree(ctx context.Context, e *engine.Engine) error {
	opts := c.withdrawal()
	opts.DryRun = true
	back, err := e.WithdrawVersion(ctx, opts)
	if err != nil || !back.Changed {
		return err
	}
	yes, err := c.confirm(fmt.Sprintf("Withdraw version %s of pool %s, because: %s? The next node boots from %s.",
		strings.Join(back.Bad, ", "), back.Name, opts.Reason, view.Short(back.To)))
	if err != nil || yes {
		return err
	}
	return answeredNo("the withdrawal in pool " + back.Name)
}

func (c *pointCommand) add(cmd *cobra.Command, version string) {
	f := cmd.Flags()
	bothNames(f, "pool")
	f.StringVar(&c.promote.Pool, "pool", "", "the pool, by name or ID (required)")
	f.StringVar(&c.promote.Version, "version", "", version)
	f.BoolVar(&c.promote.DryRun, "dry-run", false, "print what would be done, and change nothing")
	c.addGallery(f)
	c.out.add(cmd)
	c.completes(cmd, "pool", poolWords)
	c.completes(cmd, "version", versionWords(&c.promote.Pool))
}

func (c *pointCommand) run(ctx context.Context, do func(context.Context, *engine.Engine) (engine.Rollback, error)) error {
	if err := c.out.check(); err != nil {
		return err
	}
	eng, err := c.engine(ctx)
	if err != nil {
		return err
	}
	if c.asking {
		if err := c.agree(ctx, eng); err != nil {
			return err
		}
	}
	finish := c.follow(ctx, eng)
	back, err := do(ctx, eng)
	finish()
	if err != nil {
		return err
	}
	return c.out.print(c.app, back, func(w io.Writer) { c.table(w, back) })
}

func (c *pointCommand) table(w io.Writer, r engine.Rollback) {
	fmt.Fprintf(w, "Pool:\t%s\n", r.Name)
	printGivenBack(w, r)
	if !r.Changed {
		fmt.Fprintf(w, "Already %s: the next node boots from %s.\n", strings.ToLower(c.done), bootsFrom(r))
		return
	}
	would := ""
	if c.promote.DryRun {
		would = " (dry run)"
	}
	if len(r.Bad) > 0 {
		fmt.Fprintf(w, "%s:\t%s%s\n", c.done, strings.Join(r.Bad, ", "), would)
	}
	if r.Offered {
		fmt.Fprintf(w, "Next node:\tboots from %s once the owner of the model lets it name the image definition\n", bootsFrom(r))
	} else if r.To == "" || r.To == r.From {
		fmt.Fprintf(w, "Next node:\tboots from %s, as before\n", bootsFrom(r))
	} else {
		fmt.Fprintf(w, "Next node:\tboots from %s, before from %s%s\n", bootsFrom(r), cmp.Or(r.From, "an image that is not a prototype"),
			would)
	}
	printProved(w, r.Proof)
	if r.Canary != "" {
		fmt.Fprintf(w, "Proof:\t%s%s\n", r.Canary, would)
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "Warning:\t%s\n", text)
	}
	for _, d := range r.Descendants {
		fmt.Fprintf(w, "Made of it:\t%s, whose donor descends from it\n", d)
	}
	printDiff(w, r.ModelDiff)
}

// bootsFrom describes what the next node boots from afterwards.
func bootsFrom(r engine.Rollback) string {
	text := cmp.Or(r.To, r.From, "an image that is not a prototype")
	if r.Unproved {
		text += ", " + view.Unproved
	}
	return text
}

func newPauseCommand(a *app) *cobra.Command {
	reason := ""
	cmd := &cobra.Command{
		Use:   "pause --reason TEXT",
		Short: "Pause all new runs and promotions of the cluster",
		Long: `Pause all new runs and promotions of the cluster: the reason is stored in an
annotation of the namespace ` + kamino.SystemNamespace + `. Active runs notice it
within minutes, give back what they took and end. Rollback, withdraw and restore
still work. kamino resume ends the pause.`,
		Args: func(_ *cobra.Command, words []string) error {
			if len(words) == 0 {
				return nil
			}
			return kamino.WithHint(fmt.Errorf("the reason must be given with a flag: %q", strings.Join(words, " ")),
				"use kamino pause --reason %q", strings.Join(words, " "))
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.setPaused(cmd.Context(), reason, func(ctx context.Context, e *engine.Engine) error { return e.Pause(ctx, reason) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown to everyone whose run is refused (required)")
	return cmd
}

func newResumeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume", Short: "Resume runs and promotions after a pause", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.setPaused(cmd.Context(), "", func(ctx context.Context, e *engine.Engine) error { return e.Resume(ctx) })
		},
	}
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if err.Error() == "unknown flag: --reason" {
			return kamino.WithHint(errors.New("a resume takes no reason"), "kamino resume; kamino pause --reason TEXT pauses again")
		}
		return c.Root().FlagErrorFunc()(c, err)
	})
	return cmd
}

const whilePaused = "active runs end within minutes, and no new run begins; kamino resume ends the pause"

// setPaused changes the stop switch, and prints its former state. Credentials that may not read the
// switch may still change it.
func (a *app) setPaused(ctx context.Context, reason string, do func(context.Context, *engine.Engine) error) error {
	cluster, err := a.cluster(ctx, a) // the cloud is not needed
	if err != nil {
		return err
	}
	eng := &engine.Engine{Cluster: cluster, Clock: a.clock}
	was, unread := eng.Paused(ctx)
	if err := do(ctx, eng); err != nil {
		return err
	}
	switch {
	case reason == "" && was.Reason == "" && unread == nil:
		fmt.Fprintln(a.Out, "The cluster is not paused: nothing was changed.")
	case reason == "" && was.Reason != "":
		fmt.Fprintf(a.Out, "The cluster is no longer paused; it was: %s\n", was)
	case reason == "":
		fmt.Fprintln(a.Out, "The cluster is no longer paused.")
	case was.Reason != "" && was.Reason != reason:
		fmt.Fprintf(a.Out, "The cluster is paused: %s; %s\nBefore, it was: %s\n", reason, whilePaused, was)
	default:
		fmt.Fprintf(a.Out, "The cluster is paused: %s; %s\n", reason, whilePaused)
	}
	return nil
}
