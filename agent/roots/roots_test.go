package roots

import (
	"slices"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// found is a directory that a disk's configuration names, and the list in which it has to be.
type found struct {
	what  string
	files map[string]string
	root  string
	list  func(Roots) []string
}

func ofKubelet(r Roots) []string    { return r.Kubelet }
func ofContainerd(r Roots) []string { return r.Containerd }
func ofDocker(r Roots) []string     { return r.Docker }
func ofStorage(r Roots) []string    { return r.Storage }

var everywhere = []found{
	{"a unit's flag", map[string]string{"etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --root-dir=/data/kubelet --v=2\n"}, "data/kubelet", ofKubelet},
	{"a flag behind a line break", map[string]string{"etc/systemd/system/kubelet.service.d/9.conf": "[Service]\nExecStart=/usr/bin/kubelet \\\n  --root-dir /data/kubelet \\\n  --v=2\n"}, "data/kubelet", ofKubelet},
	{"a package's unit", map[string]string{"usr/lib/systemd/system/kubelet.service": "[Service]\nEnvironment=\"ARGS=--root-dir=/data/kubelet\"\n"}, "data/kubelet", ofKubelet},
	{"an environment file", map[string]string{"etc/default/kubelet": "KUBELET_EXTRA_ARGS=\"--root-dir=/data/kubelet\"\n"}, "data/kubelet", ofKubelet},
	{"kubeadm's flags", map[string]string{"var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--root-dir=/data/kubelet --x=y\"\n"}, "data/kubelet", ofKubelet},
	{"an environment file of an operator's", map[string]string{"etc/systemd/system/kubelet.service": "EnvironmentFile=-/opt/node/env\n", "opt/node/env": "A='--root-dir=/data/kubelet'\n"}, "data/kubelet", ofKubelet},
	{"a script", map[string]string{"etc/systemd/system/kubelet.service": "ExecStart=/opt/bin/start\n", "opt/bin/start": "#!/bin/sh\nexec kubelet --root-dir=/data/kubelet\n"}, "data/kubelet", ofKubelet},
	{"K3s", map[string]string{"etc/rancher/k3s/config.yaml": "kubelet-arg:\n- \"root-dir=/data/kubelet\"\n"}, "data/kubelet", ofKubelet},
	{"RKE2's unit", map[string]string{"usr/local/lib/systemd/system/rke2-agent.service": "ExecStart=/usr/local/bin/rke2 agent --kubelet-arg=root-dir=/data/kubelet\n"}, "data/kubelet", ofKubelet},
	{"RKE2's directory", map[string]string{"etc/rancher/rke2/config.yaml.d/50.yaml": "kubelet-arg:\n  - root-dir=/data/kubelet\n"}, "data/kubelet", ofKubelet},
	{"k0s", map[string]string{"var/lib/k0s/kubelet/x": "x"}, "var/lib/k0s/kubelet", ofKubelet},
	{"k0s' flag", map[string]string{"etc/systemd/system/k0sworker.service": "ExecStart=/usr/local/bin/k0s worker --kubelet-root-dir=/data/kubelet\n"}, "data/kubelet", ofKubelet},
	{"k0s' data", map[string]string{"etc/systemd/system/k0sworker.service": "ExecStart=/usr/local/bin/k0s worker --data-dir=/data/k0s\n"}, "data/k0s/kubelet", ofKubelet},
	{"MicroK8s", map[string]string{"var/snap/microk8s/common/var/lib/kubelet/x": "x"}, "var/snap/microk8s/common/var/lib/kubelet", ofKubelet},
	{"MicroK8s' flag", map[string]string{"var/snap/microk8s/current/args/kubelet": "--root-dir=/data/kubelet\n"}, "data/kubelet", ofKubelet},
	{"containerd's configuration", map[string]string{"etc/containerd/config.toml": "version = 2\nroot = \"/data/containerd\"\nstate = \"/run/containerd\"\n"}, "data/containerd", ofContainerd},
	{"an import", map[string]string{"etc/containerd/conf.d/root.toml": "root = '/data/containerd'\n"}, "data/containerd", ofContainerd},
	{"another configuration", map[string]string{"etc/systemd/system/containerd.service": "ExecStart=/usr/bin/containerd --config /opt/containerd.toml\n", "opt/containerd.toml": "root = \"/data/containerd\"\n"}, "data/containerd", ofContainerd},
	{"containerd's flag", map[string]string{"etc/systemd/system/containerd.service.d/x.conf": "ExecStart=/usr/bin/containerd --root /data/containerd\n"}, "data/containerd", ofContainerd},
	{"K3s' containerd", map[string]string{"etc/rancher/k3s/config.yaml": "data-dir: /data/k3s\n"}, "data/k3s/agent/containerd", ofContainerd},
	{"docker's containerd", map[string]string{"etc/docker/daemon.json": `{"data-root": "/data/docker"}`}, "data/docker/containerd/daemon", ofContainerd},
	{"docker", map[string]string{"etc/docker/daemon.json": `{"log-level": "info", "data-root":"/data/docker"}`}, "data/docker", ofDocker},
	{"docker's flag", map[string]string{"etc/systemd/system/docker.service.d/root.conf": "ExecStart=/usr/bin/dockerd --data-root=/data/docker -H fd://\n"}, "data/docker", ofDocker},
	{"docker, years ago", map[string]string{"etc/docker/daemon.json": `{"graph": "/data/docker"}`}, "data/docker", ofDocker},
	{"CRI-O", map[string]string{"etc/crio/crio.conf.d/10.conf": "[crio]\nroot = \"/data/storage\"\n"}, "data/storage", ofStorage},
	{"podman", map[string]string{"etc/containers/storage.conf": "[storage]\ngraphroot = \"/data/storage\"\n"}, "data/storage", ofStorage},
	{"CRI-O's flag", map[string]string{"etc/systemd/system/crio.service": "ExecStart=/usr/bin/crio --root /data/storage\n"}, "data/storage", ofStorage},
}

func TestOf(t *testing.T) {
	for _, c := range everywhere {
		t.Run(c.what, func(t *testing.T) {
			c.files[c.root+"/there"] = "x"
			if got := c.list(Of(disktest.New(t, c.files))); !slices.Contains(got, c.root) || len(got) < 2 {
				t.Errorf("%q without %s", got, c.root)
			}
		})
	}
}

// TestNoRoots: what is commented out, not there, or holds more than a program's state, is none.
func TestNoRoots(t *testing.T) {
	for text, dir := range map[string]string{"# --root-dir=/data/kubelet": "data/kubelet", "--root-dir=/data/none": "data/kubelet", "--root-dir=/": "data", "--root-dir=/var/lib": "var/lib/x", "--root-dir=/etc/kubelet": "etc/kubelet",
		"--root-dir=/usr/lib/x": "usr/lib/x", "--root-dir=/home": "home/u", "--root-dir=$DIR/kubelet": "kubelet", "--other-root-directory=/data/kubelet": "data/kubelet"} {
		d := disktest.New(t, map[string]string{"etc/default/kubelet": "A=\"" + text + "\"\n", dir + "/there": "x"})
		if text[0] == '#' {
			d = disktest.New(t, map[string]string{"etc/default/kubelet": text + "\n", dir + "/there": "x"})
		}
		if got := Of(d).Kubelet; !slices.Equal(got, []string{kubelet}) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// TestNames: patterns for the usual directory cover the others, and names in these are the usual
// ones to tables.
func TestNames(t *testing.T) {
	r := Of(disktest.New(t, map[string]string{"etc/docker/daemon.json": `{"data-root": "/data/doc*er"}`, "etc/default/kubelet": "--root-dir=/data/kubelet", "data/kubelet/x": "x", "data/doc*er/containerd/daemon/x": "x"})) // a name with a pattern's signs
	if got, want := r.Expand([]string{"/var/lib/kubelet/pods/*", "var/lib/docker/containers/*", "/var/lib/kubelet2/*"}), []string{"/var/lib/kubelet/pods/*", "var/lib/docker/containers/*", "/var/lib/kubelet2/*", "/data/kubelet/pods/*", `data/doc\*er/containers/*`}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for name, want := range map[string]string{"data/kubelet/pods/u": "var/lib/kubelet/pods/u", "data/kubelet": "var/lib/kubelet", "data/kubelet2/x": "data/kubelet2/x", "data/doc*er/overlay2/x": "var/lib/docker/overlay2/x",
		"data/doc*er/containerd/daemon/x": "var/lib/containerd/x", "var/lib/kubelet/x": "var/lib/kubelet/x", ".": "."} {
		if got := r.Usual(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// FuzzConfiguration: whatever stands in a configuration, a root is a directory of the disk that is
// nobody else's.
func FuzzConfiguration(f *testing.F) {
	for _, c := range everywhere {
		for _, text := range c.files {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := disktest.New(t, map[string]string{"etc/default/kubelet": string(text), "etc/containerd/config.toml": string(text), "etc/systemd/system/k3s.service": string(text), "data/kubelet/x": "x", "home/u/x": "x"})
		for _, list := range Of(d).lists() {
			for i, dir := range list {
				if info, err := d.Lstat(dir); i > 0 && (err != nil || !info.IsDir() || dir == "." || dir == "etc" || dir == "home") {
					t.Errorf("%s is a root, %v", dir, err)
				}
			}
		}
	})
}
