package inventory

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"kamino.dev/kamino/internal/lazyregexp"
)

// nodeRows are the reviewed list of files that installers put on Kubernetes nodes without a package:
// kubeadm on Debian and Ubuntu, AKS, aks-engine, and EKS on Amazon Linux 2023 and Ubuntu. They let a
// node that nobody changed seal without a policy. Where settings can hold a credential, the content
// decides. The scan reads all these files as well.
//
// Sources: the packages of kubeadm (kubernetes/release), Azure/AgentBaker, awslabs/amazon-eks-ami.
// That a node of AKS or EKS today has no other file of this kind is unverified.
var nodeRows = []row{
	{paths: append(inEach([]string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "opt/bin"},
		"kubelet", "kubelet-*", "kubectl", "kubectl-*", "kubeadm", "containerd", "containerd-shim", "containerd-shim-runc-v1",
		"containerd-shim-runc-v2", "ctr", "runc", "crun", "crictl",
		"nodeadm", "nodeadm-internal", "ecr-credential-provider", "acr-credential-provider", "aws-iam-authenticator"),
		"opt/kamino/kubelet/*/kubelet"),
		why:   "programs of Kubernetes and its container runtime, installed without a package; scripts without credentials",
		check: plain, programs: true},
	{paths: []string{"opt/cni/bin/*", "etc/eks/image-credential-provider/ecr-credential-provider", "var/lib/kubelet/credential-provider/*"},
		why: "plug-ins of the kubelet and of the network, copied from images; scripts without credentials", check: plain, programs: true},
	{paths: []string{"var/lib/waagent/WALinuxAgent-*/bin/*.egg", "var/lib/waagent/Microsoft.*/bin/**"},
		why: "programs of the Azure agent and of Microsoft's extensions"},
	{paths: []string{"var/lib/waagent/*/HandlerManifest.json", "var/lib/waagent/*/manifest.xml"},
		why: "what an extension of Azure supports, without credentials", check: plain},
	{paths: []string{"var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/*"},
		why: "what containerd passes over in its store, because its name is not a digest", check: unnamedBlob},
	{paths: append(inEach([]string{"etc/systemd/system", "lib/systemd/system", "usr/lib/systemd/system"},
		"kubelet.service", "kubelet.service.d/*.conf", "containerd.service", "containerd.service.d/*.conf", "nodeadm-boot-hook.service",
		"nodeadm-config.service",
		"nodeadm-run.service", "cloud-init-main.service", "snap.kubelet-eks.daemon.service"), "etc/systemd/system/*.mount"),
		why: "units of the kubelet, the runtime and the bootstrap, and mounts, without credentials", check: plain},
	{paths: []string{"etc/default/kubelet", "etc/sysconfig/kubelet", "var/lib/kubelet/config.yaml", "var/lib/kubelet/kubeadm-flags.env",
		"etc/kubernetes/kubelet/*.json", "etc/kubernetes/kubelet/*.yaml",
		"etc/eks/*", "etc/eks/image-credential-provider/config.json", "opt/azure/containers/*.sh", "opt/azure/containers/*.py",
		"opt/azure/containers/provision.complete"},
		why: "settings of the kubelet and scripts of the bootstrap, without credentials", check: plain},
	{paths: []string{"etc/kubernetes/pki/ca.crt", "etc/kubernetes/certs/ca.crt", "etc/kamino/ca.crt"},
		why: "the cluster's certificate authority; nothing but certificates is in it", check: onlyCertificates},
	{paths: []string{"etc/containerd/config.toml", "etc/containerd/base-runtime-spec.json", "etc/crictl.yaml", "etc/cni/net.d/*.conf",
		"etc/cni/net.d/*.conflist",
		"etc/sysctl.d/*.conf", "etc/modules-load.d/*.conf"},
		why: "settings of the runtime, the network plug-in and the kernel, without credentials", check: plain},
	{paths: []string{"etc/cloud/cloud.cfg", "etc/cloud/cloud.cfg.d/*.cfg"},
		why: "settings of cloud-init's modules, without commands, files and credentials", check: cloudSettings},
	{paths: []string{"etc/waagent.conf", "etc/ssh/sshd_config", "etc/ssh/sshd_config.d/*.conf", "etc/sudoers.d/90-cloud-init-users",
		"etc/os-release", "etc/hosts.allow", "etc/hosts.deny", "etc/modules", "etc/networks", "etc/initramfs-tools/modules"},
		why: "settings that installers and image builders write, without credentials", check: plain},
	{paths: []string{"etc/systemd/network/*.network", "etc/netplan/*.yaml", "etc/NetworkManager/system-connections/*.nmconnection"},
		why: "settings of network cards, without a hardware address and credentials", check: anyCard},
	{paths: []string{"var/lib/kamino/base/kubelet-config.yaml", "etc/containerd/conf.d/90-kamino.toml"},
		why: "what the agent keeps and writes of a NodeConfig, without credentials", check: plain},
	{paths: []string{"etc/kamino/nodeconfig.yaml"}, why: "the NodeConfig that clones read where their cloud brings none"},
	{paths: []string{"var/lib/containers/storage/overlay-images/**", "var/lib/containers/storage/overlay-layers/**",
		"var/lib/containers/storage/overlay-containers/containers.json"},
		why: "databases of images and layers of CRI-O and podman; a container refuses the seal"},
	{paths: []string{"etc/iptables/rules.v4", "etc/iptables/rules.v6"},
		why: "a saved firewall without rules of Kubernetes, which a rule of the seal removes", check: plain},
	{paths: []string{"sys/class/dmi/id/*"}, why: "the firmware's names, in a copy of a machine's files; on a disk /sys is empty"},
}

