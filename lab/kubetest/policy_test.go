package kubetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// sealPod is the seal pod as the product makes it and the API server keeps it.
func sealPod(t *testing.T) *corev1.Pod {
	t.Helper()
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("policy"))
	if err := s.StartAgent(t.Context(), s.node(t, "policy"), kamino.TaskSeal, kamino.SealOrder{Run: "r-policy", Nonce: "n"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endPod(t, kamino.SystemNamespace, "kamino-seal-r-policy") })
	pod, err := admin.CoreV1().Pods(kamino.SystemNamespace).Get(t.Context(), "kamino-seal-r-policy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// The pod of an inventory is admitted as the product makes it, and neither may seal nor be anything
// else.
func TestInventoryPodPolicy(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("inventoried"))
	n := s.node(t, "inventoried")
	if err := s.StartAgent(t.Context(), n, kamino.TaskInventory, kamino.SealOrder{Run: "r-policy", Nonce: "n", Policy: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CoreV1().Pods(kamino.SystemNamespace).Get(t.Context(), "kamino-inventory-r-policy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAgents(t.Context(), "r-policy", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory}); err != nil {
		t.Fatal(err)
	}
	if pod, err := s.AgentPod(t.Context(), "r-policy", kamino.TaskInventory); err != nil || pod.Exists {
		t.Fatalf("left: %+v, %v", pod, err)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"that seals": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = sealCommand("r-policy", "inventoried") }, "runs"},
		"under a seal's": {func(p *corev1.Pod) {
			p.Name, p.Labels["app.kubernetes.io/name"] = "kamino-seal-r-policy", "kamino-seal"
		}, "runs"},
		"of another name": {func(p *corev1.Pod) { p.Name = "kamino-seal-r-policy" }, "name and labels"},
		"with more flags": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = append(p.Spec.Containers[0].Command, "--config", "/host/x")
		}, "runs"},
		"of another image": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil/kamino:1" }, "may not seal"},
		"of another root":  {func(p *corev1.Pod) { p.Spec.Containers[0].Command[3] = "/host/etc" }, "runs"},
		"of another donor": {func(p *corev1.Pod) { p.Spec.Containers[0].Command[7] = "other" }, "runs"},
		"with a second box": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
			p.Spec.Containers[1].Name = "b"
		}, "one container"},
		"with another mount": {func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/" }, "nothing else"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace, Labels: map[string]string{}}, Spec: *made.Spec.DeepCopy()}
		for k, v := range made.Labels {
			pod.Labels[k] = v
		}
		tt.change(pod)
		_, err := admin.CoreV1().Pods(made.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "kamino-seal-pods") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a refusal with %q", name, err, tt.want)
		}
	}
}

// The pods of a patch are admitted as the product makes them, in which the agent checks, patches,
// restarts and looks, and are nothing else.
func TestPatchPodPolicy(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("patched"))
	n, pods := s.node(t, "patched"), admin.CoreV1().Pods(kamino.SystemNamespace)
	tasks := []kamino.Task{kamino.TaskCheck, kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook}
	var made *corev1.Pod
	for i, name := range []string{"kamino-patch-check-r-policy", "kamino-patch-r-policy", "kamino-patch-reboot-r-policy", "kamino-patch-look-r-policy"} {
		if err := s.StartAgent(t.Context(), n, tasks[i], kamino.SealOrder{Run: "r-policy", Nonce: "n", Patch: []byte(`{"task":"look"}`)}); err != nil {
			t.Fatal(err)
		}
		var err error
		if made, err = pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if pod, err := s.AgentPod(t.Context(), "r-policy", tasks[i]); err != nil || !pod.Exists {
			t.Errorf("%s: %+v, %v", name, pod, err)
		}
	}
	if err := s.RemoveAgents(t.Context(), "r-policy", tasks); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy to count", func() bool { // an API server reads policies a while after they were made
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shell", Namespace: made.Namespace}, Spec: *made.Spec.DeepCopy()}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	box := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"that seals": {box(func(c *corev1.Container) { c.Command = sealCommand("r-policy", "patched") }), "runs"},
		"under a seal's name": {func(p *corev1.Pod) {
			p.Name, p.Labels["app.kubernetes.io/name"] = "kamino-seal-r-policy", "kamino-seal"
		}, "runs"},
		"under another task's name": {func(p *corev1.Pod) { p.Name = "kamino-patch-r-policy" }, "name and labels"},
		"of a program of the run's": {box(func(c *corev1.Container) { c.Command = append(c.Command, "--command", "/host/tmp/x") }), "runs"},
		"of a shell":                {box(func(c *corev1.Container) { c.Command = []string{"/host/bin/sh"} }), "runs"},
		"of another node":           {box(func(c *corev1.Container) { c.Command[7] = "other" }), "runs"},
		"of another run":            {box(func(c *corev1.Container) { c.Command[5] = "r-other" }), "runs"},
		"of another image":          {box(func(c *corev1.Container) { c.Image = "evil/kamino:1" }), "may not seal"},
		"with another variable": {box(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "APT_CONFIG", Value: "/host/tmp/x"})
		}), "no other environment"},
		"with an order from a secret": {box(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "KAMINO_PATCH_POLICY", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		}), "no other environment"},
		"again":              {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, "once"},
		"with another mount": {box(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/" }), "nothing else"},
		"on any node":        {func(p *corev1.Pod) { p.Spec.NodeName = "" }, "one node"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace, Labels: maps.Clone(made.Labels)}, Spec: *made.Spec.DeepCopy()}
		tt.change(pod)
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "kamino-seal-pods") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("a patch pod %s: got %v, want a refusal with %q", name, err, tt.want)
		}
	}
}

