package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

var selectNow = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// turnWorld is what turns look at: nodes, and a clock that is moved by sleeping.
type turnWorld struct {
	kamino.WallClock
	kamino.Cluster
	nodes []kamino.Node
	now   time.Time
	// before is called at each look with its number, from 1.
	before func(look int)
	looks  int
	err    error
}

func (w *turnWorld) Nodes(context.Context) ([]kamino.Node, error) {
	w.looks++
	if w.before != nil {
		w.before(w.looks)
	}
	return w.nodes, w.err
}

func (w *turnWorld) Now() time.Time { return w.now }

func (w *turnWorld) Sleep(ctx context.Context, d time.Duration) error {
	w.now = w.now.Add(d)
	return ctx.Err()
}

func (w *turnWorld) turns(most, notReady int) *donorLimit {
	w.now = selectNow
	return &donorLimit{most: most, maxNotReady: notReady, away: map[kamino.PoolID]bool{}}
}

func (w *turnWorld) engine() *Engine { return &Engine{Cluster: w, Provider: oneEach{}, Clock: w} }

// oneEach is a provider whose pools have one instance each, of the same ID.
type oneEach struct{ kamino.Provider }

func (oneEach) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	return kamino.PoolID(id), nil
}

func donorOf(pool string) kamino.Node {
	return kamino.Node{Name: "donor-" + pool, ProviderID: kamino.InstanceID(pool), Annotations: map[string]string{
		kamino.AnnotationRun: fmt.Sprintf(`{"run":"r","pool":%q,"instance":%q}`, pool, pool)}}
}

// A donor is taken only while few enough others are away, whosever they are.
func TestTurns(t *testing.T) {
	silent := func(n int) (out []kamino.Node) {
		for i := range n {
			out = append(out, kamino.Node{Name: fmt.Sprint("silent-", i), ProviderID: "x"})
		}
		return out
	}
	tests := []struct {
		name     string
		nodes    []kamino.Node
		most     int
		notReady int
		away     []kamino.PoolID // donors of this process
		want     string          // in the error; "" is a turn
	}{
		{name: "nobody is away", most: 1},
		{name: "a donor of another process", most: 1, nodes: []kamino.Node{donorOf("b")}, want: "donor-b"},
		{name: "one of two", most: 2, nodes: []kamino.Node{donorOf("b")}},
		{name: "two of two", most: 2, nodes: []kamino.Node{donorOf("b"), donorOf("c")}, want: "donor-b, donor-c"},
		{name: "any number", most: 0, nodes: []kamino.Node{donorOf("b"), donorOf("c")}},
		{name: "the pool's own donor, left by an ended run", most: 1, nodes: []kamino.Node{donorOf("a")}},
		{name: "this process and another", most: 2, nodes: []kamino.Node{donorOf("b"), donorOf("c")}, away: []kamino.PoolID{"c"}, want: "donor-b"},
		{name: "too many NotReady", most: 1, notReady: 2, nodes: silent(3), want: "3 nodes to be Ready, at most 2 may be NotReady: silent-0, silent-1, silent-2"},
		{name: "as many NotReady as may be", most: 1, notReady: 3, nodes: silent(3)},
		{name: "NotReady counts with any number too", most: 0, notReady: 0, nodes: silent(1), want: "silent-0"},
		{name: "a donor that is off is not NotReady", most: 2, notReady: 0, nodes: []kamino.Node{donorOf("b")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := &turnWorld{nodes: test.nodes}
			turns := w.turns(test.most, test.notReady)
			for _, p := range test.away {
				turns.enter(p)
			}
			err := turns.wait(t.Context(), w.engine(), poolstate.State{ID: "a"})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
			if err != nil && (kamino.Hint(err) == "" || w.now.Sub(selectNow) < turnLimit) {
				t.Errorf("gave up after %s with hint %q", w.now.Sub(selectNow), kamino.Hint(err))
			}
			if turns.isAway("a") != (err == nil) {
				t.Errorf("the pool is counted as away: %t, error %v", turns.isAway("a"), err)
			}
		})
	}
}

// The wait ends as soon as the obstacle is gone, and outlasts an API server that
// does not answer for a while.
func TestTurnsWait(t *testing.T) {
	w := &turnWorld{nodes: []kamino.Node{donorOf("b")}}
	w.before = func(look int) {
		w.err = nil
		switch look {
		case 3:
			w.err = fmt.Errorf("list nodes: %w", kamino.ErrUnavailable)
		case 5:
			w.nodes = nil
		}
	}
	if err := w.turns(1, 0).wait(t.Context(), w.engine(), poolstate.State{ID: "a"}); err != nil || w.looks != 5 {
		t.Errorf("%d looks, %v", w.looks, err)
	}
	w = &turnWorld{err: fmt.Errorf("list nodes: %w", kamino.ErrForbidden)}
	if err := w.turns(1, 0).wait(t.Context(), w.engine(), poolstate.State{ID: "a"}); !errors.Is(err, kamino.ErrForbidden) || w.looks != 1 {
		t.Errorf("%d looks, %v", w.looks, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w = &turnWorld{nodes: []kamino.Node{donorOf("b")}, before: func(look int) { cancel() }}
	if err := w.turns(1, 0).wait(ctx, w.engine(), poolstate.State{ID: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// Which failures make room for the next candidate.
func TestNextMayDo(t *testing.T) {
	step := func(name string, err error) error { return &kamino.StepError{Step: name, Err: err} }
	refused := &kamino.RefusedError{Subject: "node n"}
	tests := []struct {
		err  error
		want bool
	}{
		{step("validate", refused), true},
		{step("validate", fmt.Errorf("node: %w", kamino.ErrNotFound)), true},
		{step("validate", kamino.ErrForbidden), false},
		{step("rehearse", errors.New("cannot be drained")), true},
		{step("rehearse", kamino.ErrForbidden), false},
		{step("protect", errors.New("cluster-autoscaler is deleting node n")), true},
		{step("drain", errors.New("cannot be drained")), true},
		{step("drain", kamino.ErrLeaseLost), false},
		{step("drain", kamino.ErrForbidden), false},
		{step("seal", errors.New("failed")), false},
		{step("image", errors.New("failed")), false},
		{errors.Join(step("drain", errors.New("x"))), true},
		{errors.Join(step("drain", errors.New("x")), errors.New("the donor is not back")), false},
		{errors.New("x"), false},
	}
	for _, test := range tests {
		if got := nextMayDo(test.err); got != test.want {
			t.Errorf("nextMayDo(%v) = %t", test.err, got)
		}
	}
}
