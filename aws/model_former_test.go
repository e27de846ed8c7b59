package aws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// apis are AWS's own clients, for what persons and other programs do.
func (c *cloud) apis() (*ec2.Client, *autoscaling.Client) {
	c.Helper()
	cfg, err := config.LoadDefaultConfig(c.Context())
	c.must(err)
	return ec2.NewFromConfig(cfg), autoscaling.NewFromConfig(cfg)
}

// edit changes the group's recipe and leaves its image: a new version of its template, as Terraform
// makes one, and the group launches from it.
func (c *cloud) edit(change *types.RequestLaunchTemplateData) {
	c.Helper()
	calls, groups := c.apis()
	g := c.describeGroup(groups)
	spec := g.LaunchTemplate
	if spec == nil {
		spec = g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
	}
	now := sdk.ToString(spec.Version)
	if now == "" || now == "$Default" {
		shown, err := calls.DescribeLaunchTemplates(c.Context(), &ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{*spec.LaunchTemplateId}})
		c.must(err)
		now = fmt.Sprint(sdk.ToInt64(shown.LaunchTemplates[0].DefaultVersionNumber))
	}
	made, err := calls.CreateLaunchTemplateVersion(c.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: spec.LaunchTemplateId, SourceVersion: &now, LaunchTemplateData: change})
	c.must(err)
	number := fmt.Sprint(sdk.ToInt64(made.LaunchTemplateVersion.VersionNumber))
	if v := sdk.ToString(spec.Version); v == "" || v == "$Default" {
		_, err = calls.ModifyLaunchTemplate(c.Context(), &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: spec.LaunchTemplateId, DefaultVersion: &number})
	} else {
		c.launchFrom(*spec.LaunchTemplateId, number)
	}
	c.must(err)
	c.clock.Advance(time.Minute)
}

func (c *cloud) describeGroup(groups *autoscaling.Client) scaling.AutoScalingGroup {
	c.Helper()
	out, err := groups.DescribeAutoScalingGroups(c.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"blue"}})
	c.must(err)
	return out.AutoScalingGroups[0]
}

// launchFrom lets group blue launch from a version of a template.
func (c *cloud) launchFrom(template, version string) {
	c.Helper()
	_, groups := c.apis()
	g, spec := c.describeGroup(groups), &scaling.LaunchTemplateSpecification{LaunchTemplateId: &template, Version: &version}
	in := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: sdk.String("blue"), LaunchTemplate: spec}
	if g.MixedInstancesPolicy != nil {
		in.LaunchTemplate, in.MixedInstancesPolicy = nil, g.MixedInstancesPolicy
		in.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification = spec
	}
	_, err := groups.UpdateAutoScalingGroup(c.Context(), in)
	c.must(err)
}

// newTemplate gives group blue a template of its own, with an image.
func (c *cloud) newTemplate(image string) {
	c.Helper()
	calls, _ := c.apis()
	made, err := calls.CreateLaunchTemplate(c.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: sdk.String("blue-2"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: &image, InstanceType: types.InstanceTypeM6i4xlarge}})
	c.must(err)
	c.clock.Advance(time.Minute)
	c.launchFrom(*made.LaunchTemplate.LaunchTemplateId, "$Default")
	c.clock.Advance(20 * time.Minute) // the list of groups is kept for some minutes
}

// recipe is what the group's next instance is made of besides its image.
func (c *cloud) recipe() string {
	c.Helper()
	calls, groups := c.apis()
	g := c.describeGroup(groups)
	spec := g.LaunchTemplate
	if spec == nil {
		spec = g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
	}
	version := sdk.ToString(spec.Version)
	if version == "" {
		version = "$Default"
	}
	out, err := calls.DescribeLaunchTemplateVersions(c.Context(), &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: spec.LaunchTemplateId, Versions: []string{version}})
	c.must(err)
	data := out.LaunchTemplateVersions[0].LaunchTemplateData
	return fmt.Sprint(*spec.LaunchTemplateId, " ", data.InstanceType, " ", data.SecurityGroupIds)
}

