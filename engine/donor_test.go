package engine

import (
	"context"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// oneNode is a cluster of which only a node can be read.
type oneNode struct {
	kamino.Cluster
	node   kamino.Node
	looked int // how often it was read
}

func (c *oneNode) Node(context.Context, string) (kamino.Node, error) {
	c.looked++
	return c.node, nil
}

// stoppedClock stands still until it is set.
type stoppedClock struct {
	kamino.WallClock
	now time.Time
}

func (c *stoppedClock) Now() time.Time { return c.now }

// TestDonorView: what was read is read again when it is old, and the donor is lost with its machine
// or its mark.
func TestDonorView(t *testing.T) {
	const vm, other = "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10", "00000000-2f3a-4a7b-9a55-0c2b7e8d9f10"
	marked := func(run string) map[string]string {
		return map[string]string{kamino.AnnotationRun: `{"run":"` + run + `"}`}
	}
	for name, tt := range map[string]struct {
		node kamino.Node
		lost bool
	}{
		"unmarked":            {node: kamino.Node{SystemUUID: vm}},
		"marked by the run":   {node: kamino.Node{SystemUUID: vm, Annotations: marked("r")}},
		"another machine":     {node: kamino.Node{SystemUUID: other}, lost: true},
		"marked by another":   {node: kamino.Node{SystemUUID: vm, Annotations: marked("x")}, lost: true},
		"no mark of kamino's": {node: kamino.Node{SystemUUID: vm, Annotations: map[string]string{kamino.AnnotationRun: "?"}}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, clock := &oneNode{node: tt.node}, &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
			v := donor{common: &common{engine: &Engine{Cluster: cluster, Clock: clock}}, instance: kamino.Instance{VMID: vm}}
			if _, _, err := v.readNode(t.Context(), "r"); (err != nil) != tt.lost {
				t.Fatal(err)
			}
			if tt.lost {
				return
			}
			for age, reads := range map[time.Duration]int{0: 0, kamino.LookAge: 1} {
				clock.now, cluster.looked = v.readAt.Add(age), 0
				if _, _, err := v.recentNode(t.Context(), "r"); err != nil || cluster.looked != reads {
					t.Errorf("after %s it was read %d times, want %d: %v", age, cluster.looked, reads, err)
				}
			}
		})
	}
}
