package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kamino.dev/kamino"
)

// askedNode is a node whose agent lists its packages three seconds after it was asked.
type askedNode struct {
	kamino.Cluster
	kamino.PackageStore

	mu   sync.Mutex
	node kamino.Node
	pod  kamino.AgentPod
	asks int
}

func (a *askedNode) Node(context.Context, string) (kamino.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

func (a *askedNode) AgentPod(context.Context, string, kamino.Task) (kamino.AgentPod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pod, nil
}

func (a *askedNode) AskPackages(_ context.Context, n kamino.Node, order kamino.SealOrder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks++
	a.pod = kamino.AgentPod{Exists: true, Name: kamino.SystemNamespace + "/kamino-packages-" + order.Run, Node: n.Name, Nonce: order.Nonce}
	time.AfterFunc(3*time.Second, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.pod.Nonce == order.Nonce {
			a.node.Annotations, a.pod.Done = told(order.Run, order.Nonce, "a 1 amd64").Annotations, true
		}
	})
	return nil
}

func (a *askedNode) ForgetPackages(_ context.Context, _ kamino.Node, order kamino.SealOrder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pod.Nonce == order.Nonce {
		a.pod, a.node.Annotations = kamino.AgentPod{}, nil
	}
	return nil
}

// TestPackagesInTurn: processes that ask one node for its packages wait for each other: none takes
// another's pod or list away. What a process left that was killed is removed.
func TestPackagesInTurn(t *testing.T) {
	for name, left := range map[string]kamino.AgentPod{"nothing left": {}, "a pod that ended": {Exists: true, Done: true, Nonce: "of the dead"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &askedNode{node: kamino.Node{Name: "n", UID: "u", Ready: true}, pod: left}
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 700 * time.Millisecond) // on the virtual clock of synctest
						n, _ := a.Node(t.Context(), "n")
						list, err := askPackages(t.Context(), (&Engine{Cluster: a}), a, n)
						if err != nil || len(list) != 1 {
							t.Errorf("process %d: %q, %v", i, list, err)
						}
					})
				}
				began := time.Now()
				all.Wait()
				if took := time.Since(began); a.pod.Exists || len(a.node.Annotations) > 0 || took > time.Minute {
					t.Errorf("after %s and %d questions: pod %+v, annotations %v", took, a.asks, a.pod, a.node.Annotations)
				}
			})
		})
	}
}

// TestPackagesOfAnother: a pod of another process that does not end is left alone, and the error
// names it.
func TestPackagesOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &askedNode{node: kamino.Node{Name: "n", UID: "u", Ready: true}, pod: kamino.AgentPod{Exists: true, Name: "kamino-system/p", Nonce: "another's"}}
		_, err := askPackages(t.Context(), (&Engine{Cluster: a}), a, a.node)
		if err == nil || kamino.Hint(err) == "" || a.asks > 0 || !a.pod.Exists {
			t.Errorf("after %d questions: %v; hint %q; pod %+v", a.asks, err, kamino.Hint(err), a.pod)
		}
	})
}

// TestComparePackages: by name and architecture, with every version of each.
func TestComparePackages(t *testing.T) {
	same, got := comparePackages([]string{"a 1 amd64", "a 1 i386", "gone 1 all", "kernel 5 x86_64", "kernel 6 x86_64", "z 1 all"},
		[]string{"a 1 amd64", "a 2 i386", "kernel 6 x86_64", "kernel 7 x86_64", "new 1 all", "z 1 all"})
	want := []PackageDrift{{"a", "i386", "1", "2"}, {"gone", "all", "1", ""}, {"kernel", "x86_64", "5,6", "6,7"}, {"new", "all", "", "1"}}
	if same != 2 || !slices.Equal(got, want) {
		t.Errorf("%d the same, %+v", same, got)
	}
}
