package seal

import (
	"slices"
	"strings"
	"testing"
)

// TestOtherRoots: where kubelet and the runtimes keep their state elsewhere, as the disk's
// configuration or a distribution of Kubernetes says, the rules take away there what they take away
// in the usual directories, and the scan watches the same places.
func TestOtherRoots(t *testing.T) {
	kubelet := []string{"pods/0a1b/volumes/kubernetes.io~empty-dir/data/customers.csv", "pki/kubelet-client-current.pem", "cpu_manager_state", "checkpoints/kubelet_internal_checkpoint", "config.json"}
	containerd := []string{"io.containerd.grpc.v1.cri/sandboxes/x/hosts", "io.containerd.grpc.v1.introspection/uuid", "tmpmounts/x/y"}
	docker := []string{"containers/x/config.v2.json", "engine-id", "swarm/x"}
	for what, c := range map[string]struct {
		config map[string]string
		root   string
		state  []string
	}{
		"kubelet":             {map[string]string{"etc/systemd/system/kubelet.service.d/10-root.conf": "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet\n"}, "data/kubelet", kubelet},
		"K3s' kubelet":        {map[string]string{"etc/rancher/k3s/config.yaml": "kubelet-arg: [\"root-dir=/data/kubelet\"]\n"}, "data/kubelet", kubelet},
		"k0s":                 {nil, "var/lib/k0s/kubelet", kubelet},
		"MicroK8s":            {nil, "var/snap/microk8s/common/var/lib/kubelet", kubelet},
		"containerd":          {map[string]string{"etc/containerd/config.toml": "version = 2\nroot = \"/data/containerd\"\n"}, "data/containerd", containerd},
		"K3s' containerd":     {nil, "var/lib/rancher/k3s/agent/containerd", containerd},
		"docker":              {map[string]string{"etc/docker/daemon.json": "{\"data-root\":\"/data/docker\"}\n"}, "data/docker", docker},
		"docker of a snap":    {nil, "var/snap/docker/common/var-lib-docker", docker},
		"linked from kubelet": {map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/srv/kubelet\n"}, "srv/kubelet", kubelet},
	} {
		t.Run(what, func(t *testing.T) {
			files := map[string]string{}
			for name, text := range c.config {
				files[name] = text
			}
			for _, name := range c.state {
				files[c.root+"/"+name] = "id,customer\n"
			}
			d := nodeWith(t, files)
			if _, err := Seal(t.Context(), d, planted(nil)); err != nil {
				t.Fatal(err)
			}
			for _, name := range c.state {
				if d.Exists(c.root + "/" + name) {
					t.Errorf("/%s/%s travels", c.root, name)
				}
			}
		})
	}
	d := nodeWith(t, map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/data/kubelet\n", "data/kubelet/x": "x"})
	if all := Unmounted(d); !slices.ContainsFunc(all, func(p string) bool { return strings.HasPrefix(p, "/data/kubelet/pods") }) {
		t.Errorf("the seal unmounts %q only", all)
	}
	files := map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/data/kubelet\n", "data/kubelet/pods/u/x": "data\n"}
	foundAt(t, nodeWith(t, files), planted(func(o *Options) { o.Omit = "kubelet-pods" }), sensitivePlace, "data/kubelet/pods/u/x")
}
