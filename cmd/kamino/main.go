// Command kamino makes new nodes of a pool like the best node running in it.
//
// Its flags and exit codes are in docs/cli.md, which is made from the commands
// themselves. Environment variables:
//
//	NODE_ID        name of the node this process runs on; never taken as donor
//	POD_NAMESPACE  namespace of the pod this process runs in, set by the charts
//	POD_IMAGE      image of the seal pod, by digest, if --image is not given
//	SEAL_POLICY    text of the seal policy, if --seal-policy is not given
//	PROBE          text of the probe of a proof, if --probe is not given
//	KUBECONFIG     as for kubectl; without one, the service account of the pod
//	AZURE_*        credentials, as for every program of the Azure SDK
package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
)

func main() {
	bringRoots(os.Getenv)
	if os.Getenv("GOGC") == "" {
		// Lists of thousands of nodes and instances are read once and dropped. Collecting early
		// costs little and keeps the peak low.
		debug.SetGCPercent(50)
	}
	streams := ioStreams{In: os.Stdin, Out: wanted{os.Stdout}, Err: os.Stderr}
	a := newApp(streams, os.Getenv, os.Exit)
	a.libraries = func(l *slog.Logger) {
		slog.SetDefault(l)
		klog.SetSlogLogger(l)
	}
	os.Exit(execute(context.Background(), a, os.Args[1:]))
}
