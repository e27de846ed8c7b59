package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

const (
	// evictTime bounds a round, so that many pods and a slow API server do not
	// keep the engine from renewing its lease.
	evictTime = 20 * time.Second
	// forceGrace is what a pod gets to end once force is used.
	forceGrace = time.Second
	// forceAfter is how long after that its object is removed although the
	// kubelet has not said that it ended.
	forceAfter = 10 * time.Second
)

// Evict makes one round of a drain: one list of the node's pods, one eviction
// (policy/v1) for each that must leave, none of them waited for. The pods are
// chosen as kubectl drain --ignore-daemonsets --delete-emptydir-data does; the
// seal pod stays. Only the pods seen on the node are evicted or deleted, never others
// that have taken their names on another node. Evict returns every pod of the list, whatever the
// answers to their evictions were: only a list without pods shows that they are gone.
func (c *Cluster) Evict(ctx context.Context, node kamino.Node, opts kamino.DrainOptions) ([]kamino.Pod, error) {
	all, err := c.podsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	pods := c.toLeave(all, node)
	round := drainRound{Cluster: c, push: opts, began: c.opts.Clock.Now()}
	var left []kamino.Pod
	for i := range pods {
		hold, reason, err := round.remove(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		left = append(left, hold.of(&pods[i], reason))
	}
	return left, nil
}

// podsOn lists the pods of a node.
func (c *Cluster) podsOn(ctx context.Context, node kamino.Node) (out []corev1.Pod, err error) {
	opts := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name}
	err = pages(ctx, c.api.pods(metav1.NamespaceAll), opts, "list pods --all-namespaces", func() { out = nil }, func(list *corev1.PodList) {
		out = append(out, list.Items...)
	})
	return out, err
}

// toLeave are those of a node's pods that a drain removes, those without a controller among them.
func (c *Cluster) toLeave(all []corev1.Pod, node kamino.Node) []corev1.Pod {
	run := ""
	if mark, err := node.Mark(); err == nil && mark != nil { // else no run has it
		run = mark.Run
	}
	pods := slices.DeleteFunc(slices.Clone(all), func(p corev1.Pod) bool { return !leaves(&p) || isAgent(&p, run) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return pods
}

// leaves tells whether a drain removes a pod, as kubectl drain --ignore-daemonsets
// --delete-emptydir-data --force decides (k8s.io/kubectl/pkg/drain, filters.go): not what
// the kubelet runs from a file, nor a DaemonSet's pod unless it has ended. Kubectl also asks
// whether that DaemonSet still exists, a request each; pods of one that is gone are removed
// by the garbage collector anyway.
func leaves(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner == nil || owner.Kind != "DaemonSet" || owner.APIVersion != "apps/v1" || finished(pod)
}

// isAgent reports whether a pod is an agent pod. A drain keeps them, and the end of the run removes
// them. The patch pod of another run blocks the drain, because a seal would stop its upgrade.
func isAgent(pod *corev1.Pod, run string) bool {
	for task, name := range agentNames {
		if pod.Labels[labelName] != name {
			continue
		}
		patches := task == kamino.TaskPatch || task == kamino.TaskReboot || task == kamino.TaskLook
		return pod.Namespace == kamino.SystemNamespace && (!patches || pod.Labels[labelRun] == run)
	}
	return false
}

// drainRound is one call of Evict.
type drainRound struct {
	*Cluster
	push  kamino.DrainOptions
	began time.Time
	dry   []string // metav1.DryRunAll, or nothing
}

// hold is what keeps a pod on its node.
type hold int

const (
	leaving   hold = iota // nothing but time
	blocked               // a budget
	doubtful              // a webhook or another policy, which may change its mind
	working               // nothing but its own end: evicted, it would come back
	stuck                 // only force would remove it
	returning             // nothing would for long: it would come back
)

// of is a pod with what keeps it.
func (h hold) of(pod *corev1.Pod, reason string) kamino.Pod {
	var controller types.UID
	if owner := metav1.GetControllerOf(pod); owner != nil {
		controller = owner.UID
	}
	return kamino.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Controller: string(controller), Reason: reason,
		Stuck: h >= stuck, Returns: h == returning || h == working}
}

// remove asks for the end of a pod and tells what keeps it.
func (r *drainRound) remove(ctx context.Context, pod *corev1.Pod) (hold, string, error) {
	force := r.push.Force && r.push.Overdue
	switch {
	case !force && pod.DeletionTimestamp != nil:
		how, reason := ending(pod, r.push, r.opts.Clock.Now())
		return how, reason, nil
	case pod.DeletionTimestamp == nil && returns(pod):
		how, reason := back(pod)
		return how, reason, nil
	case unmanaged(pod) && !r.push.Force:
		return stuck, reasonUnmanaged, nil
	case r.opts.Clock.Now().Sub(r.began) > evictTime:
		return leaving, "evicted in the next round", nil
	case force:
		return r.delete(ctx, pod)
	}
	return r.evict(ctx, pod)
}

const reasonUnmanaged = "no controller would recreate it"

func unmanaged(pod *corev1.Pod) bool {
	return metav1.GetControllerOf(pod) == nil && !finished(pod)
}

const (
	reasonReturns = "it tolerates the taint " + kamino.TaintBlock + ", and would come back after an eviction"
	reasonWorks   = "it tolerates the taint " + kamino.TaintBlock + ", and ends by itself when its work is done"
)

// back says why a pod may not be evicted: its controller would put another on the node. So it would
// after a deletion, and force changes nothing. The pod of a Job is waited for: when it has done its work,
// no other comes.
func back(pod *corev1.Pod) (hold, string) {
	if p := pod.Spec.RestartPolicy; p == corev1.RestartPolicyNever || p == corev1.RestartPolicyOnFailure {
		return working, reasonWorks
	}
	return returning, reasonReturns
}

// returns says whether the scheduler may put the next pod of the same controller on the donor
// again, which with its pods gone is the emptiest node: the pod tolerates the donor's taint, as
// operators of networks that tolerate everything do (https://github.com/cilium/cilium/issues/15992).
func returns(pod *corev1.Pod) bool {
	block := corev1.Taint{Key: kamino.TaintBlock, Value: "RUN", Effect: corev1.TaintEffectNoSchedule}
	return metav1.GetControllerOf(pod) != nil && !finished(pod) &&
		slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return tolerates(t, &block) })
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ending tells of a pod that was deleted. One that should have ended longer ago than the drain
// may take will not end by itself: its kubelet does not confirm it, or nobody takes its
// finalizers off, which not even force does.
func ending(pod *corev1.Pod, push kamino.DrainOptions, now time.Time) (hold, string) {
	how, reason := leaving, "ending"
	late := now.Sub(pod.DeletionTimestamp.Time) // which lies a grace period after the request
	if push.Within > 0 && late > push.Within && (len(pod.Finalizers) > 0 || !push.Force) {
		how, reason = stuck, "should have ended "+late.Round(time.Second).String()+" ago"
	}
	if len(pod.Finalizers) > 0 {
		reason += "; finalizers " + strings.Join(pod.Finalizers, ", ")
	}
	return how, reason
}

