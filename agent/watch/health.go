package watch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/nodeconfig"
)

// probeMost bounds one question to kubelet, the container runtime or the API server.
const probeMost = 5 * time.Second

// errStale: the Node says Ready, but kubelet has not written that since it was restarted.
var errStale = errors.New("kubelet has not reported the node since it was restarted")

// sound notes what is right with the node before a trial. What is not cannot be held against the
// document; what was before an interrupted trial of the same document still counts.
func (w *Watcher) sound(ctx context.Context, t *firstboot.Trial) {
	listens, err := w.runtime(ctx)
	t.Listens, t.RuntimeOK = t.Listens || listens, t.RuntimeOK || err == nil
	if t.Ready || w.Node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeMost)
	defer cancel()
	if node, err := w.Node(ctx); err == nil {
		ready, err := node.Ready(ctx)
		t.Ready = err == nil && ready.True
	}
}

// healthy waits until the node is healthy, and goes on being so for Settle: kubelet says ok, and
// the container runtime and the Node's condition Ready are right where they were before the trial.
// restarted is when kubelet was, zero if it was not.
func (w *Watcher) healthy(ctx context.Context, t firstboot.Trial, restarted time.Time) error {
	deadline := w.Now().Add(w.Deadline)
	var right, unknown time.Time // since when all is right, and since when nothing is known to be wrong
	lasts := func(since time.Time) bool { return !since.IsZero() && w.Now().Sub(since) >= w.Settle }
	for {
		what, err := w.probe(ctx, t, restarted)
		right, unknown = w.since(right, err == nil), w.since(unknown, err == nil || errors.Is(err, errStale))
		switch late := w.Now().After(deadline); {
		case lasts(right), late && lasts(unknown):
			return nil
		case late && unknown.IsZero():
			return fmt.Errorf("%s not healthy within %s: %w", what, w.Deadline, err)
		}
		if err := w.Wait(ctx, min(time.Second, max(w.Deadline/20, time.Millisecond))); err != nil {
			return err
		}
	}
}

// since is since when something holds, that held since before; zero: it does not hold.
func (w *Watcher) since(before time.Time, holds bool) time.Time {
	switch {
	case !holds:
		return time.Time{}
	case before.IsZero():
		return w.Now()
	}
	return before
}

// probe asks once, and names who is not healthy.
func (w *Watcher) probe(ctx context.Context, t firstboot.Trial, restarted time.Time) (what string, err error) {
	if err := w.kubelet(ctx); err != nil {
		return "kubelet", err
	}
	if t.Listens {
		if listens, err := w.runtime(ctx); err != nil && (!listens || t.RuntimeOK) {
			return "container runtime", err
		}
	}
	if t.Ready {
		return "node", w.ready(ctx, restarted)
	}
	return "", nil
}

func (w *Watcher) kubelet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeMost)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Health, nil)
	if err != nil {
		return err
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("kubelet answers %d: %s", resp.StatusCode, strings.TrimSpace(string(text)))
	}
	return nil
}

// ready is the Node's condition. An API server that does not answer says nothing of the
// configuration. kubelet writes the condition when it starts, and every five minutes if nothing
// changes. So a True from before the restart does not count
// (https://kubernetes.io/docs/reference/node/node-status/#heartbeats).
func (w *Watcher) ready(ctx context.Context, restarted time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, probeMost)
	defer cancel()
	node, err := w.Node(ctx)
	if err != nil {
		return nil
	}
	ready, err := node.Ready(ctx)
	switch {
	case err != nil:
		return nil
	case !ready.True:
		return errors.New("it is not Ready: " + cmp.Or(ready.Message, "no reason given"))
	case !restarted.IsZero() && !ready.Heartbeat.IsZero() && ready.Heartbeat.Before(restarted.Truncate(time.Second)):
		return errStale
	}
	return nil
}

