package azure

import (
	"testing"

	"kamino.dev/kamino"
)

func TestReplicas(t *testing.T) {
	for capacity, want := range map[int]int32{0: 3, 1: 3, 150: 3, 151: 4, 1000: 20, 9000: 100} {
		if got := replicasOf(kamino.Pool{Capacity: capacity}); got != want {
			t.Errorf("a pool of %d has %d replicas, want %d", capacity, got, want)
		}
	}
}
