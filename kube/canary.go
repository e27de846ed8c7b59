package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"kamino.dev/kamino"
)

var _ kamino.Examiner = (*Cluster)(nil)

// proveRights are what the proof by a canary uses besides.
var proveRights = []right{
	{verb: "delete", resource: "nodes", role: "kamino-prove"},
	{verb: "list", group: "apps", resource: "daemonsets", role: "kamino-prove"},
	{verb: "list", group: "certificates.k8s.io", resource: "certificatesigningrequests", role: "kamino-prove"},
	{verb: "list", resource: "events", namespace: metav1.NamespaceDefault, role: "kamino-prove"},
	{verb: "list", group: groupLeases, resource: "leases", namespace: corev1.NamespaceNodeLease, role: "kamino-prove"},
}

// PreflightProof implements kamino.Examiner: 1 request for each right, and with a probe 1 more.
func (c *Cluster) PreflightProof(ctx context.Context, probe []byte) error {
	var missing []right
	for _, r := range proveRights {
		has, err := c.has(ctx, r)
		if err != nil {
			return err
		}
		if !has {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return c.lacking(ctx, missing)
	}
	if probe == nil {
		return nil
	}
	job, err := readProbe(probe, "preflight", kamino.Node{Name: "preflight"})
	if err != nil {
		return err
	}
	_, err = c.api.jobs(job.Namespace).Create(ctx, job,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: fieldManager})
	if apierrors.IsForbidden(err) { // also by a quota, or by an admission plugin
		return kamino.WithHint(explain("create jobs.batch -n "+job.Namespace, err),
			"bind the ClusterRole kamino-probe in namespace %s to Kamino's account (chart: prove.probeNamespace)", job.Namespace)
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return refuseProbe(err)
	}
	if apierrors.IsNotFound(err) { // of what is created nothing else can be missing
		return refuseProbe(fmt.Errorf("namespace %q, which it names, does not exist", job.Namespace))
	}
	return explain("create jobs.batch -n "+job.Namespace, err)
}

// AdmitCanary cordons a canary's node and removes the taint that it registered with.
func (c *Cluster) AdmitCanary(ctx context.Context, node kamino.Node) error {
	return c.write(ctx, node, func(n kamino.Node) ([]byte, error) {
		switch {
		case n.SystemUUID != node.SystemUUID:
			return nil, fmt.Errorf("admit node %s: its machine was replaced: %w", n.Name, kamino.ErrConflict)
		case n.Unschedulable && !n.Tainted(kamino.TaintCanary):
			return nil, nil
		}
		return ifStill(n, append([]change{{"add", "/spec/unschedulable", true}}, untaint(n, kamino.TaintCanary)...))
	})
}

