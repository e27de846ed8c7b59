package seal

import "kamino.dev/kamino/agent/runtimes"

// Table is every rule, in the order in which they are applied. docs/agent.md is generated from it.
//
// The order matters in two places: credentials go before their logs, and machine-id goes last,
// because everything that still runs on the donor may write it back (reference: man machine-id,
// section "Initialization").
func Table() []Rule {
	return slicesOf(kubernetesRules(), networkingRules(), runtimeRules(), platformRules(), eksRules(), agentRules(), secretRules(),
		dataRules(), traceRules(), identityRules())
}

func slicesOf[T any](groups ...[]T) (all []T) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

func kubernetesRules() []Rule {
	const group = "Kubernetes"
	return []Rule{
		{ID: "kubelet-pki", Group: group, Action: Remove, Phase: Both, Secret: true, Paths: []string{"/var/lib/kubelet/pki/*"},
			Why: "client and serving certificates of the donor: a clone that finds them joins as the donor"},
		{ID: "kubelet-kubeconfig", Group: group, Action: Remove, Phase: Both, Secret: true,
			Paths:       []string{"/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet-kubeconfig"},
			Shared:      []string{"/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet-kubeconfig"},
			SharedKinds: []string{"kubeconfig", "private-key", "token-jwt"},
			Why:         "with a valid kubeconfig kubelet skips its bootstrap and acts as the donor"},
		{ID: "kubelet-bootstrap", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/kubelet/bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf"},
			Why:   "a bootstrap token, expired or shared by the whole pool; the first boot writes a fresh one"},
		{ID: "kubernetes-certs", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths:  []string{"/etc/kubernetes/certs/*", "/etc/kubernetes/pki/*"},
			Keep:   []string{"/etc/kubernetes/certs/ca.crt", "/etc/kubernetes/pki/ca.crt"},
			Shared: []string{"/etc/kubernetes/certs/client.crt", "/etc/kubernetes/certs/client.key"}, SharedKinds: []string{"private-key"},
			Why: "serving and client keys issued to the donor; the cluster's CA certificate is public and stays"},
		{ID: "kubernetes-admin", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/scheduler.conf",
				"/etc/kubernetes/controller-manager.conf", "/root/.kube", "/home/*/.kube"},
			Why: "kubeconfigs of people and of control plane components"},
		{ID: "cloud-credentials", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/kubernetes/azure.json", "/etc/kubernetes/sp.txt", "/etc/kubernetes/cloud-config",
				"/etc/kubernetes/azurestackcloud.json"},
			Shared:      []string{"/etc/kubernetes/azure.json", "/etc/kubernetes/azurestackcloud.json"},
			SharedKinds: []string{"cloud-credential", "azure-secret"},
			Why:         "service principal secret and the ids of the donor's network"},
		{ID: "kubelet-flags", Group: group, Action: Edit, Phase: Both, Change: dropNodeFlags,
			Paths: []string{"/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env",
				"/etc/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/*.conf"},
			Why: "AKS writes --node-ip with the donor's address; --hostname-override and --provider-id name the donor as well"},
		{ID: "kubelet-config", Group: group, Action: Edit, Phase: Both, Change: dropNodeFields,
			Paths: []string{"/var/lib/kubelet/config.yaml"},
			Why:   "providerID and the donor's address; the rest is the template of the clone's configuration"},
		{ID: "kubelet-managers", Group: group, Action: Remove, Phase: Both,
			Paths: []string{"/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state",
				"/var/lib/kubelet/dra_manager_state"},
			Why: "kubelet refuses to start when the machine's size differs from the one in these files"},
		{ID: "kubelet-state", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/var/lib/kubelet/allocated_pods_state", "/var/lib/kubelet/actuated_pods_state",
				"/var/lib/kubelet/pod_status_manager_state",
				"/var/lib/kubelet/device-plugins/*", "/var/lib/kubelet/plugins_registry/*", "/var/lib/kubelet/plugins/*/*.sock",
				"/var/lib/kubelet/plugins/kubernetes.io/*", "/var/lib/kubelet/plugins/*/vol_data.json", "/var/lib/kubelet/checkpoints/*"},
			Why: "the donor's pods, volumes and dead sockets"},
		{ID: "kubelet-pods", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/var/lib/kubelet/pods/*"},
			Why: "volumes of the donor's pods: service-account tokens, copied secrets, emptyDir data"},
		{ID: "k3s", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/rancher/node/*", "/var/lib/rancher/*/agent/*.key", "/var/lib/rancher/*/agent/*.crt",
				"/var/lib/rancher/*/agent/*.kubeconfig", "/var/lib/rancher/*/agent/pod-manifests/*",
				"/var/lib/k0s/kubelet.conf", "/var/lib/k0s/kubelet-bootstrap.conf"},
			Why: "node password and client keys of k3s, RKE2 and k0s; the agent makes new ones when it joins"},
		{ID: "static-pods", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/etc/kubernetes/manifests/*"},
			Why: "would run on every clone, with whatever their environment holds; allow those you want with an exception"},
		{ID: "pod-logs", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/log/pods/*", "/var/log/containers/*"},
			Why:   "what the donor's pods printed"},
	}
}

func networkingRules() []Rule {
	const group = "CNI and network"
	return []Rule{
		{ID: "cni-config", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: []string{"/etc/cni/net.d/*"},
			Keep: []string{"/etc/cni/net.d/10-azure.conflist"},
			Why:  "with a stale configuration the runtime says NetworkReady before the CNI works; calico's names the donor, and its kubeconfig holds a token"},
		{ID: "cni-state", Group: group, Action: Remove, Phase: Both,
			Paths: []string{"/var/lib/cni/networks/*", "/var/lib/cni/results/*", "/var/lib/cni/cache/*"},
			Why:   "addresses of the donor's pods: leaked or given twice"},
		{ID: "cni-node", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/var/lib/calico/*", "/var/lib/cilium/*", "/var/lib/azure-network/*", "/var/lib/azure-vnet*.json",
				"/var/lib/azure-ipam*.json",
				"/var/lib/weave/*", "/var/lib/antrea/*", "/var/lib/kube-router/*", "/etc/openvswitch/conf.db",
				"/etc/openvswitch/system-id.conf",
				"/etc/ovn/*.db", "/var/lib/ovn/*", "/var/lib/openvswitch/*", "/run/flannel/*", "/run-flannel/*", "/var/lib/whereabouts/*",
				"/etc/cilium/keys"},
			Why: "the donor's node name, tunnel and endpoint identities"},
		{ID: "firewall", Group: group, Action: Remove, Phase: Donor, Only: mentionsKube,
			Paths: []string{"/etc/iptables/rules.v4", "/etc/iptables/rules.v6"},
			Why:   "saved rules for the donor's services and pods"},
		{ID: "netplan-mac", Group: group, Action: Remove, Phase: Donor, Only: mentionsMAC, Paths: []string{"/etc/netplan/*.yaml"},
			Why: "cloud-init matches the donor's MAC address: a clone without cloud-init would have no network"},
		{ID: "networkd-mac", Group: group, Action: Remove, Phase: Donor, Only: mentionsMAC,
			Paths: []string{"/etc/systemd/network/*.network", "/etc/systemd/network/*.link", "/etc/systemd/network/*.netdev",
				"/etc/network/interfaces.d/*"},
			Why: "bound to the donor's MAC address"},
		{ID: "networkmanager-mac", Group: group, Action: Remove, Phase: Donor, Only: mentionsMAC,
			Paths: []string{"/etc/NetworkManager/system-connections/*"},
			Why:   "bound to the donor's MAC address"},
		{ID: "ifcfg-mac", Group: group, Action: Edit, Phase: Donor, Change: dropHardwareLines,
			Paths: []string{"/etc/sysconfig/network-scripts/ifcfg-*", "/etc/sysconfig/network/ifcfg-*"},
			Why:   "bound to the donor's MAC address: a clone would have no network"},
		{ID: "udev-net", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/etc/udev/rules.d/70-persistent-net*"},
			Why: "the donor's interface name stays reserved: eth0 becomes eth1"},
		{ID: "dhcp-leases", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/var/lib/dhcp/*", "/var/lib/dhclient/*", "/var/lib/dhcpcd/*", "/etc/dhcpcd.duid",
				"/var/lib/NetworkManager/*.lease",
				"/var/lib/dhcpv6/*", "/var/lib/systemd/network/*", "/var/lib/wicked/*", "/var/lib/connman/*/data",
				"/var/lib/NetworkManager/timestamps", "/var/lib/NetworkManager/seen-bssids"},
			Why: "two machines with one DHCP identity get one lease"},
		{ID: "networkmanager-secret", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/NetworkManager/secret_key"},
			Why:   "key from which stable addresses and DHCP identities are derived"},
		{ID: "resolv-conf", Group: group, Action: Edit, Phase: Donor, Change: dropAzureSearch,
			Paths: []string{"/etc/resolv.conf", "/etc/.resolv.conf.systemd-resolved.bak"},
			Why:   "search domain of the donor's virtual network"},
		{ID: "iscsi", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/etc/iscsi/initiatorname.iscsi"},
			Why: "two initiators of one name corrupt a LUN; the first boot makes a new one"},
		{ID: "nvme", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/etc/nvme/hostnqn", "/etc/nvme/hostid"},
			Why: "two NVMe hosts of one name; the first boot makes a new one"},
		{ID: "disks", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/etc/multipath/wwids", "/etc/multipath/bindings", "/etc/lvm/devices/system.devices", "/etc/blkid.tab"},
			Why:   "serial numbers of the donor's disks"},
		{ID: "fstab", Group: group, Action: Edit, Phase: Donor, Change: dropDonorMounts, Paths: []string{"/etc/fstab"},
			Why: "the donor's resource disk, and swap files that do not travel"},
	}
}

