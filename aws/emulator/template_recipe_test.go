package emulator

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// TestResolveAtLaunch: the parameter is read at each launch; who runs keeps image and version.
func TestResolveAtLaunch(t *testing.T) {
	w := begin(t, nil)
	if err := w.s.WriteDisk(w.donor(), func(files map[string]string) { files["/sealed"] = "yes" }); err != nil {
		t.Fatal(err)
	}
	first := w.s.Machines()[0].Image
	second := w.image(w.donor(), "kamino-blue-2026.11.20")
	w.put("/kamino/blue", first)
	w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "SourceVersion", "1", "LaunchTemplateData.ImageId", "resolve:ssm:/kamino/blue")
	w.do("ec2:ModifyLaunchTemplate", "LaunchTemplateName", "blue", "SetDefaultVersion", "2")
	grow := func(n string) Machine {
		w.do("autoscaling:SetDesiredCapacity", blue, "blue", "DesiredCapacity", n)
		w.clock.Advance(2 * time.Minute)
		all := w.s.Machines()
		return all[len(all)-1]
	}
	if m := grow("4"); m.Image != first || m.TemplateVersion != 2 {
		t.Errorf("%+v", m)
	}
	w.put("/kamino/blue", second)
	m := grow("5")
	files, err := w.s.ReadDisk(m.ID)
	if m.Image != second || err != nil || files["/sealed"] != "yes" {
		t.Errorf("%+v %v %v", m, files, err)
	}
	versions := w.do("autoscaling:DescribeAutoScalingInstances").all("AutoScalingInstances/member/LaunchTemplate/Version")
	if got := strings.Join(versions, ""); got != "11122" {
		t.Errorf("versions %s", got)
	}
	resolved := w.do("ec2:DescribeLaunchTemplateVersions", "LaunchTemplateName", "blue", "LaunchTemplateVersion.1", "$Default", "ResolveAlias", "true")
	if got := resolved.one("launchTemplateVersionSet/item/launchTemplateData/imageId"); got != second {
		t.Errorf("resolved %s", got)
	}
}

// TestParameter: an image that is not there never comes into effect, though a version was given.
func TestParameter(t *testing.T) {
	w := begin(t, nil)
	image := w.s.Machines()[0].Image
	w.put("/p", image)
	out, code := w.ssm("PutParameter", object{"Name": "/p", "Value": "ami-0123", "DataType": imageType, "Overwrite": true})
	if n, _ := number(out, "Version"); code != "" || n != 2 {
		t.Fatalf("%v %s", out, code)
	}
	w.clock.Advance(time.Minute)
	out, _ = w.ssm("GetParameter", object{"Name": "/p"})
	if text(out, "Parameter", "Value") != image {
		t.Errorf("%v", out)
	}
	if _, code := w.ssm("PutParameter", object{"Name": "/p", "Value": image}); code != "ParameterAlreadyExists" {
		t.Error(code)
	}
	if _, code := w.ssm("GetParameter", object{"Name": "/p:2"}); code != "ParameterVersionNotFound" {
		t.Error(code)
	}
	if _, code := w.ssm("LabelParameterVersion", object{"Name": "/p", "ParameterVersion": 1, "Labels": []string{"good"}}); code != "" {
		t.Error(code)
	}
	if out, _ := w.ssm("GetParameter", object{"Name": "/p:good"}); text(out, "Parameter", "Value") != image {
		t.Errorf("%v", out)
	}
	w.ssm("PutParameter", object{"Name": "/text", "Value": image, "Type": "String"})
	for _, name := range []string{"/text", "/none"} {
		w.refused("SsmInvalidParameter", "ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "LaunchTemplateData.ImageId", "resolve:ssm:"+name)
	}
	w.ssm("DeleteParameter", object{"Name": "/p"})
	if _, code := w.ssm("GetParameter", object{"Name": "/p"}); code != "ParameterNotFound" {
		t.Error(code)
	}
}

// TestSourceVersion: what is not given comes from there, without the snapshots of mappings; lists
// replace lists.
func TestSourceVersion(t *testing.T) {
	w := begin(t, nil)
	w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "SourceVersion", "1", "LaunchTemplateData.SecurityGroupId.1", "sg-02",
		"LaunchTemplateData.BlockDeviceMapping.1.DeviceName", "/dev/xvda", "LaunchTemplateData.BlockDeviceMapping.1.Ebs.SnapshotId", "snap-1",
		"LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize", "50")
	data := "launchTemplateVersion/launchTemplateData/"
	v := w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "SourceVersion", "$Latest", "LaunchTemplateData.KeyName", "k", "ClientToken", "t")
	for path, want := range map[string]string{"keyName": "k", "instanceType": "m6i.large", "securityGroupIdSet/item": "sg-02",
		"blockDeviceMappingSet/item/ebs/volumeSize": "50", "blockDeviceMappingSet/item/ebs/snapshotId": "", "iamInstanceProfile/name": "nodes"} {
		if got := v.one(data + path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	again := w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "SourceVersion", "$Latest", "LaunchTemplateData.KeyName", "k", "ClientToken", "t")
	if got := again.one("launchTemplateVersion/versionNumber"); got != "3" {
		t.Errorf("the same token made version %s", got)
	}
	w.refused("IdempotentParameterMismatch", "ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "LaunchTemplateData.KeyName", "l", "ClientToken", "t")
	bare := w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "LaunchTemplateData.ImageId", "ami-0nothing")
	if bare.one(data+"instanceType") != "" || bare.one("warning/errorSet/item/code") != "InvalidAMIID.NotFound" {
		t.Errorf("%+v", bare)
	}
	w.refused("InvalidLaunchTemplateId.VersionNotFound", "ec2:ModifyLaunchTemplate", "LaunchTemplateName", "blue", "SetDefaultVersion", "9")
	w.refused("ValidationError", "autoscaling:UpdateAutoScalingGroup", blue, "blue", "LaunchTemplate.LaunchTemplateName", "blue", "LaunchTemplate.Version", "4")
	deleted := w.do("ec2:DeleteLaunchTemplateVersions", "LaunchTemplateName", "blue", "LaunchTemplateVersion.1", "1", "LaunchTemplateVersion.2", "4")
	if deleted.one("unsuccessfullyDeletedLaunchTemplateVersionSet/item/versionNumber") != "1" || deleted.one("successfullyDeletedLaunchTemplateVersionSet/item/versionNumber") != "4" {
		t.Errorf("%+v", deleted)
	}
}

