package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

var now = time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)

// TestOf: what the status of a pool tells of, and what is no news any more.
func TestOf(t *testing.T) {
	at := func(p kamino.PastRun, ago int) kamino.PastRun { // minutes
		p.Run, p.Ended = fmt.Sprintf("r%d", ago), now.Add(-time.Duration(ago)*time.Minute)
		return p
	}
	done, failed := kamino.PastRun{Donor: "n1", Version: "v2"}, kamino.PastRun{Donor: "n1", Failure: "step drain: a\nbudget"}
	proof := func(o kamino.Outcome) kamino.PastRun {
		return kamino.PastRun{Version: "v3", Failure: "step examine: not Ready", Proof: o}
	}
	away := func(d time.Duration) *kamino.Unfinished {
		return &kamino.Unfinished{Run: "r", Record: kamino.Record{Donor: "n1", AwaySince: now.Add(-d)}}
	}
	for name, tt := range map[string]struct {
		status poolstate.PoolStatus
		want   []string
	}{
		"nothing":              {poolstate.PoolStatus{}, nil},
		"promoted":             {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(done, 1)}}, []string{"KaminoPromoted promoted/v2 Normal"}},
		"being promoted":       {poolstate.PoolStatus{Next: "v2", Unfinished: &kamino.Unfinished{Run: "r0"}, Runs: []kamino.PastRun{at(done, 1)}}, nil},
		"made, waits":          {poolstate.PoolStatus{Next: "v1", Runs: []kamino.PastRun{at(done, 1)}}, nil},
		"promoted by a person": {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(kamino.PastRun{Pointed: "v2", Verb: kamino.VerbPromote}, 1), at(done, 2)}}, []string{"KaminoPromoted promoted/v2 Normal"}},
		"failed":               {poolstate.PoolStatus{Runs: []kamino.PastRun{at(failed, 1)}}, []string{"KaminoRunFailed failed/r1 Warning"}},
		"failed twice":         {poolstate.PoolStatus{Runs: []kamino.PastRun{at(failed, 1), at(failed, 2)}}, []string{"KaminoRunFailed failed/r2 Warning", "KaminoRunFailed failed/r1 Warning"}},
		"failed, then not":     {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(done, 1), at(failed, 2)}}, []string{"KaminoPromoted promoted/v2 Normal"}},
		"failed after one":     {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(failed, 1), at(done, 2)}}, []string{"KaminoPromoted promoted/v2 Normal", "KaminoRunFailed failed/r1 Warning"}},
		"told to end":          {poolstate.PoolStatus{Runs: []kamino.PastRun{at(kamino.PastRun{Failure: "x", Interrupted: true}, 1)}}, nil},
		"a person's verb":      {poolstate.PoolStatus{Runs: []kamino.PastRun{at(kamino.PastRun{Failure: "x", Verb: kamino.VerbRollback}, 1)}}, nil},
		"a patch":              {poolstate.PoolStatus{Runs: []kamino.PastRun{at(kamino.PastRun{Failure: "x", Work: kamino.WorkPatch}, 1)}}, []string{"KaminoPatchFailed failed/r1 Warning"}},
		"a bad image":          {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(proof(kamino.ProofFailed), 1)}}, []string{"KaminoProofFailed failed/r1 Warning"}},
		"nobody knows":         {poolstate.PoolStatus{Next: "v2", Runs: []kamino.PastRun{at(proof(kamino.ProofInconclusive), 1)}}, []string{"KaminoProofInconclusive failed/r1 Warning"}},
		"withdrawn": {poolstate.PoolStatus{Next: "v1", Runs: []kamino.PastRun{at(kamino.PastRun{Verb: kamino.VerbWithdraw, Withdrawn: "v2", Pointed: "v1", Reason: "2 of 3 new nodes"}, 1), at(done, 2),
			at(kamino.PastRun{Version: "v1"}, 3)}}, []string{"KaminoWithdrawn withdrawn/r1 Warning"}},
		"kept, though its new nodes are not Ready": {poolstate.PoolStatus{Next: "v1", Runs: []kamino.PastRun{
			at(kamino.PastRun{Verb: kamino.VerbWithdraw, Step: kamino.StepWatch, Withdrawn: "v1", Failure: "there is none before it"}, 1)}}, []string{"KaminoProofFailed unfit/v1 Warning"}},
		"rolled back":       {poolstate.PoolStatus{Next: "v1", Runs: []kamino.PastRun{at(kamino.PastRun{Verb: kamino.VerbRollback, Pointed: "v1"}, 1)}}, []string{"KaminoWithdrawn withdrawn/r1 Warning"}},
		"away":              {poolstate.PoolStatus{Unfinished: away(time.Hour)}, []string{"KaminoDonorAway away/r/n1 Warning"}},
		"away, as is usual": {poolstate.PoolStatus{Unfinished: away(59 * time.Minute)}, nil},
		"refused":           {poolstate.PoolStatus{Refusals: []kamino.Refusal{{Code: "ephemeral"}}}, []string{"KaminoRefused refused/* Warning quiet"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.status.Name = "blue"
			var got []string
			for _, h := range Of(tt.status, now, AwayLimit) {
				key := h.Key
				if strings.HasPrefix(key, "refused/") {
					key = "refused/*"
				}
				line := h.Reason + " " + key + " " + map[bool]string{true: "Warning", false: "Normal"}[h.Warning]
				if h.Quiet {
					line += " quiet"
				}
				got = append(got, line)
				if h.Warning != strings.Contains(h.Message(), `Type "kamino `) || !strings.Contains(h.Text, "blue") || strings.Contains(h.Text, "\n") || len(h.Message()) > 1024 {
					t.Errorf("%s says %q", h.Reason, h.Message())
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestLong: what to type is told whatever the length of a reason.
func TestLong(t *testing.T) {
	s := poolstate.PoolStatus{Name: "blue", Runs: []kamino.PastRun{{Run: "r", Failure: strings.Repeat("ä", 2000)}}}
	if m := Of(s, now, AwayLimit)[0].Message(); len(m) > 1024 || !strings.HasSuffix(m, `Type "kamino status --pool blue -o wide"`) {
		t.Errorf("%d bytes: %s", len(m), m)
	}
}

// TestFailure: what no ledger tells says what to type as well.
func TestFailure(t *testing.T) {
	err := kamino.WithHint(errors.New("node n1 does not exist"), "kamino select lists them")
	for pool, want := range map[string]string{
		"":     `Kamino|a run failed: node n1 does not exist; kamino select lists them. Type "kamino status"`,
		"blue": `Kamino: pool blue|a run of pool blue failed: node n1 does not exist; kamino select lists them. Type "kamino status --pool blue -o wide"`,
	} {
		if h := Failure("", pool, now, err); h.Title()+"|"+h.Message() != want {
			t.Errorf("pool %q: %s|%s", pool, h.Title(), h.Message())
		}
	}
}

// hook is a service on this machine.
type hook struct {
	*httptest.Server
	mu    sync.Mutex
	code  int
	got   []string
	heads []http.Header
}

func newHook(t *testing.T) *hook {
	h := &hook{code: http.StatusOK}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got, h.heads = append(h.got, r.URL.String()+" "+string(body)), append(h.heads, r.Header)
		w.WriteHeader(h.code)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) url(rest string) string { return "generic" + strings.TrimPrefix(h.URL, "http") + rest }

func (h *hook) answer(code int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.code = code
}

func open(t *testing.T, lines ...string) (*Notifier, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "urls")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Open(file, kamino.WallClock{})
	if err != nil {
		t.Fatal(err)
	}
	return n, file
}

var bad = Happening{Key: "failed/r1", Pool: "blue", Text: "it failed", Type: "kamino status"}

// TestSend: each service gets a message, in its form; who failed gets it with the next call, and
// only he; and a file that was changed counts.
func TestSend(t *testing.T) {
	a, b := newHook(t), newHook(t)
	n, file := open(t, "# a comment", a.url("/a?disabletls=yes&template=json&$team=infra&@apiKey=x1&token=s3cret"), "", b.url("/b?disabletls=yes"))
	b.answer(500)
	if err := n.Send(t.Context(), bad); err == nil || err.Error() != "service generic, line 4: the receiver answered 500" {
		t.Errorf("with one that fails: %v", err)
	}
	b.answer(200)
	for range 2 {
		if err := n.Send(t.Context(), bad); err != nil {
			t.Error(err)
		}
	}
	want := `/a?token=s3cret {"message":"it failed. Type \"kamino status\"","team":"infra","title":"Kamino: pool blue"}`
	if len(a.got) != 2 || a.got[0] != want || a.heads[0].Get("Api-Key") != "x1" || a.heads[0].Get("Content-Type") != "application/json" {
		t.Errorf("the first got %q %v", a.got, a.heads)
	}
	if len(b.got) != 3 || b.got[2] != `/b it failed. Type "kamino status"` || b.heads[2].Get("Content-Type") != "text/plain" {
		t.Errorf("the second got %q %v", b.got, b.heads)
	}
	if err := os.WriteFile(file, []byte(b.url("/c?disabletls=yes")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Send(t.Context(), Happening{Key: "k"}); err != nil || len(a.got) != 2 || !strings.HasPrefix(b.got[3], "/c") {
		t.Errorf("after the file changed: %v %q %q", err, a.got, b.got)
	}
}

// impatient is a clock by which every time-out is a second.
type impatient struct{ kamino.WallClock }

func (c impatient) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return c.WallClock.WithTimeout(ctx, time.Second)
}

// TestHang: a receiver that does not answer holds nobody up, neither whoever sends nor the other
// services.
// TestRedirect: what is sent goes to the configured address only, whatever it answers.
func TestRedirect(t *testing.T) {
	var got atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	defer other.Close()
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		receiver := httptest.NewServer(http.RedirectHandler(other.URL, code))
		u, err := url.Parse("generic+http://" + receiver.Listener.Addr().String() + "/?template=json&@X-Api-Key=secret")
		if err != nil {
			t.Fatal(err)
		}
		send, err := generic(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(t.Context(), "title", "text"); !errors.Is(err, statusError(code)) || got.Load() > 0 {
			t.Errorf("%d: %v; another server was asked %d times", code, err, got.Load())
		}
		receiver.Close()
	}
}

func TestHang(t *testing.T) {
	let := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }))
	defer slow.Close()
	defer close(let)
	quick := newHook(t)
	n, _ := open(t, "generic"+strings.TrimPrefix(slow.URL, "http")+"/?disabletls=yes", "discord://token@1?thread_id=2", quick.url("/?disabletls=yes"))
	n.clock = impatient{}
	n.receivers[1].send = func(context.Context, string, string) error { <-let; return nil } // as libraries that heed no context
	for range 2 {
		began := time.Now()
		err := n.Send(t.Context(), bad)
		if err == nil || strings.Count(err.Error(), "no answer within") != 2 || time.Since(began) > 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	}
	if len(quick.got) != 1 {
		t.Errorf("the other got %q", quick.got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Send(ctx, bad); !errors.Is(err, context.Canceled) {
		t.Errorf("when the process ends: %v", err)
	}
}

// TestSecrets: no part of a URL is told, whatever is wrong with it or its service.
func TestSecrets(t *testing.T) {
	closed := newHook(t)
	closed.Close()
	const secret = "s3cr3t"
	for _, line := range []string{
		closed.url("/" + secret + "?disabletls=yes&@Authorization=" + secret), "generic://127.0.0.1:1/" + secret, "generic://" + secret + ".invalid/" + secret, "generic:///" + secret,
		"generic://h/?template=" + secret, "https://hooks.example.com/" + secret, secret, secret + "://x", "slack://" + secret, "slack://hook:" + secret + "@x", "teams://" + secret,
		"telegram://" + secret + "@telegram?chats=1", "discord://" + secret + "@x?color=" + secret, "discord://\x7f" + secret, "pushover://:" + secret + "@u/?devices=" + secret, "gotify://127.0.0.1:1/" + secret + "?disabletls=yes",
		"rocketchat://127.0.0.1:1/" + secret + "/x", "mattermost://127.0.0.1:1/" + secret + "?disabletls=yes", "ntfy://" + secret + "@127.0.0.1:1/x?scheme=http",
	} {
		file := filepath.Join(t.TempDir(), "urls")
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Open(file, kamino.WallClock{})
		if err == nil && strings.Contains(line, "127.0.0.1") { // nobody else is called
			err = n.Send(t.Context(), bad)
		} else if err == nil {
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", line)
			continue
		}
		if says := err.Error() + kamino.Hint(err); strings.Contains(strings.ToLower(says), secret) {
			t.Errorf("%s: the error is %s", line, says)
		}
	}
}
