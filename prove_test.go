package kamino

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var proofNoon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

var proofBounds = Bounds{Boot: 10 * time.Minute, Bake: 10 * time.Minute}

// inZone is a canary in a zone with another node, which is well or not.
func inZone(s *Sight, well bool) {
	s.Canary.Zone = "z-2"
	s.Others[0].Labels, s.Others[0].Ready = map[string]string{labelZone: "z-2"}, well
}

// goodSight is a canary that has been Ready for eleven minutes.
func goodSight() Sight {
	report, _ := json.Marshal(NodeReport{Nonce: "n", At: proofNoon, Restarts: map[string]int{"kubelet.service": 1},
		SSHKeys: []string{"new"}, PackageDigest: "p", Timing: Timing{Phases: map[string]float64{"kubelet": 4}}})
	own := map[string]string{"agentpool": "a", "kubernetes.io/hostname": "a-0"}
	labels := map[string]string{"agentpool": "a", "kubernetes.io/hostname": "kamino-00000000000000", "added-by-hand": "no", LabelCanary: "true"}
	versions := map[string]string{"kubelet": "v1.36.3", "kernel": "6.1"}
	node := func(name, id, vm string) NodeSight {
		return NodeSight{Node: Node{Name: name, UID: "uid-" + name, ProviderID: InstanceID(id), SystemUUID: vm, MachineID: "m-" + name, Ready: true},
			Pulse: proofNoon.Add(-5 * time.Second), Versions: versions, CPU: 4000, Memory: 16 << 30, MaxPods: 110, Images: []string{"x", "y", "z"}, Own: own}
	}
	s := Sight{Now: proofNoon, Launched: proofNoon.Add(-15 * time.Minute), Running: proofNoon.Add(-13 * time.Minute), Ready: proofNoon.Add(-11 * time.Minute),
		Nonce: "n", Donor: "a-0", Sealed: map[string]string{TagSSHKeys: "old1 old2", TagPackages: "p", TagBuiltFrom: "a-0"}, Restarts: map[string]int{"kubelet.service": 1},
		Canary: Canary{Name: "kamino-00000000", State: Succeeded, Power: PowerOn, Instance: "azure://c/0", VMID: "00000000-0000-4000-8000-000000000001", Hostname: "kamino-00000000000000"},
		Others: []Node{{Name: "a-1", UID: "uid-a-1", MachineID: "m-a-1"}}, Before: map[string]string{"a-0": "m-a-0", "a-1": "m-a-1"},
		ClusterSight: ClusterSight{Renewed: proofNoon.Add(-5 * time.Second), Starts: 1, Daemons: []DaemonPod{{Set: "kube-system/proxy", Ready: true, Beside: true}},
			Node:    node("kamino-00000000000000", "azure://c/0", "00000000-0000-4000-8000-000000000001"),
			Sibling: node("a-0", "azure://a/0", "00000000-0000-4000-8000-000000000002")}}
	s.Node.Labels, s.Node.Created, s.Node.ReadySince = labels, s.Running.Add(time.Minute), s.Ready
	s.Node.Annotations, s.ReadyAs = map[string]string{AnnotationReport: string(report)}, s.Ready
	return s
}

// silent is a canary of which nothing was heard since the cloud made it.
func silent(s *Sight) {
	s.Ready, s.Node = time.Time{}, NodeSight{}
}

// size labels the canary's node and its sibling.
func size(s *Sight, canary, sibling string) {
	s.Node.Labels, s.Sibling.Labels = maps.Clone(s.Node.Labels), map[string]string{labelSize: sibling}
	s.Node.Labels[labelSize] = canary
}

func reports(s *Sight, change func(*NodeReport)) {
	r, _ := s.Node.Report("n")
	change(&r)
	text, _ := json.Marshal(r)
	s.Node.Annotations = map[string]string{AnnotationReport: string(text)}
}

