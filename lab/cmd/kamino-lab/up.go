package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/controlplane"
)

func newUpCommand() *cobra.Command {
	var opts lab.Options
	var verbose bool
	var kind string
	cmd := &cobra.Command{
		Use:   "up --dir DIR",
		Short: "Start a lab and keep it until interrupted",
		Long: `Start a Kubernetes control plane, an Azure or a Region of AWS and nodes on this
machine, print "ready", and keep them until interrupted; then nothing is left of
them.

In DIR are kubeconfig, ca.pem and env; on Azure azure.json and
azurestackcloud.json, too. In another shell, . DIR/env makes kamino, kubectl and
clients of the cloud use the lab: aws at once, az after sh DIR/az-login. The
cluster is prepared as kamino init does it, unless --unprepared is given.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Dir == "" {
				return errors.New("no directory named: kamino-lab up --dir /tmp/lab")
			}
			var err error
			if opts.Binary, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			level := slog.LevelInfo
			if verbose {
				level = slog.LevelDebug
			}
			if err := errors.Join(checkMachines(kind), checkCloud(&opts.On, kind)); err != nil {
				return err
			}
			if kind == qemu {
				nodes := opts.NodesPerPool
				if !cmd.Flags().Changed("nodes") {
					nodes = 1
				}
				return upMachines(cmd, opts.Dir, nodes, level)
			}
			opts.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return up(cmd, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Dir, "dir", "", "directory of the lab's files, made if absent")
	flags.StringVar(&kind, "machines", simulated, "simulated, or qemu: virtual machines that really boot, in one pool, one unless --nodes says otherwise")
	addCloud(flags, &opts.On)
	flags.IntVar(&opts.Pools, "pools", 1, "number of pools (scale sets, or Auto Scaling groups)")
	flags.IntVar(&opts.NodesPerPool, "nodes", 3, "number of nodes of each pool")
	flags.Float64Var(&opts.Speed, "speed", 1, "how many times faster than the cloud and the nodes work")
	flags.BoolVar(&opts.Unprepared, "unprepared", false,
		"leave the cluster as it is before kamino init, to install the chart kamino-base or to run kamino init")
	flags.BoolVarP(&verbose, "verbose", "v", false, "log every request and component")
	return cmd
}

func addCloud(flags *pflag.FlagSet, on *string) {
	flags.StringVar(on, "cloud", onAzure, "azure or aws")
}

const onAzure = "azure"

// checkCloud turns the name of a cloud into that of the lab.
func checkCloud(on *string, kind string) error {
	switch {
	case *on == onAzure:
		*on = ""
	case *on != lab.OnAWS:
		return fmt.Errorf("unknown cloud %q: use --cloud azure or aws", *on)
	case kind == qemu:
		return errors.New("virtual machines are on Azure only: omit --cloud aws or --machines qemu")
	}
	return nil
}

func up(cmd *cobra.Command, opts lab.Options) error {
	if opts.Pools < 1 || opts.NodesPerPool < 1 || opts.Speed <= 0 {
		return fmt.Errorf("--pools %d, --nodes %d and --speed %g must all be positive", opts.Pools, opts.NodesPerPool, opts.Speed)
	}
	l, err := lab.Start(cmd.Context(), opts)
	if err != nil {
		return err
	}
	defer l.Stop()
	fmt.Fprintf(cmd.ErrOrStderr(), "in another shell: . %s/env\n", l.Dir)
	return stay(cmd, l.ControlPlane)
}

// stay says that a lab is ready, and waits until it is interrupted or a part of
// its control plane ends.
func stay(cmd *cobra.Command, cp *controlplane.ControlPlane) error {
	fmt.Fprintln(cmd.OutOrStdout(), "ready")
	select {
	case <-cmd.Context().Done():
		return nil
	case err := <-cp.Failed():
		return err
	}
}