// inEach joins each directory with each name.
func inEach(dirs []string, names ...string) (paths []string) {
	for _, dir := range dirs {
		for _, name := range names {
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}

var (
	userInURL = lazyregexp.New(`://[^/\s]*(?:@|%40)`)
	curlLogin = lazyregexp.New(`\bcurl\b[^\n|;&]*[ \t](?:-u[ \t]*|--user[ \t=]+)["']?[\w.@-]+:[^\s$]`)
	// passwordList are accounts and their passwords, as cloud-init's module of that name takes them.
	passwordList = lazyregexp.New(`(?m)^[ \t]*["']?chpasswd["']?[ \t]*:(?:[^\n]*\n[ \t]+){0,3}[^\n]*\b(?:list|users)["']?[ \t]*:`)
	commands     = lazyregexp.New(`(?m)(?:^|[{,])[ \t]*["']?(?:write_files|runcmd|bootcmd)["']?[ \t]*:`)
	// secretSetting is an assignment to a name that stands for a credential, and its value.
	secretSetting = lazyregexp.New(`(?i)(?:passw|passphrase|psk|secret|token|credential|api_?key|private_?key|\bauth\b)[\w.-]*["']?[ \t]*[:=][ \t]*\[?["']?([^\s"',}\]]*)`)
	harmless      = lazyregexp.New(`(?i)^(?:|all|y|n|yes|no|on|off|true|false|null|none|[0-9]+|/.*|\$[({A-Z].*|\{.*|\[.*)$`)
	hardware      = lazyregexp.New(`(?i)\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b`)
)

// plain is text without a credential: no address with a user, no value of a setting that is named
// like a credential, no password, and no word that looks like a key. Comments count.
func plain(_ *look, _ string, data []byte) bool {
	if !utf8.Valid(data) || strings.ContainsRune(string(data), 0) || userInURL.Match(data) || curlLogin.Match(data) {
		return false
	}
	for _, setting := range secretSetting.FindAllSubmatch(data, -1) {
		if !harmless.Match(setting[1]) {
			return false
		}
	}
	script := bytes.HasPrefix(data, []byte("#!")) // its variables may be anything
	return noPassword(nil, "", data) && (script || noOddValue(data)) && !slices.ContainsFunc(wordsOf(data), keyLike)
}

// cloudSettings is plain text that brings no commands, files and passwords: those of an image builder
// are settings of cloud-init's modules.
func cloudSettings(l *look, name string, data []byte) bool {
	return plain(l, name, data) && !passwordList.Match(data) && !commands.Match(data)
}

// unnamedBlob is a file of containerd's content store that it does not take for a blob (Walk in
// core/content/local/store.go of github.com/containerd/containerd).
func unnamedBlob(_ *look, name string, _ []byte) bool { return len(path.Base(name)) != 64 }

// anyCard is plain text that fits every network card.
func anyCard(l *look, name string, data []byte) bool {
	return plain(l, name, data) && !hardware.Match(data)
}
