package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestEvidenceIsPlain: an image on trial writes its console, its conditions and its report, and
// what terminals obey of that reaches neither tags nor terminals.
func TestEvidenceIsPlain(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\u0085b\r\nc\x07\x7f\x9b\td"
	const plain = "a[2J31mb c\ufffd d"
	for what, wrong := range map[string]func(*Observation){
		"console": func(s *Observation) { silent(s); s.Console = []string{evil} },
		"condition": func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "Odd", Status: "True", Reason: evil}}
		},
		"report": func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.RebootPending = "a\x1b[2J\u009b31m\u0085b\r\nc\x07\x7f\ufffd\td" })
		},
		"pod": func(s *Observation) { s.Daemons[0].Ready, s.Daemons[0].Reason = false, evil },
	} {
		t.Run(what, func(t *testing.T) {
			s := goodSight()
			wrong(&s)
			_, findings := Judge(s, proofBounds)
			err := &kamino.ProofError{Version: "v", Outcome: kamino.ProofFailed, Findings: findings}
			if !strings.Contains(err.Error(), plain) || kamino.Plain(err.Error()) != err.Error() {
				t.Errorf("%s: %q", what, err)
			}
		})
	}
}

// TestJudgeBoot: a boot is compared with the pool's history, where there is one.
func TestJudgeBoot(t *testing.T) {
	l := kamino.Ledger{}
	for _, seconds := range []float64{60, 70, 80} {
		if kamino.Usually(l.Boots) != 0 || len(l.UsualPhases()) != 0 {
			t.Error("a history of fewer than three")
		}
		l.NoteBoot(seconds, kamino.Timing{Phases: map[string]float64{"kernel": 2, "kubelet": seconds - 20}}, "n", time.Time{})
	}
	if p := (kamino.Proving{Budget: 10 * time.Minute, Times: 2}); p.BootBudget(l) != 140*time.Second || p.BootBudget(kamino.Ledger{}) != 10*time.Minute || (kamino.Proving{Budget: time.Minute}).BootBudget(l) != time.Minute {
		t.Errorf("twice the usual is %s, without a history %s", p.BootBudget(l), p.BootBudget(kamino.Ledger{}))
	}
	b := proofBounds
	b.History, b.Phases = kamino.Usually(l.Boots), l.UsualPhases()
	s := goodSight()
	if out, f := Judge(s, b); b.History != 70*time.Second || out != kamino.ProofPassed {
		t.Errorf("%s: %s %v", b.History, out, f)
	}
	s.Running = s.Ready.Add(-4 * time.Minute)
	if out, f := Judge(s, b); out != kamino.ProofPassed {
		t.Errorf("within a quarter of the budget: %s %v", out, f)
	}
	s.Running = s.Ready.Add(-5 * time.Minute)
	if out, f := Judge(s, b); out != kamino.ProofFailed || f[0].Check != "boot" {
		t.Errorf("%s %v", out, f)
	}
	s = goodSight()
	reports(&s, func(r *kamino.NodeReport) { r.Phases = map[string]float64{"kernel": 160, "kubelet": 4} })
	if out, f := Judge(s, b); out != kamino.ProofFailed || f[0].Check != "boot" || f[0].Evidence != "phase kernel took 2m40s, usually 2s" {
		t.Errorf("a slow phase: %s %v", out, f)
	}
	s.Running = s.Ready.Add(-5 * time.Minute)
	if out, f := Judge(s, b); out != kamino.ProofFailed || !strings.Contains(f[0].Evidence, "(phase kernel took 2m40s, usually 2s)") {
		t.Errorf("a slow boot for a phase: %s %v", out, f)
	}
	s.Node.Annotations = nil // its agent has not reported, or not recorded the boot
	for ready, want := range map[time.Duration]kamino.Outcome{9 * time.Minute: kamino.ProofWaits, 11 * time.Minute: kamino.ProofFailed} {
		s.Ready = s.Now.Add(-ready)
		s.ReadyAs, s.Node.ReadySince, s.Running = s.Ready, s.Ready, s.Ready.Add(-5*time.Minute)
		if out, f := Judge(s, b); out != want || f[0].Check != "boot" || !strings.Contains(f[0].Evidence, "Ready 5m0s after the machine started") {
			t.Errorf("a slow boot before its phases are told, Ready for %s: %s %v", ready, out, f)
		}
		alone := b
		if alone.Without = []string{"report"}; ready < b.settled() {
			if out, f := Judge(s, alone); out != kamino.ProofFailed {
				t.Errorf("where no report is to come: %s %v", out, f)
			}
		}
	}
}

