package aws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/aws/emulator"
)

// allowed are the actions of a policy that the documentation tells people to make.
func allowed(t *testing.T, file string) (actions []string) {
	t.Helper()
	raw, err := os.ReadFile("../docs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var policy struct{ Statement []struct{ Action []string } }
	if err := json.Unmarshal(raw, &policy); err != nil {
		t.Fatal(err)
	}
	for _, s := range policy.Statement {
		actions = append(actions, s.Action...)
	}
	return actions
}

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
	snapshot, err := c.creates(kamino.Artifact{Kind: kamino.Snapshot, Name: "snapshot_blue", Source: in.Disk, Tags: tags})
	if err != nil {
		return err
	}
	for _, name := range []string{"2026.1.1", "2026.1.2", "2026.1.3"} {
		if _, err := c.creates(kamino.Artifact{Kind: kamino.Version, Name: name, Source: snapshot, Tags: tags}); err != nil {
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
	v, err := c.Find(ctx, pool, kamino.Version, "2026.1.3")
	if err != nil {
		return err
	}
	again := kamino.Target{Version: v[0].Name, Reference: kamino.ByDefinition, Seen: &v[0]} // takes the reason off
	if err := c.Promote(ctx, pool, again); err != nil {
		return err
	}
	c.server.Seed(emulator.Group{Name: "old", Configuration: "old"}) // what it launches from is read before anything is deleted
	if err := c.Delete(ctx, pool, kamino.Artifact{Kind: kamino.Version, Name: "2026.1.3"}); err != nil {
		return err
	}
	return c.SetCapacity(ctx, pool, pool.Capacity+1)
}

// TestPolicy: the policy of the documentation is enough, and every action in it is needed.
func TestPolicy(t *testing.T) {
	all := allowed(t, "aws-policy.json")
	if listed := aws.Actions(); !sameWords(listed, all) {
		t.Errorf("the code lists %v, the documentation %v", listed, all)
	}
	const update = "autoscaling:UpdateAutoScalingGroup"
	for _, without := range append([]string{"", "nothing, by number"}, all...) {
		t.Run("without "+without, func(t *testing.T) {
			s, may := setting{}, slices.Clone(all)
			if without == update || without == "nothing, by number" {
				s.group.Version, may = "1", append(may, "ec2:RunInstances", "iam:PassRole")
			}
			c := begin(t, s)
			c.server.SetPolicy(key, emulator.Policy{Allow: slices.DeleteFunc(may, func(a string) bool { return a == without })})
			err := c.story()
			if without == "" || s.group.Version != "" && without != update {
				c.must(err)
				if doubts, err := c.Preflight(t.Context()); err != nil || len(doubts) > 0 {
					t.Errorf("preflight: %v %v", err, doubts)
				}
				return
			}
			if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), without) {
				t.Errorf("the story ends with %v, want ErrForbidden that names the action", err)
			}
		})
	}
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// TestPolicyCanary: the same of a canary's, beside the first.
func TestPolicyCanary(t *testing.T) {
	all := allowed(t, "aws-policy-canary.json")
	if listed := aws.CanaryActions(); !sameWords(listed, all) {
		t.Errorf("the code lists %v, the documentation %v", listed, all)
	}
	for _, without := range append([]string{""}, all...) {
		t.Run("without "+without, func(t *testing.T) {
			c := begin(t, setting{})
			image := c.server.Machines()[0].Image
			c.server.SetPolicy(key, emulator.Policy{Allow: slices.DeleteFunc(slices.Concat(all, allowed(t, "aws-policy.json")), func(a string) bool { return a == without })})
			err := c.canaryStory(image)
			if without == "" && err != nil || without != "" && (!errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), without)) {
				t.Errorf("the story ends with %v", err)
			}
		})
	}
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
			c.server.SetPolicy(key, emulator.Policy{Allow: append(allowed(t, "aws-policy.json"), tt.right)})
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
	another := kamino.Artifact{Kind: kamino.Version, Name: "2026.1.2", Source: v.Source, Tags: map[string]string{kamino.TagRun: "run-1"}}
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
	if found, err := c.Find(t.Context(), c.pool(), kamino.Version, another.Name); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
