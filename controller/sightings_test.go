package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSightings: a lease is seen since its last write, whatever else is told of it.
func TestSightings(t *testing.T) {
	began := time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)
	now := began
	s := newSightings(func() time.Time { return now })
	lease := func(revision string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: revision, Annotations: map[string]string{"kamino.dev/pool": "/p"}}}
	}
	if !s.since("/p", "1").IsZero() {
		t.Error("seen before it was there")
	}
	s.OnAdd(lease("1"), true)
	now = began.Add(time.Minute)
	s.OnUpdate(lease("1"), lease("1")) // the list was read again
	if got := s.since("/p", "1"); !got.Equal(began) {
		t.Errorf("seen since %s, want %s", got, began)
	}
	s.OnUpdate(lease("1"), lease("2"))
	if got := s.since("/p", "2"); !got.Equal(now) || !s.since("/p", "1").IsZero() {
		t.Errorf("written at %s, seen since %s", now, got)
	}
	if !s.since("/other", "2").IsZero() {
		t.Error("another pool's lease is taken for it")
	}
	s.OnDelete(lease("2"))
	if !s.since("/p", "2").IsZero() {
		t.Error("it is gone, and seen")
	}
}
