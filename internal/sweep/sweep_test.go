package sweep

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func collect(t *testing.T, n int, budget time.Duration, kind func(int) string) (got []int) {
	t.Helper()
	for i := range Cases(t, n, budget, kind) {
		got = append(got, i)
	}
	return got
}

func TestSampleHoldsEachKind(t *testing.T) {
	t.Setenv("SWEEP", "")
	kind := func(i int) string { return []string{"a", "b", "c"}[i%3] }
	got := collect(t, 3000, 0, kind)
	if len(got) != 3 || kind(got[0]) == kind(got[1]) || kind(got[1]) == kind(got[2]) || kind(got[0]) == kind(got[2]) {
		t.Errorf("a sample without time is %v, want one case of each of three kinds", got)
	}
	if again := collect(t, 3000, 0, kind); !slices.Equal(got, again) {
		t.Errorf("one seed draws %v and %v", got, again)
	}
	t.Setenv("SWEEP_SEED", "2")
	if other := collect(t, 3000, 0, kind); slices.Equal(got, other) {
		t.Errorf("two seeds draw %v", got)
	}
}

func TestSampleSpendsItsTime(t *testing.T) {
	t.Setenv("SWEEP", "")
	const budget = 50 * time.Millisecond
	began := spent(t)
	played := 0
	for range Cases(t, 1<<20, budget, nil) {
		played++
	}
	if took := spent(t) - began; took < budget || played < 2 {
		t.Errorf("%d cases in %s of processor time, want %s", played, took, budget)
	}
}

func TestAll(t *testing.T) {
	t.Setenv("SWEEP", "all")
	if got := collect(t, 4, 0, nil); !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("all cases are %v", got)
	}
}

func TestGoroutinesShareTheCases(t *testing.T) {
	t.Setenv("SWEEP", "all")
	cases := Cases(t, 1000, 0, nil)
	var mu sync.Mutex
	met := map[int]int{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range cases {
				mu.Lock()
				met[i]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	for i := range 1000 {
		if met[i] != 1 {
			t.Fatalf("case %d was played %d times", i, met[i])
		}
	}
}
