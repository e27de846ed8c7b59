package aws

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"kamino.dev/kamino"
	"kamino.dev/kamino/proof"
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
		s := proof.Observation{Now: now, Launched: now.Add(-9 * time.Minute), Running: now.Add(-8 * time.Minute), Ready: now.Add(-6 * time.Minute), ReadyAs: now.Add(-6 * time.Minute), Canary: c}
		s.Renewed = now.Add(-time.Second)
		if out, f := proof.Judge(s, proof.Bounds{Boot: 10 * time.Minute, Bake: 10 * time.Minute}); out == kamino.ProofFailed {
			t.Errorf("%s by a person: %s %v", state, out, f)
		}
	}
}

// TestDeleteReadsAllPages: EC2 may answer a filtered list with an empty page and a token. The
// instance that runs of the image is on the second page.
func TestDeleteReadsAllPages(t *testing.T) {
	p := &Provider{region: "eu-central-1", known: newKnown(), groups: map[string]string{}, config: Config{Cluster: "lab", Clock: fixedClock{}}}
	pool := kamino.Pool{ID: p.poolID("blue"), Name: "blue"}
	p.scaling.DescribeAutoScalingGroups = func(context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
		return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []scaling.AutoScalingGroup{{AutoScalingGroupName: sdk.String("blue")}}}, nil
	}
	p.ssm.GetParameters = func(context.Context, *ssm.GetParametersInput, ...func(*ssm.Options)) (*ssm.GetParametersOutput, error) {
		return &ssm.GetParametersOutput{}, nil
	}
	p.ec2.DescribeImages = func(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error) {
		return &ec2.DescribeImagesOutput{Images: []types.Image{{ImageId: sdk.String("ami-1"), Name: sdk.String(imageName(pool, "1")),
			Tags: tagsIn(map[string]string{kamino.TagPool: "blue", tagVersion: "1"})}}}, nil
	}
	p.ec2.DescribeInstances = func(_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
		if text(in.NextToken) == "" {
			return &ec2.DescribeInstancesOutput{NextToken: sdk.String("more")}, nil
		}
		return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{{InstanceId: sdk.String("i-0123456789abcdef0"), ImageId: sdk.String("ami-1")}}}}}, nil
	}
	gone := false
	p.ec2.DeregisterImage = func(context.Context, *ec2.DeregisterImageInput, ...func(*ec2.Options)) (*ec2.DeregisterImageOutput, error) {
		gone = true
		return &ec2.DeregisterImageOutput{}, nil
	}
	if err := p.Delete(t.Context(), pool, kamino.Artifact{Kind: kamino.KindVersion, Name: "1"}); gone {
		t.Errorf("an image was deregistered that instance i-0123456789abcdef0 runs of (%v)", err)
	}
}

// TestRemoveCanaryNotYetThere: RunInstances has answered, and TerminateInstances does not know the
// instance yet. Not found after a create is not gone.
func TestRemoveCanaryNotYetThere(t *testing.T) {
	p := &Provider{region: "eu-central-1", known: newKnown(), groups: map[string]string{}, config: Config{Clock: fixedClock{}}}
	pool := kamino.Pool{ID: p.poolID("blue"), Name: "blue"}
	p.known.launches(pool, "kamino-00000000", launched{"i-0123456789abcdef0", fixedClock{}.Now()}) // as LaunchCanary does with the answer
	calls := 0
	p.ec2.TerminateInstances = func(_ context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
		calls++
		return nil, &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound", Message: "The instance ID 'i-0123456789abcdef0' does not exist"}
	}
	p.ec2.DescribeInstances = func(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
		return &ec2.DescribeInstancesOutput{}, nil
	}
	err := p.RemoveCanary(t.Context(), pool, "kamino-00000000")
	if !errors.Is(err, kamino.ErrInProgress) || p.known.canaryOf(pool, "kamino-00000000").instance == "" {
		t.Errorf("the canary was launched a moment ago, EC2 does not show it yet, and it counts as removed and is forgotten")
	}
}