// TestJudgePhases: the phases of a boot are the node's own word: they count also where nobody saw
// exactly when the machine ran, and where a phase usually takes no time.
func TestJudgePhases(t *testing.T) {
	l := kamino.Ledger{}
	for range 3 {
		l.NoteBoot(0, kamino.Timing{Phases: map[string]float64{"kernel": 2, "kubelet": 0}}, "n", time.Time{})
	}
	b, s := proofBounds, goodSight()
	b.History, b.Phases = kamino.Usually(l.Boots), l.UsualPhases()
	for seconds, want := range map[float64]kamino.Outcome{4: kamino.ProofPassed, 149: kamino.ProofPassed, 151: kamino.ProofFailed} {
		reports(&s, func(r *kamino.NodeReport) { r.Phases = map[string]float64{"kernel": 2, "kubelet": seconds} })
		s.Running = s.Ready.Add(-9 * time.Minute)
		if out, f := Judge(s, b); out != want || out == kamino.ProofFailed && (f[0].Check != "boot" || f[0].Evidence != "phase kubelet took 2m31s, usually 0s") {
			t.Errorf("%gs: %s %v, want %s", seconds, out, f, want)
		}
	}
	if known := l.KnownBoots(); known == nil || known.Seconds == nil || len(known.Seconds) > 0 || len(known.Phases) != 3 {
		t.Errorf("known is %+v", known)
	}
}

// TestJudgeRestarts: what systemd starts again while a canary is watched is compared with the
// pool's good canaries, where three were watched for as long.
func TestJudgeRestarts(t *testing.T) {
	none, often, brief := kamino.Baked{Seconds: 660}, kamino.Baked{Seconds: 660, Restarts: map[string]int{"app.service": 3}}, kamino.Baked{Seconds: 60}
	for name, tt := range map[string]struct {
		baked []kamino.Baked
		again int
		want  kamino.Outcome
	}{
		"once, without a history":         {nil, 1, kamino.ProofPassed},
		"twice, without a history":        {nil, 2, kamino.ProofFailed},
		"once, after two":                 {[]kamino.Baked{none, none}, 1, kamino.ProofPassed},
		"once, never on three":            {[]kamino.Baked{none, none, none}, 1, kamino.ProofFailed},
		"once, three not watched so long": {[]kamino.Baked{brief, brief, brief}, 1, kamino.ProofPassed},
		"as often as on a good one":       {[]kamino.Baked{none, often, none, none}, 3, kamino.ProofPassed},
		"a little more often":             {[]kamino.Baked{often}, 4, kamino.ProofPassed},
		"far more often":                  {[]kamino.Baked{often, often, often}, 7, kamino.ProofFailed},
		"never":                           {[]kamino.Baked{none, none, none}, 0, kamino.ProofPassed},
	} {
		var l kamino.Ledger
		for _, good := range tt.baked {
			l.NoteBaked(good)
		}
		b, s := proofBounds, goodSight()
		b.Baked = l.Baked
		reports(&s, func(r *kamino.NodeReport) { r.Restarts["app.service"] = tt.again })
		if out, f := Judge(s, b); out != tt.want || out == kamino.ProofFailed && f[0].Check != "units" {
			t.Errorf("%s: %s %v, want %s", name, out, f, tt.want)
		}
		if got, ok := s.Baked(); !ok || got.Seconds != 660 || got.Restarts["app.service"] != tt.again || len(got.Restarts) != min(tt.again, 1) {
			t.Errorf("%s: watched as %+v, %t", name, got, ok)
		}
	}
	s := goodSight()
	reports(&s, func(r *kamino.NodeReport) {
		for i := range 2 * kamino.MaxBaked {
			r.Restarts[fmt.Sprint(i)] = 1
		}
	})
	if got, ok := s.Baked(); ok {
		t.Errorf("the ledger takes whatever a node says: %+v", got)
	}
	if s.Restarts = nil; len(s.again()) > 0 {
		t.Error("restarts before the node was Ready count")
	}
}

// zones puts a canary into another zone than its sibling, which labels itself with its own.
func (s *Observation) zones(own string) {
	const zone, label = "topology.kubernetes.io/zone", "example.com/zone"
	s.Sibling.Labels, s.Sibling.Own = map[string]string{zone: "eu-1a"}, map[string]string{label: "eu-1a"}
	s.Node.Labels[zone], s.Node.Labels[label] = "eu-1b", own
}

var proofBounds = Bounds{Boot: 10 * time.Minute, Bake: 10 * time.Minute}

