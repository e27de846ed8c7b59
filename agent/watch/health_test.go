package watch

import (
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/nodeapi"
)

// with reports whether the bench's kubelet has a configuration that contains a text.
func (b *bench) with(text string) bool {
	return strings.Contains(b.w.Disk.Text("var/lib/kubelet/config.yaml"), text)
}

// TestNotReady: kubelet's health endpoint says ok, and the node is not Ready with the document.
func TestNotReady(t *testing.T) {
	const bad = "maxPods: 99"
	notReady := nodeapi.Ready{Message: "KubeletNotReady: cni plugin not initialized"}
	for name, tt := range map[string]struct {
		ready  func(b *bench, since time.Time) (nodeapi.Ready, error) // since: when the document was written
		status string
		error  string
	}{
		"not Ready with it": {func(b *bench, _ time.Time) (nodeapi.Ready, error) {
			if b.with(bad) {
				return notReady, nil
			}
			return nodeapi.Ready{True: true, Heartbeat: b.now}, nil
		}, "RolledBack", "node not healthy within 2m0s: it is not Ready: KubeletNotReady: cni plugin not initialized"},
		"Ready from before, for longer than settle": {func(b *bench, since time.Time) (nodeapi.Ready, error) {
			switch {
			case !b.with(bad):
				return nodeapi.Ready{True: true, Heartbeat: b.now}, nil
			case b.now.Sub(since) < 30*time.Second:
				return nodeapi.Ready{True: true, Heartbeat: since.Add(-time.Minute)}, nil
			}
			return notReady, nil
		}, "RolledBack", "it is not Ready"},
		"Ready after a while": {func(b *bench, since time.Time) (nodeapi.Ready, error) {
			if b.with(bad) && b.now.Sub(since) < time.Minute {
				return notReady, nil
			}
			return nodeapi.Ready{True: true, Heartbeat: b.now}, nil
		}, "Applied", ""},
		"never reported again": {func(*bench, time.Time) (nodeapi.Ready, error) {
			return nodeapi.Ready{True: true, Heartbeat: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
		}, "Applied", ""},
		"not Ready before it": {func(*bench, time.Time) (nodeapi.Ready, error) { return notReady, nil }, "Applied", ""},
		"the API server is away": {func(b *bench, _ time.Time) (nodeapi.Ready, error) {
			if b.with(bad) {
				return nodeapi.Ready{}, errors.New("connection refused")
			}
			return nodeapi.Ready{True: true, Heartbeat: b.now}, nil
		}, "Applied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(doc(1, "config: {maxPods: 20}"))
			var since time.Time
			b.node.ready = func() (nodeapi.Ready, error) {
				if since.IsZero() && b.with(bad) {
					since = b.now
				}
				return tt.ready(b, since)
			}
			b.userData = doc(2, "config: {"+bad+"}")
			if s := b.once(); s.Status != tt.status || !strings.Contains(s.Error, tt.error) || b.with(bad) != (tt.status == "Applied") {
				t.Errorf("%+v, kubelet's configuration %s", s, b.w.Disk.Text("var/lib/kubelet/config.yaml"))
			}
		})
	}
}

// TestFlappingUnreported: kubelet does not stay healthy, and has not reported the node since its
// restart. That nothing says "not Ready" makes it no better.
func TestFlappingUnreported(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.node.ready = func() (nodeapi.Ready, error) {
		return nodeapi.Ready{True: true, Heartbeat: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, nil
	}
	probes := 0
	b.healthy = func() bool {
		probes++
		return probes%5 != 0 || !b.with("maxPods")
	}
	b.userData = doc(2, "config: {maxPods: 99}")
	if s := b.once(); s.Status != "RolledBack" {
		t.Errorf("%+v", s)
	}
}

// varint is a field of a message with a number.
func varint(field, n uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, field<<3), n)
}

// message is a field of a message with a text or a message.
func message(field uint64, data []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, field<<3|2), uint64(len(data))), data...)
}

// statusResponse is what a container runtime answers.
func statusResponse(runtime, network bool) []byte {
	condition := func(kind string, is bool) []byte {
		data := message(1, []byte(kind))
		if is {
			data = append(data, varint(2, 1)...)
		}
		return message(1, append(append(data, message(3, []byte("Reason"))...), message(4, []byte("a message"))...))
	}
	response := append(message(1, append(condition("RuntimeReady", runtime), condition("NetworkReady", network)...)), message(2, []byte("info"))...)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(response))), response...)
}

