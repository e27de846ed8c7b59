package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// hook is a webhook on this machine.
type hook struct {
	*httptest.Server
	mu    sync.Mutex
	codes []int // answers to the next messages; 200 after them
	got   []string
}

func newHook(t *testing.T, codes ...int) *hook {
	h := &hook{codes: codes}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, r.Method+" "+r.URL.String()+" "+r.Header.Get("Content-Type")+" "+string(body))
		if len(h.codes) > 0 {
			w.WriteHeader(h.codes[0])
			h.codes = h.codes[1:]
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func open(t *testing.T, lines ...string) (*Notifier, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "urls")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Open(file, impatient{})
	if err != nil {
		t.Fatal(err)
	}
	return n, file
}

// impatient is a clock whose pauses take no time, and whose timeouts are one second.
type impatient struct{ kamino.WallClock }

func (impatient) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (c impatient) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return c.WallClock.WithTimeout(ctx, time.Second)
}

var bad = Happening{Key: "failed/r1", Reason: RunFailed, Warning: true, Pool: "blue", At: now, Text: "it failed", Type: "kamino status"}

// TestSend: each webhook gets a message; one that failed gets it with the next call, and only that
// one; and a file that was changed counts.
func TestSend(t *testing.T) {
	a, b := newHook(t), newHook(t, 400)
	n, file := open(t, "# a comment", a.URL+"/a?token=s3cret", "", b.URL+"/b")
	if err := n.Send(t.Context(), bad); err == nil || err.Error() != "webhook of line 4: the receiver answered 400" {
		t.Errorf("with one that fails: %v", err)
	}
	for range 2 {
		if err := n.Send(t.Context(), bad); err != nil {
			t.Error(err)
		}
	}
	want := `POST /a?token=s3cret application/json {"text":"Kamino: pool blue\nit failed. Type \"kamino status\"","title":"Kamino: pool blue","message":"it failed. Type \"kamino status\"",` +
		`"reason":"KaminoRunFailed","warning":true,"pool":"blue","time":"2026-11-23T04:00:00Z","key":"failed/r1"}`
	if len(a.got) != 2 || a.got[0] != want || len(b.got) != 3 {
		t.Errorf("the first got %q\nthe second got %q", a.got, b.got)
	}
	if err := os.WriteFile(file, []byte(b.URL+"/c"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Send(t.Context(), Happening{Key: "k"}); err != nil || len(a.got) != 2 || !strings.HasPrefix(b.got[3], "POST /c ") || strings.Contains(b.got[3], `"time"`) {
		t.Errorf("after the file changed: %v %q %q", err, a.got, b.got)
	}
}

// TestAttempts: an overloaded or failing webhook gets three attempts, one that refuses gets one.
func TestAttempts(t *testing.T) {
	for name, tt := range map[string]struct {
		codes []int
		sent  int
		fails bool
	}{
		"accepted":      {nil, 1, false},
		"overloaded":    {[]int{429}, 2, false},
		"failing":       {[]int{500, 503}, 3, false},
		"failing still": {[]int{500, 502, 503, 504}, 3, true},
		"refused":       {[]int{404, 404}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, tt.codes...)
			n, _ := open(t, h.URL)
			if err := n.Send(t.Context(), bad); (err != nil) != tt.fails || len(h.got) != tt.sent {
				t.Errorf("%v after %d attempts", err, len(h.got))
			}
		})
	}
}

// TestRedirect: what is sent goes to the configured address only, whatever it answers.
func TestRedirect(t *testing.T) {
	other := newHook(t)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		receiver := httptest.NewServer(http.RedirectHandler(other.URL, code))
		n, _ := open(t, receiver.URL)
		if err := n.Send(t.Context(), bad); err == nil || !strings.Contains(err.Error(), fmt.Sprint(code)) || len(other.got) > 0 {
			t.Errorf("%d: %v; another server got %q", code, err, other.got)
		}
		receiver.Close()
	}
}

// TestHang: a webhook that does not answer holds up neither the sender for long nor the others.
func TestHang(t *testing.T) {
	let := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let }))
	defer slow.Close()
	defer close(let)
	quick := newHook(t)
	n, _ := open(t, slow.URL, quick.URL)
	began := time.Now()
	if err := n.Send(t.Context(), bad); err == nil || err.Error() != "webhook of line 1: no answer within 10s" || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
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

// TestSecrets: no error contains a part of a URL, whatever is wrong with it or its receiver.
func TestSecrets(t *testing.T) {
	closed, refusing := newHook(t), newHook(t, 403)
	closed.Close()
	const secret = "s3cr3t"
	for line, read := range map[string]bool{
		closed.URL + "/" + secret: true, refusing.URL + "/" + secret: true, "https://127.0.0.1:1/" + secret: true, "http://user:" + secret + "@localhost:1/": true, "https://" + secret + ".invalid/": true,
		"http://hooks.example.com/" + secret: false, "http://127.0.0.1." + secret + ".example.com/": false, secret: false, secret + "://x": false, "https:///" + secret: false, "https://%zz" + secret: false,
		"slack://" + secret: false, "file:///" + secret: false, "https://h\x7f/" + secret: false,
	} {
		file := filepath.Join(t.TempDir(), "urls")
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Open(file, impatient{})
		if (err == nil) != read {
			t.Errorf("%s is read: %v", line, err)
			continue
		}
		if err == nil && strings.Contains(line, ".invalid") { // nobody but this machine is called
			continue
		}
		if err == nil {
			err = n.Send(t.Context(), bad)
		}
		if err == nil {
			t.Errorf("%s: no error", line)
		} else if says := err.Error() + kamino.Hint(err); strings.Contains(strings.ToLower(says), secret) {
			t.Errorf("%s: the error is %s", line, says)
		}
	}
}
