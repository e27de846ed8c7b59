package aws_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// TestRefuseSharedParameter: who promotes in a group does not change what another boots from.
func TestRefuseSharedParameter(t *testing.T) {
	for _, tt := range []struct{ name, blue, green, want string }{
		{"shared", "/golden/ami", "/golden/ami", "shared ImageId"},
		{"each its own", "/golden/blue", "/golden/green", ""},
		{"of this group alone", "/golden/ami", "", ""},
		{"this group's own, in a copied template", "/kamino/lab/blue/image", "/kamino/lab/blue/image", "shared ImageId"},
		{"this group's own", "/kamino/lab/blue/image", "/kamino/lab/green/image", ""},
		{"another's copied template names this group's own", "", "/kamino/lab/blue/image", "shared ImageId"},
		{"public", "/aws/service/eks/image_id", "", "foreign-parameter ImageId"},
		{"public and shared", "/aws/service/eks/image_id", "/aws/service/eks/image_id", "foreign-parameter ImageId"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Parameter: tt.blue}})
			c.server.Seed(emulator.Group{Name: "green", Count: 1, Min: 1, Parameter: tt.green})
			if got := fields(c.pool().Refusals); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
			since := len(c.server.Requests(0))
			c.pool()
			if n := len(c.server.Requests(0)) - since; n > 4 {
				t.Errorf("a second look sends %d requests", n)
			}
		})
	}
}

// TestSharedByARN: a parameter has two names. The ARN in this account and Region is one of them.
func TestSharedByARN(t *testing.T) {
	for _, tt := range []struct{ name, blue, green, want string }{
		{"the same", "/golden/ami", "arn:aws:ssm:eu-central-1:123456789012:parameter/golden/ami", "shared ImageId"},
		{"without a slash", "golden", "arn:aws:ssm:eu-central-1:123456789012:parameter/golden", "shared ImageId"},
		{"another name", "/golden/ami", "arn:aws:ssm:eu-central-1:123456789012:parameter/golden/other", ""},
		{"another account's", "/golden/ami", "arn:aws:ssm:eu-central-1:210987654321:parameter/golden/ami", ""},
		{"another Region's", "/golden/ami", "arn:aws:ssm:eu-west-1:123456789012:parameter/golden/ami", ""},
		{"one version of it", "/golden/ami", "arn:aws:ssm:eu-central-1:123456789012:parameter/golden/ami:1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Parameter: tt.blue}})
			c.server.Seed(emulator.Group{Name: "green", Count: 1, Min: 1, Image: "resolve:ssm:" + tt.green})
			if got := fields(c.pool().Refusals); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
		})
	}
}

// TestRefuseSharedTemplate: the default version of a template is that of all groups that name it.
func TestRefuseSharedTemplate(t *testing.T) {
	for _, tt := range []struct{ name, blue, green, want string }{
		{"both by default", "$Default", "$Default", "shared LaunchTemplate.Version"},
		{"left out is the default", "", "$Default", "shared LaunchTemplate.Version"},
		{"the other by number", "", "1", ""},
		{"this one by number", "1", "$Default", ""},
		{"both by number", "1", "1", ""},
		{"the other by latest", "1", "$Latest", "shared LaunchTemplate.Version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Version: tt.blue}})
			c.share(tt.green)
			if got := fields(c.pool().Refusals); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("with a parameter in it", func(t *testing.T) {
		c := begin(t, setting{group: emulator.Group{Version: "1", Parameter: "/kamino/lab/blue/image"}})
		c.share("1")
		if got := fields(c.pool().Refusals); got != "shared ImageId" {
			t.Errorf("refused for %q", got)
		}
	})
}

// fields are the codes of refusals, and where the value stands.
func fields(list []kamino.Refusal) string {
	var out []string
	for _, r := range list {
		out = append(out, string(r.Code)+" "+r.Field)
	}
	return strings.Join(out, ", ")
}

// share makes group green, which launches from a version of blue's template.
func (c *cloud) share(named string) {
	c.Helper()
	c.server.Seed(emulator.Group{Name: "green", Count: 1, Min: 1})
	cfg, err := config.LoadDefaultConfig(c.Context())
	c.must(err)
	api := autoscaling.NewFromConfig(cfg)
	out, err := api.DescribeAutoScalingGroups(c.Context(), &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{"blue"}})
	c.must(err)
	_, err = api.UpdateAutoScalingGroup(c.Context(), &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: sdk.String("green"),
		LaunchTemplate: &scaling.LaunchTemplateSpecification{LaunchTemplateId: out.AutoScalingGroups[0].LaunchTemplate.LaunchTemplateId, Version: &named}})
	c.must(err)
	c.clock.Advance(time.Minute)
}

// TestWithdrawSuccessor: what takes a withdrawn version's place is an older one that was sealed.
func TestWithdrawSuccessor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		unsealed bool
		now      int // what the pool holds of three
		want     int
	}{
		{"the oldest", false, 0, 0},
		{"one has an older one", false, 1, 0},
		{"the newest", false, 2, 1},
		{"none has a receipt", true, 2, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Parameter: "/kamino/lab/blue/image"}})
			c.unsealed = tt.unsealed
			v := c.build("2026.1.1", "2026.1.2", "2026.1.3")
			c.promote(kamino.Target{Version: v[tt.now].Name, Reference: kamino.ByDefinition})
			err := c.Withdraw(t.Context(), c.pool(), v[tt.now].Name, kamino.Bad{Reason: "bad"})
			if stays := tt.now == tt.want; stays != errors.Is(err, kamino.ErrInUse) || !stays && err != nil {
				t.Errorf("withdraw: %v", err)
			}
			c.clock.Advance(time.Minute)
			if m := c.grow(); m.Image != v[tt.want].ID {
				t.Errorf("the next instance boots from %s, want version %s", m.Image, v[tt.want].Name)
			}
		})
	}
}

