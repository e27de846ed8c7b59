package agent_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const liveMachine = "5e1f0a2b-3c4d-4e6f-8a9b-0c1d2e3f4a5b"

// live is a clone after its first boot, with generation 1 in force, on which kamino-agent watch
// runs as a process of its own.
type live struct {
	*world
	agent *exec.Cmd
}

func newLive(t *testing.T) *live {
	c := readCase(t, "watch-rollback")
	l := &live{world: newWorld(t, c)}
	l.run("seal "+c.Sealed, 0)
	l.step(step{Machine: liveMachine})
	l.run("boot", 0)
	return l
}

// offer puts a document in the user data.
func (l *live) offer(generation int, kubelet string) {
	l.platform.serve("userdata", strings.Replace(l.tree.Text("imds/userdata"), "generation: 1", fmt.Sprintf("generation: %d", generation), 1)+"kubelet: {"+kubelet+"}\n")
}

// sickWith makes kubelet unhealthy while its configuration contains a text.
func (l *live) sickWith(text string) {
	l.platform.serve("kubelet", "var/lib/kubelet/config.yaml "+text)
}

func (l *live) start(args ...string) {
	l.t.Helper()
	l.agent = exec.Command(binary, append([]string{"watch", "--root", l.root, "--interval", "20ms", "--imds-timeout", "2s"}, args...)...)
	l.agent.Env, l.agent.Stdout, l.agent.Stderr = l.env, &l.out, &l.out
	if err := l.agent.Start(); err != nil {
		l.t.Fatal(err)
	}
	agent := l.agent
	l.t.Cleanup(func() { _ = agent.Process.Kill() }) // it may have ended
}

// end sends a signal and waits for the process.
func (l *live) end(signal os.Signal) {
	l.t.Helper()
	if err := l.agent.Process.Signal(signal); err != nil {
		l.t.Fatal(err)
	}
	if err := l.agent.Wait(); err != nil && signal != syscall.SIGKILL {
		l.t.Errorf("after %s: %v\n%s", signal, err, l.out.String())
	}
}

type liveState struct {
	Generation    int64
	Status, Error string
	Offered       *struct{ Generation int64 }
	Trial         *struct{ Begun, Stopped int }
}

func (l *live) state() (s liveState) {
	data, err := os.ReadFile(filepath.Join(l.root, "var/lib/kamino/config.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *live) kubelet() string {
	data, _ := os.ReadFile(filepath.Join(l.root, "var/lib/kubelet/config.yaml"))
	return string(data)
}

// until waits for a condition.
func (l *live) until(what string, is func(liveState) bool) {
	l.t.Helper()
	const most = time.Minute
	for began := time.Now(); !is(l.state()); time.Sleep(5 * time.Millisecond) { // the agent is another process
		if time.Since(began) > most {
			_ = l.agent.Process.Kill() // else it writes while the buffer is read
			_ = l.agent.Wait()
			l.t.Fatalf("not within %s: %s\n%+v\n%s", most, what, l.state(), l.out.String())
		}
	}
}

// onTrial waits until the document of that many begun trials is written.
func (l *live) onTrial(begun int, text string) {
	l.t.Helper()
	l.until(fmt.Sprintf("trial %d", begun), func(s liveState) bool {
		return s.Trial != nil && s.Trial.Begun == begun && strings.Contains(l.kubelet(), text)
	})
}

// interrupted plays with a new machine for each way to interrupt a trial: the agent alone ends, or the
// machine, too.
func interrupted(t *testing.T, play func(l *live, interrupt func(trial int, signal os.Signal))) {
	t.Parallel()
	for _, rebooted := range []bool{false, true} {
		t.Run(fmt.Sprintf("rebooted %t", rebooted), func(t *testing.T) {
			t.Parallel()
			l := newLive(t)
			former := l.kubelet()
			l.offer(2, "config: {maxPods: 99}")
			play(l, func(trial int, signal os.Signal) {
				l.start("--settle", "10m")
				l.onTrial(trial, "maxPods: 99")
				if l.end(signal); !rebooted {
					return
				}
				l.step(step{Machine: liveMachine})
				if l.run("boot --early", 0); l.kubelet() != former {
					t.Errorf("kubelet would start with the document on trial: %s", l.kubelet())
				}
			})
			l.end(syscall.SIGTERM)
		})
	}
}

// TestWatchStopped: who asks the agent to stop, or restarts the machine, says nothing of the
// document on trial. It is tried again.
func TestWatchStopped(t *testing.T) {
	interrupted(t, func(l *live, interrupt func(int, os.Signal)) {
		for trial := 1; trial <= 3; trial++ {
			interrupt(trial, syscall.SIGTERM)
			if s := l.state(); s.Generation != 1 || s.Status != "Applied" || s.Offered != nil || s.Trial == nil || s.Trial.Stopped != trial {
				l.t.Fatalf("stopped in trial %d: %+v", trial, s)
			}
		}
		l.start("--settle", "0s")
		l.until("applied", func(s liveState) bool { return s.Generation == 2 && s.Status == "Applied" && s.Trial == nil })
	})
}

// TestWatchDies: a document that takes the machine or the agent down is tried twice, and refused
// with that reason. Trials that ended because the agent was asked to stop do not count.
func TestWatchDies(t *testing.T) {
	interrupted(t, func(l *live, interrupt func(int, os.Signal)) {
		former := l.kubelet()
		for trial, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
			interrupt(trial+1, signal)
		}
		l.start("--settle", "0s")
		l.until("refused", func(s liveState) bool { return s.Status == "RolledBack" })
		if s := l.state(); s.Generation != 1 || !strings.Contains(s.Error, "died 2 times") || s.Offered == nil || s.Offered.Generation != 2 || l.kubelet() != former {
			l.t.Errorf("%+v, kubelet's configuration %s", s, l.kubelet())
		}
		l.offer(3, "config: {maxPods: 30}")
		l.until("the next one", func(s liveState) bool { return s.Generation == 3 && s.Status == "Applied" })
	})
}

// TestWatchAlone: a second agent on the same disk would take the first one's trial back. It is refused,
// and the trial goes on.
func TestWatchAlone(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.offer(2, "config: {maxPods: 50}")
	l.start("--settle", "10m")
	l.onTrial(1, "maxPods: 50")
	second := exec.Command(binary, "watch", "--root", l.root, "--once", "--imds-timeout", "2s")
	second.Env = l.env
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "another kamino-agent watch") || !strings.Contains(l.kubelet(), "maxPods: 50") {
		t.Errorf("%v: %s\nkubelet's configuration %s", err, out, l.kubelet())
	}
	l.end(syscall.SIGTERM)
}

