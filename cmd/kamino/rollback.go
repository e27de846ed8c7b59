package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/view"
)

// rollbackCommand is kamino rollback.
type rollbackCommand struct {
	*app
	out      outputFlag
	opts     engine.RollbackOptions
	detailed bool
	yes      bool

	customData string
	protected  []string
}

func newRollbackCommand(a *app) *cobra.Command {
	c := &rollbackCommand{app: a}
	cmd := &cobra.Command{
		Use:   "rollback --pool POOL [--to VERSION]",
		Short: "Point a pool's model at an earlier image, or forward again",
		Long: `Point a pool's model at an earlier image version, or at the model from before
the first prototype, by one conditional write. Versions newer than the target
are never chosen again: they are marked as bad and excluded from latest. A mark
that cannot be written does not stop the rollback; run it again later.
--to a version that is marked removes its mark. Running instances are not touched.
--to original sets versions aside without judging them: their donors may make new ones.

Without --to it goes back one step, from the version that a run promoted or a person
chose. Running it again, or after kamino withdraw, has no effect; to go further back,
name the version with --to.

Azure returns neither custom data nor the protected settings of extensions. To go
back to the original model, give them again, as in your template: for each extension
that comes back, its settings or the word none. If any is missing, nothing is changed
and the message lists them all, with the command to type; so does --dry-run. You can
also give them later, when the model is the original already.`,
		Example: `  kamino rollback --pool k8s-pool1-12345678-vmss --dry-run
  kamino rollback --pool k8s-pool1-12345678-vmss --to 2026.11.02
  kamino rollback --pool k8s-pool1-12345678-vmss --to original --custom-data cloud-init.txt \
      --protected-settings vmssCSE=cse.json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	bothNames(f, "pool")
	f.StringVar(&c.opts.Pool, "pool", "", "the pool, by name or ID (required)")
	f.StringVar(&c.opts.To, "to", "", `the version to go back to, or "original" (default: the previous good version with a receipt; without one, the original model)`)
	f.BoolVar(&c.opts.DryRun, "dry-run", false, "print what would be done, and change nothing")
	f.BoolVar(&c.yes, "yes", false, "do not ask for confirmation; without a terminal nothing is asked")
	f.BoolVar(&c.detailed, "detailed-exitcode", false, "with --dry-run: exit with 2 when there is something to do")
	a.addGallery(f)
	f.StringVar(&c.customData, "custom-data", "", "with --to original: file with the model's custom data, not encoded")
	f.BoolVar(&c.opts.KeepCustomData, "keep-custom-data", false, "with --to original: leave the custom data empty, as it is")
	f.StringArrayVar(&c.protected, "protected-settings", nil,
		"with --to original: NAME=FILE, an extension and the JSON of its protected settings, or NAME=none if it has none; may be repeated")
	c.out.add(cmd)
	a.completes(cmd, "pool", poolWords)
	a.completes(cmd, "to", versionWords(&c.opts.Pool))
	return cmd
}

// Run runs the command.
func (c *rollbackCommand) Run(ctx context.Context) error {
	if err := c.out.check(); err != nil {
		return err
	}
	if c.detailed && !c.opts.DryRun { // otherwise the exit code could mean "there was something to do" or "it was done"
		return kamino.WithHint(errors.New("--detailed-exitcode requires --dry-run"), "use --dry-run --detailed-exitcode")
	}
	if err := c.readSecrets(); err != nil {
		return err
	}
	eng, err := c.engine(ctx)
	if err != nil {
		return err
	}
	if !c.yes && !c.opts.DryRun && c.asks() {
		if err := c.agree(ctx, eng); err != nil {
			return err
		}
	}
	finish := c.follow(ctx, eng)
	back, err := eng.Rollback(ctx, c.opts)
	finish()
	if err != nil && !(c.opts.DryRun && back.Changed) {
		return err
	}
	if printErr := c.out.print(c.app, back, func(w io.Writer) { printRollback(w, back, c.opts) }); err == nil {
		err = printErr
	}
	if err != nil {
		return err
	}
	if c.opts.DryRun && c.detailed && back.Changed {
		return errToDo
	}
	return nil
}

// agree shows what a rollback would do, and asks.
func (c *rollbackCommand) agree(ctx context.Context, eng *engine.Engine) error {
	opts := c.opts
	opts.DryRun = true
	back, err := eng.Rollback(ctx, opts)
	if err != nil || !back.Changed {
		return err
	}
	table := outputFlag{format: "table"}
	if err := table.write(c.Err, c.columns(c.Err), back, func(w io.Writer) { printRollback(w, back, opts) }); err != nil {
		return err
	}
	yes, err := c.confirm(fmt.Sprintf("\nPoint the model of pool %s from %s to %s?", back.Name, view.Short(back.From), view.Short(back.To)))
	if err != nil || yes {
		return err
	}
	return answeredNo("the rollback of pool " + back.Name)
}

// noSettings replaces the name of a file for an extension without protected settings. A file of
// that name is ./none.
const noSettings = "none"

// readSecrets reads the files with the secrets of the original model.
func (c *rollbackCommand) readSecrets() error {
	if c.customData != "" {
		data, err := os.ReadFile(c.customData)
		if err != nil {
			return kamino.WithHint(fmt.Errorf("read --custom-data: %w", err), "name the file that your template puts into customData")
		}
		c.opts.Secrets.CustomData = data // not nil, also where the file is empty
	}
	for _, pair := range c.protected {
		name, file, ok := strings.Cut(pair, "=")
		if !ok || name == "" || file == "" {
			return kamino.WithHint(fmt.Errorf("--protected-settings %q is not NAME=FILE", pair), "for instance vmssCSE=cse.json")
		}
		if c.opts.Secrets.Protected == nil {
			c.opts.Secrets.Protected = map[string]json.RawMessage{}
		}
		if file == noSettings {
			c.opts.Secrets.Protected[name] = nil
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return kamino.WithHint(fmt.Errorf("read --protected-settings of %s: %w", name, err),
				"name the file with the object protectedSettings of your template; for an extension that has none: --protected-settings %s=%s", name, noSettings)
		}
		if !json.Valid(data) {
			return kamino.WithHint(fmt.Errorf("--protected-settings of %s: %s is not JSON", name, file),
				"it must hold the object protectedSettings of your template")
		}
		c.opts.Secrets.Protected[name] = data
	}
	return nil
}

// printGivenBack prints what was restored first.
func printGivenBack(w io.Writer, r engine.Rollback) {
	for _, l := range r.GivenBack {
		fmt.Fprintf(w, "Given back:\t%s, of run %s, node %s: %s\n", l.What, view.Shown(l.Run), view.Shown(l.Node),
			cmp.Or(view.OneLine(cmp.Or(l.Done, l.Reason)), "-"))
	}
}

func printRollback(w io.Writer, r engine.Rollback, opts engine.RollbackOptions) {
	fmt.Fprintf(w, "Pool:\t%s\n", r.Name)
	printGivenBack(w, r)
	if !r.Changed {
		if r.Since != "" {
			fmt.Fprintf(w, "Nothing to do: new nodes boot from %s since version %s was taken back; --to VERSION goes further.\n",
				bootsFrom(r), r.Since)
			return
		}
		fmt.Fprintf(w, "Nothing to do: the model is at %s.\n", bootsFrom(r))
		return
	}
	would := ""
	if opts.DryRun {
		would = " (dry run)"
	}
	fmt.Fprintf(w, "From:\t%s\n", r.From)
	fmt.Fprintf(w, "To:\t%s%s\n", bootsFrom(r), would)
	fmt.Fprintf(w, "Marked bad:\t%s\n", view.Shown(strings.Join(r.Bad, ", ")))
	if len(r.Good) > 0 {
		fmt.Fprintf(w, "Marked good:\t%s\n", strings.Join(r.Good, ", "))
	}
	for _, u := range r.Unmarked {
		fmt.Fprintf(w, "Not marked:\t%s (%s); the ledger remembers it, run again\n", u.Version, view.Cut(u.Error, 100))
	}
	for _, text := range r.Warnings {
		fmt.Fprintf(w, "Warning:\t%s\n", text)
	}
	printDiff(w, r.ModelDiff)
	if r.NeedsCustomData {
		fmt.Fprintln(w, "Needed: --custom-data FILE, or --keep-custom-data if the model had none")
	}
	for _, name := range r.Needs {
		fmt.Fprintf(w, "Needed: --protected-settings %s=FILE, or %s=%s\n", name, name, noSettings)
	}
}
