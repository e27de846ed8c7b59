package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/lab/prove"
)

// proveCommand puts images to the proof.
type proveCommand struct {
	output, only string
	workers      int
}

func newProveCommand() *cobra.Command {
	c := &proveCommand{}
	cmd := &cobra.Command{
		Use:   "prove",
		Short: "Put good images, bad ones and unlucky clouds to the proof",
		Long: `Start a lab, and in it make images of many kinds: bad ones, which must be withdrawn
by the check that is meant for them and never promoted; ones whose canary cloud,
registry or cluster keep from being judged, which stay hidden; and good ones, which
must be promoted. During each proof the pool grows by five, all of the former image.
Each check is switched off once as well, and then its bad image is promoted.

It takes about a quarter of an hour, most of which it waits. Exits with 1 if
anything fares otherwise than it must.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.output, "output", "o", "text", "text or json")
	f.StringVar(&c.only, "kind", "", "only images whose kind matches this regular expression")
	f.IntVar(&c.workers, "workers", 6, "how many images are put to the proof side by side")
	return cmd
}

func (c *proveCommand) run(cmd *cobra.Command) error {
	if c.output != "text" && c.output != "json" {
		return fmt.Errorf("invalid output format %q: use -o text or -o json", c.output)
	}
	match, err := regexp.Compile(c.only)
	if err != nil {
		return fmt.Errorf("read --kind: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "kamino-prove-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(dir)
	report, err := prove.Run(cmd.Context(), prove.Options{Dir: dir, Binary: binary, Workers: c.workers, Match: match, Progress: func(i prove.Image) {
		fmt.Fprintf(cmd.ErrOrStderr(), "prove: %s%s: %s %s (%s) %.0f s %q\n", i.Kind, without(i), i.Verdict, i.CaughtBy, i.Evidence, i.Seconds, i.Wrong)
	}})
	if err != nil {
		return err
	}
	if err := c.print(cmd, report); err != nil {
		return err
	}
	if report.Wrong > 0 {
		return fmt.Errorf("%d of %d images fared otherwise than they must", report.Wrong, len(report.Images))
	}
	return nil
}

func without(i prove.Image) string {
	if i.Without == "" {
		return ""
	}
	return " without check " + i.Without
}

func (c *proveCommand) print(cmd *cobra.Command, r prove.Report) error {
	if c.output == "json" {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "IMAGE\tVERDICT\tCAUGHT BY\tPROMOTED\tSECONDS\tWRONG")
	for _, i := range r.Images {
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%t\t%.0f\t%q\n", i.Kind, without(i), i.Verdict, i.CaughtBy, i.Promoted, i.Seconds, i.Wrong)
	}
	fmt.Fprintf(w, "%d bad, %d inconclusive, %d good, %d checks switched off; wrong: %d\n", r.Bad, r.Inconclusive, r.Good, r.SwitchedOff, r.Wrong)
	return w.Flush()
}
