package demo

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Witness watches a workload's pods and counts how often fewer were available
// than its budget asks for. It sees every event of the watch, one at a time; it
// does not poll.
type Witness struct {
	minAvailable int
	end          context.CancelFunc
	work         sync.WaitGroup

	mu        sync.Mutex
	available map[types.UID]bool
	count     int
	account   Account
}

// Account is what a witness saw.
type Account struct {
	Events     int `json:"events"`     // changes of pods
	Violations int `json:"violations"` // times the number fell below the budget
	Lowest     int `json:"lowest"`     // fewest available at any time
}

// Watch starts a witness of a workload that has been started. ctx bounds the
// start only; Stop ends the witness.
func (w Workload) Watch(ctx context.Context, client kubernetes.Interface) (*Witness, error) {
	w = w.withDefaults()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	witness := &Witness{minAvailable: w.MinAvailable, end: end, available: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(w.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = metav1.FormatLabelSelector(w.selector())
		}))
	pods := factory.Core().V1().Pods().Informer()
	handler, err := pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { witness.see(object, false, initial) },
		UpdateFunc: func(_, object any) { witness.see(object, false, false) },
		DeleteFunc: func(object any) { witness.see(object, true, false) },
	})
	if err != nil {
		end()
		return nil, fmt.Errorf("watch workload %s: %w", w.Name, err)
	}
	witness.work.Go(func() { pods.RunWithContext(living) })
	if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		witness.Stop()
		return nil, fmt.Errorf("watch workload %s: %w", w.Name, ctx.Err())
	}
	witness.mu.Lock()
	defer witness.mu.Unlock()
	witness.account.Lowest = witness.count
	return witness, nil
}

// Account is what the witness has seen so far.
func (w *Witness) Account() Account {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.account
}

// Stop ends the witness and returns what it saw. It can be called again.
func (w *Witness) Stop() Account {
	w.end()
	w.work.Wait()
	return w.Account()
}

// see counts as the disruption controller does: a pod is available when it is
// Ready and not on its way out
// (https://kubernetes.io/docs/concepts/workloads/pods/disruptions/).
func (w *Witness) see(object any, gone, initial bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := !gone && pod.DeletionTimestamp == nil && podIsReady(pod); now != w.available[pod.UID] {
		if now {
			w.available[pod.UID] = true
			w.count++
		} else {
			delete(w.available, pod.UID)
			w.count--
			if w.count == w.minAvailable-1 {
				w.account.Violations++
			}
		}
	}
	if initial {
		return // the first list comes pod by pod
	}
	w.account.Events++
	w.account.Lowest = min(w.account.Lowest, w.count)
}

func podIsReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