// TestRuntime: kubelet and the Node are well, and the container runtime is not, with the document.
func TestRuntime(t *testing.T) {
	const bad = "maxPods: 99"
	for name, tt := range map[string]struct {
		socket string // of the runtime
		config string // of kubelet
		// answer is what the runtime says with the document.
		answer func(w http.ResponseWriter)
		status string
		error  string
	}{
		"well": {"run/containerd/containerd.sock", "", func(w http.ResponseWriter) { answerStatus(w, "0", statusResponse(true, true)) }, "Applied", ""},
		"no network": {"run/containerd/containerd.sock", "", func(w http.ResponseWriter) { answerStatus(w, "0", statusResponse(true, false)) }, "RolledBack",
			"container runtime not healthy within 2m0s: NetworkReady is not true: Reason: a message"},
		"CRI-O": {"run/crio/crio.sock", ", containerRuntimeEndpoint: 'unix:///run/crio/crio.sock'", func(w http.ResponseWriter) { answerStatus(w, "0", statusResponse(false, true)) },
			"RolledBack", "RuntimeReady is not true"},
		"its plugin is off": {"run/containerd/containerd.sock", "", func(w http.ResponseWriter) { answerStatus(w, "12", nil) }, "RolledBack", "gRPC 12: unknown service"},
		"garbage":           {"run/containerd/containerd.sock", "", func(w http.ResponseWriter) { answerStatus(w, "0", []byte{0, 0, 0, 0, 9, 1}) }, "RolledBack", "cannot be decoded"},
		"another's socket":  {"run/other.sock", "", nil, "Applied", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(doc(1, "config: {maxPods: 20"+tt.config+"}"))
			b.serveRuntime(tt.socket, func(w http.ResponseWriter) {
				if b.with(bad) && tt.answer != nil {
					tt.answer(w)
					return
				}
				answerStatus(w, "0", statusResponse(true, true))
			})
			b.userData = doc(2, "config: {"+bad+tt.config+"}")
			if s := b.once(); s.Status != tt.status || !strings.Contains(s.Error, tt.error) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestRuntimeGone: nobody listens at the runtime's socket with the document, of a runtime that does
// not speak kubelet's protocol, too.
func TestRuntimeGone(t *testing.T) {
	const bad = "maxPods: 99"
	for name, gone := range map[string]bool{"there": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(doc(1, "config: {maxPods: 20}"))
			socket := b.w.Disk.Host("run/containerd/containerd.sock")
			if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
					_ = conn.Close() // it says nothing
				}
			}()
			b.healthy = func() bool {
				if b.with(bad) && gone {
					_ = listener.Close() // once, and then again
				}
				return true
			}
			b.userData = doc(2, "config: {"+bad+"}")
			if s := b.once(); gone && (s.Status != "Broken" || !strings.Contains(s.Error, "container runtime not healthy within 2m0s: dial unix")) || !gone && s.Status != "Applied" {
				t.Errorf("%+v", s)
			}
		})
	}
}

func answerStatus(w http.ResponseWriter, code string, message []byte) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", code)
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", "unknown service")
	_, _ = w.Write(message) // the client may have gone
}

// serveRuntime is a container runtime, which answers one question.
func (b *bench) serveRuntime(socket string, answer func(http.ResponseWriter)) {
	b.t.Helper()
	name := b.w.Disk.Host(socket)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.t.Fatal(err)
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		b.t.Fatal(err)
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: &protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/runtime.v1.RuntimeService/Status" || r.Header.Get("Content-Type") != "application/grpc" || r.Header.Get("Te") != "trailers" {
			b.t.Errorf("%s %s with %v", r.Method, r.URL.Path, r.Header)
		}
		answer(w)
	})}
	go func() { _ = s.Serve(listener) }() // until it is closed
	b.t.Cleanup(func() { _ = s.Close() })
}

// FuzzConditions: whatever a container runtime answers, it is well or an error.
func FuzzConditions(f *testing.F) {
	f.Add(statusResponse(true, true))
	f.Add(statusResponse(false, false))
	f.Add([]byte{0, 255, 255, 255, 255, 10})
	f.Fuzz(func(_ *testing.T, data []byte) { _ = conditions(data) })
}
