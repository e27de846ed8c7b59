package kamino

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Drains evict pods. Part of [Cluster].
type Drains interface {
	// Preview lists the pods that a drain would evict, each with the budgets that would not allow
	// it now. Beside the list it may return a *RefusedError with CodeLocalVolume, which names the
	// local volumes that a stop of the machine would destroy.
	Preview(context.Context, Node, DrainOptions) ([]Pod, error)
	// Rehearse tries, without effect, what drain and seal of a node need: the eviction of each pod,
	// and the creation of the seal pod for this order. It returns the pods that will never leave by
	// themselves, as Stuck, and the pods that may not leave in time. The error is a missing right,
	// a reason why the seal pod would fail or, for an order that seals, a *RefusedError with
	// CodeLocalVolume.
	Rehearse(context.Context, Node, SealOrder, DrainOptions) ([]Pod, error)
	// RehearseSeal tries, without effect, to create the seal pod of a run. A *RefusedError with
	// CodeSealPod: no node would get one. ErrForbidden: these credentials may not ask. ErrNotFound:
	// the cluster is not prepared.
	RehearseSeal(context.Context, Node, SealOrder) error
	// Evict makes one round of a drain: it requests the eviction of every evictable pod and returns
	// the pods that are still on the node.
	Evict(context.Context, Node, DrainOptions) ([]Pod, error)
}

// DrainOptions define how hard a drain may push.
type DrainOptions struct {
	// Grace is the minimum termination grace period of each pod; a pod's own longer period counts.
	// Negative: each pod's own period.
	Grace time.Duration
	// Within is the time limit of the whole drain, which no Grace may exceed; 0: no limit.
	Within time.Duration
	// Force deletes pods that no controller would recreate and, when the drain's time is over, pods
	// that a budget still protects.
	Force bool
	// Overdue: the time for evictions is over.
	Overdue bool
}

// Pod is a pod that a drain has to remove.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID is the pod's own, and Controller that of what made it; "" if nothing did.
	UID        string `json:"-"`
	Controller string `json:"-"`
	// Reason is why the pod is still there: the budget that protects it, that it is terminating, or
	// that only --force removes it.
	Reason string `json:"reason,omitempty"`
	// Stuck: waiting will not remove the pod; only --force may.
	Stuck bool `json:"stuck,omitempty"`
	// Returns: the pod's successor may come to the node again, because the pod tolerates TaintBlock or
	// its controller names the node. Such a pod is never evicted, even with --force. It is also Stuck, unless it ends by
	// itself, as a Job's pod does.
	Returns bool `json:"returns,omitempty"`
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// DescribePods names at most three pods, with what keeps each on the node, and counts the others.
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
