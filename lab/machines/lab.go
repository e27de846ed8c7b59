package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/release/image"
)

// PoolName is the scale set of a lab of real machines.
const PoolName = "pool1"

// Options of Start. Dir, Binary, Binaries and Cache are required.
type Options struct {
	Dir      string // disks, consoles, and what lab.Lab writes
	Binary   string // path of kamino-lab
	Binaries Binaries
	Cache    string // of base images; see DefaultCache
	Nodes    int    // generic machines to begin with; 0 means 1
	Memory   int    // MiB of each; 0 means 1536
	CPUs     int    // of each; 0 means 2
	// GenericPool, if set, is a second scale set with no machine yet, whose model stays generic.
	GenericPool string
	// Labels that the pool's userData gives its nodes.
	Labels map[string]string
	// Arguments for the kernel of an instance; nil adds none.
	Arguments func(emulator.Instance) string
	Logger    *slog.Logger // nil discards
}

// Lab is a control plane, a cloud, and real machines.
type Lab struct {
	*lab.Lab
	Base    *Base
	Factory *Factory

	Images   Images
	pushed   map[string]v1.Image // by name, what the registry has
	opts     Options
	admin    administrator
	network  *network
	packages *repository
	join     joining
	mu       sync.Mutex
	captures []Capture
}

// Capture is a boot that a machine recorded and sent.
type Capture struct {
	From string // address
	At   time.Time
	Data []byte
}

