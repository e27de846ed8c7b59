package kube

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// Names of the seal pod, on which the agent and people rely.
const (
	sealName  = "kamino-seal"
	labelName = "app.kubernetes.io/name"
	labelRun  = "kamino.dev/run"
	hostRoot  = "/host"
	nonceEnv  = "KAMINO_SEAL_NONCE"
	policyEnv = "KAMINO_SEAL_POLICY"
	// machineEnv names the machine that the pod is for: another one may take over the node's name.
	machineEnv = "KAMINO_MACHINE"
	// bootEnv names its boot: an etcd restored from a backup may bring the pod back later.
	bootEnv = "KAMINO_BOOT"
	// agentFound is the agent's exit code where it found what must not be in an image
	// (docs/agent.md).
	agentFound = 3
)

// agentNames are the label values of the pods of a run, and what their names begin with.
var agentNames = map[kamino.Task]string{
	kamino.TaskSeal: sealName, kamino.TaskInventory: surveyName, kamino.TaskPackages: packagesName, kamino.TaskCheck: checkName,
	kamino.TaskPatch: patchName, kamino.TaskReboot: patchName + "-reboot", kamino.TaskLook: patchName + "-look",
}

func podName(run string, task kamino.Task) string { return agentNames[task] + "-" + run }

// hopelessWaits are reasons for which a container waits that do not pass by
// waiting: the image or what the pod refers to is not there.
var hopelessWaits = []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError"}

// AgentPod reads the pod of a run that does a task; one that does not exist is no error.
func (c *Cluster) AgentPod(ctx context.Context, run string, task kamino.Task) (kamino.AgentPod, error) {
	pod, err := c.api.pods(kamino.SystemNamespace).Get(ctx, podName(run, task), metav1.GetOptions{})
	if err = explain("get pods -n "+kamino.SystemNamespace, err); errors.Is(err, kamino.ErrNotFound) {
		return kamino.AgentPod{}, nil
	} else if err != nil {
		return kamino.AgentPod{}, err
	}
	return readAgentPod(pod), nil
}

func readAgentPod(pod *corev1.Pod) kamino.AgentPod {
	out := kamino.AgentPod{Exists: true, Name: kamino.Plain(pod.Namespace + "/" + pod.Name), Node: kamino.Plain(pod.Spec.NodeName),
		Nonce: kamino.Plain(nonceOf(pod)), Failed: pod.Status.Phase == corev1.PodFailed, Done: pod.Status.Phase == corev1.PodSucceeded}
	out.Ousted = out.Failed
	words := []string{strings.ToLower(string(pod.Status.Phase))}
	if pod.DeletionTimestamp != nil {
		words = append(words, "being deleted")
	}
	if pod.Status.Reason != "" || pod.Status.Message != "" { // the kubelet refused or evicted it
		words = append(words, joinWords(pod.Status.Reason, pod.Status.Message))
	}
	for _, s := range pod.Status.ContainerStatuses {
		last := s.LastTerminationState.Terminated
		switch {
		case s.State.Running != nil:
			out.Started = true
		case s.State.Terminated != nil:
			out.Started, last = true, s.State.Terminated
			// What was killed ends with 128 and the signal's number
			// (https://pkg.go.dev/k8s.io/api/core/v1#ContainerStateTerminated).
			out.Ousted = out.Ousted && last.ExitCode >= 128
			out.Refused = out.Failed && last.ExitCode == agentFound
		case s.State.Waiting != nil:
			w := s.State.Waiting
			words = append(words, joinWords(w.Reason, w.Message))
			if slices.Contains(hopelessWaits, w.Reason) {
				out.Failed = true
				words = append(words, "image "+s.Image)
			}
		}
		if last != nil {
			out.Started = true
			words = append(words, joinWords(fmt.Sprintf("exit code %d", last.ExitCode), strings.TrimSpace(last.Message)))
		}
	}
	out.Message = kamino.Plain(strings.Join(words, ", "))
	return out
}

// nonceOf is the nonce of the order that a pod was made for, where it is a pod of an agent.
func nonceOf(pod *corev1.Pod) string {
	for _, box := range pod.Spec.Containers {
		for _, env := range box.Env {
			if env.Name == nonceEnv {
				return env.Value
			}
		}
	}
	return ""
}

