package nodes

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
)

const (
	kubeletVersion = "v1.36.3"
	memoryPerCPU   = 4 // GiB, that of Azure's D series
)

// nodeObject is what a kubelet registers. Labels are those of a node on Azure
// (https://learn.microsoft.com/azure/aks/use-labels#reserved-prefixes and
// https://kubernetes.io/docs/reference/labels-annotations-taints/).
func nodeObject(i emulator.Instance, who identity) *corev1.Node {
	if strings.HasPrefix(i.ID, awsScheme) {
		return awsNodeObject(i, who)
	}
	location := strings.ToLower(strings.ReplaceAll(i.Location, " ", ""))
	return apart(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: who.node, Labels: map[string]string{
			corev1.LabelOSStable:             operatingSystem(i),
			corev1.LabelArchStable:           architecture(i),
			corev1.LabelHostname:             who.hostname,
			corev1.LabelInstanceTypeStable:   i.Size,
			corev1.LabelTopologyRegion:       location,
			corev1.LabelTopologyZone:         "0", // no availability zone: Azure's provider gives the fault domain
			"kubernetes.azure.com/agentpool": who.pool,
			"agentpool":                      who.pool,
			"kubernetes.azure.com/role":      "agent",
		}},
		Spec: corev1.NodeSpec{ProviderID: ProviderID(i.ID)},
	}, i, who)
}

// awsNodeObject has the labels of a node on AWS
// (https://github.com/kubernetes/cloud-provider-aws, and eksctl's for self-managed groups).
func awsNodeObject(i emulator.Instance, who identity) *corev1.Node {
	zone, _, _ := strings.Cut(strings.TrimPrefix(i.ID, awsScheme), "/")
	return apart(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: who.node, Labels: map[string]string{
			corev1.LabelOSStable:             operatingSystem(i),
			corev1.LabelArchStable:           architecture(i),
			corev1.LabelHostname:             who.hostname,
			corev1.LabelInstanceTypeStable:   i.Size,
			corev1.LabelTopologyRegion:       i.Location,
			corev1.LabelTopologyZone:         zone,
			"alpha.eksctl.io/nodegroup-name": who.pool,
		}},
		Spec: corev1.NodeSpec{ProviderID: i.ID},
	}, i, who)
}

// imageLabel shows in kubectl which image version an instance was made from.
func imageLabel(i emulator.Instance) string {
	if i.ImageID == "" {
		return "generic"
	}
	return i.ImageID[strings.LastIndexByte(i.ImageID, '/')+1:]
}

// nodeStatus is what a kubelet reports. Conditions keep the time of their last
// transition from the status the API server has.
func nodeStatus(i emulator.Instance, who identity, address string, known []corev1.NodeCondition, now time.Time) corev1.NodeStatus {
	var images []corev1.ContainerImage
	for _, name := range who.images {
		images = append(images, corev1.ContainerImage{Names: []string{name}, SizeBytes: 1 << 20})
	}
	return corev1.NodeStatus{
		Capacity:    capacityOf(i.Size),
		Allocatable: capacityOf(i.Size),
		Images:      images,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address},
			{Type: corev1.NodeHostName, Address: who.hostname},
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID:               who.machineID,
			SystemUUID:              strings.ToLower(i.VMID),
			BootID:                  who.bootID,
			KernelVersion:           kernelOf(i),
			OSImage:                 "Debian GNU/Linux 12 (bookworm)",
			OperatingSystem:         operatingSystem(i),
			Architecture:            architecture(i),
			ContainerRuntimeVersion: "containerd://1.7.28",
			KubeletVersion:          kubeletVersion,
		},
		Conditions: conditions(known, now, corev1.ConditionTrue, "KubeletReady", "simulated kubelet is posting ready status"),
	}
}

// conditions with that Ready, in the words of the real kubelet.
func conditions(known []corev1.NodeCondition, now time.Time, ready corev1.ConditionStatus, reason, message string) []corev1.NodeCondition {
	list := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: ready, Reason: reason, Message: message},
	}
	for i := range list {
		list[i].LastHeartbeatTime = metav1.NewTime(now)
		list[i].LastTransitionTime = metav1.NewTime(now)
		for _, old := range known {
			if old.Type == list[i].Type && old.Status == list[i].Status {
				list[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return list
}

// capacityOf reads the number of CPUs from a size's name, as in Standard_D8s_v5
// (https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions).
func capacityOf(size string) corev1.ResourceList {
	cpus := 2
	if parts := strings.Split(size, "_"); len(parts) > 1 {
		number := strings.TrimLeft(parts[1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
		if end := strings.IndexFunc(number, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			number = number[:end]
		}
		if n, err := strconv.Atoi(number); err == nil && n > 0 {
			cpus = n
		}
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(cpus)*memoryPerCPU<<30, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(30<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}
}

func kernelOf(i emulator.Instance) string { return "6.1.0-48-cloud-" + architecture(i) }

func operatingSystem(i emulator.Instance) string {
	if i.Windows {
		return "windows"
	}
	return "linux"
}

func architecture(i emulator.Instance) string {
	if strings.EqualFold(i.Architecture, "Arm64") {
		return "arm64"
	}
	return "amd64"
}