// TestWatchUnhealthy: kubelet is not healthy with the former files. A document that cures that is
// read and applied.
func TestWatchUnhealthy(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.offer(2, "config: {maxPods: 20}")
	l.start("--settle", "0s", "--deadline", "200ms")
	l.until("applied", func(s liveState) bool { return s.Generation == 2 })
	l.sickWith("maxPods")
	l.offer(3, "config: {maxPods: 99}")
	l.until("broken", func(s liveState) bool { return s.Status == "Broken" })
	l.end(syscall.SIGTERM)

	l.offer(4, "config: {maxPods: 98}")
	l.start("--settle", "0s", "--deadline", "10m")
	l.onTrial(1, "maxPods: 98")
	l.end(syscall.SIGKILL) // a trial without an end, on a machine that is not healthy either way
	l.offer(5, "config: {podPidsLimit: 10}")
	l.start("--settle", "0s", "--deadline", "10m")
	l.until("cured", func(s liveState) bool { return s.Generation == 5 && s.Status == "Applied" })
	l.end(syscall.SIGTERM)
}

// cluster is an API server with the node of the live agent.
type cluster struct {
	mu    sync.Mutex
	node  map[string]any
	ready func() bool
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path != "/api/v1/nodes/n1" || r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	if r.Method == http.MethodPatch {
		var patch struct {
			Metadata struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		for key, value := range patch.Metadata.Annotations {
			c.node[key] = value
		}
	}
	status := "False"
	if c.ready() {
		status = "True"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{}, "status": map[string]any{"conditions": []any{map[string]any{ // the agent may have ended
		"type": "Ready", "status": status, "reason": "KubeletNotReady", "message": "no network", "lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339)}}}})
}

// config is the node's annotation.
func (c *cluster) config() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _ := c.node["kamino.dev/config"].(string)
	return text
}

// TestWatchNode: with the API server the node's own condition counts, and its annotation follows.
func TestWatchNode(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	c := &cluster{node: map[string]any{}, ready: func() bool { return !strings.Contains(l.kubelet(), "maxPods: 99") }}
	s := httptest.NewTLSServer(c)
	defer s.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	writeFile(t, filepath.Join(l.root, "etc/kubernetes/kubelet.conf"), fmt.Sprintf("kind: Config\nclusters: [{name: c, cluster: {server: '%s', tls-server-name: example.com, certificate-authority-data: %s}}]\n"+
		"users: [{name: u, user: {token: secret}}]\n", s.URL, ca))
	l.start("--settle", "0s", "--deadline", "200ms", "--node", "n1")
	l.offer(2, "config: {maxPods: 20}")
	l.until("applied", func(liveState) bool { return strings.Contains(c.config(), `"generation":2,"status":"Applied"`) })
	l.offer(3, "config: {maxPods: 99}")
	l.until("rolled back", func(s liveState) bool { return s.Status == "RolledBack" })
	l.until("told", func(liveState) bool {
		text := c.config()
		return strings.Contains(text, `"generation":2,"status":"RolledBack","error":"node not healthy within 200ms: it is not Ready: KubeletNotReady: no network"`) &&
			strings.Contains(text, `"offered":{"generation":3,`)
	})
	l.platform.serve("status", "/metadata/instance/compute/userData 403\n")
	l.until("unreadable", func(liveState) bool { return strings.Contains(c.config(), `"status":"Unreadable"`) })
	l.end(syscall.SIGTERM)
}

// TestWatchFollows: the status is about the document that is offered now, not about one that was.
func TestWatchFollows(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	l.sickWith("maxPods: 99")
	l.start("--settle", "0s", "--deadline", "200ms")
	l.offer(2, "config: {maxPods: 20}")
	l.until("applied", func(s liveState) bool { return s.Generation == 2 })
	l.offer(3, "config: {maxPods: 99}")
	l.until("rolled back", func(s liveState) bool {
		return s.Status == "RolledBack" && s.Offered != nil && s.Offered.Generation == 3 && s.Generation == 2
	})
	l.offer(2, "config: {maxPods: 20}")
	l.until("in force", func(s liveState) bool {
		return s.Status == "Applied" && s.Error == "" && s.Offered == nil && s.Generation == 2
	})
	l.end(syscall.SIGTERM)
	if !strings.Contains(l.kubelet(), "maxPods: 20") {
		t.Errorf("kubelet's configuration %s", l.kubelet())
	}
}