func joinWords(reason, message string) string {
	reason, message = kamino.Plain(reason), kamino.Plain(message)
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// RemoveAgents implements kamino.Cluster: 1 request a task.
func (c *Cluster) RemoveAgents(ctx context.Context, run string, tasks []kamino.Task) error {
	for _, task := range tasks {
		if err := c.deletePod(ctx, podName(run, task)); err != nil {
			return err
		}
	}
	return nil
}

// deletePod deletes a pod of kamino.SystemNamespace without grace. One that does not exist is not
// an error.
func (c *Cluster) deletePod(ctx context.Context, name string) error {
	now := int64(0)
	err := c.api.pods(kamino.SystemNamespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return explain("delete pods -n "+kamino.SystemNamespace, err)
}

// StartAgent creates the pod of a run that does a task on the node. One that exists already is no
// error.
func (c *Cluster) StartAgent(ctx context.Context, node kamino.Node, task kamino.Task, order kamino.SealOrder) error {
	how := metav1.CreateOptions{FieldManager: fieldManager}
	switch task {
	case kamino.TaskInventory:
		return c.createBeside(ctx, c.surveyPod(node, order), node, order)
	case kamino.TaskCheck:
		return c.createBeside(ctx, beside(c.patchPod(node, task, order)), node, order)
	case kamino.TaskSeal:
		return c.createAgent(ctx, inBoot(c.sealPod(node, order), node), how)
	case kamino.TaskPatch:
		return c.createAgent(ctx, inBoot(c.patchPod(node, task, order), node), how)
	}
	return c.createAgent(ctx, c.patchPod(node, task, order), how)
}

// inBoot limits a pod that changes its node to the node's present boot.
func inBoot(pod *corev1.Pod, node kamino.Node) *corev1.Pod {
	if node.BootID != "" {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: bootEnv, Value: node.BootID})
	}
	return pod
}

// createAgent creates a pod in which the agent changes a node, and tells what keeps it from being
// admitted.
func (c *Cluster) createAgent(ctx context.Context, pod *corev1.Pod, how metav1.CreateOptions) error {
	if c.opts.SealImage == "" {
		return ErrNoSealImage
	}
	err := c.createPod(ctx, pod, how)
	switch {
	case len(how.DryRun) > 0 && noDryRun(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err) && (podSecurity(err) || c.mayCreatePods(ctx)):
		return c.notAdmitted(err)
	}
	return err
}

// createPod creates a pod. One of that name that exists already is no error: who reads it next asks
// whose it is.
func (c *Cluster) createPod(ctx context.Context, pod *corev1.Pod, how metav1.CreateOptions) error {
	_, err := c.api.pods(pod.Namespace).Create(ctx, pod, how)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return explain("create pods -n "+kamino.SystemNamespace, err)
}

// ErrNoSealImage refuses a seal without an image.
var ErrNoSealImage = &kamino.RefusedError{Subject: "the seal pod", Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod,
	Why: "no image is set for the pod that seals the donor's disk",
	Do:  "use --image NAME@sha256:DIGEST, or name it in the environment variable POD_IMAGE; what an earlier run left is given back without one: kamino restore"}}}

// podSecurity tells the answer of Pod Security Admission, which has no reason of its own
// (https://kubernetes.io/docs/concepts/security/pod-security-admission/).
func podSecurity(err error) bool { return strings.Contains(err.Error(), "violates PodSecurity") }

// notAdmitted is the refusal of a seal pod by admission. That of a ValidatingAdmissionPolicy is
// Invalid where it gives no reason
// (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#failure-policy),
// that of webhooks and plugins mostly Forbidden.
func (c *Cluster) notAdmitted(err error) error {
	if podSecurity(err) {
		return &kamino.RefusedError{Subject: "the seal pod", Refusals: []kamino.Refusal{{
			Code: kamino.CodeSealPod, Field: "namespace", Value: kamino.SystemNamespace, Why: err.Error(),
			Do: "the seal pod must be privileged; a cluster administrator allows that in the namespace with: kamino init"}}}
	}
	if strings.Contains(err.Error(), "kamino-own") { // the policy of that name in the chart kamino-base
		return &kamino.RefusedError{Subject: "the seal pod",
			Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod, Field: "namespace", Value: kamino.SystemNamespace, Why: err.Error(),
				Do: "a cluster administrator binds the ClusterRole kamino-run to this account: kubectl create clusterrolebinding NAME --clusterrole kamino-run --serviceaccount NAMESPACE:ACCOUNT"}}}
	}
	if cause, do := changedOrLimited(err.Error()); do != "" {
		return &kamino.RefusedError{Subject: "the seal pod",
			Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod, Field: cause, Value: kamino.SystemNamespace, Why: err.Error(), Do: do}}}
	}
	do := "if that image may not seal disks yet, a cluster administrator allows it with: kamino init --seal-image " + c.opts.SealImage +
		", or in the value sealImages of the chart kamino-base"
	if strings.Contains(err.Error(), "no params found for policy binding") {
		// An API server whose last binding to a ConfigMap was deleted watches ConfigMaps no more:
		// https://github.com/kubernetes/kubernetes/issues/130887 (seen with 1.36.3).
		do += "; if kubectl get configmap -n " + kamino.SystemNamespace + " " + sealImages +
			" -o yaml lists it, the policies were deleted and created again: restart each kube-apiserver"
	}
	return &kamino.RefusedError{Subject: "the seal pod",
		Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod, Field: "image", Value: c.opts.SealImage, Why: err.Error(), Do: do}}}
}

