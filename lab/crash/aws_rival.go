package crash

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/internal/worlds"

	"kamino.dev/kamino"
)

// otherGroup has the image that a person chooses, and no instances.
const otherGroup = "other"

var getNow metav1.GetOptions

func (w *onAWS) instance(m *machine) string {
	in, _ := w.fleet.Instance(m.id)
	return in.Name
}

func (w *onAWS) startMachine(m *machine) {
	w.call("ec2", "StartInstances", "InstanceId.1", w.instance(m))
}

func (w *onAWS) deleteMachine(m *machine) {
	w.excused = true // the group replaces it
	w.call("ec2", "TerminateInstances", "InstanceId.1", w.instance(m))
}

// replaceMachine does nothing: EC2 never gives an ID twice.
func (w *onAWS) replaceMachine(*machine) {}

func (w *onAWS) swapDisk(m *machine) { w.cloud.SwapDisk(w.instance(m)) }

// SetImage implements worlds.World: a person overwrites what the group launches from.
func (w *onAWS) SetImage() {
	other, _ := w.cloud.Group(otherGroup)
	image := other.Image
	if g, _ := w.cloud.Group(poolName); g.Named != g.Image {
		w.parameter(g.Named[len("resolve:ssm:"):], image)
	} else {
		w.call("ec2", "CreateLaunchTemplateVersion", "LaunchTemplateName", poolName, "SourceVersion", strconv.Itoa(g.Version),
			"LaunchTemplateData.ImageId", image)
		w.call("ec2", "ModifyLaunchTemplate", "LaunchTemplateName", poolName, "SetDefaultVersion", strconv.Itoa(w.versions()))
	}
	w.clock.sleep(2 * time.Second) // until the parameter counts
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease().Holder != "" {
		w.person = image
	}
	w.readAgain()
}

func (w *onAWS) versions() int {
	_, _, n := w.cloud.Counts(poolName)
	return n
}

// readAgain lets the state be read. mu is held.
func (w *onAWS) readAgain() {
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
	w.refresh()
}

// Resize implements worlds.World.
func (w *onAWS) Resize(by int) {
	w.excused = w.excused || by < 0
	g, _ := w.cloud.Group(poolName)
	w.call("autoscaling", "SetDesiredCapacity", "AutoScalingGroupName", poolName, "DesiredCapacity", strconv.Itoa(g.Desired+by))
}

// Size implements worlds.World.
func (w *onAWS) Size() int {
	g, _ := w.cloud.Group(poolName)
	return g.Desired
}

// Exclude implements worlds.World: a person withdraws the newest good image by its tag.
func (w *onAWS) Exclude() {
	newest, id := "", ""
	for _, m := range w.cloud.Images() {
		if name := m.Tags["kamino-version"]; name != "" && m.State == "available" && m.Tags["kamino-excluded"] == "" &&
			(newest == "" || kamino.CompareVersions(name, newest) > 0) {
			newest, id = name, m.ID
		}
	}
	if id != "" {
		w.call("ec2", "CreateTags", "ResourceId.1", id, "Tag.1.Key", "kamino-excluded", "Tag.1.Value", "true")
	}
}

// Refuse implements worlds.World: somebody begins an instance refresh, which waits.
func (w *onAWS) Refuse() {
	w.cloud.Refresh(poolName, "InProgress")
	w.seen()
}

// seen lets the state show what somebody did.
func (w *onAWS) seen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readAgain()
	w.audit.Changed(&w.state)
}

// ownerTag is of EKS's managed node groups.
const ownerTag = "eks:nodegroup-name"

// Own implements worlds.World.
func (w *onAWS) Own() {
	w.tagGroup("CreateOrUpdateTags", ownerTag)
	w.seen()
}

func (w *onAWS) tagGroup(action, key string) {
	w.call("autoscaling", action, "Tags.member.1.ResourceId", poolName, "Tags.member.1.ResourceType", "auto-scaling-group",
		"Tags.member.1.Key", key,
		"Tags.member.1.Value", "blue", "Tags.member.1.PropagateAtLaunch", "false")
}