func runtimeRules() []Rule {
	const group = "Container runtime"
	return []Rule{
		{ID: "containers", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/containerd/io.containerd.grpc.v1.cri/containers/*",
				"/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/*",
				"/var/lib/containerd/io.containerd.runtime.v2.task/*", "/var/lib/containerd/tmpmounts/*", "/var/lib/docker/containers/*"},
			Why: "containers of the donor; the image cache next to them stays, it is the point of a clone"},
		{ID: "runtime-identity", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/var/lib/containerd/io.containerd.grpc.v1.introspection/uuid",
				"/var/lib/containerd/io.containerd.sandbox.store.v1.bolt/*", "/var/lib/nerdctl/*/containers/*",
				"/var/lib/nerdctl/*/names/*", "/var/lib/nerdctl/*/etchosts/*", "/var/lib/buildkit/*", "/var/lib/docker/buildkit/*",
				"/var/lib/docker/plugins/*/config.json"},
			Why: "containerd makes a new UUID when the file is missing; build caches and records of containers are the donor's"},
		{ID: "containerd-metadata", Group: group, Action: Edit, Phase: Donor, Rewrite: compactBolt,
			Paths: []string{runtimes.MetadataPath},
			Why:   "the database keeps its images; its free pages, with what removed containers were given, go"},
		{ID: "docker-identity", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/docker/key.json", "/var/lib/docker/engine-id", "/var/lib/docker/swarm/*"},
			Why:   "identity and swarm keys of the donor's engine"},
		{ID: "registry-credentials", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/root/.docker", "/home/*/.docker", "/var/lib/kubelet/config.json", "/var/lib/kubelet/.dockercfg",
				"/var/lib/kubelet/.docker",
				"/var/lib/kubelet/image_manager/*", "/etc/containerd/certs.d/*/*.key", "/etc/docker/certs.d/*/*.key",
				"/etc/containers/auth.json",
				"/root/.config/containers/auth.json", "/home/*/.config/containers/auth.json"},
			Why: "pull secrets"},
	}
}