// TestImages: names are taken once, and again a while after deregistration; snapshots in use stay.
func TestImages(t *testing.T) {
	w := begin(t, nil)
	donor := w.donor()
	volume := w.do("ec2:DescribeInstances", "InstanceId.1", donor).one("reservationSet/item/instancesSet/item/blockDeviceMapping/item/ebs/volumeId")
	snapshot := w.do("ec2:CreateSnapshot", "VolumeId", volume).one("snapshotId")
	w.refused("SnapshotCreationPerVolumeRateExceeded", "ec2:CreateSnapshot", "VolumeId", volume)
	w.clock.Advance(75 * time.Second)
	register := []string{"Name", "one", "RootDeviceName", "/dev/xvda", "BlockDeviceMapping.1.DeviceName", "/dev/xvda", "BlockDeviceMapping.1.Ebs.SnapshotId", snapshot}
	if got := w.do("ec2:DescribeSnapshots", "SnapshotId.1", snapshot).one("snapshotSet/item/progress"); got != "50%" {
		t.Errorf("progress %s", got)
	}
	w.refused("IncorrectState", "ec2:RegisterImage", register...)
	w.clock.Advance(75 * time.Second)
	image := w.do("ec2:RegisterImage", register...).one("imageId")
	w.clock.Advance(time.Minute)
	shown := w.do("ec2:DescribeImages", "ImageId.1", image)
	if shown.one("imagesSet/item/architecture") != "i386" || shown.one("imagesSet/item/enaSupport") != "false" || shown.one("imagesSet/item/imageState") != "available" {
		t.Errorf("%+v", shown)
	}
	w.refused("InvalidAMIName.Duplicate", "ec2:CreateImage", "InstanceId", donor, "Name", "one")
	w.refused("InvalidAMIName.Malformed", "ec2:CreateImage", "InstanceId", donor, "Name", "a:b")
	w.refused("InvalidSnapshot.InUse", "ec2:DeleteSnapshot", "SnapshotId", snapshot)
	w.do("ec2:DisableImage", "ImageId", image)
	w.refused("InvalidSnapshot.InUse", "ec2:DeleteSnapshot", "SnapshotId", snapshot)
	w.do("ec2:EnableImage", "ImageId", image)
	w.do("ec2:DeregisterImage", "ImageId", image)
	w.refused("InvalidAMIName.Duplicate", "ec2:CreateImage", "InstanceId", donor, "Name", "one")
	w.do("ec2:DeleteSnapshot", "SnapshotId", snapshot)
	w.clock.Advance(time.Minute)
	w.s.AddFault(Fault{Action: "ec2:CreateImage", Kind: Fail})
	bad := w.do("ec2:CreateImage", "InstanceId", donor, "Name", "one").one("imageId")
	w.clock.Advance(10 * time.Minute)
	if got := w.do("ec2:DescribeImages", "ImageId.1", bad).one("imagesSet/item/imageState"); got != "failed" {
		t.Errorf("state %s", got)
	}
	second := w.do("ec2:DescribeImages", "ImageId.1", w.image(donor, "two"))
	if second.one("imagesSet/item/architecture") != "x86_64" || second.one("imagesSet/item/bootMode") != "uefi-preferred" {
		t.Errorf("%+v", second)
	}
}