// RemoveNode deletes a Node object of that UID.
func (c *Cluster) RemoveNode(ctx context.Context, n kamino.Node) error {
	uid := types.UID(n.UID)
	err := explain("delete nodes", c.api.nodes.Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	if errors.Is(err, kamino.ErrNotFound) {
		return nil
	}
	return err
}

const (
	probeName = "kamino-probe-"
	// labelNonce is on a probe's Job.
	labelNonce = "kamino.dev/nonce"
	probeLife  = time.Hour      // of one that has ended
	probeTime  = 25 * time.Hour // until one that has not does: no proof takes longer than a day
)

// validImage is what a kubelet takes for a reference to an image, as far as that can be told
// without the registry: a domain, a path in lower case, a tag, a digest
// (https://github.com/distribution/reference/blob/v0.6.0/regexp.go). What it does not take is
// InvalidImageName.
var validImage = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]+)?/)?` +
	`[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})?$`)

// CheckProbe reports what is wrong with an operator's Job as far as its text shows, as
// PreflightProof does.
func CheckProbe(text []byte) error {
	_, err := readProbe(text, "preflight", kamino.Node{Name: "preflight"})
	return err
}

// readProbe is the operator's Job as it is created for a run, on one node and nowhere else.
func readProbe(text []byte, run string, node kamino.Node) (*batchv1.Job, error) {
	raw, err := yaml.ToJSON(text)
	if err != nil {
		return nil, refuseProbe(err)
	}
	job := &batchv1.Job{}
	if err := json.Unmarshal(raw, job); err != nil {
		return nil, refuseProbe(err)
	}
	spec := &job.Spec.Template.Spec
	switch {
	case job.Kind != "Job" || job.APIVersion != "batch/v1":
		return nil, refuseProbe(fmt.Errorf("it contains %s, not a Job of batch/v1", kindOf(job.TypeMeta)))
	case job.Namespace == "" || job.Namespace == kamino.SystemNamespace:
		return nil, refuseProbe(fmt.Errorf("metadata.namespace is %q: it must name a namespace of the operator's", job.Namespace))
	case len(spec.Containers) == 0:
		return nil, refuseProbe(errors.New("it has no container"))
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend || job.Spec.Parallelism != nil && *job.Spec.Parallelism == 0 {
		return nil, refuseProbe(errors.New("it is suspended, or has a parallelism of 0: it would never start"))
	}
	for _, box := range slices.Concat(spec.InitContainers, spec.Containers) {
		if !validImage.MatchString(box.Image) {
			return nil, refuseProbe(fmt.Errorf("image %q of container %s is not a valid image name", box.Image, box.Name))
		}
	}
	job.Name, job.GenerateName = probeName+run, ""
	if job.Labels == nil {
		job.Labels = map[string]string{}
	}
	job.Labels[labelRun], job.Labels[labelManagedBy] = run, managedBy
	ttl := int32(probeLife.Seconds()) // one whose run was killed goes by itself, and none before its end is read
	job.Spec.TTLSecondsAfterFinished = &ttl
	// One that waits for a node that is gone ends, too. Deadlines of its own run while a registry
	// gives no image, and Kubernetes deletes the pod that would tell: the proof's bound counts.
	most := int64(probeTime.Seconds())
	job.Spec.ActiveDeadlineSeconds, spec.ActiveDeadlineSeconds = &most, nil
	spec.NodeName = node.Name
	spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
	return job, nil
}

// ConfinedProbe is the namespace of an operator's Job. A *RefusedError where the Job takes more
// than a pod of the namespace has: a service account of its choice, anything of the host, or
// privilege. That is the level Baseline of the Pod Security Standards
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline), and the account.
func ConfinedProbe(text []byte) (namespace string, err error) {
	job, err := readProbe(text, "preflight", kamino.Node{})
	if err != nil {
		return "", err
	}
	if more := unconfined(&job.Spec.Template); more != "" {
		return job.Namespace, refuseProbe(fmt.Errorf("it must not set %s", more))
	}
	return job.Namespace, nil
}

// unconfined names a field of a pod that gives it more than a service account's default pod has; ""
// where there is none.
func unconfined(pod *corev1.PodTemplateSpec) string {
	spec := &pod.Spec
	switch context := spec.SecurityContext; {
	case spec.ServiceAccountName != "" && spec.ServiceAccountName != "default":
		return "serviceAccountName"
	case spec.DeprecatedServiceAccount != "" && spec.DeprecatedServiceAccount != "default":
		return "serviceAccount"
	case spec.HostPID:
		return "hostPID"
	case spec.HostIPC:
		return "hostIPC"
	case spec.HostNetwork:
		return "hostNetwork"
	case context == nil:
	case len(context.Sysctls) > 0:
		return "sysctls"
	default:
		if more := unlimited(&corev1.SecurityContext{SELinuxOptions: context.SELinuxOptions, SeccompProfile: context.SeccompProfile,
			AppArmorProfile: context.AppArmorProfile, WindowsOptions: context.WindowsOptions}); more != "" {
			return more
		}
	}
	for key := range pod.Annotations {
		if strings.HasPrefix(key, "container.apparmor.security.beta.kubernetes.io/") {
			return "annotation " + key
		}
	}
	for _, v := range spec.Volumes {
		of := v.VolumeSource
		of.EmptyDir, of.Secret, of.ConfigMap, of.Projected, of.DownwardAPI, of.PersistentVolumeClaim, of.Ephemeral, of.CSI, of.Image = nil,
			nil, nil, nil, nil, nil, nil, nil, nil
		if of != (corev1.VolumeSource{}) {
			return "volume " + v.Name + " of this kind"
		}
	}
	for _, box := range slices.Concat(spec.InitContainers, spec.Containers) {
		if slices.ContainsFunc(box.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
			return "of container " + box.Name + ": hostPort"
		}
		if box.SecurityContext != nil {
			if more := unlimited(box.SecurityContext); more != "" {
				return "of container " + box.Name + ": " + more
			}
		}
		if asksOthers(box) {
			return "of container " + box.Name + ": host of a probe or a hook"
		}
	}
	return ""
}

// asksOthers says whether a probe or a hook of a container names a host: the kubelet asks it from the
// node's network, which reaches what a pod may not, such as the cloud's metadata.
func asksOthers(box corev1.Container) bool {
	var http []*corev1.HTTPGetAction
	var tcp []*corev1.TCPSocketAction
	for _, p := range []*corev1.Probe{box.LivenessProbe, box.ReadinessProbe, box.StartupProbe} {
		if p != nil {
			http, tcp = append(http, p.HTTPGet), append(tcp, p.TCPSocket)
		}
	}
	if l := box.Lifecycle; l != nil {
		for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				http, tcp = append(http, h.HTTPGet), append(tcp, h.TCPSocket)
			}
		}
	}
	return slices.ContainsFunc(http, func(a *corev1.HTTPGetAction) bool { return a != nil && a.Host != "" }) ||
		slices.ContainsFunc(tcp, func(a *corev1.TCPSocketAction) bool { return a != nil && a.Host != "" })
}

func unlimited(s *corev1.SecurityContext) string {
	switch {
	case s.Privileged != nil && *s.Privileged:
		return "privileged"
	case s.Capabilities != nil && len(s.Capabilities.Add) > 0:
		return "capabilities.add"
	case s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount:
		return "procMount"
	case s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined:
		return "seccompProfile"
	case s.AppArmorProfile != nil && s.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined:
		return "appArmorProfile"
	case s.SELinuxOptions != nil:
		return "seLinuxOptions"
	case s.WindowsOptions != nil:
		return "windowsOptions"
	}
	return ""
}

func kindOf(t metav1.TypeMeta) string {
	switch {
	case t.Kind == "":
		return "nothing"
	case t.APIVersion == "":
		return "a " + t.Kind + " without an apiVersion"
	}
	return "a " + t.Kind + " of " + t.APIVersion
}

func refuseProbe(err error) error {
	return &kamino.RefusedError{Subject: "the Job of --probe", Refusals: []kamino.Refusal{{Code: "probe",
		Why: kamino.Plain(err.Error()), Do: "name a file with one Job of batch/v1, with its namespace and an image that can be pulled"}}}
}

// StartProbe implements kamino.Examiner: 1 request, and 1 more where a Job of that name is there.
func (c *Cluster) StartProbe(ctx context.Context, p kamino.Probed, node kamino.Node, probe []byte) error {
	job, err := readProbe(probe, p.Run, node)
	if err != nil {
		return err
	}
	job.Labels[labelNonce] = p.Nonce
	_, err = c.api.jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{FieldManager: fieldManager})
	if !apierrors.IsAlreadyExists(err) {
		return explain("create jobs.batch -n "+job.Namespace, err)
	}
	there, err := c.api.jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
	if err != nil {
		return explain("get jobs.batch -n "+job.Namespace, err)
	}
	if there.Labels[labelNonce] != p.Nonce {
		return kamino.WithHint(fmt.Errorf("Job %s/%s is not this run's: its label %s is another", job.Namespace, job.Name, labelNonce),
			"find out who made it, then run the command again; delete it with: kubectl delete job -n %s %s", job.Namespace, job.Name)
	}
	return nil
}

// probe reads how far the probe of a run has come.
func (c *Cluster) probe(ctx context.Context, order kamino.ExamineOrder) (out kamino.ProbeState, err error) {
	want, err := readProbe(order.Probe, order.Run, kamino.Node{})
	if err != nil {
		return out, err
	}
	namespace := want.Namespace
	out.Wanted = true
	job, err := c.api.jobs(namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if err = explain("get jobs.batch -n "+namespace, err); errors.Is(err, kamino.ErrNotFound) {
		return out, nil
	} else if err != nil {
		return out, err
	}
	if order.Nonce == "" || job.Labels[labelNonce] != order.Nonce { // somebody else's tells nothing of the image
		return out, nil
	}
	out.Started = true
	for _, cond := range job.Status.Conditions {
		if cond.Status == corev1.ConditionTrue {
			out.Done = out.Done || cond.Type == batchv1.JobComplete
			out.Failed = out.Failed || cond.Type == batchv1.JobFailed
			out.Reason = joinWords(cond.Reason, cond.Message)
		}
	}
	if out.Done || out.Failed {
		return out, nil
	}
	pods, err := c.api.pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job.Name})
	if err != nil {
		return out, explain("list pods -n "+namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if finished(pod) && out.Reason != "" {
			continue // the Job tries again, and another pod of it tells what it waits for
		}
		out.Reason, out.Owed = waitsFor(pod)
		out.Owed = out.Owed || unstarted(pod) && needsObjects(&want.Spec.Template.Spec)
	}
	return out, nil
}

// unstarted says whether no container of a pod has started yet: its volumes may be missing.
func unstarted(pod *corev1.Pod) bool {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Waiting == nil || s.RestartCount > 0 {
			return false
		}
	}
	return true
}

// needsObjects says whether a pod mounts what somebody else has to make.
func needsObjects(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret != nil || v.ConfigMap != nil || v.PersistentVolumeClaim != nil || v.Projected != nil || v.CSI != nil ||
			v.Ephemeral != nil
	})
}

// ProbeNamespace is that of the operator's Job.
func (c *Cluster) ProbeNamespace(probe []byte) (string, error) {
	job, err := readProbe(probe, "", kamino.Node{})
	if err != nil {
		return "", err
	}
	return job.Namespace, nil
}

// RemoveProbe implements kamino.Examiner: 2 requests.
func (c *Cluster) RemoveProbe(ctx context.Context, p kamino.Probed) error {
	job, err := c.api.jobs(p.Namespace).Get(ctx, probeName+p.Run, metav1.GetOptions{})
	if err = explain("get jobs.batch -n "+p.Namespace, err); errors.Is(err, kamino.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	if job.Labels[labelNonce] != p.Nonce { // somebody else's
		return nil
	}
	dependents := metav1.DeletePropagationBackground
	err = c.api.jobs(p.Namespace).Delete(ctx, job.Name,
		metav1.DeleteOptions{PropagationPolicy: &dependents, Preconditions: &metav1.Preconditions{UID: &job.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return explain("delete jobs.batch -n "+p.Namespace, err)
}

// seenSpace is the namespace of kamino as Preflight read it.
type seenSpace struct {
	*corev1.Namespace
	at time.Time
}

// Paused reads the stop switch. The first call right after Preflight returns what that has read.
func (c *Cluster) Paused(ctx context.Context) (kamino.Pause, error) {
	if seen := c.space.Swap(nil); seen != nil && c.opts.Clock.Now().Sub(seen.at) < 5*time.Second {
		return pauseOf(seen.Annotations), nil
	}
	space, err := c.api.namespaces.Get(ctx, kamino.SystemNamespace, metav1.GetOptions{})
	if err = explain("get namespaces/"+kamino.SystemNamespace, err); errors.Is(err, kamino.ErrNotFound) {
		return kamino.Pause{}, nil
	} else if err != nil {
		return kamino.Pause{}, err
	}
	return pauseOf(space.Annotations), nil
}

func pauseOf(annotations map[string]string) kamino.Pause {
	var by kamino.Pause
	reason := annotations[kamino.AnnotationPaused]
	if json.Unmarshal([]byte(annotations[kamino.AnnotationPausedBy]), &by) != nil || by.Reason != reason {
		by = kamino.Pause{Reason: reason}
	}
	kamino.PlainAll(&by)
	return by
}

// Pause sets the stop switch, with a merge patch (RFC 7396), in which null removes. It also
// works if the API server does not say who asks, as before Kubernetes 1.28.
func (c *Cluster) Pause(ctx context.Context, reason string) error {
	annotations := map[string]any{kamino.AnnotationPaused: nil, kamino.AnnotationPausedBy: nil}
	if reason != "" {
		by := kamino.Pause{Reason: reason, By: "unknown", Since: c.opts.Clock.Now().UTC().Truncate(time.Second)}
		if self, err := c.api.reviewSelf.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil &&
			self.Status.UserInfo.Username != "" {
			by.By = self.Status.UserInfo.Username
		}
		text, err := json.Marshal(by)
		if err != nil {
			return fmt.Errorf("write the stop switch: %w", err)
		}
		annotations[kamino.AnnotationPaused], annotations[kamino.AnnotationPausedBy] = reason, string(text)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("write the stop switch: %w", err)
	}
	_, err = c.api.namespaces.Patch(ctx, kamino.SystemNamespace, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return explain("patch namespaces/"+kamino.SystemNamespace, err)
}