// TestRollbackKeepsTheRecipe: a rollback to the original restores an image. What people have
// changed of the template since, they keep, and the difference shows all that is written.
func TestRollbackKeepsTheRecipe(t *testing.T) {
	for name, tt := range map[string]struct {
		group     emulator.Group
		reference kamino.ImageReference
	}{
		"by version":                   {reference: kamino.ByVersion},
		"by number":                    {emulator.Group{Version: "1"}, kamino.ByVersion},
		"mixed":                        {emulator.Group{Version: "1", Mixed: true}, kamino.ByVersion},
		"by pointer":                   {reference: kamino.ByPointer},
		"by a parameter of its own":    {emulator.Group{Parameter: "/golden/ami"}, kamino.ByPointer},
		"by a parameter, and a number": {emulator.Group{Parameter: "/golden/ami", Version: "1"}, kamino.ByPointer},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			before := c.pool()
			v := c.build("2026.1.1")
			c.promote(kamino.Target{Version: v[0].Name, Reference: tt.reference})
			c.edit(&types.RequestLaunchTemplateData{InstanceType: types.InstanceTypeM6i2xlarge, SecurityGroupIds: []string{"sg-hardened"}})
			was := c.recipe()
			c.promote(kamino.Target{Former: before.Model.Saved})
			if now := c.recipe(); now != was {
				t.Errorf("the recipe was %s, and the rollback made it %s", was, now)
			}
			if m := c.grow(); m.Image != before.Model.Image {
				t.Errorf("the next instance boots from %s, want %s", m.Image, before.Model.Image)
			}
		})
	}
}

// TestRollbackOfWhatWasGivenAway: the template or the parameter that the saved recipe names belongs
// to another group now. The rollback changes this group's image, and not the other's.
func TestRollbackOfWhatWasGivenAway(t *testing.T) {
	for name, tt := range map[string]struct {
		group     emulator.Group
		reference kamino.ImageReference
		names     string // as the other group names the template
	}{
		"a template by its default": {reference: kamino.ByVersion, names: "$Default"},
		"a parameter":               {emulator.Group{Parameter: "/golden/ami"}, kamino.ByPointer, "1"},
		"the pool's own parameter":  {reference: kamino.ByPointer, names: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			before := c.pool()
			v := c.build("2026.1.1")
			c.promote(kamino.Target{Version: v[0].Name, Reference: tt.reference})
			c.share(tt.names)
			c.newTemplate(v[0].ID)
			green := func() string {
				p, err := c.Pool(t.Context(), "aws:eu-central-1/green")
				c.must(err)
				return p.Model.Image
			}
			was := green()
			c.promote(kamino.Target{Former: before.Model.Saved})
			c.clock.Advance(20 * time.Minute)
			if now := green(); now != was || was != v[0].ID {
				t.Errorf("the next image of group green was %s, want %s, and is %s", was, v[0].ID, now)
			}
			if now := c.pool().Model.Image; now != before.Model.Image {
				t.Errorf("the next image of group blue is %s, want %s", now, before.Model.Image)
			}
		})
	}
}

// TestRollbackOfDeletedTemplate: Terraform replaces templates (name_prefix with
// create_before_destroy). The image is still there, and the present template can have it.
func TestRollbackOfDeletedTemplate(t *testing.T) {
	c := begin(t, setting{})
	before := c.pool()
	v := c.build("2026.1.1")
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByVersion})
	c.newTemplate(v[0].ID)
	calls, _ := c.apis()
	_, err := calls.DeleteLaunchTemplate(t.Context(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: sdk.String("blue")})
	c.must(err)
	c.promote(kamino.Target{Former: before.Model.Saved})
	if m := c.grow(); m.Image != before.Model.Image || m.Type != "m6i.4xlarge" {
		t.Errorf("the next instance is a %s of image %s, want m6i.4xlarge of %s", m.Type, m.Image, before.Model.Image)
	}
}

