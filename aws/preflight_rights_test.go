package aws_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/docs"
)

// node is the role of the emulated nodes: their profile has its name.
const node = "nodes"

// shipped is a policy that the documentation tells people to make.
func shipped(t *testing.T, documents ...[]byte) (p emulator.Policy, actions []string) {
	t.Helper()
	p, err := emulator.ParsePolicy(documents...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Statements {
		actions = append(actions, s.Action...)
	}
	slices.Sort(actions)
	return p, slices.Compact(actions)
}

// The policies of the documentation, with the account and the role filled in.
var (
	ordinary = docs.AWSPolicy
	canary   = docs.AWSCanaryPolicy("123456789012", node)
	byNumber = docs.AWSByNumberPolicy("123456789012", node)
)

// until repeats a step as the engine does, while what it says may come right by itself.
func (c *cloud) until(what string, step func() (bool, error)) error {
	for range 200 {
		done, err := step()
		if err != nil && !errors.Is(err, kamino.ErrInProgress) && !errors.Is(err, kamino.ErrUnavailable) {
			return err
		}
		if done && err == nil {
			return nil
		}
		c.clock.Advance(5 * time.Second)
	}
	return fmt.Errorf("never: %s", what)
}

func (c *cloud) fetch() (kamino.Pool, error) {
	id, err := c.PoolOf(c.Context(), c.donor())
	if err != nil {
		return kamino.Pool{}, err
	}
	return c.Pool(c.Context(), id)
}

// held holds or releases the donor.
func (c *cloud) held(do func(kamino.Pool) error, want kamino.Holding) error {
	return c.until(string(want), func() (bool, error) {
		pool, err := c.fetch()
		if err != nil {
			return false, err
		}
		if err := do(pool); err != nil {
			return false, err
		}
		how, err := c.Holding(c.Context(), pool, c.donor())
		return how == want, err
	})
}

func (c *cloud) switched(want kamino.Power) error {
	return c.until(string(want), func() (bool, error) {
		in, err := c.Instance(c.Context(), c.donor())
		if err != nil || in.Power == want {
			return true, err
		}
		return false, c.SetPower(c.Context(), c.donor(), want)
	})
}

// creates makes an artifact and tells its ID.
func (c *cloud) creates(a kamino.Artifact) (id string, err error) {
	err = c.until("make "+a.Name, func() (bool, error) {
		pool, err := c.fetch()
		if err != nil {
			return false, err
		}
		found, err := c.Find(c.Context(), pool, a.Kind, a.Name)
		if err != nil {
			return false, err
		}
		if len(found) > 0 {
			id = found[0].ID
			return found[0].Ready, nil
		}
		return false, c.Create(c.Context(), pool, a)
	})
	return id, err
}

func (c *cloud) promotes(to kamino.Target) error {
	return c.until("promote", func() (bool, error) {
		pool, err := c.fetch()
		if err != nil {
			return false, err
		}
		next, err := c.NextImage(c.Context(), pool, to)
		if err != nil || len(next.Diff) == 0 {
			return true, err
		}
		return false, c.Promote(c.Context(), pool, to)
	})
}

// story is everything that runs do on AWS, one after another.
func (c *cloud) story() error {
	ctx := c.Context()
	pool, err := c.fetch()
	if err != nil {
		return err
	}
	if err := c.held(func(p kamino.Pool) error { return c.Hold(ctx, p, c.donor()) }, kamino.Held); err != nil {
		return err
	}
	if err := c.switched(kamino.PowerOff); err != nil {
		return err
	}
	in, err := c.Instance(ctx, c.donor())
	if err != nil {
		return err
	}
	tags := map[string]string{kamino.TagRun: "run-1"}
	snapshot, err := c.creates(kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: tags})
	if err != nil {
		return err
	}
	for _, name := range []string{"2026.1.1", "2026.1.2", "2026.1.3"} {
		if _, err := c.creates(kamino.Artifact{Kind: kamino.KindVersion, Name: name, Source: snapshot, Tags: tags}); err != nil {
			return err
		}
	}
	if err := c.switched(kamino.PowerOn); err != nil {
		return err
	}
	if err := c.held(func(p kamino.Pool) error { return c.Release(ctx, p, c.donor()) }, kamino.InService); err != nil {
		return err
	}
	if err := c.Release(ctx, pool, c.donor()); err != nil { // what is resumed once it is in service
		return err
	}
	return c.storyOfImages(pool)
}

