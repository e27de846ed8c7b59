package nodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client patches the node's own object. NodeRestriction lets kubelet's credentials change its own node's annotations and
// most labels, not its taints (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
type Client struct {
	server string
	token  string
	node   string
	http   *http.Client
	wait   func(context.Context, time.Duration) error
}

// Client makes a client for node. It resolves the server's name now: by the time a seal is done, the disk's resolver
// configuration may be gone.
func (c *Credentials) Client(ctx context.Context, node string, wait func(context.Context, time.Duration) error) *Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	var addresses []string
	if u, err := url.Parse(c.Server); err == nil && net.ParseIP(u.Hostname()) == nil {
		addresses, _ = net.DefaultResolver.LookupHost(ctx, u.Hostname())
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(a, port)); err == nil {
				return conn, nil
			}
		}
		return dialer.DialContext(ctx, network, address)
	}
	return &Client{server: c.Server, token: c.Token, node: node, wait: wait, http: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: c.tls, DialContext: dial, ForceAttemptHTTP2: false, Proxy: nil},
	}}
}

// Annotate sets annotations; an empty value removes one.
func (c *Client) Annotate(ctx context.Context, annotations map[string]string) error {
	return c.patch(ctx, "annotations", annotations)
}

// Label sets labels; an empty value with remove takes one away.
func (c *Client) Label(ctx context.Context, labels map[string]string, remove []string) error {
	values := map[string]any{}
	for k, v := range labels {
		values[k] = v
	}
	for _, k := range remove {
		values[k] = nil
	}
	return c.send(ctx, map[string]any{"metadata": map[string]any{"labels": values}})
}

func (c *Client) patch(ctx context.Context, field string, texts map[string]string) error {
	values := map[string]any{}
	for k, v := range texts {
		values[k] = v
		if v == "" {
			values[k] = nil
		}
	}
	return c.send(ctx, map[string]any{"metadata": map[string]any{field: values}})
}

// send tries for about two minutes: whoever waits for this annotation has nothing else to go by.
func (c *Client) send(ctx context.Context, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	pause := 500 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err, again := c.once(ctx, body)
		if err == nil || !again || attempt == 10 {
			return err
		}
		if werr := c.wait(ctx, pause); werr != nil {
			return err
		}
		pause = min(pause*2, 20*time.Second)
	}
}

func (c *Client) once(ctx context.Context, body []byte) (err error, again bool) {
	address := c.server + "/api/v1/nodes/" + url.PathEscape(c.node)
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, address, bytes.NewReader(body))
	if err != nil {
		return err, false
	}
	// JSON Merge Patch (RFC 7386): null removes.
	req.Header.Set("Content-Type", "application/merge-patch+json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("patch node %s: %w", c.node, err), true
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode == http.StatusOK {
		return nil, false
	}
	again = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusConflict || resp.StatusCode >= 500
	return fmt.Errorf("patch node %s: status %d: %s", c.node, resp.StatusCode, strings.TrimSpace(string(text))), again
}
