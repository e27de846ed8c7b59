package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/nodes"
	"kamino.dev/kamino/poolstate"
)

// onAWS is the lab of all tests on AWS: a cluster is on one cloud, so it has a control plane of its
// own. The first test that wants it starts it; TestMain stops it.
var onAWS = sync.OnceValues(func() (*lab.Lab, error) {
	awsStarted.Store(true)
	return lab.Start(mainContext, lab.Options{On: lab.OnAWS, Dir: filepath.Join(mainDir, "aws"), Binary: labBinary, Speed: speed, Groups: []awsemulator.Group{
		{Name: "red", Count: 3, Min: 2, Tags: clusterTag}, {Name: "blue", Count: 2, Min: 1, Version: "1", Tags: clusterTag},
		{Name: "tight", Count: 1, Min: 1, Tags: clusterTag}, {Name: "baked", Count: 2, Min: 1, Tags: clusterTag}, {Name: "packer", Count: 1, Min: 1, Tags: clusterTag}, {Name: "green", Count: 3, Min: 1, Tags: clusterTag},
		{Name: "mended", Count: 3, Min: 2, Tags: clusterTag},
		{Name: "any", Count: 2, Min: 1, Version: "1", Attributes: true, Tags: clusterTag},
		{Name: "warm", Count: 2, Min: 1, WarmPool: true, Tags: clusterTag},
	}})
})

var clusterTag = map[string]string{"kubernetes.io/cluster/lab": "owned"}

// awsPool is a group of one test.
type awsPool struct {
	*testing.T
	lab  *lab.Lab
	name string
}

func newAWSPool(t *testing.T, name string) *awsPool {
	t.Helper()
	l, err := onAWS()
	if err != nil {
		t.Fatal(err)
	}
	return &awsPool{t, l, name}
}

// members are the group's instances that live, in the order of their launch.
func (p *awsPool) members() (all []awsemulator.Machine) {
	for _, m := range p.lab.AWS.Machines() {
		if m.Group == p.name && m.State != "terminated" {
			all = append(all, m)
		}
	}
	return all
}

func (p *awsPool) run(args ...string) outcome {
	p.Helper()
	return call{lab: p.lab}.run(p.T, args...)
}

// read runs a command that must succeed, and reads its JSON.
func (p *awsPool) read(into any, args ...string) {
	p.Helper()
	o := p.run(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(o.out), into); err != nil || o.code != 0 {
		p.Fatalf("%v: exit code %d, %v\n%s\n%s", args, o.code, err, o.out, o.log)
	}
}

func (p *awsPool) status() poolstate.PoolStatus {
	p.Helper()
	var pools []poolstate.PoolStatus
	p.read(&pools, "status", "--pool", p.name)
	if len(pools) != 1 {
		p.Fatalf("%d pools", len(pools))
	}
	return pools[0]
}

