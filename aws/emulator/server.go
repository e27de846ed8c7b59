package emulator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Server is one account in one Region. The zero value works. Fields are set before first use and
// not changed afterwards.
type Server struct {
	Clock     Clock     // nil: [WallClock]
	Speed     float64   // latencies are divided by it; 0 means 1
	Latencies Latencies // zero: the assumed ones
	Region    string    // "": eu-central-1
	Account   string    // "": 123456789012
	// Identities who may call; empty: anybody may do anything.
	Identities []Identity
	// PageSize of lists that a caller does not limit; 0 means 1000 for EC2 and 50 for Auto Scaling.
	PageSize int
	// LosesBilling lets RegisterImage drop the platform details of the snapshot's machine. When
	// EC2 does is not documented; it says to compare them.
	LosesBilling bool
	// Throttle refuses calls above the rates that EC2 publishes.
	Throttle bool
	// OnRequest, if set, is called for every request before it is looked at, with RequestNumber(r)
	// telling which one it is.
	OnRequest func(*http.Request)

	once   sync.Once
	delays Latencies

	mu          sync.Mutex // guards everything below
	closed      bool
	store       *store
	stale       *store // what reads see until staleUntil
	staleUntil  time.Time
	due         []func() // what follows the present change at once
	dirty       map[string]bool
	faults      []*Fault
	faultSerial int
	requests    []*Entry
	policies    map[string]Policy // by access key, where SetPolicy gave another
	sessions    map[string]Identity
	buckets     map[string]*bucket
	moved       []string // instances of which nobody was told yet
	subscribers map[int]func(Machine)
	subscribed  int

	telling sync.Mutex // held while subscribers are told
}

// start prepares the zero value.
func (s *Server) start() {
	s.once.Do(func() {
		if s.Clock == nil {
			s.Clock = WallClock{}
		}
		if s.Region == "" {
			s.Region = "eu-central-1"
		}
		if s.Account == "" {
			s.Account = "123456789012"
		}
		s.delays = s.Latencies.assumed()
		s.store = newStore()
		s.dirty = map[string]bool{}
		s.subscribers = map[int]func(Machine){}
		s.policies, s.sessions, s.buckets = map[string]Policy{}, map[string]Identity{}, map[string]*bucket{}
	})
}

// Close forgets everything that was to happen.
func (s *Server) Close() {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// scale turns a latency into time on the clock.
func (s *Server) scale(d time.Duration) time.Duration {
	if s.Speed > 0 {
		d = time.Duration(float64(d) / s.Speed)
	}
	return max(d, 0)
}

// later does something once a latency has passed: at the end of the present change where it is
// none. The caller holds the lock, and so does f.
func (s *Server) later(d time.Duration, f func()) {
	if d = s.scale(d); d == 0 {
		s.due = append(s.due, f)
		return
	}
	s.Clock.AfterFunc(d, func() { s.alter(f) })
}

// alter makes a change of the server's own, and what follows from it.
func (s *Server) alter(f func()) {
	defer s.announce()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		f()
		s.drain()
	}
}

// drain does what is due, and lets groups act, until nothing is left to do.
func (s *Server) drain() {
	for len(s.due) > 0 || len(s.dirty) > 0 {
		due := s.due
		s.due = nil
		for _, f := range due {
			f()
		}
		s.settleGroups()
	}
}

// call is one request on its way through the server.
type call struct {
	s         *Server
	r         *http.Request
	now       time.Time
	entry     *Entry
	requestID string
	service   string
	action    string
	in        object
	who       Identity
	fault     *Fault
	status    int
	code      string
}

type numberKey struct{}

// RequestNumber is the position of a request among those the server was sent, counted from 1; 0 for
// a request that did not pass through a Server.
func RequestNumber(r *http.Request) int {
	n, _ := r.Context().Value(numberKey{}).(int)
	return n
}

// ServeHTTP answers the four services.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.start()
	raw, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		http.Error(w, "read request", http.StatusBadRequest)
		return
	}
	c := s.admit(r, raw)
	if c.service == "" {
		// In the form that clients of query services such as IAM can read.
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code><Message>"+
			"not an action of EC2, Auto Scaling, SSM or STS: the emulator has no other services</Message></Error></ErrorResponse>")
		return
	}
	if s.OnRequest != nil {
		s.OnRequest(c.r)
	}
	defer c.close()
	c.fault = s.matchFault(c.name())
	if !c.beforehand(w) {
		return
	}
	out, refusal := s.answer(c)
	c.afterwards(&out, &refusal)
	c.write(w, out, refusal)
}

// name is the call as policies and faults name it: ec2:DescribeInstances.
func (c *call) name() string { return c.service + ":" + c.action }

// admit numbers and logs a request.
func (s *Server) admit(r *http.Request, raw []byte) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{s: s, now: s.Clock.Now(), requestID: identifier(), in: object{}}
	if target, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSSM."); ok {
		c.service, c.action = ssm, target
		_ = json.Unmarshal(raw, &c.in) // an empty structure is refused for what it lacks
	} else if form, err := url.ParseQuery(string(raw)); err == nil {
		c.in = parseQuery(form)
		c.service, c.action = versions[form.Get("Version")], form.Get("Action")
	}
	c.entry = &Entry{Seq: len(s.requests) + 1, Time: c.now, Service: c.service, Action: c.action, Parameters: c.in,
		AccessKey: accessKey(r), UserAgent: r.UserAgent()}
	s.requests = append(s.requests, c.entry)
	c.r = r.WithContext(context.WithValue(r.Context(), numberKey{}, c.entry.Seq))
	return c
}

// close completes the log entry, also when the connection is dropped.
func (c *call) close() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.entry.Status, c.entry.Code = c.status, c.code
	if c.fault != nil {
		c.entry.Fault = c.fault.ID
	}
}

// Entry is one request in the log.
type Entry struct {
	Seq        int
	Time       time.Time // of the server's clock
	Service    string    // ec2, autoscaling, ssm or sts
	Action     string
	Parameters map[string]any
	AccessKey  string
	Status     int // 0: the connection was dropped, or no answer yet
	Code       string
	UserAgent  string
	Fault      string // ID of the fault that acted on it
}

// Requests is the log of requests with a sequence number above since.
func (s *Server) Requests(since int) []Entry {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Entry
	for _, e := range s.requests[min(since, len(s.requests)):] {
		list = append(list, *e)
	}
	return list
}

// identifier is a random UUID, version 4.
func identifier() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