// TestMetadataTags: a key with a slash makes the launch fail where tags are shown in metadata, and
// is refused afterwards.
func TestMetadataTags(t *testing.T) {
	shown := Group{Name: "blue", Count: 1, Data: object{"MetadataOptions": object{"InstanceMetadataTags": "enabled"}}}
	w := begin(t, nil, shown)
	w.refused("InvalidParameterValue", "ec2:CreateTags", "ResourceId.1", w.donor(), "Tag.1.Key", "kubernetes.io/cluster/x", "Tag.1.Value", "owned")
	w.do("ec2:CreateTags", "ResourceId.1", w.donor(), "Tag.1.Key", "plain", "Tag.1.Value", "")
	w.do("autoscaling:CreateOrUpdateTags", "Tags.member.1.ResourceId", "blue", "Tags.member.1.ResourceType", "auto-scaling-group",
		"Tags.member.1.Key", "kubernetes.io/cluster/x", "Tags.member.1.Value", "owned", "Tags.member.1.PropagateAtLaunch", "true")
	w.do("autoscaling:SetDesiredCapacity", blue, "blue", "DesiredCapacity", "2")
	w.clock.Advance(5 * time.Minute)
	if n := len(w.in(inService)); n != 1 {
		t.Errorf("%d in service", n)
	}
	message := w.do("autoscaling:DescribeScalingActivities", blue, "blue").one("Activities/member/StatusMessage")
	if !strings.Contains(message, "not a valid tag key") {
		t.Errorf("message %q", message)
	}
}

// TestUserData: at most 16 KB before base64.
func TestUserData(t *testing.T) {
	w := begin(t, nil)
	of := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	run := []string{"LaunchTemplate.LaunchTemplateName", "blue", "MinCount", "1", "MaxCount", "1", "UserData"}
	w.refused("InvalidParameterValue", "ec2:RunInstances", append(run, of(maxUserData+1))...)
	w.refused("InvalidUserData.Malformed", "ec2:RunInstances", append(run, "not base64!")...)
	id := w.do("ec2:RunInstances", append(run, of(maxUserData), "ClientToken", "canary")...).one("instancesSet/item/instanceId")
	if again := w.do("ec2:RunInstances", append(run, of(maxUserData), "ClientToken", "canary")...).one("instancesSet/item/instanceId"); again != id {
		t.Errorf("the same token launched %s and %s", id, again)
	}
	w.clock.Advance(time.Minute)
	if m := w.machine(id); m.State != running || m.Group != "" || len(w.in(inService)) != 3 {
		t.Errorf("%+v", m)
	}
	w.do("ec2:TerminateInstances", "InstanceId.1", id)
}

// TestSwapDisk: an instance whose root volume was swapped has an empty one, and the former volume is
// left.
func TestSwapDisk(t *testing.T) {
	w := begin(t, nil)
	donor := w.donor()
	former := w.machine(donor).Volume
	w.s.SwapDisk(donor)
	now := w.machine(donor).Volume
	if files, err := w.s.ReadDisk(donor); err != nil || len(files) > 0 || now == former {
		t.Errorf("volume %s with %v, %v; it was %s", now, files, err, former)
	}
	if shown := w.do("ec2:DescribeVolumes", "VolumeId.1", now).one("volumeSet/item/attachmentSet/item/instanceId"); shown != donor {
		t.Errorf("volume %s is at %q", now, shown)
	}
	w.do("ec2:CreateSnapshot", "VolumeId", former)
}