// TestJudgeTellsHowLong: a wait says when it ends, and never longer than it takes.
func TestJudgeTellsHowLong(t *testing.T) {
	for _, tt := range []struct {
		bake, ready time.Duration
		labelled    string
		want        string
	}{
		{10 * time.Minute, 31 * time.Second, "a", "another 9m30s"},
		{45 * time.Second, 10 * time.Second, "a", "another 45s"},
		{45 * time.Second, 20 * time.Second, "a", "another 30s"},
		{5 * time.Second, time.Second, "a", "another 5s"},
		{5 * time.Second, time.Minute, "mars", "the verdict is fail if that lasts until 10m0s after Ready"},
		{time.Hour, time.Minute, "mars", "the verdict is fail if that lasts until 1h0m0s after Ready"},
	} {
		s, b := goodSight(), proofBounds
		b.Bake, s.Ready, s.Node.Labels["agentpool"] = tt.bake, s.Now.Add(-tt.ready), tt.labelled
		if out, f := Judge(s, b); out != ProofWaits || !strings.Contains(f[0].Evidence, tt.want) {
			t.Errorf("%+v: %s %v", tt, out, f)
		}
	}
}

// TestJudge goes through the table row by row: what is wrong, the verdict, and the check that says
// so.
func TestJudge(t *testing.T) {
	request := CertificateRequest{Name: "csr-1", Signer: "kubernetes.io/kube-apiserver-client-kubelet", Made: proofNoon.Add(-11 * time.Minute)}
	asks := func(change func(*CertificateRequest)) func(*Sight) {
		return func(s *Sight) { r := request; change(&r); s.Requests = []CertificateRequest{r} }
	}
	const pass, fail, unsure, waits = ProofPassed, ProofFailed, ProofInconclusive, ProofWaits
	for _, tt := range []struct {
		name  string
		wrong func(*Sight)
		want  Outcome
		check string
	}{
		{"nothing", func(*Sight) {}, pass, "cloud"},

		{"the cloud makes it", func(s *Sight) { silent(s); s.Running, s.Canary.State, s.Canary.Power = time.Time{}, Creating, "" }, waits, "cloud"},
		{"the cloud never makes it", func(s *Sight) {
			silent(s)
			s.Running, s.Launched = time.Time{}, proofNoon.Add(-time.Hour)
		}, unsure, "cloud"},
		{"no quota", func(s *Sight) { silent(s); s.Canary.State, s.Canary.Blocked = Failed, true }, unsure, "cloud"},
		{"the cloud gave the guest up", func(s *Sight) { silent(s); s.Canary.State, s.Canary.Failure = Failed, "OSProvisioningTimedOut" }, fail, "cloud"},
		{"somebody deleted it", func(s *Sight) { s.Gone = proofNoon.Add(-time.Hour) }, unsure, "cloud"},
		{"a list lacks it once", func(s *Sight) { s.Gone = proofNoon.Add(-time.Second) }, waits, "cloud"},
		{"somebody switched it off", func(s *Sight) { s.Canary.Power = PowerOff }, unsure, "cloud"},

		{"its set without an instance", func(s *Sight) {
			s.Canary.Instance, s.Canary.VMID, s.Canary.Hostname, s.Canary.Power = "", "", "", ""
		}, unsure, "cloud"},
		{"deleted while its pods end", func(s *Sight) {
			s.Canary.State = Deleting
			s.Node.Ready, s.Daemons[0].Ready = false, false
		}, unsure, "cloud"},
		{"the autoscaler takes it away", func(s *Sight) {
			s.Node.Taints = []Taint{{Key: TaintDeleting, Effect: "NoSchedule"}}
			s.Node.Ready = false
		}, unsure, "cloud"},
		{"its node is being deleted", func(s *Sight) { s.Node.Deleting, s.Node.Ready = true, false }, unsure, "cloud"},
		{"a list lacks it once, and its node is silent", func(s *Sight) { s.Gone = proofNoon.Add(-time.Second); s.Node.Ready = false }, waits, "cloud"},

		{"another name", func(s *Sight) { silent(s); s.Stray = "a-1" }, fail, "identity"},
		{"another name, at first", func(s *Sight) { silent(s); s.Stray, s.Running = "a-1", proofNoon.Add(-time.Minute) }, waits, "identity"},
		{"a node that claims the canary's machine", func(s *Sight) { s.Stray = "a-1" }, pass, "cloud"},
		{"a node that claims the canary's machine ID since", func(s *Sight) { s.Others[0].MachineID = s.Node.MachineID }, unsure, "identity"},
		{"another's machine ID", func(s *Sight) { s.Node.MachineID = "m-a-1" }, fail, "identity"},
		{"the donor's machine ID", func(s *Sight) { s.Node.MachineID = "m-a-0" }, fail, "identity"},
		{"another's provider ID", func(s *Sight) { s.Node.ProviderID = "azure://a/0" }, fail, "identity"},
		{"no provider ID yet", func(s *Sight) { s.Node.ProviderID = ""; s.Ready = proofNoon.Add(-time.Minute) }, waits, "identity"},
		{"no provider ID at all", func(s *Sight) { s.Node.ProviderID = "" }, unsure, "identity"},
		{"a node of that name on another machine", func(s *Sight) { s.Node.SystemUUID = "00000000-0000-4000-8000-000000000009" }, fail, "identity"},
		{"a node that does not tell its machine yet", func(s *Sight) {
			s.Running, s.Ready, s.Node.SystemUUID, s.Node.Ready = proofNoon.Add(-time.Minute), time.Time{}, "", false
		}, waits, "ready"},
		{"an old node of that name", func(s *Sight) {
			s.Running, s.Ready = proofNoon.Add(-time.Minute), time.Time{}
			s.Node.SystemUUID, s.Node.Created = "00000000-0000-4000-8000-000000000009", proofNoon.Add(-time.Hour)
		}, waits, "identity"},

		{"a disk with another machine ID than its kubelet tells", func(s *Sight) { reports(s, func(r *NodeReport) { r.MachineID = "m-a-0" }) }, fail, "identity"},
		{"a host key of the donor's", func(s *Sight) { reports(s, func(r *NodeReport) { r.SSHKeys = []string{"new", "old2"} }) }, fail, "identity"},
		{"packages that were not sealed", func(s *Sight) { reports(s, func(r *NodeReport) { r.PackageDigest = "q" }) }, unsure, "report"},
		{"a node that registered without its taint", func(s *Sight) { s.Bare = true }, fail, "apart"},
		{"the same of an image that Kamino did not seal", func(s *Sight) { s.Bare, s.Unsealed = true, true }, unsure, "apart"},
		{"few of its donor's images, of an image that Kamino did not seal", func(s *Sight) { s.Unsealed, s.Node.Images = true, nil }, pass, "cloud"},
		{"no pod of a DaemonSet, as its taint is still on", func(s *Sight) {
			s.Daemons, s.Node.Taints = []DaemonPod{{Set: "a/b", Beside: true}}, []Taint{{Key: TaintCanary}}
		}, unsure, "daemonsets"},
		{"a node that traffic would come to", func(s *Sight) { delete(s.Node.Labels, LabelCanary) }, unsure, "apart"},
		{"a request that is denied", asks(func(r *CertificateRequest) { r.Denied = true }), unsure, "certificate"},
		{"a request of somebody else's that is denied", asks(func(r *CertificateRequest) { r.Denied, r.Foreign = true, true }), pass, "cloud"},
		{"a request of somebody else's that waits", asks(func(r *CertificateRequest) { r.OthersApproved, r.Foreign = true, true }), pass, "cloud"},
		{"a request that waits longer than another's", func(s *Sight) {
			silent(s)
			r := request
			r.OthersApproved = true
			s.Requests = []CertificateRequest{r}
		}, fail, "certificate"},
		{"requests that nobody approves", func(s *Sight) { silent(s); s.Requests = []CertificateRequest{request} }, unsure, "certificate"},
		{"a serving certificate that nobody approves here", func(s *Sight) { s.Requests = []CertificateRequest{request} }, pass, "cloud"},
		{"a new request", asks(func(r *CertificateRequest) { r.OthersApproved, r.Made = true, proofNoon.Add(-time.Minute) }), waits, "certificate"},

		{"it boots", func(s *Sight) { silent(s); s.Running = proofNoon.Add(-time.Minute) }, waits, "ready"},
		{"no kubelet", silent, fail, "ready"},
		{"no kubelet, and none of the others either", func(s *Sight) { silent(s); s.Renewed = time.Time{} }, unsure, "ready"},
		{"no kubelet, and the cloud does not say that it runs", func(s *Sight) { silent(s); s.Canary.Power = PowerBetween }, unsure, "ready"},
		{"no kubelet, on a set that Azure still calls Creating", func(s *Sight) { silent(s); s.Canary.State = Creating }, fail, "ready"},
		{"no container runtime", func(s *Sight) {
			s.Ready = time.Time{}
			s.Node.Ready, s.Node.NotReady = false, "container runtime is down"
		}, fail, "ready"},

		{"slow as never before", func(s *Sight) { s.Running = proofNoon.Add(-20 * time.Minute) }, pass, "cloud"}, // without a history

		{"not Ready any more", func(s *Sight) { s.Node.Ready = false }, fail, "stable"},
		{"its Node object is gone, as people and controllers delete them", func(s *Sight) { s.Node = NodeSight{} }, unsure, "stable"},
		{"no kubelet, and its zone is cut off", func(s *Sight) { silent(s); inZone(s, false) }, unsure, "ready"},
		{"its clone knocks the only other node of its zone out", func(s *Sight) {
			silent(s)
			inZone(s, false)
			s.Others[0].Name, s.Stray, s.Node = "a-0", "a-0", NodeSight{}
		}, fail, "identity"},
		{"no kubelet, and its zone is well", func(s *Sight) { silent(s); inZone(s, true) }, fail, "ready"},
		{"no kubelet, as another clone in its zone", func(s *Sight) { silent(s); inZone(s, false); s.Others[0].Created = s.Launched }, fail, "ready"},
		{"silent, as all of its zone", func(s *Sight) { s.Node.Ready = false; inZone(s, false) }, unsure, "stable"},
		{"silent, as all others", func(s *Sight) { s.Node.Ready = false; s.Renewed = time.Time{} }, unsure, "stable"},
		{"Ready twice", func(s *Sight) { s.Node.ReadySince = s.Ready.Add(time.Minute) }, fail, "stable"},
		{"Ready twice, as a node that was there before: the control plane was away", func(s *Sight) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].ReadySince = s.Ready.Add(2 * time.Minute)
		}, unsure, "stable"},
		{"Ready twice, and a node that was there before is Ready for hours", func(s *Sight) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].ReadySince = s.Ready.Add(-time.Hour)
		}, fail, "stable"},
		{"Ready twice, while a new node became Ready", func(s *Sight) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].Created, s.Others[0].ReadySince = s.Ready, s.Ready.Add(time.Minute)
		}, fail, "stable"},
		{"not Ready any more, while others come back", func(s *Sight) {
			s.Node.Ready = false
			s.Others[0].ReadySince = s.Now.Add(-time.Minute)
		}, unsure, "stable"},
		{"two starts of the kubelet", func(s *Sight) { s.Starts = 2 }, fail, "stable"},
		{"not baked", func(s *Sight) {
			s.Ready = proofNoon.Add(-9 * time.Minute)
		}, waits, "stable"},

		{"a label of the kubelet lacks", func(s *Sight) { delete(s.Node.Labels, "agentpool") }, fail, "labels"},
		{"a wrong label", func(s *Sight) { s.Node.Labels["agentpool"] = "b" }, fail, "labels"},
		{"a label with the zone", func(s *Sight) { s.zones("eu-1b") }, pass, "cloud"},
		{"a label with another zone", func(s *Sight) { s.zones("eu-1c") }, fail, "labels"},
		{"a label that one node alone has, the donor away", func(s *Sight) { s.Donor, s.Sibling.Own = "", map[string]string{"x/forged": "x"} }, unsure, "labels"},
		{"a label that all nodes of the pool have, the donor away", func(s *Sight) {
			s.Donor, s.Peers = "", []Node{{Labels: map[string]string{"agentpool": "a"}}, {Labels: map[string]string{"agentpool": "a"}}}
			s.Node.Labels["agentpool"] = "b"
		}, fail, "labels"},
		{"a label by which nodes of the pool differ", func(s *Sight) {
			s.Peers = []Node{{Labels: map[string]string{"agentpool": "a"}}, {Labels: map[string]string{"agentpool": "b"}}}
			s.Node.Labels["agentpool"] = "b"
		}, unsure, "labels"},
		{"a taint of its own", func(s *Sight) { s.Node.Taints = []Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}} }, fail, "labels"},
		{"a taint that the autoscaler thinks about", func(s *Sight) {
			s.Node.Taints = []Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Effect: "PreferNoSchedule"}}
		}, pass, "cloud"},
		{"a soft taint of somebody's", func(s *Sight) { s.Node.Taints = []Taint{{Key: "x", Effect: "PreferNoSchedule"}} }, pass, "cloud"},
		{"our cordon", func(s *Sight) { s.Node.Taints = []Taint{{Key: "node.kubernetes.io/unschedulable"}} }, pass, "cloud"},
		{"half the memory of the same size", func(s *Sight) { size(s, "m5.large", "m5.large"); s.Node.Memory /= 2 }, fail, "capacity"},
		{"half the memory, of a size that nobody tells", func(s *Sight) { s.Node.Memory /= 2 }, unsure, "capacity"},
		{"fewer pods than on a node as large", func(s *Sight) { s.Node.MaxPods /= 2 }, fail, "capacity"},
		{"half the memory of a node that is not the donor", func(s *Sight) { s.Donor, s.Node.Memory = "", s.Node.Memory/2 }, unsure, "capacity"},
		{"another kubelet", func(s *Sight) { s.Node.Versions = map[string]string{"kubelet": "v1.30.0", "kernel": "6.1"} }, fail, "capacity"},
		{"an old sibling", func(s *Sight) { s.Donor = "elsewhere"; s.Sibling.Versions = nil; s.Sibling.Images = nil }, pass, "cloud"},
		{"a full disk", func(s *Sight) {
			s.Node.Conditions = []Condition{{Type: "DiskPressure", Status: "True"}}
			s.Node.Taints = []Taint{{Key: "node.kubernetes.io/disk-pressure"}}
		}, fail, "pressure"},
		{"what a sibling has, too", func(s *Sight) {
			s.Node.Conditions = []Condition{{Type: "Odd", Status: "True"}}
			s.Sibling.Conditions = s.Node.Conditions
		}, pass, "cloud"},
		{"no route yet", func(s *Sight) {
			s.Node.Conditions = []Condition{{Type: "NetworkUnavailable", Status: "True", Reason: "NoRouteCreated"}}
			s.Ready = proofNoon.Add(-2 * time.Minute)
		}, waits, "pressure"},
		{"no route at all", func(s *Sight) {
			s.Node.Conditions = []Condition{{Type: "NetworkUnavailable", Status: "True", Reason: "NoRouteCreated"}}
		}, unsure, "pressure"},
		{"a sibling that is silent", func(s *Sight) { s.Sibling.Pulse = s.Sibling.Pulse.Add(-70 * time.Second) }, pass, "cloud"},
		{"a sibling that is ahead", func(s *Sight) { s.Sibling.Pulse = s.Sibling.Pulse.Add(time.Hour) }, pass, "cloud"},
		{"an hour ahead", func(s *Sight) { s.Node.Pulse = s.Node.Pulse.Add(time.Hour) }, fail, "clock"},
		{"an hour behind", func(s *Sight) { s.Node.Pulse = s.Node.Pulse.Add(-time.Hour) }, fail, "clock"},
		{"an empty cache", func(s *Sight) { s.Node.Images = nil }, fail, "images"},
		{"a slow kubelet that has not listed its images yet", func(s *Sight) { s.Node.Images, s.Ready = nil, proofNoon.Add(-2*time.Minute) }, waits, "images"},
		{"a full disk, which a kubelet reports for five minutes after it was cleaned", func(s *Sight) {
			s.Node.Conditions = []Condition{{Type: "DiskPressure", Status: "True"}}
			s.Ready = proofNoon.Add(-2 * time.Minute)
		}, waits, "pressure"},

		{"a DaemonSet that crashes", func(s *Sight) { s.Daemons[0].Ready = false }, fail, "daemonsets"},
		{"a DaemonSet that finds no room", func(s *Sight) { s.Daemons[0].Ready, s.Daemons[0].Unplaced = false, true }, fail, "daemonsets"},
		{"a DaemonSet that finds no room on a smaller node", func(s *Sight) {
			size(s, "m5.large", "m5.2xlarge")
			s.Daemons[0].Ready, s.Daemons[0].Unplaced = false, true
		}, unsure, "daemonsets"},
		{"a DaemonSet that crashes on a smaller node", func(s *Sight) { size(s, "m5.large", "m5.2xlarge"); s.Daemons[0].Ready = false }, fail, "daemonsets"},
		{"a DaemonSet whose image cannot be pulled", func(s *Sight) { s.Daemons[0].Ready, s.Daemons[0].Owed = false, true }, unsure, "daemonsets"},
		{"a taint, and the DaemonSet that takes it off cannot be pulled", func(s *Sight) {
			s.Daemons[0].Ready, s.Daemons[0].Owed, s.Daemons[0].Reason = false, true, "ImagePullBackOff"
			s.Node.Taints = append(s.Node.Taints, Taint{Key: "ebs.csi.aws.com/agent-not-ready", Effect: "NoExecute"})
		}, unsure, "labels"},
		{"a sibling of another size", func(s *Sight) {
			size(s, "m5.xlarge", "m5.2xlarge")
			s.Donor, s.Sibling.CPU = "", 2*s.Node.CPU
		}, pass, "cloud"},
		{"a DaemonSet that crashes on the sibling, too", func(s *Sight) { s.Daemons[0].Ready, s.Daemons[0].Beside = false, false }, unsure, "daemonsets"},
		{"a DaemonSet that starts", func(s *Sight) { s.Daemons[0].Ready = false; s.Ready = proofNoon }, waits, "daemonsets"},

		{"no report", func(s *Sight) { s.Node.Annotations = nil }, unsure, "report"},
		{"the report of another run", func(s *Sight) { reports(s, func(r *NodeReport) { r.Nonce = "other" }) }, unsure, "report"},
		{"a failed unit", func(s *Sight) { reports(s, func(r *NodeReport) { r.FailedUnits = []string{"app.service"} }) }, fail, "units"},
		{"a unit that is started again and again", func(s *Sight) { reports(s, func(r *NodeReport) { r.Restarts = map[string]int{"kubelet.service": 4} }) }, fail, "units"},
		{"a unit that is started again twice", func(s *Sight) { reports(s, func(r *NodeReport) { r.Restarts = map[string]int{"kubelet.service": 3} }) }, fail, "units"},
		{"a unit that is started again once", func(s *Sight) { reports(s, func(r *NodeReport) { r.Restarts = map[string]int{"kubelet.service": 2} }) }, pass, "cloud"},
		{"a reboot is pending", func(s *Sight) { reports(s, func(r *NodeReport) { r.RebootPending = "/run/reboot-required" }) }, fail, "reboot"},
		{"kured tells of a reboot", func(s *Sight) {
			s.Reboots = []Signal{KuredPendingReboot}
			s.Node.Annotations[KuredPendingReboot.Annotation] = "now"
		}, fail, "reboot"},

		{"the probe fails", func(s *Sight) { s.Probe = ProbeState{Wanted: true, Started: true, Failed: true} }, fail, "probe"},
		{"a probe that nobody has started", func(s *Sight) { s.Probe = ProbeState{Wanted: true} }, unsure, "probe"},
		{"the probe hangs", func(s *Sight) { s.Probe = ProbeState{Wanted: true, Started: true} }, fail, "probe"},
		{"the probe's image cannot be pulled", func(s *Sight) { s.Probe = ProbeState{Wanted: true, Started: true, Owed: true} }, unsure, "probe"},
		{"the probe succeeds", func(s *Sight) { s.Probe = ProbeState{Wanted: true, Started: true, Done: true} }, pass, "cloud"},
		{"a failure tells more than what is inconclusive", func(s *Sight) { s.Node.Annotations = nil; s.Starts = 9 }, fail, "stable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := goodSight()
			tt.wrong(&s)
			out, findings := Judge(s, proofBounds)
			if out != tt.want || len(findings) == 0 || findings[0].Check != tt.check || findings[0].Evidence == "" {
				t.Fatalf("%s: %v, want %s by %s", out, findings, tt.want, tt.check)
			}
			if out != fail && out != unsure {
				return
			}
			// The row alone says so: left out, it does not.
			b := proofBounds
			b.Without = []string{tt.check}
			if again, rest := Judge(s, b); again == out && rest[0].Check == tt.check {
				t.Errorf("without %s: %s %v", tt.check, again, rest)
			}
		})
	}
}

