package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino"
)

// limit is the time for one message to one webhook, with all its attempts.
const limit = 10 * time.Second

// attempts is how often a message is sent to a webhook that does not answer or is overloaded, and
// pause the time between two attempts.
const (
	attempts = 3
	pause    = time.Second
)

// Message is the JSON that a webhook gets. Incoming webhooks of Slack, Mattermost and Rocket.Chat
// show Text and ignore the other fields (unverified); programs read the other fields.
type Message struct {
	Text    string     `json:"text"`
	Title   string     `json:"title"`
	Message string     `json:"message"`
	Reason  string     `json:"reason"` // as in events: KaminoPromoted, KaminoRunFailed, …
	Warning bool       `json:"warning"`
	Pool    string     `json:"pool,omitempty"`
	Time    *time.Time `json:"time,omitempty"` // absent for what is so now
	Key     string     `json:"key"`            // the same for the same happening, whoever reports it
}

// Notifier posts messages to the webhooks whose URLs stand in a file, one a line. The URLs are
// secrets: no error contains any part of one.
type Notifier struct {
	file  string
	clock kamino.Clock

	mu    sync.Mutex
	text  []byte // of the file, as hooks were read from it
	hooks []webhook
	got   map[string]map[string]bool // by key of a happening that not all webhooks got: the URLs that did
}

// webhook is one URL.
type webhook struct {
	line int
	url  string
}

// client follows no redirect: the text, and a URL with a secret, go to the configured address only.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// Open reads the URLs. They are read again whenever the file has changed.
func Open(file string, clock kamino.Clock) (*Notifier, error) {
	n := &Notifier{file: file, clock: clock, got: map[string]map[string]bool{}}
	_, err := n.read()
	return n, err
}

func (n *Notifier) read() ([]webhook, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text, err := os.ReadFile(n.file)
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("read notification URLs: %w", err), "--notify-file names a file with one https URL a line")
	}
	if n.hooks != nil && bytes.Equal(text, n.text) {
		return n.hooks, nil
	}
	var all []webhook
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !valid(line) {
			return nil, kamino.WithHint(fmt.Errorf("line %d of %s: invalid URL", i+1, n.file),
				"write https://HOST/PATH; the URL is a secret, so it is not shown")
		}
		all = append(all, webhook{i + 1, line})
	}
	if len(all) == 0 {
		return nil, kamino.WithHint(fmt.Errorf("%s names no webhook", n.file),
			"write one URL a line, for instance https://hooks.example.com/kamino")
	}
	n.text, n.hooks = text, all
	return all, nil
}

// valid reports whether a URL is one of https. That of a program on this machine may be one of http.
func valid(line string) bool {
	u, err := url.Parse(line)
	if err != nil || u.Hostname() == "" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// Send sends a happening to all webhooks in parallel. Those that fail get it with the next call, and
// only they.
func (n *Notifier) Send(ctx context.Context, h Happening) error {
	all, err := n.read()
	if err != nil {
		return err
	}
	m := Message{Title: h.Title(), Message: h.Message(), Reason: h.Reason, Warning: h.Warning, Pool: h.Pool, Key: h.Key}
	if m.Text = m.Title + "\n" + m.Message; !h.At.IsZero() {
		at := h.At.UTC()
		m.Time = &at
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode notification: %w", err)
	}
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, to := range all {
		if n.has(h.Key, to.url) {
			continue
		}
		wait.Go(func() {
			if errs[i] = to.send(ctx, n.clock, body); errs[i] == nil {
				n.note(h.Key, to.url)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.got, h.Key)
	return nil
}

func (n *Notifier) has(key, url string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got[key][url]
}

func (n *Notifier) note(key, url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.got[key] == nil {
		n.got[key] = map[string]bool{}
	}
	n.got[key][url] = true
}

// send posts a message. It tries again where the webhook gives no answer, is overloaded (429) or
// fails (5xx). No error contains any part of the URL.
func (w webhook) send(ctx context.Context, clock kamino.Clock, body []byte) (err error) {
	ctx, cancel := clock.WithTimeout(ctx, limit)
	defer cancel()
	for n := 1; ; n++ {
		code, failed := w.post(ctx, body)
		switch {
		case failed == nil && code < http.StatusMultipleChoices:
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return fmt.Errorf("webhook of line %d: %w", w.line, context.Canceled)
		case ctx.Err() != nil:
			return fmt.Errorf("webhook of line %d: no answer within %s", w.line, limit)
		case failed != nil:
			err = fmt.Errorf("webhook of line %d: no connection", w.line)
		default:
			err = fmt.Errorf("webhook of line %d: the receiver answered %d", w.line, code)
		}
		if n == attempts || failed == nil && code != http.StatusTooManyRequests && code < http.StatusInternalServerError ||
			clock.Sleep(ctx, pause) != nil {
			return err
		}
	}
}

// post makes one attempt and returns the status code.
func (w webhook) post(ctx context.Context, body []byte) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, nil
}
