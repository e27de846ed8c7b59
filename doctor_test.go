package kamino

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// askedNode is a node whose agent lists its packages three seconds after it was asked.
type askedNode struct {
	Cluster
	Shelf

	mu   sync.Mutex
	node Node
	pod  AgentPod
	asks int
}

func (a *askedNode) Node(context.Context, string) (Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

func (a *askedNode) AgentPod(context.Context, string, Task) (AgentPod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pod, nil
}

func (a *askedNode) AskPackages(_ context.Context, n Node, order SealOrder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asks++
	a.pod = AgentPod{Exists: true, Name: SystemNamespace + "/kamino-packages-" + order.Run, Node: n.Name, Nonce: order.Nonce}
	time.AfterFunc(3*time.Second, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.pod.Nonce == order.Nonce {
			a.node.Annotations, a.pod.Done = told(order.Run, order.Nonce, "a 1 amd64").Annotations, true
		}
	})
	return nil
}

func (a *askedNode) ForgetPackages(_ context.Context, _ Node, order SealOrder) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pod.Nonce == order.Nonce {
		a.pod, a.node.Annotations = AgentPod{}, nil
	}
	return nil
}

// TestPackagesInTurn: processes that ask one node for its packages wait for each other: none takes
// another's pod or list away. What a process left that was killed is removed.
func TestPackagesInTurn(t *testing.T) {
	for name, left := range map[string]AgentPod{"nothing left": {}, "a pod that ended": {Exists: true, Done: true, Nonce: "of the dead"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &askedNode{node: Node{Name: "n", UID: "u", Ready: true}, pod: left}
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 700 * time.Millisecond) // on the virtual clock of synctest
						n, _ := a.Node(t.Context(), "n")
						list, err := (&Engine{Cluster: a}).askPackages(t.Context(), a, n)
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
		a := &askedNode{node: Node{Name: "n", UID: "u", Ready: true}, pod: AgentPod{Exists: true, Name: "kamino-system/p", Nonce: "another's"}}
		_, err := (&Engine{Cluster: a}).askPackages(t.Context(), a, a.node)
		if err == nil || Hint(err) == "" || a.asks > 0 || !a.pod.Exists {
			t.Errorf("after %d questions: %v; hint %q; pod %+v", a.asks, err, Hint(err), a.pod)
		}
	})
}
