// Command kubelet is the kubelet of the lab's virtual machines: upstream's, from
// the version of k8s.io/kubernetes in go.mod, without the JSON log format.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as in upstream's main
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric, as in upstream's main
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
