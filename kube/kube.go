// Package kube is kamino.Cluster on the API of Kubernetes: nodes and their
// marks, evictions, the seal pod, the leases of the pools and events.
//
// It keeps nothing between two calls but, for seconds, the namespace that Preflight read; it reads
// nothing from a cache.
// No call waits for anything: what has to be waited for is the engine's business, and
// so is trying again. What each call costs in requests:
//
//	Node 1, Nodes 1 per 200, Pulse 1, Mark and Unmark 1 (2 more when the node changed meanwhile),
//	Evict and Rehearse 1 and 1 per pod to be evicted (Rehearse 1 more for the seal pod,
//	1 per 200 PersistentVolumes, a list of the nodes where one of these is tied to a label of the node,
//	and 1 per namespace whose budgets hold pods), Preview 3, StartAgent 1, AgentPod 1,
//	SaveList, List and DeleteList 1, Lists 1 per 200, AskPackages 2, ForgetPackages 4,
//	RemoveAgents 2, Lease 1, Leases 1, SetLease 1, Record 1, Preflight 3 (1 more when a right is missing)
package kube

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
)

// Cluster implements kamino.Cluster and Recorder.
// Its methods may be called by several goroutines.
type Cluster struct {
	api   api
	opts  Options
	space atomic.Pointer[seenSpace]
}

var _ interface {
	kamino.Cluster
	kamino.Recorder
} = (*Cluster)(nil)

// Options of New. All have defaults, but without SealImage no disk is sealed.
type Options struct {
	SealImage  string       // image of the seal pod, with kamino-agent at /kamino-agent
	PullSecret string       // in kamino.SystemNamespace, for the registry of that image; "" means none
	Version    string       // of this program, for the user agent; "" means dev
	Process    string       // how this process shows in events, as host/pid
	Clock      kamino.Clock // nil: the wall clock
}

// requestTimeout bounds one request. The engine renews its lease between calls.
const requestTimeout = 30 * time.Second

// New makes a Cluster of a client configuration, of which it sets the content
// type (protobuf), the limits and the user agent. It makes no request.
func New(cfg *rest.Config, opts Options) (*Cluster, error) {
	if cfg == nil {
		return nil, errors.New("make Kubernetes client: no configuration")
	}
	opts = opts.withDefaults()
	api, err := newAPI(tuned(cfg, opts.Version))
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("make Kubernetes client for %s: %w", cfg.Host, err),
			"check the cluster and user that the kubeconfig's context names: kubectl config view --minify")
	}
	return &Cluster{api: api, opts: opts}, nil
}

func (o Options) withDefaults() Options {
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Clock == nil {
		o.Clock = kamino.WallClock{}
	}
	return o
}

// tuned copies a configuration and fits it to this package.
func tuned(cfg *rest.Config, version string) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.UserAgent = "kamino/" + version
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// A run makes some forty requests; the server's priority and fairness is
	// the limit that matters.
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	c.Timeout = requestTimeout
	// The API server is near; to compress a list of nodes takes it longer than to send it.
	c.DisableCompression = true
	// Warnings would break into the progress on a terminal.
	c.WarningHandler, c.WarningHandlerWithContext = rest.NoWarnings{}, nil
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return promptly{next} })
	return c
}

// promptly hides the header that makes client-go sleep and try again up to ten
// times inside one call, which could outlast the pool's lease. The number in
// the body of the answer stays, and the engine waits as it says.
type promptly struct{ next http.RoundTripper }

func (p promptly) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper lets client-go cancel a request through this one; without
// it every request that runs out of time is a warning on the user's terminal.
func (p promptly) WrappedRoundTripper() http.RoundTripper { return p.next }

// fieldManager is who the API server notes as the author of a change.
const fieldManager = "kamino"
