package sim

import (
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// scaler is a cluster-autoscaler for AWS. Its sizes of groups are up to a minute old, and it sets
// them absolutely (aws_manager.go in k8s.io/autoscaler): for pods that were evicted it sets what it
// knows and one more, and takes that one away when it was not needed for ten minutes.
type scaler struct {
	w     *world
	sizes []sizeAt
	most  int // the maximum of the group
	began int // instances that it launched
	asked bool
}

type sizeAt struct {
	at   time.Time
	size int
}

// known is the size of the group a minute ago.
func (s *scaler) known() int {
	size := s.sizes[0].size
	for _, one := range s.sizes {
		if !one.at.After(s.w.now.Add(-time.Minute)) {
			size = one.size
		}
	}
	return size
}

// CachedScaler lets cluster-autoscaler work on the pool, which has room for one instance more.
func (w *world) CachedScaler() *scaler {
	p := w.pools[poolA]
	s := &scaler{w: w, most: p.capacity + 1, sizes: []sizeAt{{w.now.Add(-time.Hour), p.capacity}}}
	p.most = s.most
	w.scaled = func() {
		if last := s.sizes[len(s.sizes)-1]; last.size != p.capacity {
			s.sizes = append(s.sizes, sizeAt{w.now, p.capacity})
		}
	}
	w.evicted = func() {
		if s.asked {
			return // one instance has room for all of them
		}
		s.asked = true
		w.after(10*time.Second, func() {
			want := min(s.known()+1, s.most)
			if s.began = want - p.capacity; s.began <= 0 {
				return
			}
			w.grow(p, want)
			w.after(12*time.Minute, func() {
				p.capacity, p.revision = p.capacity-s.began, w.next()
				w.happened("cluster-autoscaler removes what was not needed: capacity of %s is %d", p.id.Name(), p.capacity)
			})
		})
	}
	return s
}

// TestCachedScaler: an autoscaler that knows the size of before the donor went out of service
// undoes that, launches two instances for one, and leaves the donor no room to come back.
func TestCachedScaler(t *testing.T) {
	w := replacing(1)
	s := w.CachedScaler()
	was := w.pools[poolA].capacity
	p := w.update(options("a-0"))
	if p.err != nil || s.began > 1 || w.pools[poolA].capacity > was+1 {
		t.Errorf("it ended %v; launched %d, capacity %d of %d", p.err, s.began, w.pools[poolA].capacity, was)
	}
	if i := slices.IndexFunc(p.result.Steps, func(s kamino.StepTime) bool { return s.Name == kamino.StepRelease }); i < 0 || p.result.Steps[i].Seconds > 60 {
		t.Errorf("the donor was put back in service after %v", p.result.Steps)
	}
	w.advance(w.now.Add(time.Hour))
	w.sound(t)
}
