// Package sweep bounds tests that have very many cases. A sweep plays a sample of its cases: first
// one case of each kind, then what SWEEP_SEED draws (1 if unset), until it has spent its processor
// time. With SWEEP=all it plays every case, in their order; make test-all sets that.
package sweep

import (
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// All reports whether sweeps play every case.
func All() bool { return os.Getenv("SWEEP") == "all" }

// Cases yields the indexes of the cases to play, out of n. A sample holds the first case of each
// kind (nil: all cases are of one kind) whatever they cost, and then spends the given processor
// time of this process and its children. The sequence may be read by several goroutines at once;
// how much was played is logged when the test ends.
func Cases(t testing.TB, n int, budget time.Duration, kind func(int) string) iter.Seq[int] {
	t.Helper()
	order, required := draw(t, n, kind)
	if All() {
		required = n
	}
	var mu sync.Mutex
	played, began := 0, spent(t)
	t.Cleanup(func() {
		t.Logf("sweep: %d of %d cases in %s of processor time", played, n, (spent(t) - began).Round(time.Second))
	})
	return func(yield func(int) bool) {
		for {
			mu.Lock()
			if played == n || played >= required && spent(t)-began >= budget {
				mu.Unlock()
				return
			}
			at := order[played]
			played++
			mu.Unlock()
			if !yield(at) {
				return
			}
		}
	}
}

// draw returns the order of the cases and how many of them are the first of their kind.
func draw(t testing.TB, n int, kind func(int) string) (order []int, kinds int) {
	t.Helper()
	if All() {
		for i := range n {
			order = append(order, i)
		}
		return order, n
	}
	seed := uint64(1)
	if text := os.Getenv("SWEEP_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SWEEP_SEED is %q, not a number", text)
		}
	}
	var rest []int
	met := map[string]bool{}
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(n) {
		of := ""
		if kind != nil {
			of = kind(i)
		}
		if met[of] {
			rest = append(rest, i)
			continue
		}
		met[of] = true
		order = append(order, i)
	}
	return append(order, rest...), len(order)
}

// spent is the processor time of this process and of its children that have ended.
func spent(t testing.TB) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			t.Fatalf("read the processor time of this process: %v", err)
		}
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum
}
