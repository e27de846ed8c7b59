package controller

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/cert"

	"kamino.dev/kamino"
)

// newRegistry has the metrics of the process and of its requests to the API server.
func newRegistry() *prometheus.Registry {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rest_client_requests_total",
		Help: "Requests to the API server by status code and method."}, []string{"code", "method"})
	clientmetrics.RequestResult = requestCounter{requests}
	r := prometheus.NewRegistry()
	r.MustRegister(requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// requestCounter counts the requests of client-go.
type requestCounter struct{ of *prometheus.CounterVec }

func (c requestCounter) Increment(_ context.Context, code, method, _ string) {
	c.of.WithLabelValues(code, method).Inc()
}

// serve listens on the addresses for health checks and metrics. The caller calls end.
func serve(ctx context.Context, o Options, api *server, registry *prometheus.Registry) (end func(), err error) {
	var servers []*http.Server
	end = func() {
		for _, s := range servers {
			_ = s.Close() // the process ends: an interrupted answer is no error
		}
	}
	listen := func(address, what string, handler http.Handler, wrap func(net.Listener) (net.Listener, error)) {
		if err != nil || address == "0" {
			return
		}
		l, failed := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if failed == nil {
			l, failed = wrap(l)
		}
		if failed != nil {
			err = kamino.WithHint(fmt.Errorf("listen for %s: %w", what, failed), "choose another address with --%s-address, or 0 for none",
				what)
			return
		}
		s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 1 << 16,
			ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)}
		servers = append(servers, s)
		go func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				o.Log.Error("serve "+what, "error", err)
			}
		}()
	}
	health := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		health.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	listen(o.Health, "health", health, func(l net.Listener) (net.Listener, error) { return l, nil })
	figures := http.NewServeMux()
	figures.Handle("/metrics", authenticated(api, o.Log, o.Engine.Clock.Now,
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})))
	listen(o.Metrics, "metrics", figures, selfSigned)
	if err != nil {
		end()
	}
	return end, err
}

// selfSigned adds TLS with a certificate that the process signs itself: nobody knows the name of the
// pod in advance.
func selfSigned(l net.Listener) (net.Listener, error) {
	public, private, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(public, private)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

// authenticated allows requests whose token the API server knows, and whose user may get the path.
func authenticated(api *server, log *slog.Logger, now func() time.Time, next http.Handler) http.Handler {
	r := &reviews{who: question[authenticationv1.TokenReview, *authenticationv1.TokenReview]{api.authentication, "tokenreviews"},
		may: question[authorizationv1.SubjectAccessReview, *authorizationv1.SubjectAccessReview]{api.authorization, "subjectaccessreviews"},
		now: now, turns: make(chan struct{}, reviewsAtOnce), known: map[[sha256.Size]byte]reviewed{}}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		if !ok {
			http.Error(w, "a bearer token is required", http.StatusUnauthorized)
			return
		}
		switch code, err := r.judge(req.Context(), token, req.URL.Path); {
		case err != nil:
			log.Error("ask who may see the metrics", "error", err)
			http.Error(w, "the API server did not answer", http.StatusServiceUnavailable)
		case code != http.StatusOK:
			http.Error(w, http.StatusText(code), code)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

const (
	reviewsAtOnce  = 4                // requests to the API server at the same time
	rememberDenied = 10 * time.Second // how long a denial is cached
	rememberKnown  = time.Minute      // how long a permission is cached
	mostReviewed   = 1024             // number of cached tokens
)

// reviews asks the API server about tokens, and caches its answers for a short time, because
// anybody who reaches the address can send any number of tokens.
type reviews struct {
	who   creator[authenticationv1.TokenReview]
	may   creator[authorizationv1.SubjectAccessReview]
	now   func() time.Time
	turns chan struct{}

	mu    sync.Mutex
	known map[[sha256.Size]byte]reviewed // by hash of token and path
}

type reviewed struct {
	code  int
	until time.Time
}

// judge returns the status of a request: 200, 401 or 403; 429 if too many others are being
// reviewed.
func (r *reviews) judge(ctx context.Context, token, path string) (int, error) {
	key := sha256.Sum256([]byte(token + "\x00" + path))
	if code, ok := r.recall(key); ok {
		return code, nil
	}
	select {
	case r.turns <- struct{}{}:
		defer func() { <-r.turns }()
	default:
		return http.StatusTooManyRequests, nil
	}
	code, err := review(ctx, r.who, r.may, token, path)
	if err != nil {
		return 0, err
	}
	r.remember(key, code)
	return code, nil
}

func (r *reviews) recall(key [sha256.Size]byte) (code int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.known[key]
	return v.code, ok && r.now().Before(v.until)
}

func (r *reviews) remember(key [sha256.Size]byte, code int) {
	now, last := r.now(), rememberDenied
	if code == http.StatusOK {
		last = rememberKnown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= mostReviewed {
		maps.DeleteFunc(r.known, func(_ [sha256.Size]byte, v reviewed) bool { return v.code != http.StatusOK || !now.Before(v.until) })
	}
	if len(r.known) < mostReviewed {
		r.known[key] = reviewed{code, now.Add(last)}
	}
}

// review asks the API server whose token it is, and whether that user may get the path.
func review(ctx context.Context, who creator[authenticationv1.TokenReview], may creator[authorizationv1.SubjectAccessReview], token,
	path string) (int, error) {
	answer, err := who.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !answer.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := answer.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := may.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
