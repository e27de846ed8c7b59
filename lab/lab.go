// Package lab runs a whole cluster on a whole cloud on this machine: a real
// Kubernetes control plane, the emulator of Azure Resource Manager or of AWS over HTTPS on
// loopback, and simulated nodes which follow it. Tests and kamino-lab use it alike.
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/controlplane"
	"kamino.dev/kamino/lab/nodes"
)

// Options of Start. Dir and Binary are required.
type Options struct {
	Dir    string // made if absent; see Lab for what is written there
	Binary string // path of kamino-lab; see controlplane.Build

	On string // the cloud: "" for Azure, or OnAWS

	Pools        int // scale sets or groups; 0 means 1
	NodesPerPool int // instances of each; 0 means 3
	// Scenario, if it has pools, is seeded instead of Pools times NodesPerPool.
	Scenario emulator.Scenario
	Groups   []awsemulator.Group // the same on AWS

	Speed         float64            // of Azure and of the nodes; 0 means 1
	Latencies     emulator.Latencies // zero: published latencies
	NodeLatencies nodes.Latencies    // zero: defaults
	AWSLatencies  awsemulator.Latencies
	Clock         emulator.Clock // nil: the wall clock
	NodeGrace     time.Duration  // see controlplane.Options
	PodCIDR       string         // see controlplane.Options
	// Hosts are further names and addresses under which nodes reach the API server.
	Hosts []string
	// Machines, if set, is called when the control plane works and before the cloud
	// is seeded, and may change Cloud and Scenario. What it started, stop ends. No
	// node is simulated then, and Start does not wait for any.
	Machines func(ctx context.Context, l *Lab) (stop func(), err error)
	// Configure, if set, may change the emulator before it is seeded and served.
	Configure    func(*emulator.Server)
	ConfigureAWS func(*awsemulator.Server)

	// SealImage is what environment files name as image of kamino; "" is the
	// constant SealImage.
	SealImage string
	// MoreSealImages may seal disks too.
	MoreSealImages []string
	// Unprepared leaves the cluster as it is before "kamino init" or the chart kamino-base.
	Unprepared bool

	Logger *slog.Logger // nil discards
}

// Lab is a running lab. In its directory are
//
//	kubeconfig            of an administrator
//	azure.json            on Azure: credentials, as the cloud provider of a cluster has them
//	azurestackcloud.json  on Azure: the cloud's endpoints, for AZURE_ENVIRONMENT_FILEPATH
//	ca.pem                the authority of the cloud's certificate
//	env                   a file to source, after which kamino, kubectl and Azure clients use the lab
//	az-login              on Azure: a script which makes az know the lab as a cloud
//	logs/                 of the control plane's components
//
// and what the control plane keeps for itself.
type Lab struct {
	Dir          string
	Kubeconfig   string
	Endpoint     string              // of the cloud, https://localhost:PORT
	ARM          string              // the same on Azure, where it is also the token authority
	Cloud        *emulator.Server    // nil on AWS
	AWS          *awsemulator.Server // nil on Azure
	Scenario     emulator.Scenario   // as seeded
	ControlPlane *controlplane.ControlPlane
	Nodes        *nodes.Fleet
	Client       kubernetes.Interface
	SealImage    string // by digest, as environment files name it

	fleet   nodes.Cloud
	logger  *slog.Logger
	madeDir bool
	stops   []func() // in order of start
	stop    sync.Once
}

// Start returns when every node is Ready. ctx bounds the start only; Stop ends
// the lab. When a part fails, what had been started is stopped; the logs stay.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Lab{Dir: opts.Dir, Scenario: opts.Scenario, logger: opts.Logger, SealImage: opts.SealImage}
	if err := l.start(ctx, opts); err != nil {
		l.stopParts()
		return nil, fmt.Errorf("start lab: %w", err)
	}
	return l, nil
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" || o.Binary == "" {
		return o, errors.New("start lab: Options.Dir and Options.Binary must be set")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("resolve directory: %w", err)
	}
	if o.Pools == 0 {
		o.Pools = 1
	}
	if o.NodesPerPool == 0 {
		o.NodesPerPool = 3
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.SealImage == "" {
		o.SealImage = SealImage
	}
	o.Scenario = o.Scenario.Defaults()
	if len(o.Scenario.Pools) == 0 {
		for n := range o.Pools {
			o.Scenario.Pools = append(o.Scenario.Pools, emulator.Pool{Name: fmt.Sprintf("k8s-pool%d-vmss", n+1), Count: o.NodesPerPool})
		}
	}
	if len(o.Groups) == 0 {
		for n := range o.Pools { // one instance more than the least: a donor needs room
			o.Groups = append(o.Groups, awsemulator.Group{Name: fmt.Sprintf("pool%d", n+1), Count: o.NodesPerPool, Min: o.NodesPerPool - 1,
				Tags: map[string]string{"kubernetes.io/cluster/lab": "owned"}})
		}
	}
	return o, nil
}