func (c *cloud) storyOfImages(former kamino.Pool) error {
	ctx := c.Context()
	for _, to := range []kamino.Target{{Version: "2026.1.1"}, {Version: "2026.1.2", Reference: kamino.ByDefinition}, {Former: former.Model.Saved},
		{Version: "2026.1.2", Reference: kamino.ByDefinition}} {
		if err := c.promotes(to); err != nil {
			return err
		}
	}
	pool, err := c.fetch()
	if err != nil {
		return err
	}
	if err := c.Withdraw(ctx, pool, "2026.1.3", kamino.Bad{Reason: "never Ready"}); err != nil {
		return err
	}
	found, err := c.Find(ctx, pool, kamino.KindVersion, "2026.1.3")
	if err != nil {
		return err
	}
	v := kamino.ParseVersion(found[0])
	again := kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v} // takes the reason off
	if err := c.Promote(ctx, pool, again); err != nil {
		return err
	}
	c.server.Seed(emulator.Group{Name: "old", Configuration: "old"}) // what it launches from is read before anything is deleted
	if err := c.Delete(ctx, pool, kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.1.3"}); err != nil {
		return err
	}
	if err := c.SetCapacity(ctx, pool, pool.Capacity+1); err != nil {
		return err
	}
	in, err := c.Instance(ctx, c.donor())
	if err == nil {
		_, _, err = c.Fit(ctx, pool, in, nil)
	}
	return err
}

// TestPolicy: the policy of the documentation is enough, and every action in it is needed.
func TestPolicy(t *testing.T) {
	all, actions := shipped(t, ordinary)
	for _, without := range append([]string{""}, actions...) {
		t.Run("without "+without, func(t *testing.T) {
			c := begin(t, setting{})
			c.server.SetPolicy(key, all.Without(without))
			c.judge(without, c.story())
		})
	}
}

// judge looks how a story ended, and without which action.
func (c *cloud) judge(without string, err error) {
	c.Helper()
	if without == "" {
		c.must(err)
		if doubts, err := c.Preflight(c.Context()); err != nil || len(doubts) > 0 {
			c.Errorf("preflight: %v %v", err, doubts)
		}
		if refusals, _ := c.fits(); len(refusals) > 0 { // with versions that it may delete
			c.Errorf("fit: %v", refusals)
		}
		return
	}
	if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), without) {
		c.Errorf("the story ends with %v, want ErrForbidden that names the action", err)
	}
}

// TestPolicyByNumber: the same for groups that name their template's version by number.
func TestPolicyByNumber(t *testing.T) {
	more, actions := shipped(t, byNumber)
	all, _ := shipped(t, ordinary, byNumber)
	for _, without := range append([]string{""}, actions...) {
		t.Run("without "+without, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Version: "1"}})
			p := all
			if without != "" {
				p.Statements = append(slices.Clone(all.Statements[:len(all.Statements)-len(more.Statements)]), more.Without(without).Statements...)
			}
			c.server.SetPolicy(key, p)
			c.judge(without, c.story())
		})
	}
}

// TestPolicyCanary: the same of a canary's, beside the first.
func TestPolicyCanary(t *testing.T) {
	more, actions := shipped(t, canary)
	first, _ := shipped(t, ordinary)
	for _, without := range append([]string{""}, actions...) {
		t.Run("without "+without, func(t *testing.T) {
			c := begin(t, setting{})
			image := c.server.Machines()[0].Image
			c.server.SetPolicy(key, emulator.Policy{Statements: slices.Concat(first.Statements, more.Without(without).Statements)})
			err := c.canaryStory(image)
			if without == "" && err != nil || without != "" && (!errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), without)) {
				t.Errorf("the story ends with %v", err)
			}
		})
	}
}