// runtime reports whether somebody listens at the socket over which kubelet talks to the container
// runtime, and what is wrong with the runtime otherwise.
func (w *Watcher) runtime(ctx context.Context) (listens bool, err error) {
	name := nodeconfig.RuntimeSocket(w.Disk)
	if name == "" {
		return false, errors.New("kubelet's container runtime endpoint is not a unix socket")
	}
	ctx, cancel := context.WithTimeout(ctx, probeMost)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", w.Disk.Host(name))
	if err != nil {
		return false, err
	}
	_ = conn.Close() // nothing was written
	return true, w.runtimeStatus(ctx, name)
}

// runtimeStatus asks the container runtime for its status: method Status of runtime.v1.RuntimeService,
// the Container Runtime Interface
// (https://github.com/kubernetes/cri-api/blob/master/pkg/apis/runtime/v1/api.proto), which
// containerd and CRI-O answer. It is one gRPC request, for which a client library would weigh more
// than the rest of the watcher.
func (w *Watcher) runtimeStatus(ctx context.Context, name string) error {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.Disk.Host(name))
	}}
	defer transport.CloseIdleConnections()
	// An empty message: one byte that says "not compressed", and a length of four.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/Status",
		bytes.NewReader(make([]byte, 5)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask for its status at /%s: %w", name, err)
	}
	defer resp.Body.Close()
	const most = 1 << 20
	data, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return fmt.Errorf("ask for its status at /%s: %w", name, err)
	}
	trailer := func(key string) string { return cmp.Or(resp.Trailer.Get(key), resp.Header.Get(key)) }
	if code := trailer("Grpc-Status"); resp.StatusCode != http.StatusOK || code != "0" {
		return fmt.Errorf("its status at /%s: HTTP %d, gRPC %s: %s", name, resp.StatusCode, cmp.Or(code, "none"), trailer("Grpc-Message"))
	}
	return conditions(data)
}

// conditions reads a StatusResponse, and is the first condition that is not true: RuntimeReady or
// NetworkReady. Field 1 of the response is the status, of which field 1 are the conditions: type,
// status, reason and message.
func conditions(data []byte) error {
	if len(data) < 5 || data[0] != 0 || uint64(binary.BigEndian.Uint32(data[1:5])) > uint64(len(data)-5) {
		return errProtobuf
	}
	var wrong error
	err := fields(data[5:5+binary.BigEndian.Uint32(data[1:5])], func(field, _ uint64, status []byte) error {
		if field != 1 {
			return nil
		}
		return fields(status, func(field, _ uint64, condition []byte) error {
			if field != 1 {
				return nil
			}
			texts, is := [5]string{}, false
			err := fields(condition, func(field, number uint64, text []byte) error {
				if field == 2 {
					is = number != 0
				} else if field < 5 {
					texts[field] = string(text)
				}
				return nil
			})
			if wrong == nil && err == nil && !is {
				wrong = fmt.Errorf("%s is not true: %s: %s", texts[1], texts[3], texts[4])
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	return wrong
}

var errProtobuf = errors.New("its status cannot be decoded")

// fields goes through a message of Protocol Buffers
// (https://protobuf.dev/programming-guides/encoding/).
func fields(data []byte, each func(field, number uint64, text []byte) error) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 {
			return errProtobuf
		}
		data = data[n:]
		var number uint64
		var text []byte
		switch key & 7 {
		case 0, 2:
			if number, n = binary.Uvarint(data); n <= 0 {
				return errProtobuf
			}
			data = data[n:]
			if key&7 == 0 {
				break
			}
			if number > uint64(len(data)) {
				return errProtobuf
			}
			text, data = data[:number], data[number:]
		case 1, 5:
			size := 8 - int(key&4) // 64 or 32 bits
			if len(data) < size {
				return errProtobuf
			}
			data = data[size:]
		default:
			return errProtobuf
		}
		if err := each(key>>3, number, text); err != nil {
			return err
		}
	}
	return nil
}