func sealCommand(run, node string) []string {
	return []string{"/kamino-agent", "seal", "--host-root", "/host", "--run", run, "--donor", node, "--detach", "--poweroff"}
}

// Nothing but seal pods of one shape is admitted, not even an administrator's.
func TestSealPodPolicy(t *testing.T) {
	made := sealPod(t)
	yes := true
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kamino-privileged"}}
	if _, err := admin.CoreV1().ServiceAccounts(kamino.SystemNamespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	box := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	eventually(t, "the policy to count", func() bool { // an API server reads policies a while after they were made
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shell", Namespace: made.Namespace}, Spec: *made.Spec.DeepCopy()}
		_, err := admin.CoreV1().Pods(made.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	note := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	shell := corev1.Container{Name: "sh", Image: sealImage, Command: []string{"/host/bin/sh"}}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/host/bin/sh"}}}}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		want   string // part of the refusal; "" means admitted
	}{
		"the product's own":  {func(*corev1.Pod) {}, ""},
		"with a pull secret": {func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} }, ""},
		"without the nonce":  {box(func(c *corev1.Container) { c.Env = nil }), ""},
		"with a policy": {box(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "KAMINO_SEAL_POLICY", Value: "x"})
		}), ""},
		"for any machine": {box(func(c *corev1.Container) {
			c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "KAMINO_MACHINE" })
		}), ""},
		"a machine from elsewhere": {box(func(c *corev1.Container) {
			i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "KAMINO_MACHINE" })
			c.Env[i] = corev1.EnvVar{Name: "KAMINO_MACHINE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}}
		}), "no other environment"},
		"a boot from elsewhere": {box(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "KAMINO_BOOT", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}})
		}), "no other environment"},
		"a machine twice": {box(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "KAMINO_MACHINE", Value: "x"})
		}), "no other environment"},
		"a variable of the agent's that no run sets": {box(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "KAMINO_IMDS", Value: "http://x"})
		}), "no other environment"},
		"another image":          {box(func(c *corev1.Container) { c.Image = "evil/kamino:1" }), "evil/kamino:1 may not seal"},
		"an image with its name": {box(func(c *corev1.Container) { c.Image = sealImage + "0" }), "may not seal"},
		"two containers":         {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, shell) }, "one container; this one has seal, sh"},
		"an init container":      {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{shell} }, "this one has seal, sh"},
		"a shell":                {box(func(c *corev1.Container) { c.Command = []string{"/host/bin/sh"} }), "runs"},
		"another verb":           {box(func(c *corev1.Container) { c.Command[1] = "userdata" }), "runs"},
		"another root":           {box(func(c *corev1.Container) { c.Command[3] = "/host/etc" }), "runs"},
		"another run's command":  {box(func(c *corev1.Container) { c.Command[5] = "r-other" }), "runs"},
		"another donor":          {box(func(c *corev1.Container) { c.Command[7] = "other" }), "runs"},
		"more flags":             {box(func(c *corev1.Container) { c.Command = append(c.Command, "--config", "/host/tmp/x") }), "runs"},
		"arguments":              {box(func(c *corev1.Container) { c.Args = []string{"--config", "/host/tmp/x"} }), "runs"},
		"no command":             {box(func(c *corev1.Container) { c.Command = nil }), "runs"},
		"no node":                {func(p *corev1.Pod) { p.Spec.NodeName = "" }, "one node"},
		"no label":               {func(p *corev1.Pod) { p.Labels = nil }, "name and labels"},
		"another label":          {func(p *corev1.Pod) { p.Labels["app.kubernetes.io/name"] = "x" }, "name and labels"},
		"another name":           {func(p *corev1.Pod) { p.Name = "shell" }, "name and labels"},
		"a token":                {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes }, "no token"},
		"a token by default":     {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, "no token"},
		"a projected token": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}})
		}, ", t and mounts at /host"},
		"another host path": {func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/etc" }, "nothing else"},
		"another mount":     {box(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/" }), "nothing else"},
		"a part of it":      {box(func(c *corev1.Container) { c.VolumeMounts[0].SubPath = "etc" }), "nothing else"},
		"another variable":  {box(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/host/x"}} }), "policies; this one has LD_PRELOAD"},
		"a variable's source": {box(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "KAMINO_SEAL_NONCE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
		}), "no other environment"},
		"variables of a secret": {box(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}}
		}), "this one has envFrom"},
		"a hook": {box(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: probe.Exec}}
		}), "hooks"},
		"a probe":                    {box(func(c *corev1.Container) { c.LivenessProbe = probe }), "hooks"},
		"startup":                    {box(func(c *corev1.Container) { c.StartupProbe = probe }), "hooks"},
		"again":                      {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, "once"},
		"a message over the program": {box(func(c *corev1.Container) { c.TerminationMessagePath = "/kamino-agent" }), "message"},
		"any node":                   {func(p *corev1.Pod) { p.Spec.Affinity = nil }, "control plane"},
		"any of some nodes":          {func(p *corev1.Pod) { selector(p)[0].MatchExpressions = nil }, "control plane"},
		"nodes of the control plane as well": {func(p *corev1.Pod) {
			both := append(selector(p), corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.NodeSelectorOpExists}}})
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = both
		}, "control plane"},
		"one kind of control plane": {func(p *corev1.Pod) { selector(p)[0].MatchExpressions[2].Values = []string{"agent"} }, "control plane"},
		"an account":                {func(p *corev1.Pod) { p.Spec.ServiceAccountName = "kamino-privileged" }, "no token"},
		// What its template does not set, it does not have.
		"a kubelet's mirror": {func(p *corev1.Pod) {
			p.Annotations, p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = map[string]string{"kubernetes.io/config.mirror": "x"}, "", ""
		}, "static pod"},
		"a static pod":          {note("kubernetes.io/config.source", "file"), "annotation"},
		"a profile of AppArmor": {note("container.apparmor.security.beta.kubernetes.io/seal", "unconfined"), "AppArmor"},
		"a finalizer":           {func(p *corev1.Pod) { p.Finalizers = []string{"a/b"} }, "finalizer"},
		"an owner": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
		}, "owner"},
		"names of its own": {func(p *corev1.Pod) {
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"kubernetes.default"}}}
		}, "spec.hostAliases"},
		"a resolver of its own": {func(p *corev1.Pod) {
			p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"1.2.3.4"}}
		}, "dnsPolicy"},
		"another resolver": {func(p *corev1.Pod) { p.Spec.DNSPolicy = corev1.DNSClusterFirst }, "dnsPolicy"},
		"a host name":      {func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "x", "y" }, "spec.hostname"},
		"a deadline":       {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) }, "spec.activeDeadlineSeconds"},
		"claims": {func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: new("x")}}
		}, "spec.resourceClaims"},
		"a selector":           {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, "spec.nodeSelector"},
		"dns options":          {func(p *corev1.Pod) { p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.2.3.4"}} }, "spec.dnsConfig"},
		"other processes":      {func(p *corev1.Pod) { p.Spec.HostPID, p.Spec.ShareProcessNamespace = false, &yes }, "host's processes"},
		"a network of its own": {func(p *corev1.Pod) { p.Spec.HostNetwork = false }, "host's processes and network"},
		"the host's IPC":       {func(p *corev1.Pod) { p.Spec.HostIPC = true }, "spec.hostIPC"},
		"sysctls": {func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "securityContext.sysctls"},
		"groups": {func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(7)), SupplementalGroups: []int64{1}}
		}, "securityContext.fsGroup"},
		"limits of the whole pod": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
		}, "spec.resources"},
		"a long farewell": {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(3600)) }, "at once"},
		"a policy twice": {box(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "KAMINO_SEAL_POLICY", Value: "1"}, {Name: "KAMINO_SEAL_POLICY", Value: "2"}}
		}), "no other environment"},
		"a socket": {func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Type = new(corev1.HostPathSocket) }, "nothing else"},
		"mounts that spread": {box(func(c *corev1.Container) {
			c.VolumeMounts[0].MountPropagation = new(corev1.MountPropagationBidirectional)
		}), "nothing else"},
		"a mount to read": {box(func(c *corev1.Container) { c.VolumeMounts[0].ReadOnly = true }), "nothing else"},
		"again when it ended": {box(func(c *corev1.Container) {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			c.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: "Restart", ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: "In", Values: []int32{3}}}}
		}), "containers[0].restartPolicyRules"},
		"a restart policy": {box(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }), "containers[0].restartPolicy"},
		"a terminal":       {box(func(c *corev1.Container) { c.Stdin, c.TTY = true, true }), "containers[0].stdin"},
		"a directory":      {box(func(c *corev1.Container) { c.WorkingDir = "/host" }), "containers[0].workingDir"},
		"a port":           {box(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} }), "containers[0].ports"},
		"another user":     {box(func(c *corev1.Container) { c.SecurityContext.RunAsGroup = new(int64(7)) }), "containers[0].securityContext.runAsGroup"},
		"no privilege":     {box(func(c *corev1.Container) { c.SecurityContext.Privileged = new(bool) }), "privileged"},
		"a policy of seccomp": {box(func(c *corev1.Container) {
			c.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Unconfined"}
		}), "containers[0].securityContext.seccompProfile"},
		"the priority of none": {func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Spec.Priority = "", nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace, Labels: map[string]string{}}, Spec: *made.Spec.DeepCopy()}
			for k, v := range made.Labels {
				pod.Labels[k] = v
			}
			endPod(t, made.Namespace, made.Name)
			tt.change(pod)
			_, err := admin.CoreV1().Pods(made.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tt.want == "" && err != nil {
				t.Error(err)
			}
			if tt.want != "" && (!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kamino-seal-pods") || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want a refusal with %q", err, tt.want)
			}
		})
	}
}

