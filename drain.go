package kamino

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Drains evict pods. Part of [Cluster].
type Drains interface {
	// Preview lists the pods that a drain would evict, each with the budgets
	// that would not allow it now. A *RefusedError beside them, with CodeLocalVolume, names
	// the local volumes that a stop of the machine would destroy.
	Preview(context.Context, Node, DrainOptions) ([]Pod, error)
	// Rehearse tries, without effect, what drain and seal of a node need: an
	// eviction of each pod that must leave, and the creation of the seal pod for
	// this order. It returns the pods that no waiting would remove, as Stuck, and those
	// of which it is in doubt whether they will leave in time. An error is what would
	// stop the seal pod, a right that is missing, or, of an order that seals, a
	// *RefusedError with CodeLocalVolume.
	Rehearse(context.Context, Node, SealOrder, DrainOptions) ([]Pod, error)
	// RehearseSeal tries, without effect, to create the seal pod of a run. A
	// *RefusedError with CodeSealPod: no node would get one. ErrForbidden: these
	// credentials may not ask; ErrNotFound: the cluster is not prepared.
	RehearseSeal(context.Context, Node, SealOrder) error
	// Evict makes one round of a drain: it asks for the eviction of every pod
	// that must leave and returns those that are still there.
	Evict(context.Context, Node, DrainOptions) ([]Pod, error)
}

// DrainOptions say how hard a drain may push.
type DrainOptions struct {
	// Grace is what each pod gets at least to end; one that asks for more gets more.
	// Negative means that every pod gets what it asks for.
	Grace time.Duration
	// Within is the time of the whole drain, which no Grace may exceed; 0 means no
	// limit.
	Within time.Duration
	// Force deletes pods that no controller would bring back, and after the
	// drain's time is over deletes what the budgets still hold.
	Force bool
	// Overdue says that the time for evictions is over.
	Overdue bool
}

// Pod is a pod in the way of a drain.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason says why it is still there: the budget that holds it, that it is
	// ending, or that only force would remove it.
	Reason string `json:"reason,omitempty"`
	// Stuck says that no waiting would remove it: only force would, if at all.
	Stuck bool `json:"stuck,omitempty"`
	// Returns says that not even force would remove it for long: it tolerates TaintBlock, so that
	// its controller's next pod may come to the node again. Such a pod is never evicted. It is Stuck,
	// unless it ends by itself, as a Job's does.
	Returns bool `json:"returns,omitempty"`
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// DescribePods names at most three pods, with what keeps each, and counts the others.
func DescribePods(pods []Pod) string {
	const most = 3
	words := make([]string, 0, most)
	for _, p := range pods[:min(len(pods), most)] {
		word := p.String()
		if p.Reason != "" {
			word += " (" + p.Reason + ")"
		}
		words = append(words, word)
	}
	text := fmt.Sprintf("%d pods to leave: %s", len(pods), strings.Join(words, ", "))
	if len(pods) == 1 {
		text = "1 pod to leave: " + words[0]
	}
	if len(pods) > most {
		text += ", …"
	}
	return text
}