// TestCanaryOfAttributes: a group that chooses types by attributes has none for a canary but that
// of an instance; what can have no canary is refused.
func TestCanaryOfAttributes(t *testing.T) {
	for name, tt := range map[string]struct {
		members []scaling.Instance
		want    string
	}{
		"no instance": {nil, ""},
		"an instance": {[]scaling.Instance{{InstanceType: sdk.String("m7i.xlarge")}}, "m7i.xlarge"},
	} {
		t.Run(name, func(t *testing.T) {
			g := group{AutoScalingGroup: scaling.AutoScalingGroup{AutoScalingGroupName: sdk.String("blue"), Instances: tt.members, MixedInstancesPolicy: &scaling.MixedInstancesPolicy{
				LaunchTemplate: &scaling.LaunchTemplate{Overrides: []scaling.LaunchTemplateOverrides{{InstanceRequirements: &scaling.InstanceRequirements{}}}}}},
				recipe: recipe{Template: "lt-1", Version: 3, ByAttributes: true}, data: &types.ResponseLaunchTemplateData{UserData: sdk.String("")}}
			fit := g.fit()
			if fit.Size != tt.want || (tt.want == "") != (len(fit.Refusals) == 1 && fit.Refusals[0].Code == "canary-type") {
				t.Errorf("%+v", fit)
			}
			g.data.InstanceRequirements = &types.InstanceRequirements{}
			if fit := g.fit(); len(fit.Refusals) != 1 || fit.Refusals[0].Code != "canary-type" {
				t.Errorf("with attributes in the template: %+v", fit)
			}
		})
	}
}

// TestCanarySubnet: each run's canary is launched into another subnet of the group, the same one
// each time that it is asked for; where the template names a zone, there must be one subnet.
func TestCanarySubnet(t *testing.T) {
	g := group{AutoScalingGroup: scaling.AutoScalingGroup{AutoScalingGroupName: sdk.String("blue"), VPCZoneIdentifier: sdk.String("subnet-a, subnet-b")},
		recipe: recipe{Template: "lt-1", Version: 3}, data: &types.ResponseLaunchTemplateData{InstanceType: types.InstanceTypeM6iLarge, UserData: sdk.String("")}}
	into := func(run string) string {
		return text((&Provider{}).canaryInput(g, kamino.Pool{Name: "blue"}, kamino.CanaryOrder{Name: "kamino-00000000", Version: "ami-1", Run: run}, "").SubnetId)
	}
	used := map[string]bool{}
	for i := range 20 {
		run := fmt.Sprint("run-", i)
		first, again := into(run), into(run)
		if used[first] = true; first != again {
			t.Errorf("%s: %s and %s", run, first, again)
		}
	}
	if len(used) != 2 || !used["subnet-a"] || !used["subnet-b"] {
		t.Errorf("twenty runs use %v", used)
	}
	g.data.Placement = &types.LaunchTemplatePlacement{AvailabilityZone: sdk.String("eu-central-1a")}
	if fit := g.fit(); len(fit.Refusals) != 1 || fit.Refusals[0].Code != "canary-zone" {
		t.Errorf("two subnets and a zone: %+v", fit)
	}
	if g.VPCZoneIdentifier = sdk.String("subnet-a"); g.fit().Refusals[0].Code == "canary-zone" || into("run-1") != "subnet-a" {
		t.Errorf("one subnet and a zone: %+v", g.fit())
	}
}

// TestCanaryTags: a canary has its own tags and those of its cluster, and as many of the group's as
// EC2 takes; what is left out is told.
func TestCanaryTags(t *testing.T) {
	g := group{AutoScalingGroup: scaling.AutoScalingGroup{AutoScalingGroupName: sdk.String("blue")}, recipe: recipe{Template: "lt-1", Version: 3},
		data: &types.ResponseLaunchTemplateData{InstanceType: types.InstanceTypeM6iLarge}}
	for i := range 47 {
		g.Tags = append(g.Tags, scaling.TagDescription{Key: sdk.String(fmt.Sprintf("cost-%02d", i)), Value: sdk.String("x"), PropagateAtLaunch: sdk.Bool(true)})
	}
	g.Tags = append(g.Tags, scaling.TagDescription{Key: sdk.String("kubernetes.io/cluster/lab"), Value: sdk.String("owned"), PropagateAtLaunch: sdk.Bool(true)})
	in := (&Provider{}).canaryInput(g, kamino.Pool{ID: "aws:eu-central-1/blue", Name: "blue"}, kamino.CanaryOrder{Name: "kamino-00000000", Version: "ami-1", Run: "r"}, "")
	tags := in.TagSpecifications[0].Tags
	if len(tags) != 50 || tagOf(tags, "kubernetes.io/cluster/lab") != "owned" || tagOf(tags, tagCanaryName) != "kamino-00000000" || tagOf(tags, "Name") != "kamino-00000000" {
		t.Errorf("%d tags: %v", len(tags), tagsOut(tags))
	}
	if left := g.fit().LeftOut; len(left) != 5 || left[0] != "tag cost-42" {
		t.Errorf("left out: %v", left)
	}
}

type fixedClock struct{ kamino.Clock }

func (fixedClock) Now() time.Time { return time.Date(2026, 11, 25, 4, 0, 0, 0, time.UTC) }