func selector(p *corev1.Pod) []corev1.NodeSelectorTerm {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: make([]corev1.NodeSelectorRequirement, 3)}}}}}
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// A seal pod that runs is neither changed nor entered.
func TestSealPodStaysClosed(t *testing.T) {
	made := sealPod(t)
	pods := admin.CoreV1().Pods(made.Namespace)
	patch := []byte(`{"spec":{"containers":[{"name":"seal","image":"evil/kamino:1"}]}}`)
	if _, err := pods.Patch(t.Context(), made.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "may not seal") {
		t.Errorf("its image was changed: %v", err)
	}
	debug := made.DeepCopy()
	debug.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "sh", Image: "sh", TerminationMessagePolicy: "File"}}}
	if _, err := pods.UpdateEphemeralContainers(t.Context(), made.Name, debug, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "nobody enters") {
		t.Errorf("kubectl debug: %v", err)
	}
	for _, way := range []string{"exec", "attach", "portforward"} {
		err := admin.CoreV1().RESTClient().Post().Namespace(made.Namespace).Resource("pods").Name(made.Name).SubResource(way).
			Param("command", "sh").Param("container", "seal").Param("stdout", "true").Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), "nobody enters") {
			t.Errorf("kubectl %s: %v", way, err)
		}
	}
}

