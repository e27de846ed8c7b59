package kube

import (
	"strings"
	"testing"
)

// TestConfinedProbe: a Job that somebody else than the operator wrote has no service account of its
// choice, nothing of the host, and no privilege.
func TestConfinedProbe(t *testing.T) {
	job := func(pod, box string) []byte {
		return []byte(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "ops"}, "spec": {"template": {"spec": {` + pod +
			`"restartPolicy": "Never", "containers": [{"name": "p", "image": "reg.example.com/p:1"` + box + `}]}}}}`)
	}
	for name, text := range map[string][]byte{
		"nothing":   job("", ""),
		"a command": job(`"activeDeadlineSeconds": 60, `, `, "command": ["/probe"], "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]`),
		"volumes": job(`"serviceAccountName": "default", "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "c"}},
			{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}, {"name": "e", "projected": {"sources": []}}, {"name": "f", "downwardAPI": {}}], `, ""),
		"less than others": job(`"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, `,
			`, "securityContext": {"allowPrivilegeEscalation": false, "privileged": false, "capabilities": {"drop": ["ALL"]}, "procMount": "Default", "seccompProfile": {"type": "RuntimeDefault"}}`),
	} {
		if namespace, err := ConfinedProbe(text); err != nil || namespace != "ops" {
			t.Errorf("%s: %q, %v", name, namespace, err)
		}
	}
	init := `"initContainers": [{"name": "i", "image": "reg.example.com/p:1", "securityContext": {"privileged": true}}], `
	for want, text := range map[string][]byte{
		"serviceAccountName":       job(`"serviceAccountName": "admin", `, ""),
		"serviceAccount ":          job(`"serviceAccount": "admin", `, ""),
		"hostPID":                  job(`"hostPID": true, `, ""),
		"hostIPC":                  job(`"hostIPC": true, `, ""),
		"hostNetwork":              job(`"hostNetwork": true, `, ""),
		"volume v":                 job(`"volumes": [{"name": "v", "hostPath": {"path": "/"}}], `, ""),
		"volume f":                 job(`"volumes": [{"name": "f", "flexVolume": {"driver": "x/y"}}], `, ""),
		"sysctls":                  job(`"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, `, ""),
		"seccompProfile":           job(`"securityContext": {"seccompProfile": {"type": "Unconfined"}}, `, ""),
		"container p: privileged":  job("", `, "securityContext": {"privileged": true}`),
		"container i: privileged":  job(init, ""),
		"capabilities":             job("", `, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}`),
		"procMount":                job("", `, "securityContext": {"procMount": "Unmasked"}`),
		"container p: seccomp":     job("", `, "securityContext": {"seccompProfile": {"type": "Unconfined"}}`),
		"container p: appArmor":    job("", `, "securityContext": {"appArmorProfile": {"type": "Unconfined"}}`),
		"container p: seLinux":     job("", `, "securityContext": {"seLinuxOptions": {"type": "spc_t"}}`),
		"container p: windows":     job("", `, "securityContext": {"windowsOptions": {"hostProcess": true}}`),
		"container p: hostPort":    job("", `, "ports": [{"containerPort": 80, "hostPort": 80}]`),
		"container p: host of":     job("", `, "livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}`),
		"container p: host of a":   job("", `, "startupProbe": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}`),
		"container p: host of a p": job("", `, "lifecycle": {"postStart": {"httpGet": {"host": "169.254.169.254", "port": 80}}}`),
		"invalid image":            job(`"initContainers": [{"name": "i", "image": ""}], `, ""),
		"not a Job of batch/v1":    []byte(`{"kind": "Pod", "apiVersion": "v1"}`),
		"annotation container.app": []byte(strings.Replace(string(job("", "")), `"template": {`, `"template": {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/p": "unconfined"}}, `, 1)),
	} {
		want = strings.TrimSuffix(want, " ")
		if want == "invalid image" {
			want = "is not a valid image name"
		}
		if _, err := ConfinedProbe(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