// inZone is a canary in a zone with another node, which is well or not.
func inZone(s *Observation, well bool) {
	s.Canary.Zone = "z-2"
	s.Others[0].Labels, s.Others[0].Ready = map[string]string{kamino.ZoneLabel: "z-2"}, well
}

// goodSight is a canary that has been Ready for eleven minutes.
func goodSight() Observation {
	report, _ := json.Marshal(kamino.NodeReport{Nonce: "n", At: proofNoon, Restarts: map[string]int{"kubelet.service": 1},
		SSHKeys: []string{"new"}, PackageDigest: "p", Timing: kamino.Timing{Phases: map[string]float64{"kubelet": 4}}})
	own := map[string]string{"agentpool": "a", "kubernetes.io/hostname": "a-0"}
	labels := map[string]string{"agentpool": "a", "kubernetes.io/hostname": "kamino-00000000000000", "added-by-hand": "no", kamino.LabelCanary: "true"}
	versions := map[string]string{"kubelet": "v1.36.3", "kernel": "6.1"}
	node := func(name, id, vm string) kamino.NodeObservation {
		return kamino.NodeObservation{Node: kamino.Node{Name: name, UID: "uid-" + name, ProviderID: kamino.InstanceID(id), SystemUUID: vm, MachineID: "m-" + name, Ready: true},
			Pulse: proofNoon.Add(-5 * time.Second), Versions: versions, CPU: 4000, Memory: 16 << 30, MaxPods: 110, Images: []string{"x", "y", "z"}, Own: own}
	}
	s := Observation{Now: proofNoon, Launched: proofNoon.Add(-15 * time.Minute), Running: proofNoon.Add(-13 * time.Minute), Ready: proofNoon.Add(-11 * time.Minute),
		Nonce: "n", Donor: "a-0", Sealed: map[string]string{kamino.TagSSHKeys: "old1 old2", kamino.TagPackages: "p", kamino.TagBuiltFrom: "a-0"}, Restarts: map[string]int{"kubelet.service": 1},
		Canary: kamino.Canary{Name: "kamino-00000000", State: kamino.Succeeded, Power: kamino.PowerOn, Instance: "azure://c/0", VMID: "00000000-0000-4000-8000-000000000001", Hostname: "kamino-00000000000000"},
		Others: []kamino.Node{{Name: "a-1", UID: "uid-a-1", MachineID: "m-a-1"}}, Before: map[string]string{"a-0": "m-a-0", "a-1": "m-a-1"},
		ClusterObservation: kamino.ClusterObservation{Renewed: proofNoon.Add(-5 * time.Second), Starts: 1, Daemons: []kamino.DaemonPod{{Set: "kube-system/proxy", Ready: true, Beside: true}},
			Node:    node("kamino-00000000000000", "azure://c/0", "00000000-0000-4000-8000-000000000001"),
			Sibling: node("a-0", "azure://a/0", "00000000-0000-4000-8000-000000000002")}}
	s.Node.Labels, s.Node.Created, s.Node.ReadySince = labels, s.Running.Add(time.Minute), s.Ready
	s.Node.Annotations, s.ReadyAs = map[string]string{kamino.AnnotationReport: string(report)}, s.Ready
	return s
}

// silent is a canary of which nothing was heard since the cloud made it.
func silent(s *Observation) {
	s.Ready, s.Node = time.Time{}, kamino.NodeObservation{}
}

// size labels the canary's node and its sibling.
func size(s *Observation, canary, sibling string) {
	s.Node.Labels, s.Sibling.Labels = maps.Clone(s.Node.Labels), map[string]string{labelSize: sibling}
	s.Node.Labels[labelSize] = canary
}

func reports(s *Observation, change func(*kamino.NodeReport)) {
	r, _ := s.Node.Report("n")
	change(&r)
	text, _ := json.Marshal(r)
	s.Node.Annotations = map[string]string{kamino.AnnotationReport: string(text)}
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
		if out, f := Judge(s, b); out != kamino.ProofWaits || !strings.Contains(f[0].Evidence, tt.want) {
			t.Errorf("%+v: %s %v", tt, out, f)
		}
	}
}