func identityRules() []Rule {
	const group = "Identity"
	return []Rule{
		{ID: "hosts", Group: group, Action: Edit, Phase: Both, Change: dropOwnHosts, Paths: []string{"/etc/hosts"},
			Why: "lines in which the donor resolves itself"},
		{ID: "hostname", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/etc/hostname", "/etc/machine-info"},
			Why: "the node's name is the host's name; the first boot takes it from IMDS"},
		{ID: "recorded-vm", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/etc/kamino/vm.json"},
			Why: "the disk belongs to no virtual machine any more, so donor and clones come back alike"},
		{ID: "agent-state", Group: group, Action: Remove, Phase: Both,
			Paths: []string{"/var/lib/kamino/config.json", "/var/lib/kamino/previous.json", "/var/lib/kamino/boots",
				"/var/lib/kamino/patch-holds", "/opt/kamino/patch"},
			Why: "the donor's configuration generation, its recorded boots and what a patch left"},
		{ID: "machine-id-dbus", Group: group, Action: Link, Phase: Both, Target: "/etc/machine-id", Only: ownMachineID,
			Paths: []string{"/var/lib/dbus/machine-id"},
			Why:   "systemd adopts a regular file here when /etc/machine-id is empty: every clone would get the donor's"},
		{ID: "machine-id", Group: group, Action: Truncate, Phase: Donor, Paths: []string{"/etc/machine-id"},
			Why: "empty, not absent: absent means first boot to systemd, which enables what the operator disabled"},
	}
}