// TestChecks: each check that has a name has a row in the table.
func TestChecks(t *testing.T) {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	if !slices.Equal(names, Checks()) {
		t.Errorf("the table judges %q, Checks are %q", names, Checks())
	}
}

// TestJudgeNothing: with every check left out nothing is found against an image, but one that never
// showed a node is not promoted.
func TestJudgeNothing(t *testing.T) {
	b := proofBounds
	b.Without = Checks()
	s := goodSight()
	if out, f := Judge(s, b); out != ProofPassed || len(f) == 0 {
		t.Errorf("good: %s %v", out, f)
	}
	b.Without = []string{"ready"}
	silent(&s)
	if out, f := Judge(s, b); out != ProofInconclusive || f[0].Check != "identity" {
		t.Errorf("no node at all: %s %v", out, f)
	}
	s.Running = proofNoon.Add(-time.Minute)
	if out, f := Judge(s, b); out != ProofWaits || f[0].Check != "identity" {
		t.Errorf("no node yet: %s %v", out, f)
	}
}

// TestSight: what this process sees of a machine and its node, look by look. A boot is measured
// where its begin was seen, and the bake begins at our own first sight of a Ready node, whatever
// the node says.
func TestSight(t *testing.T) {
	on := Canary{Power: PowerOn, Instance: goodSight().Canary.Instance, VMID: goodSight().Canary.VMID}
	for before, exact := range map[time.Time]bool{{}: false, proofNoon.Add(-10 * time.Second): true, proofNoon.Add(-time.Minute): false} {
		s := Sight{Canary: on}
		if s.runs(before, proofNoon); !s.Running.Equal(proofNoon) || s.Exact != exact {
			t.Errorf("looked before at %s: %+v", before, s)
		}
	}
	s := Sight{Now: proofNoon, Canary: on, Running: proofNoon.Add(-time.Hour)}
	s.sawNode(Node{UID: "u", Ready: true, SystemUUID: on.VMID, ReadySince: proofNoon.Add(-50 * time.Minute)})
	if !s.Ready.Equal(proofNoon) || s.boot() != 10*time.Minute {
		t.Errorf("Ready since %s, booted in %s", s.Ready, s.boot())
	}
}

