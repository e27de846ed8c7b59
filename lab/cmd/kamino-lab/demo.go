package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/demo"
)

func newDemoCommand() *cobra.Command {
	var opts demo.Options
	var keep, circle bool
	var output, kind string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job: a donor becomes the image of its pool, and the next node boots from it",
		Long: `Start a lab with a workload behind a disruption budget, let kamino update take a
node as donor, scale the pool out by one, and look at what became of everything.
Exits with 1 if anything did not hold.

With --circle, on real machines, three packages get a new version: one of three
nodes is patched, becomes the image and is proved, and the next machine must have
all three without a request to the repository. With -o html it is a picture.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" && !(circle && output == "html") {
				return fmt.Errorf("invalid output format %q: use -o text or -o json, or with --circle -o html", output)
			}
			if circle && kind != qemu {
				return errors.New("--circle is played on real machines only: add --machines qemu")
			}
			if err := errors.Join(checkMachines(kind), checkCloud(&opts.On, kind)); err != nil {
				return err
			}
			if kind == qemu {
				return demoMachines(cmd, keep, circle, output)
			}
			if opts.Nodes < 2 || opts.Speed <= 0 {
				return fmt.Errorf("--nodes %d must be 2 or more and --speed %g positive", opts.Nodes, opts.Speed)
			}
			if keep {
				opts.Keep = func(l *lab.Lab) {
					fmt.Fprintf(cmd.ErrOrStderr(), "demo: the lab stays; in another shell: . %s/env\ndemo: end it with Ctrl-C\n", l.Dir)
					<-cmd.Context().Done()
				}
			}
			return runDemo(cmd, opts, output)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "machines", simulated, "simulated, or qemu: virtual machines that really boot")
	addCloud(flags, &opts.On)
	flags.BoolVar(&keep, "keep", false, "keep the lab afterwards, until interrupted")
	flags.BoolVar(&circle, "circle", false, "with --machines qemu: patch one node, and let the image renew the others")
	flags.StringVarP(&output, "output", "o", "text", "text or json, and with --circle html")
	flags.IntVar(&opts.Nodes, "nodes", 3, "nodes of the pool")
	flags.Float64Var(&opts.Speed, "speed", 60, "how many times faster than the cloud and its nodes work")
	flags.StringVar(&opts.Kamino, "kamino", "", "the product's binary (default: bin/kamino of this checkout, else in PATH)")
	return cmd
}

func runDemo(cmd *cobra.Command, opts demo.Options, output string) error {
	var err error
	if opts.Lab, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if opts.Kamino == "" {
		opts.Kamino = findKamino(opts.Lab)
	}
	if opts.Dir, err = os.MkdirTemp("", "kamino-demo-"); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(opts.Dir)
	opts.Err = cmd.ErrOrStderr()
	opts.Logger = slog.New(slog.NewTextHandler(opts.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	report, err := demo.Run(cmd.Context(), opts)
	if err != nil {
		report.Failures = append(report.Failures, err.Error())
	}
	return show(cmd, output, report, report.Failures, err, printDemo)
}

// findKamino looks beside lab/bin, where make puts both.
func findKamino(lab string) string {
	beside := filepath.Join(filepath.Dir(lab), "..", "..", "bin", "kamino")
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	return "kamino"
}

func printDemo(out io.Writer, r demo.Report) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nThe pool's model\n")
	for _, d := range r.ModelDiff {
		fmt.Fprintf(w, "  %s\n    was\t%s\n    is\t%s\n", d.Field, d.From, d.To)
	}
	fmt.Fprintf(w, "\nThe steps\t(%g times faster than the cloud)\n", r.Speed)
	for _, s := range r.Steps {
		if !s.Skipped {
			fmt.Fprintf(w, "  %s\t%6.1f s\n", s.Name, s.Seconds)
		}
	}
	fmt.Fprintf(w, "\nThe outcome\n")
	fmt.Fprintf(w, "  donor\t%s was away %.1f s of %.1f s, and is as it was before\n", r.Donor, r.DonorAwaySeconds, r.Seconds)
	fmt.Fprintf(w, "  budget\tviolated %d times; never fewer than %d pods available\n", r.BudgetViolations, r.LowestAvailable)
	fmt.Fprintf(w, "  clone\t%s booted from version %s, Ready %.1f s after the run\n", r.Clone.Node, r.Clone.ImageVersion,
		r.Clone.ReadySeconds)
	fmt.Fprintf(w, "  its ancestry\t%s\n", r.Clone.Ancestry)
}
