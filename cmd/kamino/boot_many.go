package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
)

func bootPlot(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	var to string
	cmd := &cobra.Command{
		Use: "plot [FILE…]", Short: "Draw the boot as a page, a picture or a trace",
		Long: "Draw the boot: a page that needs nothing but itself (html), a plain picture (svg), or a trace that https://ui.perfetto.dev opens (trace).",
		RunE: func(cmd *cobra.Command, args []string) error {
			draw := map[string]func(w io.Writer, c *boot.Capture, a *boot.Analysis) error{
				"html": draw.HTML, "svg": draw.SVG, "trace": draw.Trace,
			}[b.format]
			c, err := b.capture(cmd.Context(), args)
			if err != nil {
				return err
			}
			a, err := boot.Analyze(c, boot.Options{Unit: b.unit})
			if err != nil {
				return err
			}
			return bootWriteTo(std.Out, to, func(w io.Writer) error { return draw(w, c, a) })
		},
	}
	b.outputFlag(cmd, "html", "svg", "trace")
	b.unitFlag(cmd)
	cmd.Flags().StringVarP(&to, "file", "f", "", "write to this file instead of standard output")
	return cmd
}

func bootWriteTo(out io.Writer, path string, write func(io.Writer) error) error {
	if path == "" {
		return write(out)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write picture: %w", err)
	}
	return f.Close()
}

// bootOverBudget: a boot took longer than --budget allows. The process exits with exitRefused.
type bootOverBudget struct {
	name, goal   string
	took, budget boot.Micros
}

func (e *bootOverBudget) Error() string {
	return fmt.Sprintf("%s: %s took %s net, %s over the budget of %s", e.name, e.goal, e.took, e.took-e.budget, e.budget)
}

// bootWithin compares a boot with a budget. A boot whose start or end is not recorded counts as
// over the budget.
func bootWithin(name string, a *boot.Analysis, limit boot.Micros) error {
	const more = "give the output of (systemctl show; echo; systemctl show --all '*'), or the journal, of that boot"
	name = kamino.Plain(name)
	switch {
	case a.Goal == "":
		return kamino.WithHint(fmt.Errorf("%s: judge the budget of %s: the record does not say when a unit started", name, limit), more)
	case a.GoalAt.Net > limit:
		return &bootOverBudget{name, a.Goal, a.GoalAt.Net, limit}
	case !a.GoalEnded():
		return kamino.WithHint(fmt.Errorf("%s: judge the budget of %s: %s had not ended when the record ended", name, limit, a.Goal), more)
	case !a.FromStart():
		return kamino.WithHint(fmt.Errorf("%s: judge the budget of %s: times count from the start of %s, and what came before is not known",
			name, limit, a.Origin()), more)
	}
	return nil
}

func bootCompare(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	var budget durationValue
	cmd := &cobra.Command{
		Use: "compare A B", Short: "Show what got faster or slower from boot A to boot B", Args: bootArgs(2, 2),
		Long: "Compare two boots by milestone, by segment of the critical chain and by unit; each of A and B is a file or a folder.\n\n" +
			"With --budget the exit code is 3 if B took longer than that from the kernel's start to the goal, without parking.",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := bootAnalyze(std.In, args[0], b.unit)
			if err != nil {
				return err
			}
			to, err := bootAnalyze(std.In, args[1], b.unit)
			if err != nil {
				return err
			}
			c := boot.Compare(from, to)
			switch b.format {
			case "text":
				err = c.WriteText(std.Out)
			case "html":
				err = draw.Comparison(std.Out, from, to)
			default:
				err = bootEncode(std.Out, b.format, c)
			}
			if limit := boot.Micros(budget.d.Microseconds()); err == nil && limit > 0 {
				err = bootWithin(args[1], to, limit)
			}
			return err
		},
	}
	b.outputFlag(cmd, "text", "html", "json", "yaml")
	b.unitFlag(cmd)
	cmd.Flags().Var(&budget, "budget", "exit with 3 if B took longer than this, for example 45s; 0 means no limit")
	return cmd
}

func bootPool(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	cmd := &cobra.Command{
		Use: "pool FILE…|DIR", Short: "Summarize the boots of many nodes", Args: bootArgs(1, math.MaxInt),
		Long: "Summarize the boots of many nodes: median, 90th percentile, outliers, and how often each unit is on the critical chain. Every file is a boot.",
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := bootPoolFiles(args)
			if err != nil {
				return err
			}
			report, err := b.pool(cmd.Context(), files)
			if err != nil {
				return err
			}
			if b.format == "text" {
				return report.WriteText(std.Out)
			}
			return bootEncode(std.Out, b.format, report)
		},
	}
	b.outputFlag(cmd, "text", "json", "yaml")
	b.unitFlag(cmd)
	return cmd
}

// pool reads files on all processors and keeps no capture longer than its analysis takes. It
// reports files that cannot be read on standard error, and fails if there are no others.
func (b *bootCommand) pool(ctx context.Context, files []string) (*boot.PoolReport, error) {
	analyses := make([]*boot.Summary, len(files))
	errs := make([]error, len(files))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				a, err := bootAnalyze(b.io.In, files[i], b.unit)
				if err != nil {
					errs[i] = err
					continue
				}
				analyses[i] = boot.Summarize(kamino.Plain(filepath.Base(files[i])), a)
			}
		})
	}
	for i := range files {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var p boot.Pool
	read := 0
	for i, a := range analyses { // in the order of the files, so that equal input gives equal output
		if a != nil {
			p.Add(a)
			read++
		} else {
			b.io.tell(slog.LevelWarn, fmt.Sprintf("skipped: %v", errs[i]))
		}
	}
	if read == 0 {
		return nil, kamino.WithHint(fmt.Errorf("summarize boots: none of %d files could be read", len(files)),
			"kamino boot --help lists what can be read")
	}
	return p.Report(), nil
}
