package aws_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// build makes image versions of the donor.
func (c *cloud) build(names ...string) []kamino.Artifact {
	c.Helper()
	c.hold()
	c.must(c.SetPower(c.Context(), c.donor(), kamino.PowerOff))
	var in kamino.Instance
	c.eventually("the donor is off", func() bool {
		var err error
		in, err = c.Instance(c.Context(), c.donor())
		c.must(err)
		return in.Power == kamino.PowerOff
	})
	tags := map[string]string{kamino.TagRun: "run-1", kamino.TagReceipt: "a"}
	if c.unsealed {
		delete(tags, kamino.TagReceipt)
	}
	snapshot := c.made(kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: tags})
	var out []kamino.Artifact
	for _, name := range names {
		out = append(out, c.made(kamino.Artifact{Kind: kamino.KindVersion, Name: name, Source: snapshot.ID, Tags: tags}))
	}
	return out
}

// made creates as the engine does: it looks, creates where nothing is found, and looks again,
// whatever the call answered, as long as that may come right by itself.
func (c *cloud) made(a kamino.Artifact) (got kamino.Artifact) {
	c.Helper()
	c.eventually(string(a.Kind)+" is ready", func() bool {
		found, err := c.Find(c.Context(), c.pool(), a.Kind, a.Name)
		c.must(err)
		if len(found) > 0 {
			got = found[0]
			return got.Ready
		}
		err = c.Create(c.Context(), c.pool(), a)
		if err != nil && !errors.Is(err, kamino.ErrInProgress) && !errors.Is(err, kamino.ErrUnavailable) {
			c.Fatal(err)
		}
		return false
	})
	return got
}

// promote promotes as the engine does.
func (c *cloud) promote(to kamino.Target) {
	c.Helper()
	c.eventually("the target is the next image", func() bool {
		next, err := c.NextImage(c.Context(), c.pool(), to)
		c.must(err)
		if len(next.Diff) == 0 {
			return true
		}
		if err := c.Promote(c.Context(), c.pool(), to); err != nil && !errors.Is(err, kamino.ErrInProgress) && !errors.Is(err, kamino.ErrUnavailable) {
			c.Fatal(err)
		}
		return false
	})
}

// grow adds an instance to the group and returns it.
func (c *cloud) grow() emulator.Machine {
	c.Helper()
	pool := c.pool()
	c.must(c.SetCapacity(c.Context(), pool, pool.Capacity+1))
	c.clock.Advance(2 * time.Minute)
	all := c.server.Machines()
	return all[len(all)-1]
}

// TestPointer: the pool is moved to a parameter once; from then on a promotion, a withdrawal and a
// rollback are each one PutParameter, and the next instance follows.
func TestPointer(t *testing.T) {
	c := begin(t, setting{})
	before := c.pool()
	v := c.build("2026.1.1", "2026.1.2")
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByDefinition})
	if m := c.grow(); m.Image != v[0].ID || m.TemplateVersion != 2 {
		t.Errorf("after the move: %+v", m)
	}
	if named, err := c.Find(t.Context(), c.pool(), kamino.KindParameter, ""); err != nil || len(named) != 1 || !named[0].InModel {
		t.Errorf("named: %+v, %v", named, err)
	}
	since := len(c.server.Requests(0))
	c.promote(kamino.Target{Version: v[1].Name, Reference: kamino.ByDefinition})
	if wrote := c.actions(since); !slices.Equal(wrote, []string{"PutParameter"}) {
		t.Errorf("a promotion wrote %v", wrote)
	}
	if m := c.grow(); m.Image != v[1].ID || m.TemplateVersion != 2 {
		t.Errorf("after the promotion: %+v", m)
	}
	c.must(c.Withdraw(t.Context(), c.pool(), v[1].Name, kamino.Bad{Reason: "never Ready"}))
	c.clock.Advance(time.Minute)
	if m := c.grow(); m.Image != v[0].ID {
		t.Errorf("after the withdrawal: %+v", m)
	}
	if err := c.Withdraw(t.Context(), c.pool(), v[0].Name, kamino.Bad{Reason: "the last"}); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("the only version was withdrawn: %v", err)
	}
	c.promote(kamino.Target{Former: before.Model.Saved})
	if m := c.grow(); m.Image != before.Model.Image || m.TemplateVersion != 1 {
		t.Errorf("after the former recipe is back: %+v", m)
	}
	// The parameter outlives that, and is found until somebody deletes it.
	if left, err := c.Find(t.Context(), c.pool(), kamino.KindParameter, ""); err != nil || len(left) != 1 || left[0].InModel || left[0].Source != v[0].ID {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// TestStamp: what is written to the parameter and taken back leaves another stamp; a read leaves
// the same. A group that names no parameter, or no number, tells none.
func TestStamp(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Version: "1", Parameter: "/kamino/lab/blue/image"}})
	v := c.build("2026.1.1")
	was := c.pool()
	if again := c.pool(); was.Stamp == "" || again.Stamp != was.Stamp {
		t.Errorf("stamps %q and %q of two reads", was.Stamp, again.Stamp)
	}
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByPointer})
	now := c.pool()
	c.promote(kamino.Target{Former: was.Model.Saved})
	back := c.pool()
	if back.Model.Image != was.Model.Image || back.Revision != was.Revision || now.Stamp == was.Stamp || back.Stamp == now.Stamp || back.Stamp == was.Stamp {
		t.Errorf("stamps %q, %q and %q", was.Stamp, now.Stamp, back.Stamp)
	}
	if other := begin(t, setting{group: emulator.Group{Version: "1"}}).pool(); other.Stamp != "" {
		t.Errorf("a group without a parameter has stamp %q", other.Stamp)
	}
}

