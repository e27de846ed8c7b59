package engine

import (
	"context"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

var proofNoon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// owing is a cluster whose new nodes wait for the image of their network plugin.
type owing struct {
	kamino.Cluster
	kamino.Examiner
}

func (owing) Examine(context.Context, kamino.ExamineOrder) (kamino.ClusterObservation, error) {
	return kamino.ClusterObservation{Renewed: proofNoon, Node: kamino.NodeObservation{Node: kamino.Node{Name: "a-9", UID: "u"}, NotReady: "cni plugin not initialized"},
		Daemons: []kamino.DaemonPod{{Set: "kube-system/aws-node", Owed: true, Asked: true, Reason: "ImagePullBackOff"}}}, nil
}

// TestBlamesRegistry: new nodes are not Ready as the registry of the network plugin's image is
// away.
func TestBlamesRegistry(t *testing.T) {
	e := &Engine{Cluster: owing{}}
	if p := (&watched{born: poolstate.NewNodes{"i-9": {Late: true, Instance: kamino.Instance{ID: "i-9", Hostname: "a-9"}}}}); blames(t.Context(), e, p, poolstate.State{}) {
		t.Error("the image is blamed for it")
	}
}