// TestOtherGroupsTemplate: a version that another group's next instance boots from is in use, also
// where no instance runs of it: the refusal of a shared template tells people to let the other
// group name a version by number.
func TestOtherGroupsTemplate(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1", "2026.1.2")
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByVersion})
	c.share("2") // what blue names now
	c.promote(kamino.Target{Version: v[1].Name, Reference: kamino.ByVersion})
	if got := fields(c.pool().Refusals); got != "" {
		t.Fatalf("refused for %s", got)
	}
	err := c.Delete(t.Context(), c.pool(), v[0])
	c.clock.Advance(time.Minute)
	_, images, _ := c.server.Counts("blue")
	if !errors.Is(err, kamino.ErrInUse) || images != 2 {
		t.Errorf("delete of what group green boots from ended %v; %d images are left, want 2", err, images)
	}
}

// TestDeleteNamed: what an override or the launch configuration of another group names, or a
// parameter of this pool's that its template does not name at the moment, is in use.
func TestDeleteNamed(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  func(c *cloud, before kamino.Pool, v []kamino.Artifact)
	}{
		{"an override of another group", func(c *cloud, _ kamino.Pool, v []kamino.Artifact) {
			c.server.Seed(emulator.Group{Name: "green", Count: 1, Min: 1, Mixed: true, Version: "1", Override: data("ImageId", v[0].ID)})
		}},
		{"a launch configuration of another group", func(c *cloud, _ kamino.Pool, v []kamino.Artifact) {
			c.server.Seed(emulator.Group{Name: "green", Configuration: "old", Image: v[0].ID})
		}},
		{"the pool's own parameter", func(c *cloud, before kamino.Pool, v []kamino.Artifact) {
			c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByPointer})
			c.promote(kamino.Target{Former: before.Model.Saved})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{})
			before, v := c.pool(), c.build("2026.1.1")
			tt.use(c, before, v)
			err := c.Delete(t.Context(), c.pool(), v[0])
			c.clock.Advance(time.Minute)
			if _, images, _ := c.server.Counts("blue"); !errors.Is(err, kamino.ErrInUse) || images != 1 {
				t.Errorf("delete ended %v; %d images are left, want 1", err, images)
			}
		})
	}
}

// TestWildName: an Auto Scaling group may be called b*, and * in a filter stands for anything.
func TestWildName(t *testing.T) {
	c := begin(t, setting{})
	c.server.Seed(emulator.Group{Name: "b*", Count: 1})
	c.hold()
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
	c.clock.Advance(5 * time.Minute)
	in, err := c.Instance(t.Context(), c.donor())
	c.must(err)
	blue := c.pool()
	c.must(c.Create(t.Context(), blue, kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: map[string]string{kamino.TagRun: "run-1"}}))
	c.clock.Advance(5 * time.Minute)
	star, err := c.Pool(t.Context(), "aws:eu-central-1/b*")
	c.must(err)
	found, err := c.Find(t.Context(), star, kamino.KindSnapshot, "")
	c.must(err)
	for _, a := range found {
		t.Errorf("snapshot %s of pool blue is taken for one of pool b*", a.Name)
		c.must(c.Delete(t.Context(), star, a))
	}
	c.clock.Advance(5 * time.Minute)
	if left, err := c.Find(t.Context(), blue, kamino.KindSnapshot, ""); err != nil || len(left) != 1 {
		t.Errorf("%d snapshots of pool blue are left, want 1 (%v)", len(left), err)
	}
}

// TestNamesByCase: two groups whose names differ in case only would share a lease.
func TestNamesByCase(t *testing.T) {
	c := begin(t, setting{})
	c.server.Seed(emulator.Group{Name: "Blue", Count: 1})
	for _, id := range []kamino.PoolID{"aws:eu-central-1/blue", "aws:eu-central-1/Blue"} {
		pool, err := c.Pool(t.Context(), id)
		c.must(err)
		if got := codes(pool.Refusals); got != "same-name" {
			t.Errorf("%s is refused for %q", id, got)
		} else if do := pool.Refusals[0].Do; !strings.Contains(do, "older version of template lt-") {
			t.Errorf("%s: nothing says how to go back to an older image: %s", id, do)
		}
	}
	c.server.Seed(emulator.Group{Name: "Green", Count: 1, Tags: map[string]string{"kubernetes.io/cluster/one": "owned"}})
	c.server.Seed(emulator.Group{Name: "green", Count: 1, Tags: map[string]string{"kubernetes.io/cluster/two": "owned"}})
	pool, err := c.Pool(t.Context(), "aws:eu-central-1/green")
	c.must(err)
	if got := codes(pool.Refusals); got != "" {
		t.Errorf("where the other is of another cluster, which has leases of its own: %q", got)
	}
}

// TestPinnedParameter: a template may name one version of a parameter. It cannot be written by that
// name (PutParameter takes no selector), and a promotion would have no effect.
func TestPinnedParameter(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Name: "green", Parameter: "/golden/image"}})
	c.server.Seed(emulator.Group{Name: "blue", Count: 1, Image: "resolve:ssm:/golden/image:1"})
	pool, err := c.Pool(t.Context(), "aws:eu-central-1/blue")
	c.must(err)
	if got := codes(pool.Refusals); got == "" {
		t.Error("a pool whose template names /golden/image:1 is not refused: the donor is sealed, and the promotion fails at its end")
	}
}
