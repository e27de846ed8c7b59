package seal

import "bytes"

// eksRules are for the images of EKS. What nodeadm, the images' scripts and units leave on a node
// is from their sources (https://github.com/awslabs/amazon-eks-ami at 81fec2e: nodeadm/internal,
// templates/al2023); what Canonical's images have is from eksctl's scripts for them. No node of EKS
// was seen. What AWS itself removes from an image, templates/al2023/provisioners/cleanup.sh, is in
// the rules of other groups.
func eksRules() []Rule {
	const group = "Amazon EKS"
	return []Rule{
		{ID: "nodeadm-config", Group: group, Action: Remove, Phase: Donor,
			Paths: []string{"/etc/eks/kubelet/environment", "/etc/kubernetes/kubelet/config.json",
				"/etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf", "/etc/eks/nodeadm/udev-net-manager/*",
				"/etc/systemd/system/*.wants/udev-net-manager@*.service"},
			Why: "nodeadm wrote the donor's provider ID, node name and address there, and which network cards are whose; it writes them again at every boot"},
		{ID: "bootstrap-config", Group: group, Action: Edit, Phase: Donor, Change: dropProviderID,
			Paths: []string{"/etc/kubernetes/kubelet/kubelet-config.json"},
			Why:   "providerID, which EKS's bootstrap.sh writes into the image's own file; the script writes the clone's"},
		{ID: "nodeadm-disks", Group: group, Action: Remove, Phase: Donor, Only: mountsInstanceStore,
			Paths: []string{"/etc/systemd/system/*.mount"},
			Why:   "mounts of the donor's instance store by its UUID, which no clone has, so its boot would wait for them; nodeadm writes them again"},
		{ID: "nodeadm-array", Group: group, Action: Remove, Phase: Donor, Paths: []string{"/.aws/mdadm.conf"},
			Why: "the array of the donor's instance store: with it nodeadm's script would make none of the clone's"},
		{ID: "ecr-cache", Group: group, Action: Remove, Phase: Donor, Secret: true, Paths: userPaths(".ecr"),
			Why: "registry logins that ECR's credential helpers keep; each is valid for twelve hours"},
		{ID: "cloudformation-helpers", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/var/lib/cfn-init/data/*", "/var/lib/cfn-hup/data/*", "/var/lib/cfn-init/*.json"},
			Why:   "the stack's metadata of the donor, which may hold passwords"},
		{ID: "efs", Group: group, Action: Remove, Phase: Donor, Secret: true,
			Paths: []string{"/etc/amazon/efs/privateKey.pem", "/var/amazon/efs/*", "/var/run/efs/*"},
			Why:   "keys and mount states of the EFS client, which makes them again"},
	}
}

// mountsInstanceStore: units of templates/al2023/runtime/bin/setup-local-disks, by its directory.
func mountsInstanceStore(data []byte) bool { return bytes.Contains(data, []byte("=/mnt/k8s-disks/")) }