// TestJudgeConsole: the last lines of the console are evidence.
func TestJudgeConsole(t *testing.T) {
	s := goodSight()
	silent(&s)
	s.Console = []string{"a", "b", "Kernel panic - not syncing: VFS: Unable to mount root fs", "---[ end Kernel panic ]---"}
	_, f := Judge(s, proofBounds)
	if !strings.Contains(f[0].Evidence, "Kernel panic - not syncing") || strings.Contains(f[0].Evidence, "a |") {
		t.Error(f)
	}
}

// TestFindingIsText: what a node sent moves no terminal, also not by control characters of eight
// bits.
func TestFindingIsText(t *testing.T) {
	if got := (Finding{"ready", ProofFailed, "a\x1b[2Jb\u009b2Jc\nd é"}).String(); got != "ready: a[2Jb2Jc d é" {
		t.Errorf("%q", got)
	}
}

// TestLife: the states of a version, from its tags.
func TestLife(t *testing.T) {
	v := Artifact{State: Succeeded, Ready: true}
	for tags, want := range map[string]Life{
		"": LifePromoted, "offer=hidden": LifeHidden, "offer=proving": LifeProving, "offer=offered": LifePromoted,
		"offer=withdrawn": LifeWithdrawn, "offer=hidden proof=passed": LifeWaiting, "offer=hidden proof=inconclusive: cloud": LifeHidden,
	} {
		v.Tags = map[string]string{}
		for _, pair := range strings.SplitN(tags, " ", 2) {
			if key, value, ok := strings.Cut(pair, "="); ok {
				v.Tags["kamino-"+key] = value
			}
		}
		if got := v.life(); got != want {
			t.Errorf("%s is %s, want %s", tags, got, want)
		}
	}
	if got := (Artifact{State: Creating, Tags: map[string]string{TagOffer: offerHidden}}).life(); got != LifeBuilding {
		t.Error(got)
	}
}