// TestRollbackToMissingImage: an image that was deregistered launches nothing. Nothing is written,
// and the error says what to type.
func TestRollbackToMissingImage(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1", "2026.1.2")
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByVersion})
	former := c.pool()
	c.promote(kamino.Target{Version: v[1].Name, Reference: kamino.ByVersion})
	calls, _ := c.apis()
	_, err := calls.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &v[0].ID})
	c.must(err)
	c.clock.Advance(time.Minute)
	was := c.pool()
	err = c.Promote(t.Context(), was, kamino.Target{Former: former.Model.Saved})
	if err == nil || !strings.Contains(err.Error(), v[0].ID) || !strings.Contains(kamino.Hint(err), "--to") {
		t.Errorf("the rollback ended with %v; hint: %s", err, kamino.Hint(err))
	}
	if now := c.pool(); now.Revision != was.Revision {
		t.Errorf("the pool was changed to %+v", now.Model)
	}
}

// register makes an image of the group's snapshot for machines of another kind, as a run on such a
// donor does.
func (c *cloud) register(version, machine string) kamino.Artifact {
	c.Helper()
	snapshot := ""
	for _, e := range c.server.Requests(0) {
		if e.Action == "RegisterImage" {
			snapshot = fmt.Sprint(e.Parameters["BlockDeviceMapping"].([]any)[0].(map[string]any)["Ebs"].(map[string]any)["SnapshotId"])
		}
	}
	return c.made(kamino.Artifact{Kind: kamino.KindVersion, Name: version, Source: snapshot, Tags: map[string]string{kamino.TagRun: "run-2", kamino.TagReceipt: "a", "kamino-machine": machine}})
}

