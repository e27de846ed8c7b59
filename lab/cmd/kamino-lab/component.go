package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, as in upstream's main

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in upstream's mains
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric, as in upstream's mains
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// newComponentCommand runs one upstream component in this process, which it
// never leaves: the component's exit code is the program's.
func newComponentCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "component NAME [FLAGS]",
		Short:              "Run one Kubernetes component (started by up, not by people)",
		Hidden:             true,
		DisableFlagParsing: true, // flags are the component's
		RunE: func(cmd *cobra.Command, args []string) error {
			names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}
			if len(args) == 0 || !slices.Contains(names, args[0]) {
				return fmt.Errorf("run component: name one of %s", strings.Join(names, ", "))
			}
			runComponent(cmd, args[0], args[1:])
			return nil
		},
	}
}

func runComponent(parent *cobra.Command, name string, args []string) {
	var command *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(append([]string{name}, args...))
		os.Exit(0)
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kubelet":
		command = kubelet.NewKubeletCommand(parent.Context())
	}
	command.SetArgs(args)
	os.Exit(cli.Run(command))
}