// onlyThis are delete options for this very pod.
func onlyThis(pod *corev1.Pod, grace time.Duration) *metav1.DeleteOptions {
	o := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if grace >= 0 {
		seconds := int64((grace + time.Second - 1) / time.Second)
		o.GracePeriodSeconds = &seconds
	}
	return o
}

// graceOf is what a pod gets to end; negative: what it asks for itself. A grace in the
// request replaces the pod's own one, a longer one too
// (https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/#deleteoptions-v1-meta).
func graceOf(pod *corev1.Pod, push kamino.DrainOptions) time.Duration {
	grace := push.Grace
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil && grace >= 0 {
		grace = max(grace, time.Duration(*own)*time.Second)
	}
	if push.Within > 0 {
		grace = min(grace, push.Within)
	}
	return grace
}

// evict asks for an eviction. How the API answers, and why 429 here mostly is no
// throttling: https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
func (r *drainRound) evict(ctx context.Context, pod *corev1.Pod) (hold, string, error) {
	how := onlyThis(pod, graceOf(pod, r.push))
	how.DryRun = r.dry
	err := r.api.evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: how,
	})
	switch {
	case err == nil:
		return leaving, "ending", nil
	case apierrors.IsNotFound(err):
		return leaving, "ending", nil
	case apierrors.IsConflict(err):
		// Another pod may have its name; but a budget that changed meanwhile and a webhook answer
		// so as well (pkg/registry/core/pod/storage/eviction.go in k8s.io/kubernetes).
		return doubtful, kamino.Plain(err.Error()), nil
	case severalBudgets(err):
		return stuck, r.reasonSeveral(ctx, pod), nil
	}
	if budget, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return blocked, kamino.Plain(budget.Message), nil
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return leaving, "its namespace is being deleted", nil
	case len(r.dry) > 0 && noDryRun(err):
		return leaving, "a webhook decides when it is evicted", nil
	case refusedByPolicy(err):
		return doubtful, kamino.Plain(err.Error()), nil
	}
	return leaving, "", explain("create pods/eviction --all-namespaces", err)
}

// severalBudgets: the API evicts no pod that several budgets select, whatever
// they allow. The answer has no reason to go by, only code and text.
func severalBudgets(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown &&
		strings.Contains(err.Error(), "more than one PodDisruptionBudget")
}

// refusedByPolicy tells a webhook's or a budget's refusal from missing
// permission, which the API answers with 403 as well; "cannot" is its word for
// the latter ("User x cannot create resource pods/eviction").
func refusedByPolicy(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "cannot create resource")
}

// delete ends a pod without asking any budget, at first with a second for it,
// and when the kubelet does not confirm its end, by removing its object.
func (r *drainRound) delete(ctx context.Context, pod *corev1.Pod) (hold, string, error) {
	grace := forceGrace
	if told := pod.DeletionGracePeriodSeconds; told != nil && *told <= int64(forceGrace/time.Second) {
		if r.opts.Clock.Now().Sub(pod.DeletionTimestamp.Time) < forceAfter {
			how, reason := ending(pod, r.push, r.opts.Clock.Now())
			return how, reason, nil
		}
		grace = 0
	}
	err := r.api.pods(pod.Namespace).Delete(ctx, pod.Name, *onlyThis(pod, grace))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return leaving, "ending", nil // the next list shows whether it is gone
	}
	return leaving, fmt.Sprintf("deleted with a grace of %s", grace), explain("delete pods --all-namespaces", err)
}