// Start returns when the control plane works and the pool's machines are being
// created. ctx bounds the start only; Stop ends the lab.
func Start(ctx context.Context, o Options) (*Lab, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Memory == 0 {
		o.Memory = 1536
	}
	if o.CPUs == 0 {
		o.CPUs = 2
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	base, err := BuildBase(ctx, BaseOptions{Cache: o.Cache, Kubelet: o.Binaries.Kubelet, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	admin, err := newAdministrator()
	if err != nil {
		return nil, err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, fmt.Errorf("resolve directory: %w", err)
	}
	l := &Lab{Base: base, opts: o, admin: admin}
	if l.pushed, l.Images, err = buildImages(o.Binaries.Guest,
		[]image.Program{{Name: "kamino", File: o.Binaries.Kamino}, {Name: "kamino-agent", File: o.Binaries.Agent}}); err != nil {
		return nil, err
	}
	l.Lab, err = lab.Start(ctx, lab.Options{Dir: o.Dir, Binary: o.Binary, NodeGrace: 40 * time.Second, PodCIDR: "10.244.0.0/16",
		Latencies: emulator.NoLatency(), Logger: o.Logger, SealImage: l.Images.Kamino, MoreSealImages: []string{l.Images.Unsealed},
		Hosts: []string{hostAddress}, Machines: l.furnish,
		Configure: func(s *emulator.Server) {
			s.RequireReady, s.PollInterval = true, 500*time.Millisecond
		}})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// furnish puts machines behind the cloud, before anything is in it.
func (l *Lab) furnish(ctx context.Context, inner *lab.Lab) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	sockets, remove, err := directories(inner.Dir)
	stops = append(stops, remove)
	if err != nil {
		return stop, err
	}
	if l.network, err = newNetwork(sockets, l.opts.Logger); err != nil {
		return stop, err
	}
	stops = append(stops, l.network.close)
	if err := l.serve(ctx); err != nil {
		return stop, err
	}
	if err := l.populate(ctx, inner); err != nil {
		return stop, err
	}
	doors, err := newDoors(inner.Dir, l.network, l.admin)
	if err != nil {
		return stop, err
	}
	stops = append(stops, doors.close)
	l.Factory = &Factory{dir: inner.Dir, sockets: sockets, base: l.Base, network: l.network, doors: doors, logger: l.opts.Logger,
		memory: l.opts.Memory, cpus: l.opts.CPUs,
		patient: 3 * time.Minute, kernel: kernelPatience, cloud: inner.Cloud, arguments: l.opts.Arguments, admin: l.admin.user,
		machines: map[string]*machine{}}
	stops = append(stops, l.Factory.close)
	inner.Cloud.Machines = l.Factory
	controller, err := startCloudController(ctx, inner.Client, inner.Cloud, l.opts.Logger)
	if err != nil {
		return stop, err
	}
	stops = append(stops, controller.stop)
	return stop, nil
}

// directories makes those of disks and packages, empty, and one for sockets.
// What remove leaves costs room, nothing else.
func directories(dir string) (sockets string, remove func(), err error) {
	made := []string{}
	remove = func() {
		for _, m := range made {
			_ = os.RemoveAll(m)
		}
	}
	for _, sub := range []string{"vms", "artifacts", "images", "repo"} {
		at := filepath.Join(dir, sub)
		_ = os.RemoveAll(at) // of a lab that was killed; MkdirAll says what is wrong
		made = append(made, at)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return "", remove, fmt.Errorf("make directory: %w", err)
		}
	}
	// Sockets have short names only (unix(7): 108 bytes).
	if sockets, err = os.MkdirTemp("", "kl"); err != nil {
		return "", remove, fmt.Errorf("make directory for sockets: %w", err)
	}
	made = append(made, sockets)
	return sockets, remove, nil
}

// serve starts registry and package repository in the virtual network.
func (l *Lab) serve(ctx context.Context) error {
	registry, err := newRegistry(ctx, l.pushed)
	if err != nil {
		return err
	}
	if err := l.network.serve(gateway+":"+registryPort, registry); err != nil {
		return err
	}
	repo := filepath.Join(l.opts.Dir, "repo")
	if err := command(ctx, "cp", "-a", l.Base.Repo+"/.", repo); err != nil {
		return err
	}
	l.packages = &repository{dir: repo, asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.Handle("GET /", l.packages)
	mux.HandleFunc("GET /kamino-agent", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, l.opts.Binaries.Agent) })
	mux.HandleFunc("POST /captures", l.receive)
	return l.network.serve(gateway+":"+repoPort, mux)
}

func (l *Lab) receive(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err == nil && len(data) == 0 {
		err = errors.New("an empty record")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	host, _, _ := strings.Cut(r.RemoteAddr, ":")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.captures = append(l.captures, Capture{host, time.Now(), data})
	w.WriteHeader(http.StatusNoContent)
}

// Captures are the boots that machines have sent so far.
func (l *Lab) Captures() []Capture {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Capture(nil), l.captures...)
}

// populate makes what machines need to join, and the pool's model.
func (l *Lab) populate(ctx context.Context, inner *lab.Lab) error {
	token, err := admit(ctx, inner.Client)
	if err != nil {
		return err
	}
	api, err := url.Parse(inner.ControlPlane.URL)
	if err != nil {
		return err
	}
	l.join = joining{Endpoint: "https://" + hostAddress + ":" + api.Port(), CA: inner.ControlPlane.CA, Token: token}
	custom, err := l.join.customData()
	if err != nil {
		return err
	}
	generic := emulator.Pool{
		Name: PoolName, Count: l.opts.Nodes, CustomData: custom, UserData: l.join.userData(1, l.opts.Labels), SSHKey: l.admin.authorized(),
		Extensions: []emulator.Extension{
			{Name: "vmssCSE", Publisher: "Microsoft.Azure.Extensions", Type: "CustomScript", Version: "2.0",
				ProtectedSettings: map[string]any{"commandToExecute": l.join.command()}},
			{Name: PoolName + "-computeAksLinuxBilling", Publisher: "Microsoft.AKS", Type: "Compute.AKS-Engine.Linux.Billing",
				Version: "1.0"},
		},
	}
	inner.Scenario.Pools = []emulator.Pool{generic}
	if l.opts.GenericPool != "" {
		generic.Name, generic.Count = l.opts.GenericPool, 0
		inner.Scenario.Pools = append(inner.Scenario.Pools, generic)
	}
	return nil
}

// UserData is a NodeConfig of the pool, in base64 as ARM wants it.
func (l *Lab) UserData(generation int, labels map[string]string) string {
	return l.join.userData(generation, labels)
}

// Publish adds a version of each of the lab's packages to the repository; one asks for a reboot.
func (l *Lab) Publish(version string) error {
	for _, name := range Packages {
		if err := writeDeb(l.packages.dir, labPackage(name, version, name == Rebooting)); err != nil {
			return err
		}
	}
	return nil
}

// NeverReadyError is a machine that did not become a Ready node, with the end of its console.
type NeverReadyError struct {
	Name    string
	After   time.Duration
	Console string
	Tail    string
}

func (e *NeverReadyError) Error() string {
	return fmt.Sprintf("machine %s is no Ready node after %s; the end of its console (%s):\n%s", e.Name,
		e.After.Round(time.Second), e.Console, e.Tail)
}

// AwaitReady returns when the instance's Node is Ready and new pods may go there,
// with the time since its power was switched on. After patience it is a *NeverReadyError.
func (l *Lab) AwaitReady(ctx context.Context, i emulator.Instance, patience time.Duration) (time.Duration, error) {
	m, err := l.awaitMachine(ctx, i)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	begun := m.begun
	m.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := strings.ToLower(i.ComputerName)
	err = l.awaitNode(limited, name, func(n *corev1.Node) bool { return n.Spec.ProviderID != "" && isReady(n, begun) })
	if err == nil {
		return time.Since(begun), nil
	}
	if ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		return 0, &NeverReadyError{i.Name, time.Since(begun), m.Console, tail(m.Console, 25)}
	}
	return 0, err
}

// awaitMachine returns when the instance's disk is made.
func (l *Lab) awaitMachine(ctx context.Context, i emulator.Instance) (m *machine, err error) {
	err = l.await(ctx, "the disk of "+i.Name, func() (bool, error) {
		found, none := l.Factory.find(i)
		if m = found; none == nil {
			return true, nil
		}
		if now, ok := l.Cloud.Instance(i.ID); !ok || now.State == "Failed" {
			return false, fmt.Errorf("instance %s failed before it had a machine", i.Name)
		}
		return false, nil
	})
	return m, err
}

// awaitNode watches one Node until holds.
func (l *Lab) awaitNode(ctx context.Context, name string, holds func(*corev1.Node) bool) error {
	for {
		w, err := l.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return fmt.Errorf("watch node %s: %w", name, err)
		}
		held := func() bool {
			defer w.Stop()
			for event := range w.ResultChan() {
				if n, ok := event.Object.(*corev1.Node); ok && event.Type != watch.Deleted && holds(n) {
					return true
				}
			}
			return false
		}()
		if held {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// isReady means Ready with a heartbeat since then, and no taint of a new node.
func isReady(n *corev1.Node, since time.Time) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.Time.After(since.Add(-time.Second))
		}
	}
	return false
}
