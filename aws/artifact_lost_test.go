package aws_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// TestCanaryOfAnother: a name that another pool's canary has lets nobody remove it.
func TestCanaryOfAnother(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1")[0]
	pool := c.pool()
	order := kamino.CanaryOrder{Name: "kamino-0123abcd", Version: v.ID, Run: "run-1", Expires: c.clock.Now().Add(time.Hour), Nonce: strings.Repeat("ab", 32)}
	c.must(c.LaunchCanary(t.Context(), pool, order))
	c.clock.Advance(time.Minute)
	other := pool
	other.Name = "green"
	if err := c.RemoveCanary(t.Context(), other, order.Name); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("removed by pool green: %v", err)
	}
	if list, err := c.Canaries(t.Context(), pool); err != nil || len(list) != 1 || list[0].State != kamino.Succeeded {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestImageInUse: an image of which an instance runs is not deleted, whoever's instance that is and
// whatever the pool's next one boots from.
func TestImageInUse(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1", "2026.1.2")
	c.promote(kamino.Target{Version: v[0].Name, Reference: kamino.ByDefinition})
	grown := c.grow()
	c.promote(kamino.Target{Version: v[1].Name, Reference: kamino.ByDefinition})
	if err := c.Delete(t.Context(), c.pool(), v[0]); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("instance %s runs of %s: %v", grown.ID, v[0].ID, err)
	}
	if _, images, _ := c.server.Counts("blue"); images != 2 {
		t.Errorf("%d images", images)
	}
}

// TestSnapshotShownLate: a snapshot whose answer came is not made again while no read shows it yet,
// nor for ever waited for.
func TestSnapshotShownLate(t *testing.T) {
	for shown, want := range map[time.Duration]int{30 * time.Second: 1, time.Hour: 2} {
		slow := emulator.NoLatency()
		slow.Visible, slow.TagVisible = shown, shown
		c := begin(t, setting{latencies: slow})
		c.hold()
		c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
		in, err := c.Instance(t.Context(), c.donor())
		c.must(err)
		a := kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: map[string]string{kamino.TagRun: "run-1"}}
		c.must(c.Create(t.Context(), c.pool(), a))
		for range 5 { // EC2 itself refuses a second one for 15 s
			c.clock.Advance(20 * time.Second)
			if err := c.Create(t.Context(), c.pool(), a); err != nil && !errors.Is(err, kamino.ErrInProgress) {
				t.Error(err)
			}
		}
		if snapshots, _, _ := c.server.Counts("blue"); snapshots != want {
			t.Errorf("shown after %s: %d snapshots, want %d", shown, snapshots, want)
		}
	}
}

// TestSnapshotOnce: a snapshot whose answer was lost is found again before another one is made,
// while filters by tag do not show it yet.
func TestSnapshotOnce(t *testing.T) {
	slow := emulator.NoLatency()
	slow.TagVisible = time.Hour
	c := begin(t, setting{latencies: slow})
	c.hold()
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
	in, err := c.Instance(t.Context(), c.donor())
	c.must(err)
	c.server.AddFault(emulator.Fault{Action: "ec2:CreateSnapshot", Kind: emulator.DropAfter})
	want := kamino.Artifact{Kind: kamino.KindSnapshot, Name: "snapshot_blue", Source: in.Disk, Tags: map[string]string{kamino.TagRun: "run-1"}}
	_ = c.Create(t.Context(), c.pool(), want) // the answer is lost
	c.clock.Advance(time.Minute)              // EC2 itself refuses a second one for 15 s
	c.must(c.Create(t.Context(), c.pool(), want))
	if snapshots, _, _ := c.server.Counts("blue"); snapshots != 1 {
		t.Errorf("%d snapshots", snapshots)
	}
}

// TestCanaryUnlisted: lists may lack a canary that was launched here; it is terminated all the
// same, and one that is no more is none.
func TestCanaryUnlisted(t *testing.T) {
	c := begin(t, setting{})
	v := c.build("2026.1.1")[0]
	pool := c.pool()
	c.server.AddFault(emulator.Fault{Action: "ec2:RunInstances", Kind: emulator.Stale, Duration: 10 * time.Minute})
	order := kamino.CanaryOrder{Name: "kamino-0123abcd", Version: v.ID, Run: "run-1", Expires: c.clock.Now().Add(time.Hour), Nonce: strings.Repeat("ab", 32)}
	c.must(c.LaunchCanary(t.Context(), pool, order))
	c.clock.Advance(time.Minute)
	if list, err := c.Canaries(t.Context(), pool); err != nil || len(list) != 0 {
		t.Fatalf("%+v is listed, %v", list, err)
	}
	c.must(c.RemoveCanary(t.Context(), pool, order.Name))
	c.clock.Advance(20 * time.Minute)
	left := slices.DeleteFunc(c.server.Machines(), func(m emulator.Machine) bool { return m.Tags[kamino.TagCanary] == "" || m.State == "terminated" })
	if len(left) > 0 {
		t.Errorf("%+v is left", left)
	}
	c.must(c.RemoveCanary(t.Context(), pool, order.Name))
}