// The accounts of runs change nothing of a node but what is Kamino's; administrators and
// controllers are not limited.
func TestNodePolicy(t *testing.T) {
	node := cordoned("limited")
	node.Spec.Unschedulable = false
	makeNode(t, node)
	bindBase(t, "system:serviceaccount:default:run", "kamino-run")
	cfg := rest.CopyConfig(config)
	cfg.Impersonate.UserName = "system:serviceaccount:default:run"
	limited, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const person = `{"metadata":{"annotations":{"a/b":"1"},"labels":{"c/d":"1"}},"spec":{"taints":[{"key":"person","effect":"NoSchedule"}]}}`
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), "limited", types.MergePatchType, []byte(person), metav1.PatchOptions{}); err != nil {
		t.Fatal("an administrator is limited: ", err)
	}
	eventually(t, "the policy to count", func() bool {
		_, err := limited.CoreV1().Nodes().Patch(t.Context(), "limited", types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "kamino-nodes")
	})
	for name, tt := range map[string]struct{ patch, want string }{
		"marks":               {`{"metadata":{"annotations":{"kamino.dev/run":"x","cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}}}`, ""},
		"a label":             {`{"metadata":{"labels":{"kamino.dev/donor":"x"}}}`, ""},
		"the block":           {`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"status-taint.cluster-autoscaler.kubernetes.io/kamino-donor","value":"r","effect":"NoSchedule"}]}}`, ""},
		"marks off":           {`{"metadata":{"annotations":{"kamino.dev/run":null}},"spec":{"taints":[{"key":"person","effect":"NoSchedule"}]}}`, ""},
		"a cordon":            {`{"spec":{"unschedulable":true}}`, "spec"},
		"another taint":       {`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"x","effect":"NoExecute"}]}}`, "taint"},
		"a block that evicts": {`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"status-taint.cluster-autoscaler.kubernetes.io/kamino-donor","value":"r","effect":"NoExecute"}]}}`, "taint"},
		"a cordon's taint":    {`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}]}}`, "taint"},
		"one that evicts":     {`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"node.kubernetes.io/unschedulable","effect":"NoExecute"}]}}`, "taint"},
		"a taint changed":     {`{"spec":{"taints":[{"key":"person","effect":"NoExecute"}]}}`, "taint"},
		"a taint removed":     {`{"spec":{"taints":[]}}`, "taint"},
		"an annotation":       {`{"metadata":{"annotations":{"x/y":"1"}}}`, "annotation"},
		"one changed":         {`{"metadata":{"annotations":{"a/b":"2"}}}`, "annotation"},
		"one removed":         {`{"metadata":{"annotations":{"a/b":null}}}`, "annotation"},
		"one like ours":       {`{"metadata":{"annotations":{"kamino.devil/x":"1"}}}`, "annotation"},
		"another label":       {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "label"},
		"a label changed":     {`{"metadata":{"labels":{"c/d":"2"}}}`, "label"},
		"a label removed":     {`{"metadata":{"labels":{"c/d":null}}}`, "label"},
		"a provider's ID":     {`{"spec":{"providerID":"azure:///x"}}`, "spec"},
		"a finalizer":         {`{"metadata":{"finalizers":["a/b"]}}`, "finalizer"},
		"a kubelet's config":  {`{"spec":{"configSource":{"configMap":{"name":"x","namespace":"kube-system","kubeletConfigKey":"k"}}}}`, ""}, // an API server drops it: strategy.go of its nodes
		"addresses of pods":   {`{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`, "spec"},
	} {
		t.Run(name, func(t *testing.T) {
			dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
			got, err := limited.CoreV1().Nodes().Patch(t.Context(), "limited", types.MergePatchType, []byte(tt.patch), dry)
			if tt.want == "" && err != nil {
				t.Error(err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), "kamino-nodes") || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want a refusal with %q", err, tt.want)
			}
			if err == nil && got.Spec.ConfigSource != nil {
				t.Errorf("the node has a configSource: %+v", got.Spec)
			}
			if _, err := admin.CoreV1().Nodes().Patch(t.Context(), "limited", types.MergePatchType, []byte(tt.patch), dry); err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("an administrator: %v", err)
			}
		})
	}
}