// TestJudge goes through the table row by row: what is wrong, the verdict, and the check that says
// so.
func TestJudge(t *testing.T) {
	request := kamino.CertificateRequest{Name: "csr-1", Signer: "kubernetes.io/kube-apiserver-client-kubelet", Made: proofNoon.Add(-11 * time.Minute)}
	asks := func(change func(*kamino.CertificateRequest)) func(*Observation) {
		return func(s *Observation) { r := request; change(&r); s.Requests = []kamino.CertificateRequest{r} }
	}
	const pass, fail, unsure, waits = kamino.ProofPassed, kamino.ProofFailed, kamino.ProofInconclusive, kamino.ProofWaits
	for _, tt := range []struct {
		name  string
		wrong func(*Observation)
		want  kamino.Outcome
		check string
	}{
		{"nothing", func(*Observation) {}, pass, "cloud"},

		{"the cloud makes it", func(s *Observation) {
			silent(s)
			s.Running, s.Canary.State, s.Canary.Power = time.Time{}, kamino.Creating, ""
		}, waits, "cloud"},
		{"the cloud never makes it", func(s *Observation) {
			silent(s)
			s.Running, s.Launched = time.Time{}, proofNoon.Add(-time.Hour)
		}, unsure, "cloud"},
		{"no quota", func(s *Observation) { silent(s); s.Canary.State, s.Canary.Blocked = kamino.Failed, true }, unsure, "cloud"},
		{"the cloud gave the guest up", func(s *Observation) {
			silent(s)
			s.Canary.State, s.Canary.Failure = kamino.Failed, "OSProvisioningTimedOut"
		}, fail, "cloud"},
		{"somebody deleted it", func(s *Observation) { s.Gone = proofNoon.Add(-time.Hour) }, unsure, "cloud"},
		{"a list lacks it once", func(s *Observation) { s.Gone = proofNoon.Add(-time.Second) }, waits, "cloud"},
		{"somebody switched it off", func(s *Observation) { s.Canary.Power = kamino.PowerOff }, unsure, "cloud"},

		{"its set without an instance", func(s *Observation) {
			s.Canary.Instance, s.Canary.VMID, s.Canary.Hostname, s.Canary.Power = "", "", "", ""
		}, unsure, "cloud"},
		{"deleted while its pods end", func(s *Observation) {
			s.Canary.State = kamino.Deleting
			s.Node.Ready, s.Daemons[0].Ready = false, false
		}, unsure, "cloud"},
		{"the autoscaler takes it away", func(s *Observation) {
			s.Node.Taints = []kamino.Taint{{Key: kamino.TaintDeleting, Effect: "NoSchedule"}}
			s.Node.Ready = false
		}, unsure, "cloud"},
		{"its node is being deleted", func(s *Observation) { s.Node.Deleting, s.Node.Ready = true, false }, unsure, "cloud"},
		{"a list lacks it once, and its node is silent", func(s *Observation) { s.Gone = proofNoon.Add(-time.Second); s.Node.Ready = false }, waits, "cloud"},

		{"another name", func(s *Observation) { silent(s); s.Stray = "a-1" }, fail, "identity"},
		{"another name, at first", func(s *Observation) { silent(s); s.Stray, s.Running = "a-1", proofNoon.Add(-time.Minute) }, waits, "identity"},
		{"a node that claims the canary's machine", func(s *Observation) { s.Stray = "a-1" }, pass, "cloud"},
		{"a node that claims the canary's machine ID since", func(s *Observation) { s.Others[0].MachineID = s.Node.MachineID }, unsure, "identity"},
		{"another's machine ID", func(s *Observation) { s.Node.MachineID = "m-a-1" }, fail, "identity"},
		{"the donor's machine ID", func(s *Observation) { s.Node.MachineID = "m-a-0" }, fail, "identity"},
		{"another's provider ID", func(s *Observation) { s.Node.ProviderID = "azure://a/0" }, fail, "identity"},
		{"no provider ID yet", func(s *Observation) { s.Node.ProviderID = ""; s.Ready = proofNoon.Add(-time.Minute) }, waits, "identity"},
		{"no provider ID at all", func(s *Observation) { s.Node.ProviderID = "" }, unsure, "identity"},
		{"a node of that name on another machine", func(s *Observation) { s.Node.SystemUUID = "00000000-0000-4000-8000-000000000009" }, fail, "identity"},
		{"a node that does not tell its machine yet", func(s *Observation) {
			s.Running, s.Ready, s.Node.SystemUUID, s.Node.Ready = proofNoon.Add(-time.Minute), time.Time{}, "", false
		}, waits, "ready"},
		{"an old node of that name", func(s *Observation) {
			s.Running, s.Ready = proofNoon.Add(-time.Minute), time.Time{}
			s.Node.SystemUUID, s.Node.Created = "00000000-0000-4000-8000-000000000009", proofNoon.Add(-time.Hour)
		}, waits, "identity"},

		{"a disk with another machine ID than its kubelet tells", func(s *Observation) { reports(s, func(r *kamino.NodeReport) { r.MachineID = "m-a-0" }) }, fail, "identity"},
		{"a host key of the donor's", func(s *Observation) { reports(s, func(r *kamino.NodeReport) { r.SSHKeys = []string{"new", "old2"} }) }, fail, "identity"},
		{"packages that were not sealed", func(s *Observation) { reports(s, func(r *kamino.NodeReport) { r.PackageDigest = "q" }) }, unsure, "report"},
		{"a node that registered without its taint", func(s *Observation) { s.Bare = true }, fail, "apart"},
		{"the same of an image that Kamino did not seal", func(s *Observation) { s.Bare, s.Unsealed = true, true }, unsure, "apart"},
		{"few of its donor's images, of an image that Kamino did not seal", func(s *Observation) { s.Unsealed, s.Node.Images = true, nil }, pass, "cloud"},
		{"no pod of a DaemonSet, as its taint is still on", func(s *Observation) {
			s.Daemons, s.Node.Taints = []kamino.DaemonPod{{Set: "a/b", Beside: true}}, []kamino.Taint{{Key: kamino.TaintCanary}}
		}, unsure, "daemonsets"},
		{"a node that traffic would come to", func(s *Observation) { delete(s.Node.Labels, kamino.LabelCanary) }, unsure, "apart"},
		{"a request that is denied", asks(func(r *kamino.CertificateRequest) { r.Denied = true }), unsure, "certificate"},
		{"a request of somebody else's that is denied", asks(func(r *kamino.CertificateRequest) { r.Denied, r.Foreign = true, true }), pass, "cloud"},
		{"a request of somebody else's that waits", asks(func(r *kamino.CertificateRequest) { r.OthersApproved, r.Foreign = true, true }), pass, "cloud"},
		{"a request that waits longer than another's", func(s *Observation) {
			silent(s)
			r := request
			r.OthersApproved = true
			s.Requests = []kamino.CertificateRequest{r}
		}, fail, "certificate"},
		{"requests that nobody approves", func(s *Observation) { silent(s); s.Requests = []kamino.CertificateRequest{request} }, unsure, "certificate"},
		{"a serving certificate that nobody approves here", func(s *Observation) { s.Requests = []kamino.CertificateRequest{request} }, pass, "cloud"},
		{"a new request", asks(func(r *kamino.CertificateRequest) { r.OthersApproved, r.Made = true, proofNoon.Add(-time.Minute) }), waits, "certificate"},

		{"it boots", func(s *Observation) { silent(s); s.Running = proofNoon.Add(-time.Minute) }, waits, "ready"},
		{"no kubelet", silent, fail, "ready"},
		{"no kubelet, and none of the others either", func(s *Observation) { silent(s); s.Renewed = time.Time{} }, unsure, "ready"},
		{"no kubelet, and the cloud does not say that it runs", func(s *Observation) { silent(s); s.Canary.Power = kamino.PowerBetween }, unsure, "ready"},
		{"no kubelet, on a set that Azure still calls Creating", func(s *Observation) { silent(s); s.Canary.State = kamino.Creating }, fail, "ready"},
		{"no container runtime", func(s *Observation) {
			s.Ready = time.Time{}
			s.Node.Ready, s.Node.NotReady = false, "container runtime is down"
		}, fail, "ready"},

		{"slow as never before", func(s *Observation) { s.Running = proofNoon.Add(-20 * time.Minute) }, pass, "cloud"}, // without a history

		{"not Ready any more", func(s *Observation) { s.Node.Ready = false }, fail, "stable"},
		{"its Node object is gone, as people and controllers delete them", func(s *Observation) { s.Node = kamino.NodeObservation{} }, unsure, "stable"},
		{"no kubelet, and its zone is cut off", func(s *Observation) { silent(s); inZone(s, false) }, unsure, "ready"},
		{"its clone knocks the only other node of its zone out", func(s *Observation) {
			silent(s)
			inZone(s, false)
			s.Others[0].Name, s.Stray, s.Node = "a-0", "a-0", kamino.NodeObservation{}
		}, fail, "identity"},
		{"no kubelet, and its zone is well", func(s *Observation) { silent(s); inZone(s, true) }, fail, "ready"},
		{"no kubelet, as another clone in its zone", func(s *Observation) { silent(s); inZone(s, false); s.Others[0].Created = s.Launched }, fail, "ready"},
		{"silent, as all of its zone", func(s *Observation) { s.Node.Ready = false; inZone(s, false) }, unsure, "stable"},
		{"silent, as all others", func(s *Observation) { s.Node.Ready = false; s.Renewed = time.Time{} }, unsure, "stable"},
		{"Ready twice", func(s *Observation) { s.Node.ReadySince = s.Ready.Add(time.Minute) }, fail, "stable"},
		{"Ready twice, as a node that was there before: the control plane was away", func(s *Observation) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].ReadySince = s.Ready.Add(2 * time.Minute)
		}, unsure, "stable"},
		{"Ready twice, and a node that was there before is Ready for hours", func(s *Observation) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].ReadySince = s.Ready.Add(-time.Hour)
		}, fail, "stable"},
		{"Ready twice, while a new node became Ready", func(s *Observation) {
			s.Node.ReadySince = s.Ready.Add(time.Minute)
			s.Others[0].Created, s.Others[0].ReadySince = s.Ready, s.Ready.Add(time.Minute)
		}, fail, "stable"},
		{"not Ready any more, while others come back", func(s *Observation) {
			s.Node.Ready = false
			s.Others[0].ReadySince = s.Now.Add(-time.Minute)
		}, unsure, "stable"},
		{"two starts of the kubelet", func(s *Observation) { s.Starts = 2 }, fail, "stable"},
		{"not baked", func(s *Observation) {
			s.Ready = proofNoon.Add(-9 * time.Minute)
		}, waits, "stable"},

		{"a label of the kubelet lacks", func(s *Observation) { delete(s.Node.Labels, "agentpool") }, fail, "labels"},
		{"a wrong label", func(s *Observation) { s.Node.Labels["agentpool"] = "b" }, fail, "labels"},
		{"a label with the zone", func(s *Observation) { s.zones("eu-1b") }, pass, "cloud"},
		{"a label with another zone", func(s *Observation) { s.zones("eu-1c") }, fail, "labels"},
		{"a label that one node alone has, the donor away", func(s *Observation) { s.Donor, s.Sibling.Own = "", map[string]string{"x/forged": "x"} }, unsure, "labels"},
		{"a label that all nodes of the pool have, the donor away", func(s *Observation) {
			s.Donor, s.Peers = "", []kamino.Node{{Labels: map[string]string{"agentpool": "a"}}, {Labels: map[string]string{"agentpool": "a"}}}
			s.Node.Labels["agentpool"] = "b"
		}, fail, "labels"},
		{"a label by which nodes of the pool differ", func(s *Observation) {
			s.Peers = []kamino.Node{{Labels: map[string]string{"agentpool": "a"}}, {Labels: map[string]string{"agentpool": "b"}}}
			s.Node.Labels["agentpool"] = "b"
		}, unsure, "labels"},
		{"a taint of its own", func(s *Observation) {
			s.Node.Taints = []kamino.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
		}, fail, "labels"},
		{"a taint that the autoscaler thinks about", func(s *Observation) {
			s.Node.Taints = []kamino.Taint{{Key: "DeletionCandidateOfClusterAutoscaler", Effect: "PreferNoSchedule"}}
		}, pass, "cloud"},
		{"a soft taint of somebody's", func(s *Observation) { s.Node.Taints = []kamino.Taint{{Key: "x", Effect: "PreferNoSchedule"}} }, pass, "cloud"},
		{"our cordon", func(s *Observation) { s.Node.Taints = []kamino.Taint{{Key: "node.kubernetes.io/unschedulable"}} }, pass, "cloud"},
		{"half the memory of the same size", func(s *Observation) { size(s, "m5.large", "m5.large"); s.Node.Memory /= 2 }, fail, "capacity"},
		{"half the memory, of a size that nobody tells", func(s *Observation) { s.Node.Memory /= 2 }, unsure, "capacity"},
		{"fewer pods than on a node as large", func(s *Observation) { s.Node.MaxPods /= 2 }, fail, "capacity"},
		{"half the memory of a node that is not the donor", func(s *Observation) { s.Donor, s.Node.Memory = "", s.Node.Memory/2 }, unsure, "capacity"},
		{"another kubelet", func(s *Observation) { s.Node.Versions = map[string]string{"kubelet": "v1.30.0", "kernel": "6.1"} }, fail, "capacity"},
		{"an old sibling", func(s *Observation) { s.Donor = "elsewhere"; s.Sibling.Versions = nil; s.Sibling.Images = nil }, pass, "cloud"},
		{"a full disk", func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "DiskPressure", Status: "True"}}
			s.Node.Taints = []kamino.Taint{{Key: "node.kubernetes.io/disk-pressure"}}
		}, fail, "pressure"},
		{"what a sibling has, too", func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "Odd", Status: "True"}}
			s.Sibling.Conditions = s.Node.Conditions
		}, pass, "cloud"},
		{"no route yet", func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "NetworkUnavailable", Status: "True", Reason: "NoRouteCreated"}}
			s.Ready = proofNoon.Add(-2 * time.Minute)
		}, waits, "pressure"},
		{"no route at all", func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "NetworkUnavailable", Status: "True", Reason: "NoRouteCreated"}}
		}, unsure, "pressure"},
		{"a sibling that is silent", func(s *Observation) { s.Sibling.Pulse = s.Sibling.Pulse.Add(-70 * time.Second) }, pass, "cloud"},
		{"a sibling that is ahead", func(s *Observation) { s.Sibling.Pulse = s.Sibling.Pulse.Add(time.Hour) }, pass, "cloud"},
		{"an hour ahead", func(s *Observation) { s.Node.Pulse = s.Node.Pulse.Add(time.Hour) }, fail, "clock"},
		{"an hour behind", func(s *Observation) { s.Node.Pulse = s.Node.Pulse.Add(-time.Hour) }, fail, "clock"},
		{"an empty cache", func(s *Observation) { s.Node.Images = nil }, fail, "images"},
		{"a slow kubelet that has not listed its images yet", func(s *Observation) { s.Node.Images, s.Ready = nil, proofNoon.Add(-2*time.Minute) }, waits, "images"},
		{"a full disk, which a kubelet reports for five minutes after it was cleaned", func(s *Observation) {
			s.Node.Conditions = []kamino.Condition{{Type: "DiskPressure", Status: "True"}}
			s.Ready = proofNoon.Add(-2 * time.Minute)
		}, waits, "pressure"},

		{"a DaemonSet that crashes", func(s *Observation) { s.Daemons[0].Ready = false }, fail, "daemonsets"},
		{"a DaemonSet that finds no room", func(s *Observation) { s.Daemons[0].Ready, s.Daemons[0].Unplaced = false, true }, fail, "daemonsets"},
		{"a DaemonSet that finds no room on a smaller node", func(s *Observation) {
			size(s, "m5.large", "m5.2xlarge")
			s.Daemons[0].Ready, s.Daemons[0].Unplaced = false, true
		}, unsure, "daemonsets"},
		{"a DaemonSet that crashes on a smaller node", func(s *Observation) { size(s, "m5.large", "m5.2xlarge"); s.Daemons[0].Ready = false }, fail, "daemonsets"},
		{"a DaemonSet whose image cannot be pulled", func(s *Observation) { s.Daemons[0].Ready, s.Daemons[0].Owed = false, true }, unsure, "daemonsets"},
		{"a taint, and the DaemonSet that takes it off cannot be pulled", func(s *Observation) {
			s.Daemons[0].Ready, s.Daemons[0].Owed, s.Daemons[0].Reason = false, true, "ImagePullBackOff"
			s.Node.Taints = append(s.Node.Taints, kamino.Taint{Key: "ebs.csi.aws.com/agent-not-ready", Effect: "NoExecute"})
		}, unsure, "labels"},
		{"a sibling of another size", func(s *Observation) {
			size(s, "m5.xlarge", "m5.2xlarge")
			s.Donor, s.Sibling.CPU = "", 2*s.Node.CPU
		}, pass, "cloud"},
		{"a DaemonSet that crashes on the sibling, too", func(s *Observation) { s.Daemons[0].Ready, s.Daemons[0].Beside = false, false }, unsure, "daemonsets"},
		{"a DaemonSet that starts", func(s *Observation) { s.Daemons[0].Ready = false; s.Ready = proofNoon }, waits, "daemonsets"},

		{"no report", func(s *Observation) { s.Node.Annotations = nil }, unsure, "report"},
		{"the report of another run", func(s *Observation) { reports(s, func(r *kamino.NodeReport) { r.Nonce = "other" }) }, unsure, "report"},
		{"a failed unit", func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.FailedUnits = []string{"app.service"} })
		}, fail, "units"},
		{"a unit that is started again and again", func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.Restarts = map[string]int{"kubelet.service": 4} })
		}, fail, "units"},
		{"a unit that is started again twice", func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.Restarts = map[string]int{"kubelet.service": 3} })
		}, fail, "units"},
		{"a unit that is started again once", func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.Restarts = map[string]int{"kubelet.service": 2} })
		}, pass, "cloud"},
		{"a reboot is pending", func(s *Observation) {
			reports(s, func(r *kamino.NodeReport) { r.RebootPending = "/run/reboot-required" })
		}, fail, "reboot"},
		{"kured tells of a reboot", func(s *Observation) {
			s.Reboots = []kamino.Signal{kamino.KuredPendingReboot}
			s.Node.Annotations[kamino.KuredPendingReboot.Annotation] = "now"
		}, fail, "reboot"},

		{"the probe fails", func(s *Observation) { s.Probe = kamino.ProbeState{Wanted: true, Started: true, Failed: true} }, fail, "probe"},
		{"a probe that nobody has started", func(s *Observation) { s.Probe = kamino.ProbeState{Wanted: true} }, unsure, "probe"},
		{"the probe hangs", func(s *Observation) { s.Probe = kamino.ProbeState{Wanted: true, Started: true} }, fail, "probe"},
		{"the probe's image cannot be pulled", func(s *Observation) { s.Probe = kamino.ProbeState{Wanted: true, Started: true, Owed: true} }, unsure, "probe"},
		{"the probe succeeds", func(s *Observation) { s.Probe = kamino.ProbeState{Wanted: true, Started: true, Done: true} }, pass, "cloud"},
		{"a failure tells more than what is inconclusive", func(s *Observation) { s.Node.Annotations = nil; s.Starts = 9 }, fail, "stable"},
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
	if !slices.Equal(names, kamino.Checks()) {
		t.Errorf("the table judges %q, Checks are %q", names, kamino.Checks())
	}
}

