package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
)

// TestControllerTurns: of two pools that are due at once one donor is away at a time. Told to end
// while one is off, and given the time, a controller gives it back before it ends. Until then it
// says over HTTP that it lives.
func TestControllerTurns(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.pool("one", 2)
	k.pool("two", 2)
	away := k.awayAtOnce()
	health := freeAddress(t)
	p := k.start("--max-donors", "1", "--grace", "5m", "--health-address", health)
	for _, path := range []string{"/healthz", "/readyz"} {
		await(t, path+" is answered", func() string { return unanswered(t, "http://"+health+path) })
	}
	for _, name := range []string{"one", "two"} {
		k.apply(name, `{pool: `+name+`, `+quick+`}`)
	}
	for _, name := range []string{"one", "two"} {
		if got := k.awaitReason(name, v1alpha1.ReasonUpToDate); got.Status.Next == nil {
			t.Errorf("%s: %+v", name, got.Status)
		}
	}
	if most := away(); most != 1 {
		t.Errorf("%d donors were away at once", most)
	}

	three := k.pool("three", 2)
	var once sync.Once
	off := make(chan struct{})
	t.Cleanup(k.lab.Cloud.Subscribe(func(emulator.Change) {
		for n := range 2 {
			if in, ok := k.lab.Cloud.Instance(three.instance(n)); ok && in.PowerState != emulator.PowerRunning && in.PowerState != emulator.PowerStarting {
				once.Do(func() { close(off) })
			}
		}
	}))
	k.apply("three", `{pool: three, `+quick+`}`)
	select {
	case <-off:
	case <-time.After(2 * time.Minute):
		t.Fatal("no donor was switched off")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(3 * time.Minute):
		t.Fatal("told to end, the controller goes on")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("told to end, the controller exits with %d", code)
	}
	three.expectRunning(0)
	three.expectRunning(1)
	three.expectFree()
	if got := k.get("three"); got.Status.Next != nil {
		t.Errorf("the run that was ended promoted %+v", got.Status.Next)
	}
	if why := unanswered(t, "http://"+health+"/healthz"); why == "" {
		t.Error("somebody else answers for the health of the controller")
	}
}

// awayAtOnce tells how many machines of pools were off at once at most.
func (k *kept) awayAtOnce() func() int {
	var mu sync.Mutex
	most := 0
	k.Cleanup(k.lab.Cloud.Subscribe(func(emulator.Change) {
		n := 0
		for _, in := range k.lab.Cloud.Instances() {
			if in.PowerState != emulator.PowerRunning && in.PowerState != emulator.PowerStarting && !strings.HasPrefix(in.ComputerName, "kamino-") {
				n++
			}
		}
		mu.Lock()
		defer mu.Unlock()
		most = max(most, n)
	}))
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return most
	}
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// unanswered says what is wrong with the answer of a server; "" where that is 200.
func unanswered(t *testing.T, url string) string {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.Status)
	}
	return ""
}
