package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
)

const bootLong = `Show where the boot time of a node went.

Every subcommand takes files (or - for standard input) in any format that it knows by
its content, several files or a folder of the same boot together, or without
files looks at this machine (as root):

  a record of kamino-agent          /var/lib/kamino/boots/*.json
  a dump                            (systemctl show; echo; systemctl show --all '*') > node.txt
  a picture or its numbers          systemd-analyze plot, plot --json=short
  a journal                         journalctl -b -o export, or -o json
  cloud-init                        /var/log/cloud-init.log, cloud-init analyze dump
  text                              systemd-analyze [time|blame|critical-chain],
                                    cloud-init analyze [show|blame], journalctl -b,
                                    syslog, messages, dmesg
  a report, unpacked                of sos or eks-log-collector

Each may be packed by gzip. Text lacks what its command does not print, and
says so; other files are named together with the command that gives more.

Times do not count how long a pre-provisioned VM waited for its owner (parking):
that is shown separately. docs/boot.md explains what is printed.`

// bootCommand holds what the subcommands of kamino boot share.
type bootCommand struct {
	io     ioStreams
	format string
	unit   string
	fuzz   string
	compat bool
}

// newBootCommand makes kamino boot. It needs neither cloud nor cluster.
func newBootCommand(std ioStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use: "boot", Short: "Show where the boot time of a node went", Long: bootLong,
		// The root's options are for cloud and cluster, which reading a file does not need. The
		// command takes nothing that has to be restored, so the first signal ends it, also while it
		// waits for a pipe.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			return nil
		},
		Args: commandOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(bootShow(std), bootTime(std), bootChain(std), bootBlame(std), bootPlot(std), bootCompare(std), bootPool(std))
	return cmd
}

func bootShow(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	cmd := &cobra.Command{
		Use: "show [FILE…]", Short: "Print phases, milestones, critical chain and verdict",
		Long: "Print phases, milestones, critical chain and verdict. -o capture prints the record that the analysis is made from.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := b.capture(cmd.Context(), args)
			if err != nil {
				return err
			}
			if b.format == "capture" {
				return c.Write(std.Out)
			}
			return b.analysis(c, (*boot.Analysis).WriteText)
		},
	}
	b.outputFlag(cmd, "text", "json", "yaml", "capture")
	b.unitFlag(cmd)
	return cmd
}

func bootTime(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	cmd := &cobra.Command{
		Use: "time [FILE…]", Short: "Print phases and milestones",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := b.capture(cmd.Context(), args)
			if err != nil {
				return err
			}
			if b.compat {
				return boot.CompatTime(std.Out, c)
			}
			return b.analysis(c, (*boot.Analysis).WriteTime)
		},
	}
	b.outputFlag(cmd, "text", "json", "yaml")
	b.compatFlag(cmd, "time")
	return cmd
}

func bootBlame(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	cmd := &cobra.Command{
		Use: "blame [FILE…]", Short: "Print units by the time they took to start",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := b.capture(cmd.Context(), args)
			if err != nil {
				return err
			}
			if b.compat {
				return boot.CompatBlame(std.Out, c)
			}
			return b.analysis(c, (*boot.Analysis).WriteBlame)
		},
	}
	b.outputFlag(cmd, "text", "json", "yaml")
	b.compatFlag(cmd, "blame")
	return cmd
}

func bootChain(std ioStreams) *cobra.Command {
	b := &bootCommand{io: std}
	cmd := &cobra.Command{
		Use: "chain [FILE…]", Short: "Print what kubelet, or another unit, waited for",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := b.capture(cmd.Context(), args)
			if err != nil {
				return err
			}
			if b.compat {
				return b.compatChain(c)
			}
			return b.analysis(c, (*boot.Analysis).WriteChain)
		},
	}
	b.outputFlag(cmd, "text", "json", "yaml")
	b.compatFlag(cmd, "critical-chain")
	b.unitFlag(cmd)
	cmd.Flags().StringVar(&b.fuzz, "fuzz", "", "also follow units that became active at most this long before the latest one, for example 50ms or 1s")
	return cmd
}

func (b *bootCommand) compatChain(c *boot.Capture) error {
	fuzz, err := b.fuzzMicros()
	if err != nil {
		return err
	}
	var units []string
	if b.unit != "" {
		unit := b.unit
		if c.Unit(unit) == nil && c.Unit(unit+".service") != nil {
			unit += ".service"
		}
		units = []string{unit}
	}
	missing, err := boot.CompatChain(b.io.Out, c, fuzz, units...)
	if err != nil {
		return err
	}
	for _, m := range missing {
		return fmt.Errorf("find unit %s: not in this capture; kamino boot blame lists those that are", m)
	}
	return nil
}

// outputFlag adds -o, which is checked before anything is read. The first format is the default.
func (b *bootCommand) outputFlag(cmd *cobra.Command, formats ...string) {
	usage := strings.Join(formats[:len(formats)-1], ", ") + " or " + formats[len(formats)-1]
	cmd.Flags().StringVarP(&b.format, "output", "o", formats[0], usage)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, b.format) {
			return kamino.WithHint(fmt.Errorf("invalid output format %q", b.format), "use -o %s", usage)
		}
		return nil
	}
}

func (b *bootCommand) compatFlag(cmd *cobra.Command, verb string) {
	cmd.Flags().BoolVar(&b.compat, "compat", false, "print byte for byte what systemd-analyze "+verb+" of systemd 252 prints")
}

func (b *bootCommand) unitFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.unit, "unit", "", "unit that the chain leads to (default kubelet.service, else cloud-final.service, else default.target)")
}

// fuzzMicros parses --fuzz: a duration of Go, or a plain number of seconds as in systemd.
func (b *bootCommand) fuzzMicros() (boot.Micros, error) {
	if b.fuzz == "" {
		return 0, nil
	}
	if n, err := strconv.ParseFloat(b.fuzz, 64); err == nil && n >= 0 && n < 1e9 {
		return boot.Micros(n * 1e6), nil
	}
	d, err := time.ParseDuration(strings.NewReplacer(" ", "", "min", "m", "sec", "s").Replace(b.fuzz)) // systemd's spellings
	if err != nil || d < 0 {
		return 0, kamino.WithHint(fmt.Errorf("invalid --fuzz %q", b.fuzz), "use a duration, for example 50ms or 1s")
	}
	return boot.Micros(d.Microseconds()), nil
}

// analysis analyses a capture and prints it as text or JSON.
func (b *bootCommand) analysis(c *boot.Capture, text func(*boot.Analysis, io.Writer) error) error {
	fuzz, err := b.fuzzMicros()
	if err != nil {
		return err
	}
	a, err := boot.Analyze(c, boot.Options{Unit: b.unit, Fuzz: fuzz})
	if err != nil {
		return err
	}
	if b.format == "text" {
		return text(a, b.io.Out)
	}
	return bootEncode(b.io.Out, b.format, a)
}

// bootEncode writes JSON or YAML.
func bootEncode(w io.Writer, format string, v any) error {
	_, err := encode(w, format, v)
	return err
}

// bootArgs limits the number of arguments: at least, and at most.
func bootArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return kamino.WithHint(fmt.Errorf("%s named", boot.Count(len(args), "boot")), "use %s", cmd.UseLine())
		}
		return nil
	}
}

// capture reads one boot from files or from this machine.
func (b *bootCommand) capture(ctx context.Context, args []string) (*boot.Capture, error) {
	if len(args) == 0 {
		return bootLive(ctx)
	}
	return bootRead(b.io.In, args)
}
