package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"kamino.dev/kamino"
)

// limit is how long a service has for one message.
const limit = 10 * time.Second

// Notifier sends messages to the services whose URLs stand in a file, one a line. The URLs are
// secrets: no error tells any part of one.
type Notifier struct {
	file  string
	clock kamino.Clock

	mu        sync.Mutex
	text      []byte // of the file, as receivers are made of it
	receivers []*receiver
	got       map[string]map[string]bool // by key of a happening that not all got: the URLs that did
}

// receiver is one service. A service that hangs gets no second message meanwhile.
type receiver struct {
	line int
	url  string
	kind string
	send func(ctx context.Context, title, text string) error
	free chan struct{}
}

// Open reads the URLs. They are read again whenever the file has changed.
func Open(file string, clock kamino.Clock) (*Notifier, error) {
	n := &Notifier{file: file, clock: clock, got: map[string]map[string]bool{}}
	_, err := n.read()
	return n, err
}

func (n *Notifier) read() ([]*receiver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text, err := os.ReadFile(n.file)
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("read notification URLs: %w", err), "--notify-file names a file with one shoutrrr URL a line")
	}
	if n.receivers != nil && bytes.Equal(text, n.text) {
		return n.receivers, nil
	}
	var all []*receiver
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", i+1, n.file, err)
		}
		r.line, r.url, r.free = i+1, line, make(chan struct{}, 1)
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, kamino.WithHint(fmt.Errorf("%s names no service", n.file), "write one shoutrrr URL a line, for instance generic://HOST/PATH?template=json")
	}
	n.text, n.receivers = text, all
	return all, nil
}

// parse makes a receiver of a URL. What is wrong with it is not told in its words.
func parse(line string) (*receiver, error) {
	u, err := url.Parse(line)
	if err != nil {
		return nil, kamino.WithHint(errors.New("invalid URL"), "see docs/controller.md for the services; the URL is a secret, so it is not shown")
	}
	scheme, _, _ := strings.Cut(u.Scheme, "+")
	if scheme == "generic" {
		send, err := generic(u)
		return &receiver{kind: scheme, send: send}, err
	}
	made, ok := services[scheme]
	if !ok {
		return nil, kamino.WithHint(errors.New("the URL names no known service"), "the services are generic, %s", strings.Join(Services(), ", "))
	}
	service := made()
	if err := service.Initialize(u, nil); err != nil {
		return nil, kamino.WithHint(fmt.Errorf("invalid URL for the service %s", scheme), "https://shoutrrr.nickfedor.com describes its form; the URL is a secret, so it is not shown")
	}
	return &receiver{kind: scheme, send: func(_ context.Context, title, text string) error {
		params := types.Params{}
		params.SetTitle(title)
		return service.Send(text, &params)
	}}, nil
}

// Send tells all services of a happening, side by side. Those that fail get it with the next call,
// and only they.
func (n *Notifier) Send(ctx context.Context, h Happening) error {
	all, err := n.read()
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, r := range all {
		if n.has(h.Key, r.url) {
			continue
		}
		wait.Go(func() {
			if errs[i] = r.tell(ctx, n.clock, h.Title(), h.Message()); errs[i] == nil {
				n.note(h.Key, r.url)
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

// tell sends one message. The libraries of services heed no context, so they are left behind.
func (r *receiver) tell(ctx context.Context, clock kamino.Clock, title, text string) error {
	ctx, cancel := clock.WithTimeout(ctx, limit)
	defer cancel()
	ended := make(chan error, 1)
	select {
	case r.free <- struct{}{}:
		go func() {
			defer func() { <-r.free }()
			ended <- r.send(ctx, title, text)
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return r.failed(err)
	case <-ctx.Done():
		return r.failed(ctx.Err())
	}
}

// failed says why in words that hold nothing of the URL.
func (r *receiver) failed(err error) error {
	var status statusError
	var failed net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("service %s, line %d: %w", r.kind, r.line, context.Canceled)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &failed) && failed.Timeout():
		return fmt.Errorf("service %s, line %d: no answer within %s", r.kind, r.line, limit)
	case errors.As(err, &status):
		return fmt.Errorf("service %s, line %d: %w", r.kind, r.line, status)
	case errors.As(err, &failed):
		return fmt.Errorf("service %s, line %d: no connection", r.kind, r.line)
	}
	return fmt.Errorf("service %s, line %d: the message was not accepted", r.kind, r.line)
}
