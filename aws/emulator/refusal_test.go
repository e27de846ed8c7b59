package emulator

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestRefusals: what AWS refuses for its form is refused here, and what is at the bound is taken.
func TestRefusals(t *testing.T) {
	w := begin(t, nil)
	me := w.donor()
	snapshot := w.do("ec2:CreateSnapshot", "VolumeId", w.machine(me).Volume).one("snapshotId")
	w.clock.Advance(10 * time.Minute)
	template := w.do("ec2:DescribeLaunchTemplates").one("launchTemplates/item/launchTemplateId")
	register := func(name string, more ...string) []string {
		return append([]string{"Name", name, "Architecture", "x86_64", "RootDeviceName", "/dev/xvda", "BlockDeviceMapping.1.DeviceName", "/dev/xvda",
			"BlockDeviceMapping.1.Ebs.SnapshotId", snapshot}, more...)
	}
	typed := func(kind string, more ...string) []string {
		return register(kind+fmt.Sprint(len(more)), append([]string{"BlockDeviceMapping.1.Ebs.VolumeType", kind}, more...)...)
	}
	const iops, rate, size = "BlockDeviceMapping.1.Ebs.Iops", "BlockDeviceMapping.1.Ebs.Throughput", "BlockDeviceMapping.1.Ebs.VolumeSize"
	tags := func(prefix string, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%s.%d.Key", prefix, i+1), fmt.Sprint("k", i), fmt.Sprintf("%s.%d.Value", prefix, i+1), "v")
		}
		return out
	}
	tagged := func(name, kind string, more ...string) []string {
		return register(name, append([]string{"TagSpecification.1.ResourceType", kind}, more...)...)
	}
	const key, value = "TagSpecification.1.Tag.1.Key", "TagSpecification.1.Tag.1.Value"
	for _, tt := range []struct {
		code, action string // code "": it is taken
		parameters   []string
	}{
		{"InvalidBlockDeviceMapping", "ec2:RegisterImage", typed("io1")},
		{"InvalidBlockDeviceMapping", "ec2:RegisterImage", typed("io2")},
		{"", "ec2:RegisterImage", typed("io2", iops, "6000")},
		{"", "ec2:RegisterImage", typed("gp3", iops, "6000", rate, "500")},
		{"InvalidParameterCombination", "ec2:RegisterImage", typed("gp2", iops, "6000")},
		{"InvalidParameterCombination", "ec2:RegisterImage", typed("io2", iops, "6000", rate, "500")},
		{"InvalidBlockDeviceMapping", "ec2:RegisterImage", typed("gp3", size, "19")},
		{"", "ec2:RegisterImage", typed("gp3", size, "20")},
		{"InvalidParameterValue", "ec2:RegisterImage", append(register("arm", "BootMode", "legacy-bios"), "Architecture", "arm64")},
		{"InvalidParameterCombination", "ec2:RegisterImage", register("tpm", "BootMode", "legacy-bios", "TpmSupport", "v2.0")},
		{"", "ec2:RegisterImage", register("bios", "BootMode", "legacy-bios")},
		{"InvalidParameterValue", "ec2:RegisterImage", register("text", "Description", strings.Repeat("d", 256))},
		{"", "ec2:RegisterImage", register("text", "Description", strings.Repeat("d", 255))},
		{"TagLimitExceeded", "ec2:RegisterImage", tagged("tags", "image", tags("TagSpecification.1.Tag", 51)...)},
		{"", "ec2:RegisterImage", tagged("tags", "image", tags("TagSpecification.1.Tag", 50)...)},
		{"InvalidParameterValue", "ec2:RegisterImage", tagged("aws", "image", key, "aws:x", value, "v")},
		{"InvalidParameterValue", "ec2:RegisterImage", tagged("other", "instance", key, "x", value, "v")},
		{"InvalidParameterValue", "ec2:CreateTags", []string{"ResourceId.1", snapshot, "Tag.1.Key", "k", "Tag.1.Value", strings.Repeat("v", 257)}},
		{"InvalidParameterValue", "ec2:CreateTags", []string{"ResourceId.1", snapshot, "Tag.1.Key", strings.Repeat("k", 129), "Tag.1.Value", "v"}},
		{"InvalidParameterValue", "ec2:CreateTags", []string{"ResourceId.1", snapshot, "Tag.1.Key", "AWS:k", "Tag.1.Value", "v"}},
		{"TagLimitExceeded", "ec2:CreateTags", append(tags("Tag", 51), "ResourceId.1", snapshot)},
		{"", "ec2:CreateTags", append(tags("Tag", 50), "ResourceId.1", snapshot)},
		{"TagLimitExceeded", "ec2:CreateTags", []string{"ResourceId.1", snapshot, "Tag.1.Key", "one more", "Tag.1.Value", "v"}},
		{"", "ec2:CreateTags", []string{"ResourceId.1", snapshot, "Tag.1.Key", "k1", "Tag.1.Value", strings.Repeat("v", 256)}},
		{"InvalidParameterCombination", "ec2:DescribeInstances", []string{"InstanceId.1", me, "MaxResults", "10"}},
		{"InvalidParameterCombination", "ec2:DescribeSnapshots", []string{"SnapshotId.1", snapshot, "MaxResults", "10"}},
		{"InvalidParameterValue", "ec2:DescribeInstances", []string{"MaxResults", "1"}},
		{"InvalidParameterValue", "ec2:DescribeInstances", []string{"MaxResults", "1001"}},
		{"InvalidInstanceID.Malformed", "ec2:DescribeInstances", []string{"InstanceId.1", "i-zz"}},
		{"InvalidAMIID.Malformed", "ec2:DescribeImages", []string{"ImageId.1", "ami-zz"}},
		{"InvalidParameterCombination", "ec2:RunInstances", []string{"ImageId", w.machine(me).Image, "InstanceType", "m6i.large", "MinCount", "1", "MaxCount", "1",
			"SubnetId", "subnet-0a", "NetworkInterface.1.DeviceIndex", "0", "NetworkInterface.1.SubnetId", "subnet-0a"}},
		{"ValidationError", "autoscaling:UpdateAutoScalingGroup", []string{blue, "blue", "LaunchTemplate.LaunchTemplateId", template, "LaunchTemplate.LaunchTemplateName", "blue"}},
		{"ValidationError", "autoscaling:CreateOrUpdateTags", []string{"Tags.member.1.ResourceId", "blue", "Tags.member.1.ResourceType", "auto-scaling-group",
			"Tags.member.1.Key", "aws:x", "Tags.member.1.Value", "v", "Tags.member.1.PropagateAtLaunch", "false"}},
		{"ValidationError", "autoscaling:DescribeAutoScalingGroups", []string{"MaxRecords", "101"}},
		{"", "autoscaling:DescribeAutoScalingGroups", []string{"MaxRecords", "100"}},
		{"ValidationError", "autoscaling:DescribeAutoScalingInstances", []string{"MaxRecords", "51"}},
	} {
		if _, got := w.try(tt.action, tt.parameters...); got != tt.code {
			t.Errorf("%s %q: code %q, want %q", tt.action, tt.parameters, got, tt.code)
		}
	}
	names := func(n int) (out []any) {
		for i := range n {
			out = append(out, fmt.Sprint("/k/", i))
		}
		return out
	}
	plain := object{"Name": "/k/x", "Value": "v", "Type": "String", "Overwrite": true}
	for _, tt := range []struct {
		code, action string
		in           object
	}{
		{"ValidationException", "GetParameters", object{"Names": names(11)}},
		{"", "GetParameters", object{"Names": names(10)}},
		{"", "PutParameter", plain},
		{"HierarchyTypeMismatchException", "PutParameter", object{"Name": "/k/x", "Value": "v", "Type": "SecureString", "Overwrite": true}},
		{"ValidationException", "PutParameter", object{"Name": "/aws/x", "Value": "v", "Type": "String"}},
		{"ValidationException", "PutParameter", object{"Name": "/k/a b", "Value": "v", "Type": "String"}},
		{"ValidationException", "PutParameter", object{"Name": "/k/long", "Value": strings.Repeat("v", 4097), "Type": "String"}},
	} {
		if _, got := w.ssm(tt.action, tt.in); got != tt.code {
			t.Errorf("ssm:%s: code %q, want %q", tt.action, got, tt.code)
		}
	}
}
