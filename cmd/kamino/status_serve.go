package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

const (
	// renewal is how old a page may be that is shown to several windows at once: the cloud and the
	// cluster are asked once in that time, and only while somebody looks.
	renewal = 5 * time.Second
	// readLimit ends a read of the status that hangs.
	readLimit = 2 * time.Minute
)

// statusServer shows the page to the person who started it: on the loopback interface, below a path
// that other users of the machine do not know, and to no name but the machine's own, so that no
// page of the web can read it through a name that it lets point here.
type statusServer struct {
	path  string
	hosts []string
	clock kamino.Clock
	read  func(context.Context) ([]poolstate.PoolStatus, error)

	mu   sync.Mutex
	at   time.Time
	page []byte
}

// serveStatus shows the page until a signal. It fails where the port is taken.
func (c *statusCommand) serveStatus(ctx context.Context, e *engine.Engine, signals []kamino.Signal) error {
	if c.out.format != "table" && c.out.format != "html" {
		return kamino.WithHint(fmt.Errorf("--serve shows a page, not %s", c.out.format), "omit -o")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.port))))
	if err != nil {
		return kamino.WithHint(fmt.Errorf("listen: %w", err), "choose another --port, or omit it")
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	s := &statusServer{path: "/" + strings.ToLower(rand.Text()) + "/", hosts: []string{"127.0.0.1:" + port, "localhost:" + port}, clock: c.clock,
		read: func(ctx context.Context) ([]poolstate.PoolStatus, error) { return c.read(ctx, e, signals) }}
	c.serving.Store(true)
	defer c.serving.Store(false)
	fmt.Fprintf(c.Out, "http://127.0.0.1:%s%s\n", port, s.path)
	fmt.Fprintln(c.Err, "Open this address in a browser on this machine; press Ctrl-C to stop.")
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *statusServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", contentPolicy(true)+"; frame-ancestors 'none'")
	switch {
	case !slices.Contains(s.hosts, r.Host) || r.URL.Path != s.path:
		http.Error(w, "not found: use the whole address that kamino status --serve printed", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
	default:
		page, err := s.fresh(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // who asked may be gone
	}
}

// fresh is the page, read anew where it is older than renewal. Who asks meanwhile waits for the
// same read.
func (s *statusServer) fresh(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.page != nil && now.Sub(s.at) < renewal {
		return s.page, nil
	}
	ctx, cancel := s.clock.WithTimeout(ctx, readLimit)
	defer cancel()
	status, err := s.read(ctx)
	if status == nil && err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := writePage(&page, status, s.clock.Now(), true); err != nil { // a pool that cannot be read says so on it
		return nil, err
	}
	s.at, s.page = s.clock.Now(), page.Bytes()
	return s.page, nil
}