// changedOrLimited tells from the API server's words what keeps the seal pod out where that is not
// its image: a ResourceQuota, a LimitRange (plugin/pkg/admission in k8s.io/kubernetes:
// resourcequota, limitranger), or somebody who changes pods on their way, so that the policy
// kamino-seal-pods finds in them what Kamino never writes.
func changedOrLimited(words string) (cause, do string) {
	switch {
	case strings.Contains(words, "exceeded quota"), strings.Contains(words, "failed quota"):
		return "resourcequota", "raise or delete that quota: kubectl get resourcequota -n " + kamino.SystemNamespace
	case strings.Contains(words, " usage per Container is "), strings.Contains(words, " usage per Pod is "),
		strings.Contains(words, " max limit to request ratio per "):
		return "limitrange", "change or delete that LimitRange: kubectl get limitrange -n " + kamino.SystemNamespace
	case strings.Contains(words, "'kamino-seal-pods'") && !strings.Contains(words, "may not seal disks") &&
		!strings.Contains(words, "no params found"):
		return "namespace", "something changed the pod on its way (a proxy's environment, a sidecar): exclude namespace " +
			kamino.SystemNamespace +
			" in kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies; if there is none, the policies are of another version: kamino init"
	}
	return "", ""
}

// mayCreatePods tells an authorizer's "forbidden" from that of admission.
func (c *Cluster) mayCreatePods(ctx context.Context) bool {
	has, err := c.has(ctx, right{verb: "create", resource: "pods", namespace: kamino.SystemNamespace})
	return err == nil && has
}

// packPolicy is base64 of gzip of a policy, as the agent reads it.
func packPolicy(policy []byte) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(policy) // neither fails: a buffer takes everything
	_ = z.Close()
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

// sealPod is the pod that makes the donor's disk fit to be cloned: root on the
// host, with its root file system at /host.
func (c *Cluster) sealPod(node kamino.Node, order kamino.SealOrder) *corev1.Pod {
	yes, no, none := true, false, int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kamino.SystemNamespace,
			Name:      podName(order.Run, kamino.TaskSeal),
			Labels:    map[string]string{labelName: sealName, labelRun: order.Run, labelManagedBy: managedBy},
		},
		Spec: corev1.PodSpec{
			// Pinned, not scheduled: the donor carries our taint, and the scheduler has no say in
			// it.
			NodeName:      node.Name,
			Affinity:      noControlPlane(),
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			RestartPolicy: corev1.RestartPolicyNever,
			// A node under pressure admits it all the same.
			PriorityClassName:             "system-node-critical",
			TerminationGracePeriodSeconds: &none,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			HostPID:                       true,
			// An address of the pod network would be on the sealed disk as taken.
			HostNetwork: true,
			DNSPolicy:   corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name:            "seal",
				Image:           c.opts.SealImage,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"/kamino-agent", "seal", "--host-root", hostRoot,
					"--run", order.Run, "--donor", node.Name, "--detach", "--poweroff"},
				SecurityContext:          &corev1.SecurityContext{Privileged: &yes, RunAsUser: &none},
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: hostRoot}},
			}},
			Volumes: []corev1.Volume{{Name: "host",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
	if c.opts.PullSecret != "" {
		pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.opts.PullSecret}}
	}
	if order.Nonce != "" {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: nonceEnv, Value: order.Nonce}}
	}
	if node.SystemUUID != "" {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: machineEnv, Value: node.SystemUUID})
	}
	if len(order.Policy) > 0 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: policyEnv, Value: packPolicy(order.Policy)})
	}
	return pod
}

// RunningImage reads by digest the image that a pod's first container runs.
// ErrUnsupported where the kubelet reports none that can be pulled.
func (c *Cluster) RunningImage(ctx context.Context, namespace, name string) (string, error) {
	pod, err := c.api.pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", explain("get pods -n "+namespace, err)
	}
	for _, s := range pod.Status.ContainerStatuses {
		// dockershim wrote docker-pullable://NAME@DIGEST; an image that was loaded, not
		// pulled, has an ID without a name
		// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus).
		if id := strings.TrimPrefix(s.ImageID, "docker-pullable://"); strings.Contains(id, "@sha256:") && !strings.Contains(id, "://") {
			return id, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s reports no image by digest: %w", namespace, name, kamino.ErrUnsupported)
}