// TestJudgeNothing: with every check left out nothing is found against an image, but one that never
// showed a node is not promoted.
func TestJudgeNothing(t *testing.T) {
	b := proofBounds
	b.Without = kamino.Checks()
	s := goodSight()
	if out, f := Judge(s, b); out != kamino.ProofPassed || len(f) == 0 {
		t.Errorf("good: %s %v", out, f)
	}
	b.Without = []string{"ready"}
	silent(&s)
	if out, f := Judge(s, b); out != kamino.ProofInconclusive || f[0].Check != "identity" {
		t.Errorf("no node at all: %s %v", out, f)
	}
	s.Running = proofNoon.Add(-time.Minute)
	if out, f := Judge(s, b); out != kamino.ProofWaits || f[0].Check != "identity" {
		t.Errorf("no node yet: %s %v", out, f)
	}
}

// TestSight: what this process sees of a machine and its node, look by look. A boot is measured
// where its begin was seen, and the bake begins at our own first sight of a Ready node, whatever
// the node says.
func TestSight(t *testing.T) {
	on := kamino.Canary{Power: kamino.PowerOn, Instance: goodSight().Canary.Instance, VMID: goodSight().Canary.VMID}
	for before, exact := range map[time.Time]bool{{}: false, proofNoon.Add(-10 * time.Second): true, proofNoon.Add(-time.Minute): false} {
		s := Observation{Canary: on}
		if s.Runs(before, proofNoon); !s.Running.Equal(proofNoon) || s.Exact != exact {
			t.Errorf("looked before at %s: %+v", before, s)
		}
	}
	s := Observation{Now: proofNoon, Canary: on, Running: proofNoon.Add(-time.Hour)}
	s.SawNode(kamino.Node{UID: "u", Ready: true, SystemUUID: on.VMID, ReadySince: proofNoon.Add(-50 * time.Minute)})
	if !s.Ready.Equal(proofNoon) || s.Boot() != 10*time.Minute {
		t.Errorf("Ready since %s, booted in %s", s.Ready, s.Boot())
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

// TestRegistryAwayBeforeReady: the registry is away, and the network plugin's DaemonSet, whose
// image is always pulled, does not start on the canary: its node never is Ready. Nothing speaks
// against the image.
func TestRegistryAwayBeforeReady(t *testing.T) {
	s := goodSight()
	s.Ready, s.Node.Ready, s.Node.NotReady = time.Time{}, false, "KubeletNotReady: container runtime network not ready: cni plugin not initialized"
	s.Daemons = []kamino.DaemonPod{{Set: "kube-system/aws-node", Owed: true, Asked: true, Reason: "pod aws-node-x is pending, ImagePullBackOff: 503 Service Unavailable"}}
	if out, found := Judge(s, proofBounds); out == kamino.ProofFailed {
		t.Errorf("%s: %v", out, found)
	}
	s.Daemons = []kamino.DaemonPod{{Set: "kube-system/aws-node", Owed: true, Reason: "it has no pod"}} // as on a node whose runtime is down
	if out, found := Judge(s, proofBounds); out != kamino.ProofFailed {
		t.Errorf("no pod: %s: %v", out, found)
	}
}

var proofNoon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
