package kube

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"kamino.dev/kamino"
)

// volume is a bound PersistentVolume.
func volume(changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data-a"}}}
	for _, change := range changes {
		change(v)
	}
	return v
}

func on(key string, names ...string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		if v.Spec.NodeAffinity == nil {
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
		}
		terms := &v.Spec.NodeAffinity.Required.NodeSelectorTerms
		*terms = append(*terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"eu-1a"}},
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: names}}})
	}
}

func localDisk(v *corev1.PersistentVolume) {
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt/nvme0"}
}
func hostPath(v *corev1.PersistentVolume) {
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
}
func driver(v *corev1.PersistentVolume) {
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "topolvm.io"}
}
func unbound(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }
func many(v *corev1.PersistentVolume) {
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// at is a pod of another node.
func at(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

// mounts is a pod that mounts the claim.
func mounts(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-a"}}}}
}

// scratch is a pod whose claim ends with it.
func scratch(p *corev1.Pod) {
	p.Name = "data"
	p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
}

// TestLocalVolume: a stop of the machine destroys what a drain keeps, so that the node is refused
// before any pod is evicted, with force as well; a run that reboots the node only may have it.
func TestLocalVolume(t *testing.T) {
	const host = corev1.LabelHostname
	for name, tt := range map[string]struct {
		volume *corev1.PersistentVolume
		pod    *corev1.Pod
		other  *corev1.Pod
		want   string // part of why it is refused
	}{
		"local, mounted":                   {volume: volume(localDisk, on(host, "ip-1")), pod: pod("a", mounts), want: "PersistentVolume pv (claim shop/data-a, pod shop/a)"},
		"local, of a DaemonSet's pod":      {volume: volume(localDisk, on(host, "ip-1")), pod: pod("a", mounts, daemon), want: "pod shop/a"},
		"local, its pod is not there":      {volume: volume(localDisk, on(host, "ip-1")), pod: pod("a"), want: "PersistentVolume pv (claim shop/data-a)"},
		"a driver's, by its own key":       {volume: volume(driver, on("topology.topolvm.io/node", "n1")), pod: pod("a"), want: "PersistentVolume pv"},
		"a path, on this node":             {volume: volume(hostPath, on(host, "ip-1")), pod: pod("a"), want: "PersistentVolume pv"},
		"a path without a node, mounted":   {volume: volume(hostPath), pod: pod("a", mounts), want: "pod shop/a"},
		"a path without a node, elsewhere": {volume: volume(hostPath), pod: pod("a")},
		"a path of many nodes":             {volume: volume(hostPath, many), pod: pod("a", mounts)},
		"a path that others mount as well": {volume: volume(hostPath), pod: pod("a", mounts), other: pod("b", mounts, at("n2"))},
		"a path that another has ended to mount": {volume: volume(hostPath), pod: pod("a", mounts), other: pod("b", mounts, at("n2"), succeeded),
			want: "claim shop/data-a"},
		"a driver's, by an ID of the machine": {volume: volume(driver, on("topology.example.com/machine", "m-1")), pod: pod("a"), want: "PersistentVolume pv (claim shop/data-a)"},
		"a driver's, by the ID of another":    {volume: volume(driver, on("topology.example.com/machine", "m-2")), pod: pod("a")},
		"a driver's, by what two nodes have":  {volume: volume(driver, on("topology.example.com/rack", "r-1")), pod: pod("a", mounts)},
		"of a zone with one node":             {volume: volume(driver, on("topology.disk.csi.azure.com/zone", "eu-1a")), pod: pod("a", mounts)},
		"of no zone, which one node has":      {volume: volume(driver, on("topology.gke.io/zone", "")), pod: pod("a", mounts)},
		"local, of another node":              {volume: volume(localDisk, on(host, "ip-2")), pod: pod("a")},
		"on either of two nodes":              {volume: volume(driver, on(host, "ip-1", "ip-2")), pod: pod("a", mounts)},
		"on either of two nodes, by terms":    {volume: volume(driver, on(host, "ip-1"), on(host, "ip-2")), pod: pod("a", mounts)},
		"of the zone":                         {volume: volume(driver, on("topology.ebs.csi.aws.com/zone", "eu-1a")), pod: pod("a", mounts)},
		"without a place":                     {volume: volume(driver), pod: pod("a", mounts)},
		"without a claim":                     {volume: volume(localDisk, on(host, "ip-1"), unbound), pod: pod("a")},
		"deleted with its pod":                {volume: volume(driver, on(host, "ip-1")), pod: pod("a", scratch)},
	} {
		t.Run(name, func(t *testing.T) {
			own := map[string]string{host: "ip-1", corev1.LabelTopologyZone: "eu-1a", "topology.disk.csi.azure.com/zone": "eu-1a", "topology.gke.io/zone": "",
				"topology.example.com/machine": "m-1", "topology.example.com/rack": "r-1"}
			others := map[string]string{host: "ip-2", "topology.example.com/machine": "m-2", "topology.example.com/rack": "r-1"}
			objects := []runtime.Object{tt.pod, tt.volume, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: own}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: others}}}
			if tt.other != nil {
				objects = append(objects, tt.other)
			}
			client := fake.NewClientset(objects...)
			c, n := NewForClient(client, Options{}), kamino.Node{Name: "n1", Labels: own}
			refused := func(did string, err error) {
				var r *kamino.RefusedError
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s: %v", did, err)
				case tt.want != "" && (!errors.As(err, &r) || r.Refusals[0].Code != kamino.CodeLocalVolume || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("%s: %v, want a refusal that names %s", did, err, tt.want)
				}
			}
			_, err := c.Rehearse(t.Context(), n, kamino.SealOrder{Run: "r"}, kamino.DrainOptions{Force: true})
			refused("rehearse", err)
			_, err = c.Preview(t.Context(), n, kamino.DrainOptions{Force: true})
			refused("preview", err)
			if _, err := c.Rehearse(t.Context(), n, kamino.SealOrder{Run: "r", Patch: []byte("{}")}, kamino.DrainOptions{Force: true}); err != nil {
				t.Errorf("a reboot keeps it: %v", err)
			}
		})
	}
}
