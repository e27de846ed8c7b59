package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
)

// globalOptions are the options of all commands, and the options of several commands that define
// the provider and the cluster.
type globalOptions struct {
	Provider      string // "": the cloud of the nodes
	Region        string // of AWS
	ClusterName   string
	InCluster     bool
	AzureConfig   string
	ResourceGroup string
	Subscription  string
	Gallery       string
	KeepExtension []string // publisher/type

	SealImage string
	// PullSecret is the pull secret of the seal pod's image.
	PullSecret string
	Self       string // node that this process runs on
	Version    string

	kubeconfig    string
	kubeContext   string
	logLevel      string
	logPrefix     string
	logTimestamps bool
	logFormat     string
	given         []string // names of the flags that were given
	clock         kamino.Clock
	heard         func(call, code string) // called for each request to the cloud; or nil

	Log *slog.Logger
}

// pollInterval is the shortest time between two polls; "" is the engine's. The lab's tests link a
// shorter one, since nothing there takes as long as in a cloud.
var pollInterval string

// settleLimit bounds the waits for cluster-autoscaler; "" does not. The lab's tests link a short
// one, since none runs there.
var settleLimit string

func (a *app) addGlobalFlags(f *pflag.FlagSet) {
	g := &a.global
	f.StringVar(&g.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	f.StringVar(&g.kubeContext, "context", "", "The name of the kubeconfig context to use")
	f.StringVar(&g.SealImage, "image", "", "image of the seal pod, NAME@sha256:DIGEST (default $POD_IMAGE, else that of the pod of this process, else the only one that kamino init listed)")
	f.StringVar(&g.PullSecret, "image-pull-secret", "", "secret in "+kamino.SystemNamespace+" for the registry of that image")
	f.StringVar(&g.Provider, "provider", "", "cloud of the pools, azure or aws (default: from the nodes' provider IDs)")
	f.StringVarP(&g.ResourceGroup, "resource-group", "g", "",
		"resource group of the cluster, where the rights are checked; pools are found by their nodes, wherever they are")
	f.StringVarP(&g.Subscription, "subscription", "s", "", "Azure subscription, a GUID")
	f.BoolVar(&g.InCluster, "in-cluster", false, "take subscription, resource group, cloud and credentials from the node's /etc/kubernetes/azure.json")
	f.StringVar(&g.AzureConfig, "azure-config", "", "use this azure.json instead of the node's; implies --in-cluster")
	f.StringVar(&g.Region, "region", "", "region of AWS (default: the region of the nodes)")
	f.StringVar(&g.ClusterName, "cluster-name", "",
		"name of the cluster on AWS, in the names of parameters: /kamino/NAME/POOL/image (default: from the group's tag kubernetes.io/cluster/NAME)")
	f.StringVar(&g.logLevel, "log-level", "INFO", "log level: DEBUG, INFO, WARNING, ERROR or CRITICAL")
	f.StringVar(&g.logPrefix, "log-prefix", "", "prefix of each log line, without \":\" or space")
	f.StringVar(&g.logFormat, "log-format", "text", "log format: text, or json (one object per line, always with the time)")
	f.BoolVar(&g.logTimestamps, "log-timestamps", false, "add the time to each log line")
}

// addGallery adds --gallery, for commands that read or write image versions.
func (a *app) addGallery(f *pflag.FlagSet) {
	f.StringVar(&a.global.Gallery, "gallery", "", "gallery of the image versions (default SIG_<resource group>)")
}

// complete fills in values from the environment and checks what needs no call.
func (g *globalOptions) complete(a *app) error {
	g.Self = a.env("NODE_ID")
	g.Version, g.clock = buildVersion(), a.clock
	if g.AzureConfig != "" {
		g.InCluster = true
	}
	if err := azure.CheckGUID(g.Subscription); err != nil {
		return err
	}
	if strings.ContainsAny(g.logPrefix, ": \t\n") {
		return kamino.WithHint(fmt.Errorf("log prefix %q holds a colon or white space", g.logPrefix), "use letters, digits and dashes")
	}
	level, err := parseLevel(g.logLevel)
	if err != nil {
		return err
	}
	switch {
	case g.logFormat != "text" && g.logFormat != "json":
		return kamino.WithHint(fmt.Errorf("invalid log format %q", g.logFormat), "use --log-format text or json")
	case g.logFormat == "json" && g.logPrefix != "":
		return kamino.WithHint(fmt.Errorf("log prefix %q would make lines that are not JSON", g.logPrefix),
			"use --log-format text, or no --log-prefix")
	}
	g.Log = newLogger(a.Err, level, g)
	if a.libraries != nil {
		a.libraries(g.Log)
	}
	return nil
}

// newRunID makes an ID that sorts by time and fits into the name of a pod.
func newRunID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails: https://pkg.go.dev/crypto/rand#Read
	return now.UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}
