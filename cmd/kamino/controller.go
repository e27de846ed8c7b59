package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/controller"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/kube"
)

// controllerCommand is kamino controller, which keeps the pools of NodePrototypes up to date.
type controllerCommand struct {
	*app
	sel                             selectFlags
	maxDonors                       int
	resync, retry, grace, leaseTime durationValue
	perSecond                       float32
	trustProbesIn                   []string
	metrics, health                 string
	notify                          notifyFlag
}

func newControllerCommand(a *app) *cobra.Command {
	c := &controllerCommand{app: a, resync: durationValue{5 * time.Minute}, retry: durationValue{15 * time.Minute},
		grace: durationValue{25 * time.Second}, leaseTime: durationValue{15 * time.Second}}
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the controller that keeps the pools of all NodePrototypes up to date",
		Long: `Keep the pools of all NodePrototypes up to date: run auto-update for each of them when
its spec allows it, and report in its status. If there are several replicas, one of
them is elected leader. The flags of auto-update are the defaults for what a prototype omits.
Other commands can be used at the same time; all share the same leases.

On termination it gives donors back for as long as --grace; a donor that is still
away then is given back by the next process.`,
		Example: `  kamino controller --max-donors 2`,
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.Run(cmd.Context()) },
	}
	f := cmd.Flags()
	c.sel.addRules(a, f)
	f.IntVar(&c.maxDonors, "max-donors", 1, "maximum number of donors away in the cluster at the same time")
	f.IntVar(&c.sel.maxNotReady, "max-not-ready", c.sel.opts.MaxNotReady,
		"take no donor while more than this many other nodes are NotReady")
	f.Var(&c.resync, "resync", "maximum interval between two reconciliations of a prototype")
	f.Var(&c.retry, "retry", "delay before the next run after one that failed; doubled with each failure, up to 12h")
	f.Float32Var(&c.perSecond, "passes-per-second", 10,
		"maximum number of reconciliations per second that read the cloud, for all pools together")
	f.Var(&c.grace, "grace", "how long to wait on termination for donors to come back")
	f.Var(&c.leaseTime, "lease-time", "duration of the leader's lease: how long after its last renewal another replica may take over, at least 2s")
	f.StringSliceVar(&c.trustProbesIn, "trust-probes-in", nil,
		"namespaces in which the probe of a NodePrototype may choose a service account, use the host's namespaces and files, and be privileged")
	c.notify.add(f)
	f.StringVar(&c.metrics, "metrics-address", ":8443",
		"address to serve /metrics on, with TLS, to clients that the API server authorizes for that path; 0 disables it")
	f.StringVar(&c.health, "health-address", ":8081", "address to serve /healthz and /readyz on; 0 disables it")
	return cmd
}

// Run runs the command.
func (c *controllerCommand) Run(ctx context.Context) error {
	switch {
	case c.maxDonors < 1:
		return kamino.WithHint(fmt.Errorf("invalid number of donors %d", c.maxDonors), "use --max-donors 1 or more")
	case c.resync.d < time.Second || c.retry.d < time.Second:
		return kamino.WithHint(errors.New("--resync and --retry are too short"), "use 1s or more")
	case c.leaseTime.d < 2*time.Second:
		return kamino.WithHint(fmt.Errorf("lease time %s is too short", &c.leaseTime), "use --lease-time 2s or more")
	case c.perSecond <= 0:
		return kamino.WithHint(fmt.Errorf("invalid number of passes per second %g", c.perSecond), "use --passes-per-second 0.1 or more")
	}
	if err := c.notify.open(c.clock); err != nil {
		return err
	}
	opts, err := c.sel.options(c.app)
	if err != nil {
		return err
	}
	opts.MaxAway, opts.MaxNotReady = c.maxDonors, c.sel.maxNotReady
	if err := c.needImage(ctx, false); err != nil {
		return err
	}
	requests := metrics.NewRequests()
	c.global.heard = requests.Heard
	engine, err := c.engine(kube.NodesBare(ctx)) // it reads the nodes to find their cloud
	if err != nil {
		return err
	}
	cluster, ok := engine.Cluster.(*kube.Cluster)
	if !ok {
		return errors.New("the controller needs an API server")
	}
	config, err := restConfig(c.app)
	if err != nil {
		return err
	}
	engine.Report = newEventLog(ctx, c.global.Log).event
	return controller.Run(ctx, controller.Options{
		Engine: engine, Cluster: cluster, Config: config, Log: c.global.Log, Defaults: opts, TrustProbesIn: c.trustProbesIn,
		MaxDonors: c.maxDonors,
		Resync:    c.resync.d, Retry: c.retry.d, PerSecond: c.perSecond,
		Look: func() func(context.Context) context.Context { return azure.NewLook().Context }, Grace: c.grace.d, LeaseTime: c.leaseTime.d,
		Version: c.global.Version, Requests: requests, Metrics: c.metrics, Health: c.health, Notify: c.notify.to,
	})
}
