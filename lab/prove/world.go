package prove

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/kube"
	"kamino.dev/kamino/lab"
)

// world is one pool of the lab, for one image.
type world struct {
	lab            *lab.Lab
	kind           kind
	pool           string        // name
	id             kamino.PoolID // of the pool
	donor, sibling string        // names of its nodes
	engine         *engine.Engine

	mu     sync.Mutex
	run    string // the present run's ID
	tuning bool   // ordinary runs come first
	former string // the version that new nodes boot from before the proof; "": the generic image
}

const (
	members = 2 // nodes of a pool before anything happens
	growth  = 5 // by which it grows during a proof
)

// begin makes a pool and waits for its nodes.
func begin(ctx context.Context, l *lab.Lab, k kind, name string) (*world, error) {
	pool := k.pool
	pool.Name, pool.Count = name, members
	scenario := l.Scenario
	scenario.Pools = []emulator.Pool{pool}
	l.Cloud.Seed(scenario)
	w := &world{lab: l, kind: k, pool: name, id: kamino.PoolID(strings.ToLower(scenario.PoolID(name))), donor: name + "000000", sibling: name + "000001"}
	var err error
	if w.engine, err = w.newEngine(); err != nil {
		return nil, err
	}
	return w, until(ctx, "the nodes of pool "+name, func() bool { return w.ready(w.donor) && w.ready(w.sibling) })
}

// newEngine is the product inside this process.
func (w *world) newEngine() (*engine.Engine, error) {
	pem, err := os.ReadFile(filepath.Join(w.lab.Dir, "ca.pem"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	environment := w.lab.Environment()
	provider, err := azure.New(azure.Config{Subscription: w.lab.Scenario.Subscription, ResourceGroup: w.lab.Scenario.ResourceGroup,
		Transport: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
		Getenv:    func(name string) string { return environment[name] }})
	if err != nil {
		return nil, err
	}
	cluster, err := kube.New(w.lab.RESTConfig(), kube.Options{SealImage: lab.SealImage})
	if err != nil {
		return nil, err
	}
	runs := 0
	return &engine.Engine{Provider: provider, Cluster: cluster, Process: "prove/" + w.pool, MinPoll: 200 * time.Millisecond, MaxPoll: time.Second,
		NewID: func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			runs++
			w.run = fmt.Sprintf("run-%s-%d", w.pool, runs)
			return w.run
		}}, nil
}

func (w *world) node(name string) corev1.Node {
	n, err := w.lab.Client.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{}) // a machine of the lab asks, which no context ends
	if err != nil {
		return corev1.Node{}
	}
	return *n
}

func (w *world) ready(name string) bool {
	n := w.node(name)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return len(n.Spec.Taints) == 0
		}
	}
	return false
}

// canary is the name that the canary of the present run has or will have.
func (w *world) canary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return kamino.CanaryName(w.id, w.run)
}

func (w *world) tunes(so bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tuning, w.run = so, ""
}

func (w *world) ordinary() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tuning || w.kind.behave == nil
}

func (w *world) address(set string) string { return w.lab.Scenario.PoolID(set) }

// tag is one of the newest version of the pool.
func (w *world) tag(name string) string {
	versions, err := w.versions(context.Background()) // a machine of the lab asks, which no context ends
	if err != nil || len(versions) == 0 {
		return ""
	}
	return versions[0].Tags[name]
}

// send is what somebody else does at the cloud.
func (w *world) send(method, id, body string) error {
	r := httptest.NewRequest(method, "https://localhost"+id+"?api-version=2024-07-01", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+w.lab.Cloud.Token())
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.lab.Cloud.ServeHTTP(answer, r)
	if answer.Code >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d %s", method, id, answer.Code, answer.Body)
	}
	return nil
}

// grow scales the pool out by one after the other, as an autoscaler does, once the proof is under
// way, and says whether all that came to be is of the former image. Where a check is switched off
// the promotion may come before the last: then that holds for those that were there before it.
func (w *world) grow(ctx context.Context, t trial, proving func() bool) error {
	if err := until(ctx, "a proof of pool "+w.pool, proving); err != nil {
		return err
	}
	beside := 0
	for n := 1; n <= growth; n++ {
		body := fmt.Sprintf(`{"sku":{"name":"Standard_D2s_v3","capacity":%d}}`, members+n)
		if err := until(ctx, "the pool to grow", func() bool { return w.send(http.MethodPatch, w.address(w.pool), body) == nil }); err != nil {
			return err
		}
		if versions, err := w.versions(ctx); err == nil && !slices.ContainsFunc(versions, func(v kamino.Artifact) bool { return v.InModel && v.Name != w.former }) {
			beside = n
		}
		if err := (kamino.WallClock{}).Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	if err := until(ctx, "five more instances", func() bool {
		return len(w.members(func(i emulator.Instance) bool { return i.State == "Succeeded" })) == members+growth
	}); err != nil {
		return err
	}
	first := func(i emulator.Instance) bool { return i.InstanceID == "0" || i.InstanceID == "1" }
	of := w.members(func(i emulator.Instance) bool { return !first(i) && path.Base(i.ImageID) == path.Base(w.former) })
	if beside == 0 || t.without == "" && beside < growth || len(of) < beside {
		return fmt.Errorf("during the proof the pool grew by %d, and %d are of the former image %q; want %d", beside, len(of), w.former, growth)
	}
	return nil
}

// members are the pool's instances for which something holds.
func (w *world) members(is func(emulator.Instance) bool) []emulator.Instance {
	return slices.DeleteFunc(w.lab.Cloud.Instances(), func(i emulator.Instance) bool { return i.Pool != w.pool || !is(i) })
}

// end removes the pool.
func (w *world) end(ctx context.Context) error {
	return until(ctx, "the end of pool "+w.pool, func() bool {
		return w.lab.Cloud.Document(w.address(w.pool)) == nil || w.send(http.MethodDelete, w.address(w.pool), "") == nil
	})
}

// until waits for a condition of the lab.
func until(ctx context.Context, what string, holds func() bool) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited in vain for %s", what), ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}
