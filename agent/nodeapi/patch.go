package nodeapi

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
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/userdata"
)

// Client changes the node's own object. NodeRestriction lets kubelet's credentials change its own
// node's annotations and most labels, not its taints
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
type Client struct {
	server string
	token  string
	plugin *plugin // gives the token; nil: it is fixed
	node   string
	http   *http.Client
	wait   func(context.Context, time.Duration) error
}

// Client makes a client for node. It resolves the server's name now: by the time a seal is done,
// the disk's resolver configuration may be gone. A kubeconfig that does not check the server's
// certificate is an error: whoever is on the way could take a receipt, and with it kubelet's token,
// for the API server.
func (c *Credentials) Client(ctx context.Context, node string, wait func(context.Context, time.Duration) error) (*Client, error) {
	if c.Insecure {
		return nil, fmt.Errorf("/%s says insecure-skip-tls-verify: replace that line by certificate-authority-data with the cluster's CA, in base64", c.Path)
	}
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
	return &Client{server: c.Server, token: c.Token, plugin: c.plugin, node: node, wait: wait, http: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: c.tls, DialContext: dial, ForceAttemptHTTP2: false, Proxy: nil},
	}}, nil
}

// Annotate sets annotations; an empty value removes one.
func (c *Client) Annotate(ctx context.Context, annotations map[string]string) error {
	return c.patch(ctx, "annotations", annotations)
}

// Label sets labels, and removes those in remove.
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

// Reach reads the node's own object, with the credential and over the network that Annotate will
// need.
func (c *Client) Reach(ctx context.Context) error {
	return c.persist(ctx, func() (error, bool) {
		_, err, again := c.request(ctx, http.MethodGet, nil)
		return err, again
	})
}

// Ready is a Node's condition of that name, which its kubelet writes.
type Ready struct {
	True    bool
	Message string // reason and message
	// Heartbeat is when kubelet last wrote it, by the node's clock.
	Heartbeat time.Time
}

// Ready reads the node's own condition, once: whoever asks asks again.
func (c *Client) Ready(ctx context.Context) (Ready, error) {
	data, err, _ := c.request(ctx, http.MethodGet, nil)
	if err != nil {
		return Ready{}, err
	}
	var node struct {
		Status struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				LastHeartbeatTime             time.Time
			}
		}
	}
	if err := json.Unmarshal(data, &node); err != nil {
		return Ready{}, fmt.Errorf("decode node %s: %w", c.node, err)
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == "Ready" {
			return Ready{cond.Status == "True", strings.TrimPrefix(cond.Reason+": "+cond.Message, ": "), cond.LastHeartbeatTime}, nil
		}
	}
	return Ready{}, fmt.Errorf("node %s has no condition Ready", c.node)
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

// ErrForbidden means that kubelet's credential may not do it.
var ErrForbidden = errors.New("kubelet's credential may not do it")

// Taint sets taints and removes others, leaving everybody else's alone. A taint is told by its key
// and effect. With a credential of the node's own the API server refuses (ErrForbidden:
// NodeRestriction); one that the cluster shares may be allowed.
func (c *Client) Taint(ctx context.Context, set, remove []userdata.Taint) error {
	return c.persist(ctx, func() (error, bool) {
		var node struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
			Spec struct {
				Taints []map[string]any `json:"taints"`
			} `json:"spec"`
		}
		data, err, again := c.request(ctx, http.MethodGet, nil)
		if err != nil {
			return err, again
		}
		if err := json.Unmarshal(data, &node); err != nil {
			return fmt.Errorf("decode node %s: %w", c.node, err), false
		}
		ours := slices.Concat(set, remove)
		all := slices.DeleteFunc(node.Spec.Taints, func(t map[string]any) bool {
			return slices.ContainsFunc(ours, func(o userdata.Taint) bool { return t["key"] == o.Key && t["effect"] == o.Effect })
		})
		for _, t := range set {
			all = append(all, map[string]any{"key": t.Key, "value": t.Value, "effect": t.Effect})
		}
		// With the version a change by somebody else in between is a conflict, and everything is
		// read again.
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": node.Metadata.ResourceVersion},
			"spec": map[string]any{"taints": all}})
		if err != nil {
			return err, false
		}
		_, err, again = c.request(ctx, http.MethodPatch, body)
		return err, again
	})
}

func (c *Client) send(ctx context.Context, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return c.persist(ctx, func() (error, bool) {
		_, err, again := c.request(ctx, http.MethodPatch, body)
		return err, again
	})
}

// persist tries for about two minutes: whoever waits for an annotation has nothing else to go by.
func (c *Client) persist(ctx context.Context, try func() (err error, again bool)) error {
	pause := 500 * time.Millisecond
	for attempt := 1; ; attempt++ {
		err, again := try()
		if err == nil || !again || attempt == 10 {
			return err
		}
		if werr := c.wait(ctx, pause); werr != nil {
			return err
		}
		pause = min(pause*2, 20*time.Second)
	}
}

func (c *Client) request(ctx context.Context, method string, body []byte) (data []byte, err error, again bool) {
	address := c.server + "/api/v1/nodes/" + url.PathEscape(c.node)
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err, false
	}
	if method == http.MethodPatch {
		// JSON Merge Patch (RFC 7386): null removes.
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	token := c.token
	if c.plugin != nil {
		if token, err = c.plugin.get(ctx); err != nil {
			return nil, err, true
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	verb := strings.ToLower(method)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s node %s: %w", verb, c.node, err), true
	}
	defer resp.Body.Close()
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%s node %s: %w", verb, c.node, err), true
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return text, nil, false
	case resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s node %s: %w: %s", verb, c.node, ErrForbidden, reason(text)), false
	}
	if resp.StatusCode == http.StatusUnauthorized && c.plugin != nil {
		c.plugin.forget()
		return nil, fmt.Errorf("%s node %s: status %d: %s", verb, c.node, resp.StatusCode, reason(text)), true
	}
	again = resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusConflict || resp.StatusCode >= 500
	return nil, fmt.Errorf("%s node %s: status %d: %s", verb, c.node, resp.StatusCode, reason(text)), again
}

// reason is the message of the API server's Status object, or the beginning of whatever answered.
func reason(text []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(text[:min(len(text), 300)]))
}