// TestNoPointer: what rules out parameters gets versions of its template, whatever was asked for.
func TestNoPointer(t *testing.T) {
	for name, tt := range map[string]struct {
		group emulator.Group
		why   string
	}{
		"types by attributes":         {emulator.Group{Attributes: true}, "instance types by attributes"},
		"an empty warm pool":          {emulator.Group{WarmPool: true}, "a warm pool"},
		"both, and version by number": {emulator.Group{Attributes: true, WarmPool: true, Version: "1"}, "instance types by attributes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := begin(t, setting{group: tt.group})
			if p := c.pool(); !strings.Contains(p.NoPointer, tt.why) || len(p.Refusals) > 0 {
				t.Errorf("no pointer because %q; refused: %v", p.NoPointer, p.Refusals)
			}
			v := c.build("2026.1.1")
			since := len(c.server.Requests(0))
			c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByPointer})
			if wrote := c.actions(since); len(wrote) != 2 || wrote[0] != "CreateLaunchTemplateVersion" {
				t.Errorf("a promotion wrote %v", wrote)
			}
			if m := c.grow(); m.Image != v[0].ID || m.TemplateVersion != 2 {
				t.Errorf("after it: %+v", m)
			}
		})
	}
}

// TestTemplateVersions: a version differs in the image alone, or is not put in effect.
func TestTemplateVersions(t *testing.T) {
	mapping := []any{map[string]any{"DeviceName": "/dev/xvdb", "Ebs": map[string]any{"SnapshotId": "snap-0123", "VolumeSize": "50"}}}
	c := begin(t, setting{group: emulator.Group{Version: "1", Data: map[string]any{"BlockDeviceMapping": mapping}}})
	v := c.build("2026.1.1")
	before := c.pool()
	err := c.Promote(t.Context(), before, kamino.Target{Version: v[0].Name})
	if err == nil || !strings.Contains(err.Error(), "BlockDeviceMappings") || kamino.Hint(err) == "" {
		t.Errorf("%v", err)
	}
	if now := c.pool(); now.Revision != before.Revision {
		t.Errorf("the pool was changed to %+v", now)
	}
}

// TestChosenMeanwhile: a person who chooses another version of the template while one is made for a
// promotion is not overwritten.
func TestChosenMeanwhile(t *testing.T) {
	var persons string
	chosen := false
	c := begin(t, setting{before: func(c *cloud, action string) {
		if action != "CreateLaunchTemplateVersion" || chosen {
			return
		}
		chosen = true
		for _, form := range []url.Values{
			{"Action": {"CreateLaunchTemplateVersion"}, "LaunchTemplateName": {"blue"}, "SourceVersion": {"1"}, "LaunchTemplateData.ImageId": {persons}},
			{"Action": {"ModifyLaunchTemplate"}, "LaunchTemplateName": {"blue"}, "SetDefaultVersion": {"2"}},
		} {
			form.Set("Version", "2016-11-15")
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+key+"/20261120/eu-central-1/ec2/aws4_request, SignedHeaders=host, Signature=0")
			answer := httptest.NewRecorder()
			if c.server.ServeHTTP(answer, r); answer.Code != http.StatusOK {
				t.Errorf("%s: %s", form.Get("Action"), answer.Body)
			}
		}
	}})
	v := c.build("2026.1.1", "2026.1.2")
	persons = v[1].ID
	if err := c.Promote(t.Context(), c.pool(), kamino.Target{Version: v[0].Name}); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("the promotion ended with %v", err)
	}
	if m := c.grow(); !chosen || m.Image != persons {
		t.Errorf("the next instance boots from %s", m.Image)
	}
}

