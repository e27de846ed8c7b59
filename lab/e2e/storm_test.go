package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/labtest"
)

// storm is a lab in which two controllers and commands keep twelve pools, and are disturbed.
type storm struct {
	*kept
	api   *proxy
	pools []*pool
	two   [2]*process
	rand  *rand.Rand

	mu        sync.Mutex // of two as well
	wrong     []string
	positions []string // runs that were struck: pool, step and by what
}

const (
	stormPools = 12
	// stormGone is how long the API server is gone: longer than a lease lasts that nobody sees, and
	// than client-go and the engine back off.
	stormGone = 10 * time.Minute
)

// TestControllerStorm: the processes of the controller get SIGKILL three times in the middle of
// twelve runs each, at calls that a seed chooses, while a command works on the same pools; then the
// API server is gone for ten minutes, and the kind is removed and comes back. No pool
// ever has two donors away, and at the end all nodes are back, and each pool has its image.
func TestControllerStorm(t *testing.T) {
	if os.Getenv("KAMINO_STORM") == "" {
		t.Skip("KAMINO_STORM is not set: it takes twenty minutes (make test-storm)")
	}
	seed, err := strconv.ParseUint(os.Getenv("KAMINO_STORM"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{kept: newKept(t), rand: rand.New(rand.NewPCG(seed, 0))}
	s.api = newProxy(t, s.lab)
	s.env = map[string]string{"KUBECONFIG": s.api.kubeconfig}
	for i := range stormPools {
		s.pools = append(s.pools, s.pool(fmt.Sprintf("p%02d", i), 2))
	}
	t.Cleanup(s.lab.Cloud.Subscribe(s.watch))
	s.again()
	s.declare()
	for i := range 3 {
		at, lost := 30+s.rand.IntN(70), i%2 == 0 // the call has no effect, or nobody hears of it
		var victims [2]*process
		struck := s.at(at, lost, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			victims = s.two
			for _, p := range victims {
				_ = p.cmd.Process.Kill()
			}
		})
		s.command(i)
		s.await(struck, "the kill")
		for _, p := range victims {
			<-p.ended
		}
		s.note(fmt.Sprintf("killed at write %d, which is lost: %t", at, lost))
		s.again()
	}
	s.await(s.at(10+s.rand.IntN(30), true, func() { s.api.cut(true) }), "the API server's end")
	s.api.close()
	s.note("the API server is gone")
	<-time.After(stormGone)
	s.api.cut(false)
	s.await(s.at(10+s.rand.IntN(15), false, func() {}), "the end of the kind")
	s.noCRD()
	s.note("the kind is removed")
	s.gone()
	s.crd()
	s.declare()
	for i := range s.pools {
		labtest.Await(t, 8*time.Minute, fmt.Sprintf("pool %d is up to date", i), func() string {
			s.again()
			p := s.get(s.pools[i].name)
			for _, c := range p.Status.Conditions {
				if c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonUpToDate {
					return ""
				}
			}
			return fmt.Sprintf("%+v", p.Status)
		})
	}
	for _, p := range s.pools {
		p.T = t
		for n := range p.computers() {
			p.expectRunning(n)
		}
		p.expectFree()
	}
	if left := s.lab.Snapshots(); len(left) > 0 {
		t.Errorf("snapshots are left: %v", left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range s.wrong {
		t.Error(what)
	}
	for _, p := range s.positions {
		t.Log(p)
	}
	t.Logf("seed %d: %d positions, %d violations", seed, len(s.positions), len(s.wrong))
	if len(s.positions) < 30 {
		t.Errorf("only %d runs were disturbed", len(s.positions))
	}
}

// again starts those of the two that have ended, or never were, as a kubelet does.
func (s *storm) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.two {
		if p != nil {
			select {
			case <-p.ended:
			default:
				continue
			}
		}
		s.two[i] = s.start("--max-donors", fmt.Sprint(stormPools), "--max-not-ready", "100")
	}
}

func (s *storm) declare() {
	for _, p := range s.pools {
		s.apply(p.name, `{pool: `+p.name+`, `+quick+`}`)
	}
}

// at has something done at the n-th write from now on, which is lost with it or not.
func (s *storm) at(n int, lost bool, do func()) chan struct{} {
	struck := make(chan struct{})
	var mu sync.Mutex
	s.api.strike(func(request string) bool {
		mu.Lock()
		defer mu.Unlock()
		if reads(request) || strings.Contains(request, "/nodeprototypes/") || strings.Contains(request, "/leases/kamino-controller") {
			return true
		}
		if n--; n == 0 {
			do()
			close(struck)
			return !lost
		}
		return true
	})
	return struck
}

func (s *storm) await(struck chan struct{}, what string) {
	s.Helper()
	labtest.Await(s, 6*time.Minute, what, func() string {
		select {
		case <-struck:
			return ""
		default:
			s.again()
			return "so many writes did not come"
		}
	})
	s.api.strike(nil)
}

// command is somebody who works on one of the pools, and is killed in the next storm or not.
func (s *storm) command(i int) {
	pool := s.pools[s.rand.IntN(len(s.pools))].name
	go func() {
		o := call{lab: s.lab, env: s.env}.run(s.T, "auto-update", "--target-vmss", pool, "--image", lab.SealImage,
			"--grace-period", "20", "--minimum-ready-time", "0", "--prove-for", "0s", "--max-not-ready", "100")
		s.Logf("command %d on pool %s ended with %d", i, pool, o.code)
	}()
}

var stepOf = regexp.MustCompile(`"step":"([a-z]+)"`)

// note counts the runs that a disturbance has struck, and says where they were.
func (s *storm) note(what string) {
	s.Helper()
	leases, err := s.lab.Client.CoordinationV1().Leases(kamino.SystemNamespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kamino"})
	if err != nil {
		s.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" {
			continue
		}
		step := "lock"
		for _, a := range l.Annotations {
			if m := stepOf.FindStringSubmatch(a); m != nil {
				step = m[1]
				break
			}
		}
		s.positions = append(s.positions, fmt.Sprintf("%s at step %s: %s", l.Name, step, what))
	}
}

// gone waits until the API server has no more prototypes.
func (s *storm) gone() {
	labtest.Await(s, time.Minute, "the kind is gone", func() string {
		if _, err := s.protos.List(s.Context(), metav1.ListOptions{}); err == nil {
			return "prototypes are still served"
		}
		return ""
	})
}

// watch looks at each change of the cloud: no pool has two nodes off.
func (s *storm) watch(emulator.Change) {
	off := map[string][]string{}
	for _, in := range s.lab.Cloud.Instances() {
		if in.PowerState != emulator.PowerRunning && in.PowerState != emulator.PowerStarting && !strings.HasPrefix(in.ComputerName, "kamino-") {
			off[in.PoolID] = append(off[in.PoolID], in.ComputerName)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nodes := range off {
		if len(nodes) > 1 {
			s.wrong = append(s.wrong, fmt.Sprintf("away at once: %v", nodes))
		}
	}
}