// TestPatchedLabel: who has the credentials of a node signs it for nobody, neither later nor when
// the node registers (admission plugin NodeRestriction); the account of a patch does.
func TestPatchedLabel(t *testing.T) {
	const name, user = "signs-itself", "system:serviceaccount:default:signs"
	bindBase(t, user, "kamino-run")
	of := func(name string, groups ...string) kubernetes.Interface {
		cfg := rest.CopyConfig(config)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	kubelet, run := of("system:node:"+name, "system:nodes"), of(user)
	signed := map[string]string{kamino.LabelPatched: "2026-11-25T030000Z"}
	refused := func(when string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), kamino.LabelPatched) {
			t.Errorf("%s: got %v, want a refusal that names the label", when, err)
		}
	}
	_, err := kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: signed}}, metav1.CreateOptions{})
	refused("registration", err)
	if _, err := kubelet.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal("a kubelet does not register: ", err)
	}
	t.Cleanup(func() { _ = admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	change := func(client kubernetes.Interface, patch string, subresource ...string) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
		return err
	}
	update := func(labels map[string]string) error {
		n, err := kubelet.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Labels = labels
		_, err = kubelet.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	}
	write, remove := `{"metadata":{"labels":{"`+kamino.LabelPatched+`":"2026-11-25T030000Z"}}}`, `{"metadata":{"labels":{"`+kamino.LabelPatched+`":null}}}`
	refused("a write", change(kubelet, write))
	refused("a write beside its status", change(kubelet, write, "status"))
	refused("an update", update(signed))
	if err := change(kubelet, `{"metadata":{"annotations":{"a/b":"1"}}}`); err != nil {
		t.Error("a kubelet writes nothing else either: ", err)
	}
	if err := change(run, write); err != nil {
		t.Error("the account of a patch: ", err)
	}
	refused("a change", change(kubelet, strings.Replace(write, "2026", "2027", 1)))
	refused("a removal", change(kubelet, remove))
	refused("a removal beside its status", change(kubelet, remove, "status"))
	refused("a removal by an update", update(nil))
}

