package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/lab/machines"
)

// Kinds of machines behind the cloud.
const (
	simulated = "simulated"
	qemu      = "qemu"
)

func checkMachines(kind string) error {
	if kind != simulated && kind != qemu {
		return fmt.Errorf("machines %q are unknown: use --machines %s or --machines %s", kind, simulated, qemu)
	}
	return nil
}

// machinesOptions are what a lab of real machines needs besides its directory.
// Binaries are built if the checkout has changed.
func machinesOptions(cmd *cobra.Command, dir string, level slog.Level) (machines.Options, error) {
	o := machines.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))}
	if err := machines.Preflight(); err != nil {
		return o, err
	}
	var err error
	if o.Binary, err = os.Executable(); err != nil {
		return o, fmt.Errorf("find this program: %w", err)
	}
	sources, err := machines.FindLab()
	if err != nil {
		return o, err
	}
	if o.Binaries, err = machines.BuildBinaries(cmd.Context(), sources); err != nil {
		return o, err
	}
	o.Cache, err = machines.DefaultCache()
	return o, err
}

// upMachines keeps a lab of real machines until interrupted.
func upMachines(cmd *cobra.Command, dir string, nodes int, level slog.Level) error {
	o, err := machinesOptions(cmd, dir, level)
	if err != nil {
		return err
	}
	o.Nodes = nodes
	ctx := cmd.Context()
	l, err := machines.Start(ctx, o)
	if err != nil {
		return err
	}
	defer l.Stop()
	fmt.Fprintf(cmd.ErrOrStderr(), "in another shell: . %s/env, and ssh -F %s/ssh_config pool1_0\n", l.Dir, l.Dir)
	for _, i := range l.Cloud.Instances() {
		if _, err := l.AwaitReady(ctx, i, time.Hour); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return stay(cmd, l.ControlPlane)
}

// demoMachines shows the main job, or the whole circle, on real machines.
func demoMachines(cmd *cobra.Command, keep, circle bool, output string) error {
	dir, err := os.MkdirTemp("", "kamino-demo-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	o, err := machinesOptions(cmd, filepath.Join(dir, "lab"), slog.LevelWarn)
	if err != nil {
		return err
	}
	before := func(l *machines.Lab) {
		if keep && cmd.Context().Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "demo: the lab stays; in another shell: . %s/env, or ssh -F %s/ssh_config NAME\ndemo: end it with Ctrl-C\n", l.Dir, l.Dir)
			<-cmd.Context().Done()
		}
	}
	if circle {
		report, err := machines.DemoCircle(cmd.Context(), o, cmd.ErrOrStderr(), before)
		if err != nil {
			report.Failures = append(report.Failures, err.Error())
		}
		return showCircle(cmd, output, report, err)
	}
	report, err := machines.Demo(cmd.Context(), o, cmd.ErrOrStderr(), before)
	if err != nil {
		report.Failures = append(report.Failures, err.Error())
	}
	return show(cmd, output, report, report.Failures, err, printMachines)
}

// showCircle is show, which has a page besides.
func showCircle(cmd *cobra.Command, output string, c machines.Circle, err error) error {
	if output != "html" {
		return show(cmd, output, c, c.Failures, err, printCircle)
	}
	if err == nil && len(c.Failures) > 0 {
		err = fmt.Errorf("%d things did not hold", len(c.Failures))
	}
	return errors.Join(err, c.WritePage(cmd.OutOrStdout()))
}

func printCircle(out io.Writer, c machines.Circle) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nThe nodes\t(%s)\n  node\t%s\trestarted\trequests\n", c.Accelerator, strings.Join(machines.Packages, "\t"))
	for _, n := range c.Nodes {
		fmt.Fprintf(w, "  %s", n.Name)
		for _, name := range machines.Packages {
			fmt.Fprintf(w, "\t%s", n.After[name])
		}
		fmt.Fprintf(w, "\t%t\t%d\n", n.Rebooted, n.Requests)
	}
	fmt.Fprintf(w, "\nThe acts\n")
	for _, a := range c.Acts {
		fmt.Fprintf(w, "  %s\t%6.0f s\n", a.Name, a.Seconds)
	}
	fmt.Fprintf(w, "\nThe outcome\n  patched\t%s: %s\n  image\tversion %s, made from %s\n", c.Patched,
		strings.Join(c.Changed, ", "), c.Version, c.Donor)
	fmt.Fprintf(w, "  --diff before\t%s\n  --diff after\t%s\n  repository\t%d requests after the patch\n", strings.Join(c.Before, ", "),
		strings.Join(c.After, ", "), c.Later)
}

func printMachines(out io.Writer, r machines.Report) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nThe machines\t(%s)\n", r.Accelerator)
	fmt.Fprintln(w, "  node\tfrom\tReady after\tmachine-id\tssh host key\tgenerations")
	for _, m := range r.Machines {
		fmt.Fprintf(w, "  %s\t%s\t%.0f s\t%s\t%s\t%d\n", m.Node, m.Image, m.ReadySeconds, short(m.MachineID),
			short(m.HostKey), m.Generations)
	}
	fmt.Fprintf(w, "\nThe steps\n")
	for _, s := range r.Steps {
		if !s.Skipped {
			fmt.Fprintf(w, "  %s\t%6.1f s\n", s.Name, s.Seconds)
		}
	}
	fmt.Fprintf(w, "\nThe outcome\n  donor\t%s was away %.0f s of %.0f s\n  image\tversion %s, %d MB\n", r.Donor, r.DonorAwaySeconds,
		r.Seconds, r.Version, r.ImageBytes>>20)
}

// short is the beginning of an identifier, enough to tell two apart.
func short(id string) string {
	return id[:min(len(id), 12)]
}