func (l *Lab) start(ctx context.Context, opts Options) error {
	if _, err := os.Stat(opts.Dir); errors.Is(err, os.ErrNotExist) {
		l.madeDir = true
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: opts.Dir, Binary: opts.Binary, NodeGrace: opts.NodeGrace,
		PodCIDR: opts.PodCIDR, Hosts: opts.Hosts, Logger: opts.Logger})
	if err != nil {
		return err
	}
	l.ControlPlane, l.Kubeconfig = cp, cp.Kubeconfig
	l.stops = append(l.stops, cp.Stop)
	if l.Client, err = kubernetes.NewForConfig(cp.RESTConfig()); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if !opts.Unprepared {
		if err := Prepare(ctx, cp.RESTConfig(), append(opts.MoreSealImages, opts.SealImage)...); err != nil {
			return err
		}
	}
	startCloud := l.startAWS
	if opts.On != OnAWS {
		startCloud = l.startAzure
		l.Cloud = &emulator.Server{Speed: opts.Speed, Latencies: opts.Latencies, Clock: opts.Clock, Logger: opts.Logger}
	}
	if opts.Machines != nil {
		stop, err := opts.Machines(ctx, l)
		if err != nil {
			return err
		}
		l.stops = append(l.stops, stop)
	}
	authority, err := startCloud(opts)
	if err != nil {
		return err
	}
	if err := l.writeFiles(authority); err != nil {
		return err
	}
	if opts.Machines != nil {
		return nil
	}
	fleet, err := nodes.Start(ctx, nodes.Options{Config: cp.RESTConfig(), Cloud: l.fleet, Latencies: opts.NodeLatencies,
		Logger: opts.Logger})
	if err != nil {
		return err
	}
	l.Nodes = fleet
	l.stops = append(l.stops, fleet.Stop)
	return l.awaitNodes(ctx)
}

// Instances are all machines of the cloud.
func (l *Lab) Instances() []emulator.Instance { return l.fleet.Instances() }

// Disk is what is on the disk of a machine.
func (l *Lab) Disk(id string) (map[string]string, error) { return l.fleet.ReadDisk(id) }

// Snapshots are those that are left of runs.
func (l *Lab) Snapshots() (left []string) {
	if l.AWS != nil {
		return l.AWS.Loose()
	}
	for _, e := range l.Cloud.State() {
		if strings.Contains(strings.ToLower(e.ID), "/snapshots/") {
			left = append(left, e.ID)
		}
	}
	return left
}

// RESTConfig is an administrator's, without client-side rate limits.
func (l *Lab) RESTConfig() *rest.Config { return l.ControlPlane.RESTConfig() }

// Stop ends nodes, cloud and control plane, and removes what Start wrote, logs
// included. It can be called again.
func (l *Lab) Stop() {
	l.stopParts()
	l.removeFiles()
}

func (l *Lab) stopParts() {
	l.stop.Do(func() {
		for i := len(l.stops) - 1; i >= 0; i-- {
			l.stops[i]()
		}
	})
}

// awaitNodes returns when there are as many Ready nodes as running instances.
func (l *Lab) awaitNodes(ctx context.Context) error {
	want := 0
	for _, instance := range l.fleet.Instances() {
		if instance.PowerState == emulator.PowerRunning {
			want++
		}
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		list, err := l.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		ready := 0
		for i := range list.Items {
			if nodeIsReady(&list.Items[i]) {
				ready++
			}
		}
		if ready >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for nodes: %d of %d are ready: %w", ready, want, ctx.Err())
		case <-ticker.C:
		}
	}
}

// nodeIsReady also wants the taint of a new node gone, without which nothing is scheduled there.
func nodeIsReady(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	return nodeutil.IsNodeReady(node)
}
