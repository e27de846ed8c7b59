// Command kamino-lab runs a whole cluster and a cloud on this machine: a real
// Kubernetes control plane, the emulator of Azure Resource Manager or of AWS over HTTPS, and
// nodes which follow it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/lab/machines"
)

func main() {
	root := &cobra.Command{
		Use:           "kamino-lab",
		Short:         "A Kubernetes cluster and a cloud on this machine, to try Kamino on",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %s --help lists the flags", err, cmd.CommandPath())
	})
	root.AddCommand(newUpCommand(), newDemoCommand(), newCrashCommand(), newComponentCommand())

	ctx := context.Background()
	// A component installs its own signal handling, and may do so only once.
	if len(os.Args) < 2 || os.Args[1] != "component" {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		if missing := (*machines.MissingError)(nil); errors.As(err, &missing) {
			os.Exit(missing.ExitCode())
		}
		os.Exit(1)
	}
}
