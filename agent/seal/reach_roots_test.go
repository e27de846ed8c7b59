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

// TestKeptInOtherRoots: what join: keep and exceptions leave in a usual directory, they leave in the
// others too: neither rules, nor the scan, nor the inventory object. join: fresh takes it away.
func TestKeptInOtherRoots(t *testing.T) {
	const kubeconfig = "data/kubelet/kubeconfig"
	files := map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/data/kubelet\n", "data/kubelet/pki/x.pem": secret,
		kubeconfig: "apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user: {client-key-data: TUhjQ0FRRUVJS2lMcGwxdjU=}\n"}
	for join, stays := range map[string]bool{JoinKeep: true, JoinFresh: false} {
		t.Run(join, func(t *testing.T) {
			d := nodeWith(t, files)
			if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.Join, o.Config.Verify.Unknown = join, UnknownRefuse })); err != nil {
				t.Fatal(err)
			}
			if d.Exists(kubeconfig) != stays || d.Exists("data/kubelet/pki/x.pem") {
				t.Errorf("the kubeconfig stays: %v, pki/x.pem stays: %v", d.Exists(kubeconfig), d.Exists("data/kubelet/pki/x.pem"))
			}
		})
	}
	files["data/kubelet/pods/u/x"] = "data\n"
	for what, paths := range map[string][]string{"a whole rule": nil, "a path of a rule": {"/var/lib/kubelet/pods/u"}} {
		t.Run(what, func(t *testing.T) {
			d := nodeWith(t, files)
			o := planted(func(o *Options) {
				o.Config.Verify.Unknown = UnknownRefuse
				o.Config.Exceptions = []Exception{{Rule: "kubelet-pods", Paths: paths, Why: "test"}}
			})
			if _, err := Seal(t.Context(), d, o); err != nil || !d.Exists("data/kubelet/pods/u/x") {
				t.Errorf("%v, or it is gone", err)
			}
		})
	}
}

// TestForgetInOtherRoots: a clone forgets the former machine's identity wherever its kubelet keeps it.
func TestForgetInOtherRoots(t *testing.T) {
	d := nodeWith(t, map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/data/kubelet\n", "data/kubelet/pki/x.pem": secret, "data/kubelet/cpu_manager_state": "{}"})
	if _, err := Forget(d, planted(nil), false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data/kubelet/pki/x.pem", "data/kubelet/cpu_manager_state"} {
		if d.Exists(name) {
			t.Errorf("/%s is still there", name)
		}
	}
}
