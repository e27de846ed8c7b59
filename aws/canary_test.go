package aws

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// TestCanaryInTheGroupsSubnet: a template may name network interfaces without a subnet: the group
// says in which of its subnets each instance is. A canary without one is launched into the default
// VPC, or not at all.
func TestCanaryInTheGroupsSubnet(t *testing.T) {
	g := group{AutoScalingGroup: scaling.AutoScalingGroup{AutoScalingGroupName: sdk.String("blue"), VPCZoneIdentifier: sdk.String("subnet-a,subnet-b")},
		recipe: recipe{Template: "lt-1", Version: 3},
		data: &types.ResponseLaunchTemplateData{InstanceType: types.InstanceTypeM6iLarge, NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecification{
			{DeviceIndex: sdk.Int32(0), AssociatePublicIpAddress: sdk.Bool(false), Groups: []string{"sg-1"}}}}}
	in := (&Provider{}).canaryInput(g, kamino.Pool{ID: "aws:eu-central-1/blue", Name: "blue"}, kamino.CanaryOrder{Name: "kamino-00000000", Version: "ami-1", Run: "r"}, "")
	if in.SubnetId == nil && (len(in.NetworkInterfaces) == 0 || in.NetworkInterfaces[0].SubnetId == nil) {
		t.Error("the group is in subnet-a and subnet-b, and the canary is asked for in no subnet")
	}
}

// TestCanaryStoppedByAPerson: a person, or a schedule that stops untagged machines at night, stops
// the canary. While EC2 shows "stopping" that must not convict the image: once it shows "stopped"
// it does not.
func TestCanaryStoppedByAPerson(t *testing.T) {
	now := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC)
	for _, state := range []types.InstanceStateName{types.InstanceStateNameStopping, types.InstanceStateNameStopped} {
		c := canary(types.Instance{InstanceId: sdk.String("i-0123456789abcdef0"), ImageId: sdk.String("ami-1"), PrivateDnsName: sdk.String("ip-10-0-0-9"),
			State: &types.InstanceState{Name: state}, StateReason: &types.StateReason{Code: sdk.String("Client.UserInitiatedShutdown"), Message: sdk.String("User initiated shutdown")}})
		s := kamino.Sight{Now: now, Launched: now.Add(-9 * time.Minute), Running: now.Add(-8 * time.Minute), Ready: now.Add(-6 * time.Minute), ReadyAs: now.Add(-6 * time.Minute), Canary: c}
		s.Renewed = now.Add(-time.Second)
		if out, f := kamino.Judge(s, kamino.Bounds{Boot: 10 * time.Minute, Bake: 10 * time.Minute}); out == kamino.ProofFailed {
			t.Errorf("%s by a person: %s %v", state, out, f)
		}
	}
}