// TestLineage: descendants of a withdrawn version are told, and a line without end ends.
func TestLineage(t *testing.T) {
	version := func(name, parent, bad string) Artifact {
		v := Artifact{Name: name, State: Succeeded, Tags: map[string]string{TagParent: "d/versions/" + parent}}
		if bad != "" {
			v.Tags[TagBad] = bad
		}
		return v
	}
	all := []Artifact{version("3", "2", ""), version("2", "1", ""), version("1", "0", "it was bad"), version("9", "9", "")}
	if a, b := badAncestor(all[0], all), badAncestor(all[3], all); a != "1" || b != "" {
		t.Errorf("%q, %q", a, b)
	}
	if got := descendants("1", all); strings.Join(got, " ") != "3 2" {
		t.Error(got)
	}
}

// TestRegistryAwayBeforeReady: the registry is away, and the network plugin's DaemonSet, whose
// image is always pulled, does not start on the canary: its node never is Ready. Nothing speaks
// against the image.
func TestRegistryAwayBeforeReady(t *testing.T) {
	s := goodSight()
	s.Ready, s.Node.Ready, s.Node.NotReady = time.Time{}, false, "KubeletNotReady: container runtime network not ready: cni plugin not initialized"
	s.Daemons = []DaemonPod{{Set: "kube-system/aws-node", Owed: true, Asked: true, Reason: "pod aws-node-x is pending, ImagePullBackOff: 503 Service Unavailable"}}
	if out, found := Judge(s, proofBounds); out == ProofFailed {
		t.Errorf("%s: %v", out, found)
	}
	s.Daemons = []DaemonPod{{Set: "kube-system/aws-node", Owed: true, Reason: "it has no pod"}} // as on a node whose runtime is down
	if out, found := Judge(s, proofBounds); out != ProofFailed {
		t.Errorf("no pod: %s: %v", out, found)
	}
}

// owing is a cluster whose new nodes wait for the image of their network plugin.
type owing struct {
	Cluster
	Examiner
}

func (owing) Examine(context.Context, ExamineOrder) (ClusterSight, error) {
	return ClusterSight{Renewed: proofNoon, Node: NodeSight{Node: Node{Name: "a-9", UID: "u"}, NotReady: "cni plugin not initialized"},
		Daemons: []DaemonPod{{Set: "kube-system/aws-node", Owed: true, Asked: true, Reason: "ImagePullBackOff"}}}, nil
}

// TestBlamesRegistry: new nodes are not Ready as the registry of the network plugin's image is
// away.
func TestBlamesRegistry(t *testing.T) {
	e := &Engine{Cluster: owing{}}
	if p := (&watched{born: newborns{"i-9": {late: true, Instance: Instance{ID: "i-9", Hostname: "a-9"}}}}); e.blames(t.Context(), p, overview{}) {
		t.Error("the image is blamed for it")
	}
}