// TestPolicyNarrow: whoever has the shipped policies cannot use them on what Kamino has no part in.
func TestPolicyNarrow(t *testing.T) {
	c := begin(t, setting{})
	all, _ := shipped(t, ordinary, canary)
	loaded, err := config.LoadDefaultConfig(t.Context())
	c.must(err)
	api, groups, parameters := ec2.NewFromConfig(loaded), autoscaling.NewFromConfig(loaded), ssm.NewFromConfig(loaded)
	id, volume, profile := c.server.Machines()[0].ID, c.server.Machines()[0].Volume, "admin"
	loose, err := api.RunInstances(t.Context(), &ec2.RunInstancesInput{ImageId: &c.server.Machines()[0].Image, InstanceType: types.InstanceTypeM6iLarge, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1)})
	c.must(err)
	snapshot, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: &volume})
	c.must(err)
	image, err := api.CreateImage(t.Context(), &ec2.CreateImageInput{InstanceId: &id, Name: sdk.String("theirs")})
	c.must(err)
	template, err := api.DescribeLaunchTemplates(t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	c.must(err)
	c.clock.Advance(10 * time.Minute)
	c.server.SetPolicy(key, all)
	other, tag := *loose.Instances[0].InstanceId, types.Tag{Key: sdk.String(kamino.TagPool), Value: sdk.String("blue")}
	canaryTag := []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: sdk.String(kamino.TagCanary), Value: sdk.String("v")}}}}
	spec := &types.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplates[0].LaunchTemplateId}
	run := func(change func(*ec2.RunInstancesInput)) error {
		in := &ec2.RunInstancesInput{LaunchTemplate: spec, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), TagSpecifications: canaryTag}
		change(in)
		_, err := api.RunInstances(t.Context(), in)
		return err
	}
	for what, try := range map[string]func() error{
		"terminate another's instance": func() error {
			_, err := api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{other}})
			return err
		},
		"terminate a node": func() error {
			_, err := api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
			return err
		},
		"stop an instance of no group": func() error {
			_, err := api.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{other}})
			return err
		},
		"read its console": func() error {
			_, err := api.GetConsoleOutput(t.Context(), &ec2.GetConsoleOutputInput{InstanceId: &other})
			return err
		},
		"delete another's snapshot": func() error {
			_, err := api.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: snapshot.SnapshotId})
			return err
		},
		"deregister another's image": func() error {
			_, err := api.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: image.ImageId})
			return err
		},
		"tag another's image as the pool's": func() error {
			_, err := api.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{*image.ImageId}, Tags: []types.Tag{tag}})
			return err
		},
		"tag another's instance as a canary": func() error {
			_, err := api.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{other}, Tags: canaryTag[0].Tags})
			return err
		},
		"make a snapshot without the pool's tag": func() error {
			_, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: &volume})
			return err
		},
		"make an image of another's snapshot": func() error {
			_, err := api.RegisterImage(t.Context(), &ec2.RegisterImageInput{Name: sdk.String("mine"), RootDeviceName: sdk.String("/dev/xvda"),
				BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: sdk.String("/dev/xvda"), Ebs: &types.EbsBlockDevice{SnapshotId: snapshot.SnapshotId}}},
				TagSpecifications:   []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: []types.Tag{tag}}}})
			return err
		},
		"pass another role": func() error {
			return run(func(in *ec2.RunInstancesInput) {
				in.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: &profile}
			})
		},
		"launch without a template": func() error {
			return run(func(in *ec2.RunInstancesInput) {
				in.LaunchTemplate, in.ImageId, in.InstanceType = nil, &c.server.Machines()[0].Image, types.InstanceTypeM6iLarge
			})
		},
		"launch what is not a canary": func() error { return run(func(in *ec2.RunInstancesInput) { in.TagSpecifications = nil }) },
		"write another's parameter": func() error {
			_, err := parameters.PutParameter(t.Context(), &ssm.PutParameterInput{Name: sdk.String("/golden/ami"), Value: image.ImageId, Type: "String"})
			return err
		},
		"read another's parameter": func() error {
			_, err := parameters.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{"/secret"}})
			return err
		},
		"change the group": func() error {
			_, err := groups.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: sdk.String("blue"), MinSize: sdk.Int32(0)})
			return err
		},
		"tag the group": func() error {
			_, err := groups.CreateOrUpdateTags(t.Context(), &autoscaling.CreateOrUpdateTagsInput{Tags: []scaling.Tag{{ResourceId: sdk.String("blue"),
				ResourceType: sdk.String("auto-scaling-group"), Key: sdk.String("owner"), Value: sdk.String("me"), PropagateAtLaunch: sdk.Bool(true)}}})
			return err
		},
	} {
		var refusal smithy.APIError
		if err := try(); !errors.As(err, &refusal) || !strings.Contains(refusal.ErrorCode(), "Unauthorized") && !strings.Contains(refusal.ErrorCode(), "AccessDenied") {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.must(run(func(*ec2.RunInstancesInput) {})) // a canary itself
}

// TestOwnTags: an organization that asks for a tag on what is made gets that of the group, and one
// that the group does not have is told as what it is.
func TestOwnTags(t *testing.T) {
	asks, err := emulator.ParsePolicy([]byte(`{"Statement": [
		{"Effect": "Deny", "Action": ["ec2:CreateSnapshot", "ec2:RegisterImage"], "Resource": ["arn:*:ec2:*:*:snapshot/*", "arn:*:ec2:*:*:image/*"],
			"Condition": {"Null": {"aws:RequestTag/CostCenter": "true", "aws:ResourceTag/CostCenter": "true"}}},
		{"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": ["arn:*:ec2:*:*:instance/*", "arn:*:ec2:*:*:volume/*"], "Condition": {"Null": {"aws:RequestTag/CostCenter": "true"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	all, _ := shipped(t, ordinary, canary)
	all.Organization = asks.Statements
	t.Run("with it", func(t *testing.T) {
		tag := []any{map[string]any{"Key": "CostCenter", "Value": "42"}}
		c := begin(t, setting{group: emulator.Group{Tags: map[string]string{"CostCenter": "42", "kubernetes.io/cluster/lab": "owned"},
			Data: map[string]any{"TagSpecification": []any{map[string]any{"ResourceType": "volume", "Tag": tag}}}}})
		c.server.SetPolicy(key, all)
		v := c.build("2026.1.1")[0]
		fit, err := c.CanaryFit(t.Context(), c.pool())
		c.must(err)
		if v.Tags["CostCenter"] != "42" || v.Tags["kubernetes.io/cluster/lab"] != "" || len(fit.Refusals) > 0 {
			t.Errorf("tags %v, canary refused: %v", v.Tags, fit.Refusals)
		}
		for _, s := range c.server.Snapshots() {
			if s.Tags["CostCenter"] != "42" {
				t.Errorf("snapshot with %v", s.Tags)
			}
		}
	})
	t.Run("without it", func(t *testing.T) {
		c := begin(t, setting{})
		c.server.SetPolicy(key, all)
		in, err := c.Instance(t.Context(), c.donor())
		c.must(err)
		_, _, err = c.Fit(t.Context(), c.pool(), in, nil)
		if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), "service control policy") || !strings.Contains(kamino.Hint(err), "aws:RequestTag") {
			t.Errorf("%v, hint %q", err, kamino.Hint(err))
		}
	})
}

func (c *cloud) canaryStory(image string) error {
	pool, err := c.fetch()
	if err != nil {
		return err
	}
	order := kamino.CanaryOrder{Name: "kamino-0a0b0c0d", Version: image, Run: "run-1"}
	var found []kamino.Canary
	err = c.until("the canary runs", func() (bool, error) {
		if err := c.LaunchCanary(c.Context(), pool, order); err != nil {
			return false, err
		}
		var err error
		found, err = c.Canaries(c.Context(), pool)
		return len(found) == 1 && found[0].Power == kamino.PowerOn, err
	})
	if err != nil {
		return err
	}
	if lines, err := c.Console(c.Context(), pool, found[0]); err != nil || len(lines) == 0 {
		return err
	}
	return c.RemoveCanary(c.Context(), pool, order.Name)
}

// TestEncryptedDonor: who may not use the key of the donor's disk is told so before the run, and
// why the donor does not come up.
func TestEncryptedDonor(t *testing.T) {
	first, _ := shipped(t, ordinary)
	const key1 = "arn:aws:kms:eu-central-1:123456789012:key/1"
	for _, tt := range []struct {
		right string
		power kamino.Power
		why   string
	}{
		{"", kamino.PowerOff, "kms:CreateGrant for key " + key1},
		{"kms:CreateGrant", kamino.PowerOn, ""},
	} {
		t.Run("with "+tt.right, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{KMSKey: key1}})
			c.server.SetPolicy(key, emulator.Policy{Statements: first.Statements, Allow: []string{tt.right}})
			in, err := c.Instance(t.Context(), c.donor())
			c.must(err)
			_, doubts, err := c.Fit(t.Context(), c.pool(), in, nil)
			if err != nil || len(doubts) != 1 || !strings.Contains(doubts[0].Found, "kms:CreateGrant for key "+key1) {
				t.Errorf("doubts %q, %v", doubts, err)
			}
			c.hold()
			c.must(c.switched(kamino.PowerOff))
			if in, err := c.Instance(t.Context(), c.donor()); err != nil || in.Failure != "" {
				t.Errorf("a stop that was asked for is a failure: %q, %v", in.Failure, err)
			}
			c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOn))
			c.clock.Advance(time.Minute)
			if in, err = c.Instance(t.Context(), c.donor()); err != nil || in.Power != tt.power || (in.Failure != "") != (tt.why != "") || !strings.Contains(in.Failure, tt.why) {
				t.Errorf("%s because %q, %v", in.Power, in.Failure, err)
			}
		})
	}
}

// TestKeptSnapshot: the snapshot of an image goes with it, also where the first reply was a lie.
func TestKeptSnapshot(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1")[0]
	c.clock.Advance(time.Minute)
	c.server.AddFault(emulator.Fault{Action: "ec2:DeleteSnapshot", Kind: emulator.FalseSuccess})
	c.must(c.Delete(t.Context(), c.pool(), v))
	if snapshots, images, _ := c.server.Counts("blue"); snapshots != 0 || images != 0 {
		t.Errorf("%d snapshots and %d images are left", snapshots, images)
	}
}

// TestKeptSnapshotLater: a version whose image is gone and whose snapshot was refused is deleted
// when it is asked for again.
func TestKeptSnapshotLater(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1")[0]
	c.clock.Advance(time.Minute)
	c.server.AddFault(emulator.Fault{Action: "ec2:DeleteSnapshot", Kind: emulator.Reply, Status: 403, Code: "UnauthorizedOperation"})
	if err := c.Delete(t.Context(), c.pool(), v); !errors.Is(err, kamino.ErrForbidden) {
		t.Errorf("the snapshot may not be deleted: %v", err)
	}
	if snapshots, images, _ := c.server.Counts("blue"); snapshots != 1 || images != 0 {
		t.Errorf("%d snapshots and %d images are left", snapshots, images)
	}
	c.must(c.Delete(t.Context(), c.pool(), v))
	if snapshots, _, _ := c.server.Counts("blue"); snapshots != 0 {
		t.Errorf("%d snapshots are left", snapshots)
	}
}

// TestTakenName: an image of that name which somebody else made is not taken for the pool's own,
// and one that was made a moment ago is not made again.
func TestTakenName(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1")[0]
	another := kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.1.2", Source: v.Source, Tags: map[string]string{kamino.TagRun: "run-1"}}
	c.must(c.Create(t.Context(), c.pool(), another))
	if err := c.Create(t.Context(), c.pool(), another); err != nil && !errors.Is(err, kamino.ErrInProgress) {
		t.Errorf("made again at once: %v", err)
	}
	c.clock.Advance(time.Minute)
	c.must(c.Create(t.Context(), c.pool(), another))
	if _, images, _ := c.server.Counts("blue"); images != 2 {
		t.Errorf("%d images", images)
	}
	loaded, err := config.LoadDefaultConfig(t.Context())
	c.must(err)
	name, instance := "kamino-blue-2026.1.3", c.server.Machines()[0].ID
	_, err = ec2.NewFromConfig(loaded).CreateImage(t.Context(), &ec2.CreateImageInput{Name: &name, InstanceId: &instance})
	c.must(err)
	c.clock.Advance(10 * time.Minute)
	another.Name = "2026.1.3"
	err = c.Create(t.Context(), c.pool(), another)
	if err == nil || errors.Is(err, kamino.ErrInProgress) || !strings.Contains(err.Error(), "did not make") {
		t.Errorf("the name of somebody else's image: %v", err)
	}
	if found, err := c.Find(t.Context(), c.pool(), kamino.KindVersion, another.Name); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
