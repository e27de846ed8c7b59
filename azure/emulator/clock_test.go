package emulator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVirtualClockRunsWhatFallsDueInOrder(t *testing.T) {
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	c := NewVirtualClock(start)
	var ran []string
	note := func(name string) func() {
		return func() { ran = append(ran, name+" "+c.Now().Sub(start).String()) }
	}
	c.AfterFunc(3*time.Second, note("third"))
	c.AfterFunc(time.Second, func() {
		note("first")()
		c.AfterFunc(time.Second, note("second"))
	})
	stop := c.AfterFunc(2*time.Second, note("stopped"))
	stop()
	c.AfterFunc(time.Minute, note("late"))
	c.Advance(10 * time.Second)
	if diff := cmp.Diff([]string{"first 1s", "second 2s", "third 3s"}, ran); diff != "" {
		t.Fatal(diff)
	}
	if at, ok := c.Next(); !ok || at.Sub(start) != time.Minute || c.Now().Sub(start) != 10*time.Second {
		t.Fatalf("next %v %v, now %v", at, ok, c.Now())
	}
}

func TestPublishedLatenciesAndNone(t *testing.T) {
	l := Latencies{Snapshot: 5 * time.Second, Version: -1}.published()
	if l.Stop != 120*time.Second || l.Snapshot != 5*time.Second || l.Version != 0 {
		t.Fatalf("%+v", l)
	}
	if none := NoLatency().published(); none.Stop != 0 || none.ProvisioningTimeout != 40*time.Minute {
		t.Fatalf("%+v", none)
	}
}
