package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/watch"
)

func runWatch(ctx context.Context, e *env, args []string) error {
	f := e.flags("watch")
	e.platformFlags(f)
	w := &watch.Watcher{Client: platform.Direct(), Log: e.log, Now: time.Now, Wait: platform.Sleep}
	once := f.Bool("once", false, "check once, and exit")
	node := f.String("node", "", "`name` of this machine's Node (default the host name)")
	f.DurationVar(&w.Interval, "interval", time.Minute, "check interval")
	f.StringVar(&w.Health, "health", cmp.Or(os.Getenv("KAMINO_KUBELET_HEALTH"), "http://127.0.0.1:10248/healthz"), "kubelet's health `URL`")
	f.DurationVar(&w.Deadline, "deadline", 2*time.Minute, "how long the node may take to be healthy with a new configuration")
	f.DurationVar(&w.Settle, "settle", 10*time.Second, "how long it must stay healthy")
	if err := parse(f, args); err != nil {
		return err
	}
	d, h, err := e.open()
	if err != nil {
		return err
	}
	defer d.Close()
	lock, err := alone(d)
	if err != nil {
		return err
	}
	defer lock.Close()
	w.Disk, w.Host, w.IMDS = d, h, e.metadata(d)
	if w.Settings, err = seal.ReadSettings(d); err != nil {
		return err
	}
	w.Name = cmp.Or(*node, cmp.Or(nodeconfig.NodeName(d), strings.ToLower(cmp.Or(d.Text("etc/hostname"), hostName(d)))))
	if d.Live() || *node != "" {
		var kept nodeClient
		w.Node = func(ctx context.Context) (watch.Node, error) { return kept.of(ctx, d, w.Name) }
	}
	if *once {
		return w.Once(ctx)
	}
	go w.Report(ctx) // both end with the process
	go w.Freshness(ctx)
	return w.Run(ctx)
}

// alone locks the disk's state until the lock is closed. Two watchers would take back each other's
// trials, and report a document that is not in force.
func alone(d *disk.Disk) (io.Closer, error) {
	dir, err := os.Open(d.Host(path.Dir(firstboot.StatePath)))
	if errors.Is(err, fs.ErrNotExist) { // no agent has written a state here
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock the state of the configuration: %w", err)
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock the state of the configuration: %w: another kamino-agent watch works on it; see systemctl status kamino-watch.service", err)
	}
	return dir, nil
}

// nodeClient makes a client for each use, because kubelet renews its certificate, but keeps one
// whose token a program gives: that is executed when the token ends, and not every 20 seconds.
type nodeClient struct {
	mu   sync.Mutex
	kept *nodeapi.Client
}

func (n *nodeClient) of(ctx context.Context, d *disk.Disk, name string) (watch.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kept != nil {
		return n.kept, nil
	}
	credentials, err := nodeapi.Load(d)
	if err != nil {
		return nil, err
	}
	client, err := credentials.Client(ctx, name, platform.Sleep)
	if err != nil {
		return nil, err
	}
	if credentials.Plugin() {
		n.kept = client
	}
	return client, nil
}
