package nodeconfig

import (
	"regexp"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// EKS's own ways to configure kubelet and containerd. Where there is one, the agent leaves both
// alone and gives the machine its identity only.
const (
	// Nodeadm reads EC2's user data at every boot, writes all configuration and starts kubelet
	// (amazon-eks-ami 81fec2e, nodeadm-*.service in templates/al2023/runtime/rootfs).
	Nodeadm = "nodeadm"
	// Bootstrap is a script that user data calls by cloud-init, once for each instance; Ubuntu's
	// images for EKS have it, with kubelet in a snap (https://github.com/eksctl-io/eksctl/issues/110).
	Bootstrap = "bootstrap.sh"
)

const (
	// NodeadmUnit is the second of nodeadm's two units, which starts kubelet.
	NodeadmUnit = "nodeadm-run.service"
	// SnapKubelet is kubelet's unit where Canonical's snap kubelet-eks is (as above).
	SnapKubelet = "snap.kubelet-eks.daemon.service"

	nodeadmWanted = "etc/systemd/system/multi-user.target.wants/" + NodeadmUnit
	bootstrapPath = "etc/eks/bootstrap.sh"
)

// Configurer is what of EKS configures this image's nodes, Nodeadm or Bootstrap; empty: the agent.
func Configurer(d *disk.Disk) string {
	if _, err := d.Lstat(nodeadmWanted); err == nil {
		return Nodeadm
	}
	if d.Exists(bootstrapPath) {
		return Bootstrap
	}
	return ""
}

var overrideFlag = regexp.MustCompile(`--hostname-override[= ]+["']?([^\s"']+)`)

// NodeName is the name with which kubelet registers its node by its arguments; empty where it is
// the host's.
func NodeName(d *disk.Disk) string {
	dropIn, _ := d.ReadFile(DropInPath, disk.Small) // none: the unit's own arguments
	if found := overrideFlag.FindAllStringSubmatch(strings.Join(Command(d, dropIn), " ")+"\n"+environment(d), -1); found != nil {
		return found[len(found)-1][1]
	}
	return ""
}
