// Package controlplane runs a real Kubernetes control plane on this machine:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, the
// upstream commands built from source into one binary (cmd/kamino-lab), each as
// a child process on a free loopback port. Linux only: the children are bound
// to their parent's life by prctl(PR_SET_PDEATHSIG).
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options of Start. Dir and Binary are required.
type Options struct {
	Dir    string // made if absent; everything the control plane writes is below it
	Binary string // path of kamino-lab; see Build

	// NodeGrace is how long a node may be silent before the node lifecycle
	// controller marks it NotReady; 0 means 10 s. The default of Kubernetes is 50 s.
	NodeGrace time.Duration
	// Bare leaves controllers and scheduler out: etcd and kube-apiserver only. Who
	// starts it is them; the service account of a namespace must be made, too.
	Bare bool
	// PodCIDR, if set, is the network of which each node is given a /24, as its spec.podCIDR.
	PodCIDR string
	// Hosts are further DNS names and IP addresses under which the API server is reached.
	Hosts []string

	Logger *slog.Logger // nil discards
}

// ControlPlane is a running control plane. Kubeconfig is the path of an
// administrator's kubeconfig, URL the API server's https URL, CA the PEM of the
// authority that signed all its certificates.
type ControlPlane struct {
	Kubeconfig string
	URL        string
	CA         []byte

	config    *rest.Config
	processes []*process // in order of start
	failed    chan error
	stopping  chan struct{}
	stop      sync.Once
	unlock    func()
	logger    *slog.Logger
}

const (
	defaultNodeGrace = 10 * time.Second
	startTimeout     = 2 * time.Minute // of a machine busy with a cold build
	portAttempts     = 3
)

// Start returns when the API server is ready, the controllers work and pods
// can be created. ctx bounds the start only; Stop ends the control plane. What
// had been started is stopped when a later part fails. A free port can be lost to
// another process before the component listens on it, so Start tries three times.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.Dir == "" || opts.Binary == "" {
		return nil, errors.New("start control plane: Options.Dir and Options.Binary must be set")
	}
	if opts.NodeGrace == 0 {
		opts.NodeGrace = defaultNodeGrace
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start control plane: make directory: %w", err)
	}
	unlock, err := claim(filepath.Join(opts.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("start control plane in %s: %w", opts.Dir, err)
	}
	for range portAttempts {
		var cp *ControlPlane
		if cp, err = startOnce(ctx, opts); err == nil {
			cp.unlock = unlock
			return cp, nil
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	unlock()
	return nil, fmt.Errorf("start control plane in %s: %w", opts.Dir, err)
}

func startOnce(ctx context.Context, opts Options) (*ControlPlane, error) {
	lay, err := prepare(opts)
	if err != nil {
		return nil, err
	}
	cp := &ControlPlane{
		Kubeconfig: lay.path("kubeconfig"),
		URL:        lay.url(),
		CA:         lay.ca.PEM,
		failed:     make(chan error, len(components)),
		stopping:   make(chan struct{}),
		logger:     opts.Logger,
	}
	if cp.config, err = restConfig(cp.Kubeconfig); err != nil {
		return nil, err
	}
	if err := cp.startComponents(ctx, opts, lay); err != nil {
		cp.Stop()
		return nil, err
	}
	for _, p := range cp.processes {
		go cp.watch(p)
	}
	return cp, nil
}

func (cp *ControlPlane) startComponents(ctx context.Context, opts Options, lay *layout) error {
	client, err := kubernetes.NewForConfig(cp.config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, c := range components {
		if opts.Bare && !c.bare {
			continue
		}
		began := time.Now()
		p, err := startProcess(opts.Binary, lay.path("logs"), c.name, c.args(lay))
		if err != nil {
			return err
		}
		cp.processes = append(cp.processes, p)
		if c.ready != nil {
			if err := cp.await(ctx, c.name, func(ctx context.Context) error { return c.ready(ctx, client) }); err != nil {
				return err
			}
		}
		cp.logger.Debug("component started", "component", c.name, "pid", p.cmd.Process.Pid, "after", time.Since(began))
	}
	if opts.Bare {
		return nil
	}
	return cp.await(ctx, "the controllers", func(ctx context.Context) error {
		// Made by a controller; without it no pod is admitted.
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// RESTConfig returns a copy of the administrator's client configuration, without
// client-side rate limits: the caller is a test or a simulated node.
func (cp *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(cp.config) }

// Failed delivers an error when a component ends without being asked to.
func (cp *ControlPlane) Failed() <-chan error { return cp.failed }

// Pids of the components by name, for measurements and crash tests.
func (cp *ControlPlane) Pids() map[string]int {
	pids := map[string]int{}
	for _, p := range cp.processes {
		pids[p.name] = p.cmd.Process.Pid
	}
	return pids
}

// Stop ends the components, the last started first, and returns when none of
// them is left. It can be called again, and of several goroutines.
func (cp *ControlPlane) Stop() {
	cp.stop.Do(func() {
		close(cp.stopping)
		for i := len(cp.processes) - 1; i >= 0; i-- {
			began := time.Now()
			cp.processes[i].stop()
			cp.logger.Debug("component stopped", "component", cp.processes[i].name, "after", time.Since(began))
		}
		if cp.unlock != nil { // nil while Start still tries
			cp.unlock()
		}
	})
}

func (cp *ControlPlane) watch(p *process) {
	select {
	case <-cp.stopping:
	case <-p.done:
		select {
		case <-cp.stopping:
		default:
			cp.failed <- p.exited()
		}
	}
}

// await polls check until it succeeds, any component ends, or ctx does.
func (cp *ControlPlane) await(ctx context.Context, what string, check func(context.Context) error) error {
	ticker, begun := time.NewTicker(50*time.Millisecond), time.Now()
	defer ticker.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(try)
		cancel()
		if err == nil {
			return nil
		}
		for _, other := range cp.processes {
			select {
			case <-other.done:
				return portTaken(other)
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w after %s, which a machine with much else to do may need (last answer: %v); see the logs in %s",
				what, ctx.Err(), time.Since(begun).Round(time.Second), err, filepath.Dir(cp.processes[0].log))
		case <-ticker.C:
		}
	}
}

func prepare(opts Options) (*layout, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("resolve directory: %w", err)
	}
	lay := &layout{dir: dir, nodeGrace: opts.NodeGrace, podCIDR: opts.PodCIDR, hosts: opts.Hosts}
	// State of an earlier attempt or run would contradict the new certificates.
	if err := os.RemoveAll(lay.path("etcd")); err != nil {
		return nil, fmt.Errorf("remove old etcd data: %w", err)
	}
	for _, sub := range []string{"etcd", "pki", "logs"} {
		if err := os.MkdirAll(lay.path(sub), 0o700); err != nil {
			return nil, fmt.Errorf("make directory: %w", err)
		}
	}
	if err := lay.pickPorts(); err != nil {
		return nil, err
	}
	if err := lay.writeIdentities(); err != nil {
		return nil, err
	}
	return lay, nil
}
