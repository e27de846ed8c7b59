package emulator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Server is Azure Resource Manager and the token endpoints it trusts. The zero
// value works. Fields are set before first use and not changed afterwards.
type Server struct {
	Clock     Clock        // nil: [WallClock]
	Speed     float64      // latencies are divided by it; 0 means 1
	Latencies Latencies    // zero: published latencies
	Machines  Machines     // nil: simulated by latencies and symbolic disk content
	Logger    *slog.Logger // nil: silent

	// Context ends the calls into Machines when it ends; nil: only Close does.
	Context context.Context
	// BaseURL stands before the links in replies (https://host:port); "": as the request came in.
	BaseURL string
	// Identities who may ask for tokens; empty: anybody with any secret.
	Identities []Identity
	// DenyAssignments hold whatever roles grant.
	DenyAssignments []DenyAssignment
	// NoZRS names locations without zone-redundant storage.
	NoZRS []string
	// ZRSText is the message where ZRS is missing; "": today's wording and the older one behind it.
	ZRSText string
	// PageSize of lists; 0 means 100.
	PageSize int
	// PollInterval is sent as Retry-After of operations; 0 means one second divided by Speed.
	PollInterval time.Duration
	// RequireReady makes new machines stay in Creating until somebody reports
	// ready through Metadata, and fail with OSProvisioningTimedOut if nobody does.
	RequireReady bool
	// TolerateIdentityValues accepts clientId and principalId in userAssignedIdentities
	// of a PUT; the service answers 400 InvalidIdentityValues (kubernetes/autoscaler#1592).
	TolerateIdentityValues bool
	// TolerateGeneration lets a version be built from a snapshot that names another
	// Hyper-V generation than the definition (azure-cli sends V1 unless told).
	TolerateGeneration bool
	// Pointer says how "latest" of an image definition is found.
	Pointer Pointer
	// Models says what counts as a model of a scale set.
	Models Models
	// DeleteEcho is for how long after a version was deleted every second read still shows it, for
	// which Terraform waits (terraform-provider-azurerm, shared_image_version_resource.go).
	DeleteEcho time.Duration
	// Policies are what Azure Policy denies; SetPolicies changes them later.
	Policies []Policy
	// OnRequest, if set, is called for every request but the back doors before it
	// is looked at, with RequestNumber(r) telling which one it is.
	OnRequest func(*http.Request)

	once     sync.Once
	kinds    map[string]*kind
	delays   Latencies
	key      []byte
	end      context.CancelFunc
	lifetime context.Context

	mu               sync.Mutex // guards everything below
	store            store
	ops              map[string]*operation
	faults           []*Fault
	faultSerial      int
	requests         []*Entry
	roles            map[string][]Role // by lower-case client ID, where SetRoles gave others
	queue            []Change
	delivering       bool
	subscribers      map[int]func(Change)
	subscriberSerial int
	events           map[string]*eventQueue
}

// start prepares the zero value.
func (s *Server) start() {
	s.once.Do(func() {
		if s.Clock == nil {
			s.Clock = WallClock{}
		}
		base := s.Context
		if base == nil {
			// The server is the root of everything it starts, as http.Server is; Close ends it.
			base = context.Background()
		}
		s.lifetime, s.end = context.WithCancel(base)
		s.delays = s.Latencies.published()
		s.key = []byte(identifier())
		s.kinds = allKinds()
		s.ops = map[string]*operation{}
		s.subscribers = map[int]func(Change){}
		s.events = map[string]*eventQueue{}
		s.roles = map[string][]Role{}
		s.store = store{current: map[string]*resource{}, history: map[string][]version{}, lag: map[string]lag{}}
	})
}

// Close ends the calls into Machines and forgets every waiting operation.
func (s *Server) Close() {
	s.start()
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range s.ops {
		if op.stop != nil {
			op.stop()
		}
	}
}

func (s *Server) logger() *slog.Logger {
	if s.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Logger
}

// call is one request on its way through the server.
type call struct {
	s           *Server
	r           *http.Request
	now         time.Time
	entry       *Entry
	requestID   string
	correlation string
	rt          route
	target      target
	raw         []byte
	body        object
	who         Identity
	t           *tx
	fault       *Fault
	status      int
}

type numberKey struct{}

// RequestNumber is the position of a request among those the server was sent,
// counted from 1; 0 for a request that did not pass through a Server.
func RequestNumber(r *http.Request) int {
	n, _ := r.Context().Value(numberKey{}).(int)
	return n
}

// ServeHTTP answers ARM, tokens and the back doors.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.start()
	if strings.HasPrefix(r.URL.Path, "/_emulator/") {
		s.backDoor(w, r)
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, 8<<20))
	if err != nil {
		http.Error(w, "read request", http.StatusBadRequest)
		return
	}
	c := s.admit(r, raw)
	if s.OnRequest != nil {
		s.OnRequest(c.r)
	}
	c.fault = s.matchFault(c)
	defer c.close()
	if !c.beforehand(w) {
		return
	}
	rep := s.answer(c)
	s.deliver()
	c.afterwards(&rep)
	c.write(w, rep)
}

// admit numbers and logs a request.
func (s *Server) admit(r *http.Request, raw []byte) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{s: s, raw: raw, now: s.Clock.Now(), requestID: identifier(), correlation: r.Header.Get("x-ms-correlation-request-id")}
	if c.correlation == "" {
		c.correlation = identifier()
	}
	c.entry = &Entry{
		Seq: len(s.requests) + 1, Time: time.Now().UTC(), VirtualTime: c.now, Method: r.Method, Path: r.URL.Path,
		Query: r.URL.RawQuery, APIVersion: r.URL.Query().Get("api-version"), IfMatch: r.Header.Get("If-Match"),
		CorrelationID: c.correlation, ClientRequestID: r.Header.Get("x-ms-client-request-id"), UserAgent: r.UserAgent(),
	}
	if r.Method != http.MethodGet && json.Valid(raw) && !tokenPath(r.URL.Path) {
		c.entry.Body = raw
	}
	s.requests = append(s.requests, c.entry)
	c.r = r.WithContext(context.WithValue(r.Context(), numberKey{}, c.entry.Seq))
	return c
}

// close completes the log entry, also when the connection is dropped.
func (c *call) close() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.entry.Status = c.status
	if c.fault != nil {
		c.entry.Fault = c.fault.ID
	}
	c.s.logger().Debug("request", "seq", c.entry.Seq, "method", c.entry.Method, "path", c.entry.Path, "status", c.status)
}

// identifier is a random UUID, version 4.
func identifier() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