// The accounts of runs let a canary's node take part: cordoned and without its taint, by the very
// write of package kube. They make no node a canary's, and uncordon none.
func TestCanaryPolicy(t *testing.T) {
	node := cordoned("kamino-0a1b2c3d000000")
	node.Spec.Unschedulable = false
	node.Spec.Taints = []corev1.Taint{{Key: "person", Effect: "NoSchedule"}, {Key: kamino.TaintCanary, Effect: "NoSchedule"}}
	makeNode(t, node)
	bindBase(t, "system:serviceaccount:default:prove", "kamino-run")
	bindBase(t, "system:serviceaccount:default:prove", "kamino-prove")
	cfg := rest.CopyConfig(config)
	cfg.Impersonate.UserName = "system:serviceaccount:default:prove"
	limited, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(text string) error {
		_, err := limited.CoreV1().Nodes().Patch(t.Context(), node.Name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, "the policy to count", func() bool {
		err := patch(`{"spec":{"providerID":"azure:///x"}}`)
		return err != nil && strings.Contains(err.Error(), "kamino-nodes")
	})
	if err := patch(`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"}]}}`); err == nil || !strings.Contains(err.Error(), "only when it cordons") {
		t.Errorf("the taint alone is taken off: %v", err)
	}
	if err := patch(`{"spec":{"unschedulable":true,"taints":[]}}`); err == nil || !strings.Contains(err.Error(), "taint") {
		t.Errorf("another's taint is taken off, too: %v", err)
	}
	c, err := kube.New(cfg, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := c.Node(t.Context(), node.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AdmitCanary(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	if err := c.AdmitCanary(t.Context(), read); err != nil {
		t.Errorf("a node that has only changed since: %v", err)
	}
	other := read
	if other.UID = "another"; !errors.Is(c.AdmitCanary(t.Context(), other), kamino.ErrConflict) {
		t.Error("a node of that name that is another was admitted")
	}
	if read, err = c.Node(t.Context(), node.Name); err != nil || !read.Unschedulable || read.Tainted(kamino.TaintCanary) || !read.Tainted("person") {
		t.Errorf("%+v, %v", read, err)
	}
	for what, text := range map[string]string{
		"uncordoned":    `{"spec":{"unschedulable":false}}`,
		"made a canary": `{"spec":{"unschedulable":false,"taints":[{"key":"person","effect":"NoSchedule"},{"key":"kamino.dev/canary","effect":"NoSchedule"}]}}`,
	} {
		if err := patch(text); err == nil || !strings.Contains(err.Error(), "kamino-nodes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, effect := range map[string]corev1.TaintEffect{"": corev1.TaintEffectNoSchedule, "evicted": corev1.TaintEffectNoExecute} {
		err := patch(`{"spec":{"taints":[{"key":"person","effect":"NoSchedule"},{"key":"node.kubernetes.io/unschedulable","effect":"` + string(effect) + `"}]}}`)
		if what != "" && (err == nil || !strings.Contains(err.Error(), "kamino-nodes")) || what == "" && err != nil {
			t.Errorf("the taint of a cordon with the effect %s: %v", effect, err)
		}
	}
	sight, err := c.Examine(t.Context(), kamino.ExamineOrder{Node: node.Name, Since: time.Now().Add(-time.Hour)})
	if err != nil && !errors.Is(err, kamino.ErrForbidden) || err == nil && sight.Node.UID != read.UID {
		t.Errorf("%+v, %v", sight, err) // the roles of two namespaces are not bound here
	}
	if err := c.RemoveNode(t.Context(), read); err != nil {
		t.Error(err)
	}
	if _, err := c.Node(t.Context(), node.Name); !errors.Is(err, kamino.ErrNotFound) {
		t.Error(err)
	}
	if c, err = kube.New(config, kube.Options{}); err != nil {
		t.Fatal(err)
	}
	if sight, err = c.Examine(t.Context(), kamino.ExamineOrder{Node: node.Name, Since: time.Now().Add(-time.Hour)}); err != nil || sight.Node.UID != "" {
		t.Errorf("as an administrator: %+v, %v", sight, err)
	}
}

// A canary that registered without its taint can be cordoned all the same: by its name. The account
// deletes no Node but such.
func TestCanaryNames(t *testing.T) {
	cfg := rest.CopyConfig(config)
	cfg.Impersonate.UserName = "system:serviceaccount:default:names"
	bindBase(t, cfg.Impersonate.UserName, "kamino-run")
	bindBase(t, cfg.Impersonate.UserName, "kamino-prove")
	c, err := kube.New(cfg, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	register := func(name string) {
		t.Helper()
		n := cordoned(name)
		n.Spec.Unschedulable = false
		makeNode(t, n)
	}
	admit := func(name string) (err error) { // controllers write on new nodes, too
		eventually(t, "node "+name+" to stay as it is", func() bool {
			var n kamino.Node
			if n, err = c.Node(t.Context(), name); err == nil {
				err = c.AdmitCanary(t.Context(), n)
			}
			return !errors.Is(err, kamino.ErrConflict) && (err == nil || !errors.Is(err, kamino.ErrForbidden) || strings.Contains(err.Error(), "kamino-nodes"))
		})
		return err
	}
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	for _, name := range []string{"aks-pool1-000001", "kamino-0a1b2c3d", "kamino-pool1-000001", "kamino-0a1b2c3d0000001", "kamino-0a1b2c3g000000", "xkamino-0a1b2c3d000000"} {
		register(name)
		if err := admit(name); err == nil || !strings.Contains(err.Error(), "kamino-nodes") {
			t.Errorf("node %s is cordoned: %v", name, err)
		}
		if err := limited.CoreV1().Nodes().Delete(t.Context(), name, dry); err == nil || !strings.Contains(err.Error(), "kamino-nodes-deleted") {
			t.Errorf("Node %s is deleted: %v", name, err)
		}
		if err := admin.CoreV1().Nodes().Delete(t.Context(), name, dry); err != nil {
			t.Errorf("an administrator: %v", err)
		}
	}
	register("kamino-0a1b2c3e00000z")
	if err := admit("kamino-0a1b2c3e00000z"); err != nil {
		t.Error(err)
	}
	n, err := c.Node(t.Context(), "kamino-0a1b2c3e00000z")
	if err != nil || !n.Unschedulable {
		t.Errorf("%+v, %v", n, err)
	}
	if err := c.RemoveNode(t.Context(), n); err != nil {
		t.Error(err)
	}
}

// bindBase gives a user a ClusterRole of the base.
func bindBase(t *testing.T, name, role string) {
	t.Helper()
	_, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-" + role + strings.ReplaceAll(name, ":", "-")},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// The pod that lists packages is admitted as the product makes it, and runs nothing else.
func TestPackagesPodPolicy(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("listed"))
	n, pods := s.node(t, "listed"), admin.CoreV1().Pods(kamino.SystemNamespace)
	if err := s.AskPackages(t.Context(), n, kamino.SealOrder{Run: "diff-policy", Nonce: "n"}); err != nil {
		t.Fatal(err)
	}
	made, err := pods.Get(t.Context(), "kamino-packages-diff-policy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetPackages(t.Context(), n, kamino.SealOrder{Run: "diff-policy", Nonce: "n"}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"that seals":           func(p *corev1.Pod) { p.Spec.Containers[0].Command = sealCommand("diff-policy", "listed") },
		"that takes inventory": func(p *corev1.Pod) { p.Spec.Containers[0].Command[1] = "inventory" },
		"of another node":      func(p *corev1.Pod) { p.Spec.Containers[0].Command[7] = "other" },
		"under the inventory's": func(p *corev1.Pod) {
			p.Name, p.Labels["app.kubernetes.io/name"] = "kamino-inventory-diff-policy", "kamino-inventory"
		},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace, Labels: maps.Clone(made.Labels)}, Spec: *made.Spec.DeepCopy()}
		change(pod)
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil || !strings.Contains(err.Error(), "runs") {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

// The accounts of runs keep lists of packages, and do not come near the images that may seal disks.
func TestListPolicy(t *testing.T) {
	const user = "system:serviceaccount:default:lists"
	bindBase(t, user, "kamino-run")
	if _, err := admin.RbacV1().RoleBindings(kamino.SystemNamespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-lists"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kamino-run"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := rest.CopyConfig(config)
	cfg.Impersonate.UserName = user
	limited, err := kube.New(cfg, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lists, dry := client.CoreV1().ConfigMaps(kamino.SystemNamespace), []string{metav1.DryRunAll}
	eventually(t, "the policy to count", func() bool {
		_, err := lists.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: dry})
		return err != nil && strings.Contains(err.Error(), "kamino-lists")
	})
	if err := lists.Delete(t.Context(), "kamino-seal-images", metav1.DeleteOptions{DryRun: dry}); err == nil || !strings.Contains(err.Error(), "kamino-lists") && !strings.Contains(err.Error(), "may not write configmaps of kamino-system") {
		t.Errorf("the images that may seal disks are deleted: %v", err)
	}
	named := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "kamino-seal-"}}
	if _, err := lists.Create(t.Context(), named, metav1.CreateOptions{DryRun: dry}); err == nil {
		t.Error("a ConfigMap of a generated name is made")
	}
	if err := limited.SaveList(t.Context(), "/p", "r-lists", kamino.DiskList{Packages: []string{"a 1 all"}}); err != nil {
		t.Fatal(err)
	}
	if runs, err := limited.Lists(t.Context(), "/p"); err != nil || len(runs) != 1 {
		t.Errorf("%q, %v", runs, err)
	}
	if list, err := limited.List(t.Context(), "r-lists"); err != nil || len(list.Packages) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := limited.DeleteList(t.Context(), "r-lists"); err != nil {
		t.Error(err)
	}
	if err := admin.CoreV1().ConfigMaps(kamino.SystemNamespace).Delete(t.Context(), "kamino-seal-images", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Errorf("an administrator is limited: %v", err)
	}
}

// Who has the built-in roles edit or admin in the whole cluster writes neither the images that may
// seal disks nor the leases of pools, and makes no pod of an agent: each would be root on every
// node. Kamino's accounts and administrators do.
func TestOwnPolicy(t *testing.T) {
	const run = "system:serviceaccount:default:owner"
	bindBase(t, "editor", "edit")
	bindBase(t, "namespace-admin", "admin")
	bindBase(t, run, "kamino-run")
	if _, err := admin.RbacV1().RoleBindings(kamino.SystemNamespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-owner"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: run}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kamino-run"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Not every release gives edit the leases; then a role of the namespace does.
	leases := []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}}}
	if _, err := admin.RbacV1().Roles(kamino.SystemNamespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "test-leases"}, Rules: leases}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(kamino.SystemNamespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "test-leases"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "editor"}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: "namespace-admin"}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "test-leases"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	of := func(user string) kubernetes.Interface {
		cfg := rest.CopyConfig(config)
		cfg.Impersonate.UserName = user
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if _, err := admin.CoordinationV1().Leases(kamino.SystemNamespace).Create(t.Context(), lease("kamino-owned"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	made := sealPod(t)
	made = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: made.Name, Namespace: made.Namespace, Labels: made.Labels}, Spec: made.Spec}
	endPod(t, made.Namespace, made.Name)
	dry := []string{metav1.DryRunAll}
	writes := map[string]func(kubernetes.Interface) error{
		"adds an image that may seal": func(c kubernetes.Interface) error {
			_, err := c.CoreV1().ConfigMaps(kamino.SystemNamespace).Patch(t.Context(), "kamino-seal-images", types.MergePatchType, []byte(`{"data":{"images":"evil/kamino:1"}}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"deletes the images": func(c kubernetes.Interface) error {
			return c.CoreV1().ConfigMaps(kamino.SystemNamespace).Delete(t.Context(), "kamino-seal-images", metav1.DeleteOptions{DryRun: dry})
		},
		"takes a lease": func(c kubernetes.Interface) error {
			_, err := c.CoordinationV1().Leases(kamino.SystemNamespace).Patch(t.Context(), "kamino-owned", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"x"}}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"makes a lease": func(c kubernetes.Interface) error {
			_, err := c.CoordinationV1().Leases(kamino.SystemNamespace).Create(t.Context(), lease("kamino-forged"), metav1.CreateOptions{DryRun: dry})
			return err
		},
		"deletes a lease": func(c kubernetes.Interface) error {
			return c.CoordinationV1().Leases(kamino.SystemNamespace).Delete(t.Context(), "kamino-owned", metav1.DeleteOptions{DryRun: dry})
		},
		"deletes every lease": func(c kubernetes.Interface) error {
			return c.CoordinationV1().Leases(kamino.SystemNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{})
		},
		"makes an agent's pod": func(c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods(kamino.SystemNamespace).Create(t.Context(), made.DeepCopy(), metav1.CreateOptions{DryRun: dry})
			return err
		},
	}
	eventually(t, "the roles to count", func() bool { // their rules are filled in by a controller
		_, err := of("editor").CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{DryRun: dry})
		return err == nil
	})
	for what, write := range writes {
		for _, user := range []string{"editor", "namespace-admin"} {
			if err := write(of(user)); err == nil || !strings.Contains(err.Error(), "kamino-own") {
				t.Errorf("%s %s: %v", user, what, err)
			}
		}
		if err := write(admin); err != nil {
			t.Errorf("an administrator %s: %v", what, err)
		}
		// What its role grants, less the images, which kamino-lists keeps it from.
		if kept := strings.Contains(what, "images") || what == "adds an image that may seal" || strings.HasPrefix(what, "deletes"); !kept {
			if err := write(of(run)); err != nil {
				t.Errorf("the account of a run %s: %v", what, err)
			}
		}
	}
	if _, err := of("editor").CoreV1().ConfigMaps(kamino.SystemNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Errorf("another ConfigMap: %v", err)
	}
	err := newSubjectOf(t, "editor", kube.Options{SealImage: sealImage}).RehearseSeal(t.Context(), kamino.Node{Name: "policy"}, kamino.SealOrder{Run: "r-own"})
	var refused *kamino.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Refusals[0].Do, "--clusterrole kamino-run") {
		t.Errorf("a rehearsal: %v", err)
	}
}