// Revoke implements worlds.World.
func (w *onAWS) Revoke() {
	w.cloud.SetPolicy(awsKey, awsemulator.Policy{Allow: []string{"sts:GetCallerIdentity"}})
}

func (w *onAWS) deny(actions ...string) {
	p := awsRights()
	p.Deny = actions
	w.cloud.SetPolicy(awsKey, p)
}

// Lock implements worlds.World.
func (w *onAWS) Lock() { w.deny("ec2:DeleteSnapshot", "ec2:DeregisterImage") }

// Deny implements worlds.World.
func (w *onAWS) Deny() { w.deny("ec2:CreateSnapshot", "ec2:RegisterImage") }

// allowed mends what those did who have more rights than Kamino.
func (w *onAWS) allowed() {
	w.cloud.SetPolicy(awsKey, awsRights())
	w.cloud.Refresh(poolName, "Successful")
	w.tagGroup("DeleteTags", ownerTag)
	w.seen()
}

// DeleteSnapshot implements worlds.World.
func (w *onAWS) DeleteSnapshot() {
	for _, id := range w.cloud.Loose() {
		w.call("ec2", "DeleteSnapshot", "SnapshotId", id)
	}
}

// Script implements worlds.World: somebody has a snapshot of the donor by the pool's name,
// that is of no run.
func (w *onAWS) Script(node string) {
	w.on(node, func(m *machine) {
		in, ok := w.fleet.Instance(m.id)
		if ok && len(w.cloud.Loose()) == 0 {
			w.tagged("CreateSnapshot", "snapshot", map[string]string{kamino.TagBuiltFrom: node, "kamino-pool": poolName,
				"kamino-snapshot": kamino.SnapshotName(poolName)}, "VolumeId", in.OSDiskID)
		}
	})
}

// awsRivals act on AWS only.
var awsRivals = []worlds.Rival{
	{Name: "a person ends the donor's Standby", Column: "11", Act: onGroup(func(w *onAWS, m *machine) {
		w.excused, m.served = true, true
		w.call("autoscaling", "ExitStandby", "AutoScalingGroupName", poolName, "InstanceIds.member.1", w.instance(m))
	})},
	{Name: "a person resumes the rebalancing of zones", Column: "11", Act: onGroup(func(w *onAWS, _ *machine) {
		w.excused = true
		w.call("autoscaling", "ResumeProcesses", "AutoScalingGroupName", poolName, "ScalingProcesses.member.1", "AZRebalance")
	})},
	{Name: "cluster-autoscaler terminates an instance in Standby that has no Node for a quarter of an hour", Column: "9",
		Act: func(to worlds.World, donor, _ string) {
			w := to.(*World)
			to.DeleteNode(donor)
			to.After(15*time.Minute, func() {
				w.on(donor, func(m *machine) {
					a := w.cloud.(*onAWS)
					if _, err := w.station.admin.CoreV1().Nodes().Get(w.ctx, donor, getNow); err == nil {
						return
					}
					a.excused = true
					a.call("autoscaling", "TerminateInstanceInAutoScalingGroup", "InstanceId", a.instance(m),
						"ShouldDecrementDesiredCapacity",
						fmt.Sprint(true))
				})
			})
		}},
	{Name: "somebody raises the desired capacity to the maximum, and lowers it later", Column: "11",
		Act: func(to worlds.World, _, _ string) {
			to.Resize(2)
			to.After(5*time.Minute, func() { to.Resize(-2) })
		}},
}

// onGroup is what somebody does to the donor's place in its group.
func onGroup(do func(*onAWS, *machine)) func(worlds.World, string, string) {
	return func(to worlds.World, donor, _ string) {
		w := to.(*World)
		w.on(donor, func(m *machine) { do(w.cloud.(*onAWS), m) })
	}
}