// TestSuccessorBoots: what takes the place of a withdrawn version boots on the machines that the
// group launches now. A group that moved to arm64 has older versions for x86.
func TestSuccessorBoots(t *testing.T) {
	for name, machine := range map[string]string{
		"architecture": `{"a":"arm64","r":"/dev/xvda","v":"gp3"}`,
		"firmware":     `{"a":"x86_64","r":"/dev/xvda","v":"gp3","b":"legacy-bios"}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Parameter: "/kamino/lab/blue/image"}})
			c.build("2026.1.1")
			old := c.register("2026.1.2", `{"a":"x86_64","r":"/dev/xvda","v":"gp3","b":"uefi"}`)
			now := c.register("2026.2.1", machine)
			if name == "architecture" {
				c.edit(&types.RequestLaunchTemplateData{InstanceType: types.InstanceTypeM6gLarge})
			}
			c.promote(kamino.Target{Version: now.Name, Reference: kamino.ByDefinition})
			err := c.Withdraw(t.Context(), c.pool(), now.Name, kamino.Bad{Reason: "bad"})
			c.clock.Advance(time.Minute)
			if image := c.pool().Model.Image; image == old.ID || name == "architecture" && !errors.Is(err, kamino.ErrInUse) {
				t.Errorf("withdraw: %v; the next image is %s of %+v, and the present one of %+v", err, image, old.Machine, now.Machine)
			}
		})
	}
}

// TestRollbackByFirmware: a rollback is refused where the firmware of the image is known to be
// another than that of the present one. An image of x86 that names no boot mode may boot by either,
// and one of arm64 boots by UEFI, named or not.
func TestRollbackByFirmware(t *testing.T) {
	const x86, arm = `{"a":"x86_64","r":"/dev/xvda","v":"gp3"}`, `{"a":"arm64","r":"/dev/xvda","v":"gp3"}`
	boots := func(machine, mode string) string { return strings.Replace(machine, "}", `,"b":"`+mode+`"}`, 1) }
	for name, tt := range map[string]struct {
		former, now string
		refused     bool
	}{
		"not named, then UEFI":         {x86, boots(x86, "uefi"), false},
		"UEFI, then not named":         {boots(x86, "uefi"), x86, false},
		"BIOS, then not named":         {boots(x86, "legacy-bios"), x86, false},
		"BIOS, then either":            {boots(x86, "legacy-bios"), boots(x86, "uefi-preferred"), false},
		"arm64, not named, then UEFI":  {arm, boots(arm, "uefi"), false},
		"BIOS, then UEFI":              {boots(x86, "legacy-bios"), boots(x86, "uefi"), true},
		"x86 by whatever, then arm64":  {x86, arm, true},
		"arm64 by UEFI, then x86 UEFI": {boots(arm, "uefi"), boots(x86, "uefi"), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{})
			c.build("2026.1.1")
			old, now := c.register("2026.1.2", tt.former), c.register("2026.2.1", tt.now)
			c.promote(kamino.Target{Version: old.Name, Reference: kamino.ByVersion})
			former := c.pool()
			c.promote(kamino.Target{Version: now.Name, Reference: kamino.ByVersion})
			err := c.Promote(t.Context(), c.pool(), kamino.Target{Former: former.Model.Saved})
			if refused := errors.Is(err, kamino.ErrUnsupported); refused != tt.refused || !refused && err != nil {
				t.Errorf("the rollback ended with %v", err)
			}
		})
	}
}

// TestMissingImage: somebody deregistered the image that the group's next instance boots from. The
// pool says so, with what to type, and going back is not refused for it.
func TestMissingImage(t *testing.T) {
	for name, group := range map[string]emulator.Group{"parameter": {Parameter: "/kamino/lab/blue/image"}, "template": {}} {
		for _, looking := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", in a look ", looking), func(t *testing.T) {
				c := begin(t, setting{group: group})
				before := c.pool()
				v := c.build("2026.1.1")
				c.promote(kamino.Target{Version: v[0].Name})
				if got := codes(c.pool().Refusals); got != "" {
					t.Fatalf("refused for %s", got)
				}
				calls, _ := c.apis()
				_, err := calls.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &v[0].ID})
				c.must(err)
				c.clock.Advance(20 * time.Minute)
				ctx := t.Context()
				if looking {
					ctx = kamino.Looking(ctx)
					_, err := c.PoolOf(ctx, c.donor())
					c.must(err)
				}
				pool, err := c.Pool(ctx, "aws:eu-central-1/blue")
				c.must(err)
				if got := codes(pool.Refusals); got != string(kamino.CodeNoImage) {
					t.Fatalf("refused for %q", got)
				}
				if r := pool.Refusals[0]; !strings.Contains(r.Why, v[0].ID) || !strings.Contains(r.Do, "kamino rollback --pool blue --to VERSION") {
					t.Errorf("%s; %s", r.Why, r.Do)
				}
				c.promote(kamino.Target{Former: before.Model.Saved})
				if m := c.grow(); m.Image != before.Model.Image {
					t.Errorf("the next instance boots from %s", m.Image)
				}
			})
		}
	}
}

// TestBillingCode: an image that EC2 does not bill as its donor is not offered: without the code
// its nodes reach no repository of RHEL, SLES or Ubuntu Pro.
func TestBillingCode(t *testing.T) {
	for _, platform := range []string{"", "Red Hat Enterprise Linux", "SUSE Linux", "Ubuntu Pro"} {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprint(platform, ", lost ", loses), func(t *testing.T) {
				c := begin(t, setting{group: emulator.Group{Platform: platform}, server: func(s *emulator.Server) { s.LosesBilling = loses }})
				in, err := c.Instance(t.Context(), c.donor())
				c.must(err)
				_, doubts, err := c.Fit(t.Context(), c.pool(), in, nil)
				c.must(err)
				if got := len(doubts) > 0; got != (platform != "") {
					t.Errorf("doubts before the run: %v", doubts)
				}
				c.hold()
				c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
				c.clock.Advance(10 * time.Minute)
				tags := map[string]string{kamino.TagRun: "run-1", kamino.TagReceipt: "a"}
				snapshot := c.made(kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: tags})
				c.must(c.Create(t.Context(), c.pool(), kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.1.1", Source: snapshot.ID, Tags: tags}))
				c.clock.Advance(time.Hour)
				found, err := c.Find(t.Context(), c.pool(), kamino.KindVersion, "2026.1.1")
				c.must(err)
				lost := loses && platform != ""
				if v := found[0]; v.Ready == lost || (v.State == kamino.Failed) != lost || lost && !strings.Contains(v.Failure, platform) {
					t.Errorf("the version is %s: %s", v.State, v.Failure)
				}
			})
		}
	}
}

// TestLostInStandby: a donor that is deleted in Standby leaves the desired capacity one lower,
// which nothing raises again. Whoever gives back says so, with the command.
func TestLostInStandby(t *testing.T) {
	c := begin(t, setting{})
	donor := c.donor()
	c.hold()
	calls, _ := c.apis()
	_, err := calls.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{string(donor[strings.LastIndex(string(donor), "/")+1:])}})
	c.must(err)
	c.clock.Advance(10 * time.Minute)
	pool, err := c.Pool(t.Context(), "aws:eu-central-1/blue")
	c.must(err)
	if pool.Capacity != 2 {
		t.Fatalf("the desired capacity is %d", pool.Capacity)
	}
	d := c.Lost(pool, donor)
	if want := "aws autoscaling set-desired-capacity --auto-scaling-group-name blue --desired-capacity 3"; d.Do != want || !strings.Contains(d.Found, "it is 2 now") {
		t.Errorf("%s; want %s", d, want)
	}
}

// TestFormerGroup: a group that has the name of a deleted one has another ARN. It inherits no image
// and no snapshot of that: neither what takes a withdrawn version's place, nor what is its own.
func TestFormerGroup(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Parameter: "/kamino/lab/blue/image"}})
	old := c.build("2026.1.1")
	_, groups := c.apis()
	_, err := groups.DeleteAutoScalingGroup(t.Context(), &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: sdk.String("blue"), ForceDelete: sdk.Bool(true)})
	c.must(err)
	c.clock.Advance(30 * time.Minute)
	c.server.Seed(emulator.Group{Name: "blue", Count: 3, Min: 1, Parameter: "/kamino/lab/blue/image"})
	pool, err := c.Pool(t.Context(), "aws:eu-central-1/blue")
	c.must(err)
	found, err := c.Find(t.Context(), pool, kamino.KindVersion, "")
	c.must(err)
	if len(found) != 1 || !found[0].OfFormer || kamino.ParseCopy(found[0]).Ours() {
		t.Fatalf("the version of the former group is %+v", found)
	}
	calls, _ := c.apis()
	_, err = calls.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{old[0].ID}, Tags: []types.Tag{{Key: sdk.String(kamino.TagPoolUID)}}})
	c.must(err)
	c.clock.Advance(time.Minute)
	if found, err = c.Find(t.Context(), pool, kamino.KindVersion, ""); err != nil || len(found) != 1 || found[0].Tags[kamino.TagPoolUID] != "" || !found[0].OfFormer {
		t.Fatalf("the version that names no group, and is older than the group: %+v, %v", found, err)
	}
	tags := map[string]string{kamino.TagRun: "run-2", kamino.TagReceipt: "a", "kamino-machine": `{"a":"x86_64","r":"/dev/xvda","v":"gp3","b":"uefi-preferred"}`}
	c.must(c.Create(t.Context(), pool, kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.2.1", Source: old[0].Source, Tags: tags}))
	c.clock.Advance(10 * time.Minute)
	c.must(c.Promote(t.Context(), pool, kamino.Target{Version: "2026.2.1", Reference: kamino.ByPointer}))
	c.clock.Advance(10 * time.Minute)
	pool, err = c.Pool(t.Context(), pool.ID)
	c.must(err)
	if found, err = c.Find(t.Context(), pool, kamino.KindVersion, "2026.2.1"); err != nil || len(found) != 1 || found[0].OfFormer || pool.Model.Image != found[0].ID {
		t.Fatalf("%+v, %v; the next image is %s", found, err, pool.Model.Image)
	}
	if err := c.Withdraw(t.Context(), pool, "2026.2.1", kamino.Bad{Reason: "bad"}); !errors.Is(err, kamino.ErrInUse) {
		c.clock.Advance(time.Minute)
		pool, _ = c.Pool(t.Context(), pool.ID)
		t.Errorf("withdraw: %v; the next image is %s, and that of the former group %s", err, pool.Model.Image, old[0].ID)
	}
}