// TestLostAnswers: each write whose answer is lost is done once, whichever it is.
func TestLostAnswers(t *testing.T) {
	for _, action := range []string{"ec2:CreateSnapshot", "ec2:RegisterImage", "ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate"} {
		t.Run(action, func(t *testing.T) {
			c := begin(t, setting{})
			c.server.AddFault(emulator.Fault{Action: action, Kind: emulator.DropAfter})
			v := c.build("2026.1.1")
			c.promote(kamino.Target{Version: v[0].Name})
			if m := c.grow(); m.Image != v[0].ID || m.TemplateVersion != 2 {
				t.Errorf("the next instance is %+v", m)
			}
			if f := c.server.Faults()[0]; f.Hit != 1 {
				t.Errorf("the fault has hit %d times", f.Hit)
			}
			if snapshots, images, versions := c.server.Counts("blue"); snapshots != 1 || images != 1 || versions != 2 {
				t.Errorf("%d snapshots, %d images, %d template versions", snapshots, images, versions)
			}
		})
	}
}

// TestErrors: what AWS says, in the words of the port.
func TestErrors(t *testing.T) {
	c := begin(t, setting{})
	pool := c.pool()
	for _, tt := range []struct {
		fault emulator.Fault
		want  error
	}{
		{emulator.Fault{Kind: emulator.Reply, Status: 403, Code: "UnauthorizedOperation"}, kamino.ErrForbidden},
		{emulator.Fault{Kind: emulator.Reply, Status: 503, Code: "Unavailable"}, kamino.ErrUnavailable},
		{emulator.Fault{Kind: emulator.DropAfter}, kamino.ErrUnavailable},
		{emulator.Fault{Kind: emulator.Reply, Status: 400, Code: "RequestExpired"}, kamino.ErrUnavailable},
		{emulator.Fault{Kind: emulator.Reply, Status: 400, Code: "IncorrectInstanceState"}, kamino.ErrInProgress},
		{emulator.Fault{Kind: emulator.Reply, Status: 500, Code: "InsufficientInstanceCapacity"}, kamino.ErrInProgress},
		{emulator.Fault{Kind: emulator.Reply, Status: 400, Code: "InvalidInstanceID.NotFound"}, kamino.ErrNotFound},
	} {
		tt.fault.Action = "ec2:StartInstances"
		c.server.AddFault(tt.fault)
		since := len(c.server.Requests(0))
		if err := c.SetPower(t.Context(), c.donor(), kamino.PowerOn); !errors.Is(err, tt.want) {
			t.Errorf("%s %s: %v, want %v", tt.fault.Kind, tt.fault.Code, err, tt.want)
		}
		if n := len(c.actions(since)); n != 1 {
			t.Errorf("%s %s: %d attempts", tt.fault.Kind, tt.fault.Code, n)
		}
	}
	c.server.AddFault(emulator.Fault{Action: "autoscaling:*", Kind: emulator.Throttled})
	_, err := c.Pool(t.Context(), pool.ID)
	var throttled *kamino.ThrottledError
	if !errors.As(err, &throttled) || throttled.After <= 0 {
		t.Errorf("throttled: %v", err)
	}
}

// TestPreflight names every action of EC2 that is not allowed: what only reads at once, and the
// rest where it is known on what.
func TestPreflight(t *testing.T) {
	c := begin(t, setting{})
	without := func(actions ...string) {
		c.server.SetPolicy(key, emulator.Policy{Allow: []string{"*"}, Deny: actions})
	}
	c.build("2026.1.1")
	c.clock.Advance(time.Hour)
	in, err := c.Instance(t.Context(), c.donor())
	c.must(err)
	for _, tt := range []struct {
		deny, want string
		try        func() error
	}{
		{"ec2:DescribeVolumes", "ec2:DescribeVolumes", func() error { return tried(c.Preflight(t.Context())) }},
		{"ec2:StartInstances ec2:RegisterImage ec2:DeleteSnapshot", "ec2:StartInstances, ec2:RegisterImage, ec2:DeleteSnapshot", func() error {
			_, _, err := c.Fit(t.Context(), c.pool(), in, nil)
			return err
		}},
	} {
		without(strings.Fields(tt.deny)...)
		if err := tt.try(); !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("without %s: %v", tt.deny, err)
		}
	}
	for _, action := range []string{"ec2:RunInstances", "iam:PassRole"} {
		without(action)
		c.clock.Advance(time.Hour)
		fit, err := c.CanaryFit(t.Context(), c.pool())
		c.must(err)
		if codes(fit.Refusals) != "canary-rights" || !strings.Contains(fit.Refusals[0].Why, "ec2:RunInstances") {
			t.Errorf("without %s: %v", action, fit.Refusals)
		}
	}
}

func tried[T any](_ T, err error) error { return err }
