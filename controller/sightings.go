package controller

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// sightings records since when this process has seen each pool's lease at its revision. A standby
// process records it too, so that once it leads, it need not watch for another minute
// (engine.Engine.Sighted).
type sightings struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[kamino.PoolID]sighting
}

type sighting struct {
	revision string
	since    time.Time
}

func newSightings(now func() time.Time) *sightings {
	return &sightings{now: now, of: map[kamino.PoolID]sighting{}}
}

// since implements engine.Engine.Sighted.
func (s *sightings) since(pool kamino.PoolID, revision string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.of[pool]; last.revision == revision {
		return last.since
	}
	return time.Time{}
}

// OnAdd, OnUpdate and OnDelete implement client-go's ResourceEventHandler. A repeated list shows an
// unchanged lease with its former revision.
func (s *sightings) OnAdd(object any, _ bool) { s.saw(object) }

// OnUpdate is as OnAdd.
func (s *sightings) OnUpdate(_, object any) { s.saw(object) }

// OnDelete forgets a lease.
func (s *sightings) OnDelete(object any) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok { // otherwise a new lease has another revision
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.of, kube.PoolOfLease(m.Annotations))
	}
}

func (s *sightings) saw(object any) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pool := kube.PoolOfLease(m.Annotations); s.of[pool].revision != m.ResourceVersion {
		s.of[pool] = sighting{m.ResourceVersion, s.now()}
	}
}