// next is what the group launches next.
func (p *awsPool) next() awsemulator.Machine {
	p.Helper()
	before := p.members()
	p.awsCall("autoscaling", "set-desired-capacity", "--auto-scaling-group-name", p.name, "--desired-capacity", fmt.Sprint(len(before)+1))
	await(p.T, "one more instance runs", func() string {
		now := p.members()
		if len(now) != len(before)+1 || now[len(now)-1].State != "running" {
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
	now := p.members()
	return now[len(now)-1]
}

// awsCall is a person with aws.
func (p *awsPool) awsCall(args ...string) string {
	p.Helper()
	program, err := exec.LookPath("aws")
	if err != nil {
		p.Skip("aws is not installed: pip install awscli")
	}
	cmd := exec.CommandContext(p.Context(), program, args...)
	cmd.Env = environment(p.lab, map[string]string{"AWS_ACCESS_KEY_ID": p.lab.Environment()["KAMINO_LAB_OPERATOR_ID"], "AWS_PAGER": ""})
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("aws %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestAWS is the main job on AWS by every command, with the same words: the group replaces nobody,
// the donor is in service afterwards, and its next instance is what kamino says.
func TestAWS(t *testing.T) {
	t.Parallel()
	p := newAWSPool(t, "red")
	before, stock := p.members(), p.members()[0].Image
	donor := before[0].Hostname
	if o := p.run("plan", "--pool", p.name, "--pending-reboot-annotation", "none/none", "--minimum-ready-time", "0s", "--minimum-candidates", "1"); o.code != 0 || !strings.Contains(o.out, donor) {
		t.Errorf("plan: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	if o := p.run("update", "--target-node", donor, "--dry-run"); o.code != 0 || !strings.Contains(o.out, "parameter /kamino/lab/red/image") {
		t.Errorf("dry run: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	if o := p.run("doctor", "--target-node", donor); o.code != 0 {
		t.Errorf("doctor: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	r := p.run(updateArgs(donor, "--new-updated-nodes", "1")...).mustSucceed(t)
	if !slices.Contains(stepsOf(r), kamino.StepHold) || !slices.Contains(stepsOf(r), kamino.StepExamine) || r.AwaySeconds <= 0 {
		t.Errorf("the run went through %v, donor away %g s", stepsOf(r), r.AwaySeconds)
	}
	p.expectWhole(before, 1)
	s := p.status()
	if s.Next != r.Version || len(s.Versions) != 1 || s.Versions[0].Instances != 1 || s.Versions[0].BuiltFrom != donor {
		t.Errorf("status %+v", s)
	}
	if o := p.run(updateArgs(donor)...); o.code != 0 || o.report(t).Changed {
		t.Errorf("second update: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	if o := p.run("restore", "--dry-run"); o.code != 0 {
		t.Errorf("restore: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	second := p.run(updateArgs(before[1].Hostname, "--again")...).mustSucceed(t)
	if diff := second.ModelDiff; len(diff) != 1 || diff[0].Field != "parameter /kamino/lab/red/image" {
		t.Errorf("the second promotion changed %v", diff)
	}
	p.read(new(engine.Rollback), "withdraw", "--pool", p.name, "--reason", "looks bad")
	if s := p.status(); s.Next != r.Version {
		t.Errorf("after the withdrawal the next node boots from %s, want %s", s.Next, r.Version)
	}
	p.read(new(engine.Rollback), "rollback", "--pool", p.name, "--to", second.Version)
	p.read(new(engine.Rollback), "rollback", "--pool", p.name, "--to", poolstate.ToOriginal)
	if m := p.next(); m.Image != stock {
		t.Errorf("after the rollback to the original the next instance boots from %s, want %s", m.Image, stock)
	}
	p.read(new(engine.Rollback), "rollback", "--pool", p.name, "--to", r.Version)
	if m := p.next(); m.Image != r.Image {
		t.Errorf("after the way back to the version the next instance boots from %s, want %s", m.Image, r.Image)
	}
	p.expectWhole(before, 3)
}

// expectWhole: the instances from before are in service, on as often as kamino says, and none was
// replaced; the group rebalances, and nothing of a run is left.
func (p *awsPool) expectWhole(before []awsemulator.Machine, more int) {
	p.Helper()
	now := p.members()
	if len(now) != len(before)+more {
		p.Errorf("%d instances, were %d and %d more", len(now), len(before), more)
	}
	for _, was := range before {
		if !slices.ContainsFunc(now, func(m awsemulator.Machine) bool {
			return m.ID == was.ID && m.Lifecycle == "InService" && m.State == "running"
		}) {
			p.Errorf("instance %s is not in service any more: %+v", was.ID, now)
		}
	}
	if p.lab.AWS.Suspended(p.name, "AZRebalance") {
		p.Error("zone rebalancing is suspended")
	}
	for _, m := range p.lab.AWS.Machines() {
		if m.Tags[kamino.TagCanary] != "" && m.Tags[kamino.TagPool] == p.name && m.State == "running" {
			p.Errorf("canary %s is left", m.ID)
		}
	}
	nodes, err := p.lab.Client.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for _, n := range nodes.Items {
		if slices.ContainsFunc(before, func(m awsemulator.Machine) bool { return m.Hostname == n.Name }) &&
			(n.Annotations[kamino.AnnotationRun] != "" || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return strings.Contains(t.Key, "kamino") })) {
			p.Errorf("node %s carries marks: %v %v", n.Name, n.Annotations, n.Spec.Taints)
		}
	}
}

// TestAWSAuto: the donor is chosen, and what comes of it is told.
func TestAWSAuto(t *testing.T) {
	t.Parallel()
	p := newAWSPool(t, "green")
	before := p.members()
	patched := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, kamino.KuredLastPatch.Annotation, time.Now().UTC().Format(time.RFC3339))
	if _, err := p.lab.Client.CoreV1().Nodes().Patch(t.Context(), before[0].Hostname, types.MergePatchType, []byte(patched), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	o := p.run("auto-update", "--target-vmss", p.name, "--minimum-ready-time", "0s", "--minimum-candidates", "1", "--grace-period", "20", "--prove-for", "0s",
		"--image", lab.SealImage)
	if o.code != 0 || !strings.Contains(o.out, "updated") {
		t.Fatalf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	p.expectWhole(before, 0)
}

// TestAWSPatch: a node is patched and restarted while its group has it in Standby, and so is one
// that comes back by a power cycle only: a machine that was off would be replaced in service. The
// others do not notice.
func TestAWSPatch(t *testing.T) {
	t.Parallel()
	p := newAWSPool(t, "mended")
	before := p.members()
	boots := func() map[string]string {
		all := map[string]string{}
		for _, m := range before {
			n, err := p.lab.Client.CoreV1().Nodes().Get(t.Context(), m.Hostname, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			all[m.Hostname] = n.Status.NodeInfo.BootID
		}
		return all
	}
	for _, comes := range []string{nodes.NeedsReboot, nodes.HangsOnce} {
		for _, m := range before {
			if err := p.lab.AWS.WriteDisk(m.ID, func(files map[string]string) {
				nodes.FillPackages(files)
				files[nodes.UpgradesFile] = "libc6 2.36-10 amd64 " + nodes.NeedsReboot + "\nopenssl 3.0.17 amd64\n"
				if comes == nodes.HangsOnce {
					files[nodes.UpgradesFile] = "tzdata 2026a all " + comes + "\n"
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		was, since := boots(), len(p.lab.AWS.Requests(0))
		one := p.run(patchArgs("--pool", p.name, "--return", "1m", "-o", "json")...).patched(t)
		if !one.Restarted || one.Cycled != (comes == nodes.HangsOnce) || one.Blocked || len(one.Report.Changed) == 0 {
			t.Errorf("%s: %+v, %+v", comes, one, one.Report)
		}
		var asked []string
		for _, e := range p.lab.AWS.Requests(since) {
			if g, _ := e.Parameters["AutoScalingGroupName"].(string); g == p.name && !strings.HasPrefix(e.Action, "Describe") {
				asked = append(asked, e.Action)
			}
		}
		if want := []string{"SuspendProcesses", "EnterStandby", "ExitStandby", "ResumeProcesses"}; !slices.Equal(slices.Sorted(slices.Values(asked)), slices.Sorted(slices.Values(want))) ||
			slices.Index(asked, "EnterStandby") > slices.Index(asked, "ExitStandby") {
			t.Errorf("%s: of the group was asked %v", comes, asked)
		}
		for name, boot := range boots() {
			if took := name == one.Node; took != (boot != was[name]) {
				t.Errorf("%s: node %s, boot %s, before %s; patched was %s", comes, name, boot, was[name], one.Node)
			}
		}
		p.expectWhole(before, 0)
	}
}

// TestAWSPackerForPartThree: an AMI that somebody else made of an instance of his own, with the
// name and the tags by which a group's versions are found and no others of Kamino's, is proved and
// promoted like ours; one whose kubelet is masked is withdrawn, and no instance is made of it.
func TestAWSPackerForPartThree(t *testing.T) {
	t.Parallel()
	p, builder := newAWSPool(t, "baked"), newAWSPool(t, "packer")
	first := p.run(updateArgs(p.members()[0].Hostname)...).mustSucceed(t)
	bake := func(version string, script func(map[string]string)) (image string) {
		t.Helper()
		if err := p.lab.AWS.WriteDisk(builder.members()[0].ID, script); err != nil {
			t.Fatal(err)
		}
		var made struct{ ImageId string }
		if err := json.Unmarshal([]byte(p.awsCall("ec2", "create-image", "--instance-id", builder.members()[0].ID, "--no-reboot", "--name", "kamino-"+p.name+"-"+version, "--output", "json",
			"--tag-specifications", fmt.Sprintf("ResourceType=image,Tags=[{Key=kamino-pool,Value=%s},{Key=kamino-version,Value=%s},{Key=kamino-excluded,Value=true},{Key=packer,Value=yes}]", p.name, version))), &made); err != nil {
			t.Fatal(err)
		}
		await(t, "image "+made.ImageId+" is available", func() string {
			if out := p.awsCall("ec2", "describe-images", "--image-ids", made.ImageId, "--query", "Images[0].State", "--output", "text"); strings.TrimSpace(out) != "available" {
				return out
			}
			return ""
		})
		return made.ImageId
	}
	prove := func(version string) outcome {
		return p.run("promote", "--pool", p.name, "--version", version, "--prove", "canary", "--prove-for", "0s", "--boot-budget", "1m", "--accept-unsealed", "-o", "json")
	}
	bad, good := kamino.VersionName(time.Now().AddDate(0, 0, 1)), kamino.VersionName(time.Now().AddDate(0, 0, 2))
	bake(bad, func(files map[string]string) {
		nodes.Generalize(files, p.name, true)
		files[nodes.KubeletUnit] = nodes.Masked
	})
	if o := prove(bad); o.code != 4 || !strings.Contains(o.log, "failed its proof: ready: ") || p.next().Image != first.Image {
		t.Fatalf("with a masked kubelet: exit code %d\n%s", o.code, o.log)
	}
	image := bake(good, func(files map[string]string) { nodes.Generalize(files, p.name, true) })
	if o := prove(good); o.code != 0 || p.next().Image != image {
		t.Fatalf("a good one: exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	life := map[string]kamino.Phase{}
	for _, v := range p.status().Versions {
		life[v.Name] = v.Phase
	}
	if life[bad] != kamino.PhaseWithdrawn || life[good] != kamino.PhasePromoted {
		t.Errorf("the versions are %v", life)
	}
}

// TestAWSRefused: what cannot go well is told before anything is touched, and what only Azure knows
// is no flag here.
func TestAWSRefused(t *testing.T) {
	t.Parallel()
	p := newAWSPool(t, "tight")
	node := p.members()[0].Hostname
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{updateArgs(node), 3, []string{"MinSize", "aws autoscaling update-auto-scaling-group --auto-scaling-group-name tight --min-size 0"}},
		{[]string{"status", "--gallery", "g"}, 1, []string{"--gallery is for clusters on Azure only, and this one is on AWS"}},
		{updateArgs(node, "--gallery", "mine"), 1, []string{"--gallery is for clusters on Azure only"}},
	} {
		since := len(p.lab.AWS.Requests(0))
		o := p.run(tt.args...)
		for _, want := range tt.want {
			if o.code != tt.code || !strings.Contains(o.log+o.out, want) {
				t.Errorf("%v: exit code %d, want %d and %q\n%s\n%s", tt.args, o.code, tt.code, want, o.out, o.log)
			}
		}
		for _, e := range p.lab.AWS.Requests(since) {
			if g, _ := e.Parameters["AutoScalingGroupName"].(string); g == p.name && !strings.HasPrefix(e.Action, "Describe") {
				t.Errorf("%v sent %s", tt.args, e.Action)
			}
		}
	}
}

// TestAWSNoPointer: a group that chooses instance types by attributes, or has a warm pool, gets
// versions of its template.
func TestAWSNoPointer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"any", "warm"} { // instance types by attributes; a warm pool
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAWSPool(t, name)
			node := p.members()[0].Hostname
			if o := p.run(updateArgs(node)...); o.code != 0 {
				t.Fatalf("exit code %d\n%s\n%s", o.code, o.out, o.log)
			}
			if g, _ := p.lab.AWS.Group(p.name); g.Version != 2 || strings.HasPrefix(g.Named, "resolve:") {
				t.Errorf("version %d names %s", g.Version, g.Named)
			}
		})
	}
}
