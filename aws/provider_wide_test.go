package aws_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/aws/emulator"
)

// TestWideLook: a plan of sixty groups, eight at a time, stays below the rates that EC2 publishes,
// and sees each group's own.
func TestWideLook(t *testing.T) {
	const groups = 60
	c := begin(t, setting{latencies: emulator.NoLatency(), server: func(s *emulator.Server) { s.Throttle = true }})
	c.build("2026.11.1")
	blue := c.pool()
	for n := range groups {
		c.server.Seed(emulator.Group{Name: fmt.Sprintf("green%02d", n), Count: 2, Min: 1})
	}
	donors := map[string]kamino.InstanceID{}
	for _, m := range c.server.Machines() {
		donors[m.Group] = kamino.InstanceID("aws:///" + m.Zone + "/" + m.ID)
	}
	other, err := aws.New(aws.Config{Clock: virtual{cloud: c.clock}, Cluster: "lab"}) // another process, which knows nothing yet
	c.must(err)
	since, ctx := len(c.server.Requests(0)), kamino.Looking(t.Context())
	var wg sync.WaitGroup
	places := make(chan struct{}, 8)
	for name, donor := range donors {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			versions, err := planned(ctx, other, donor)
			if want := map[bool]int{true: 1}[name == blue.Name]; err != nil || versions != want {
				t.Errorf("%s: %d versions, want %d: %v", name, versions, want, err)
			}
		})
	}
	wg.Wait()
	sent := map[string]int{}
	for _, e := range c.server.Requests(since) {
		sent[e.Action]++
	}
	for action, most := range map[string]int{"DescribeAutoScalingGroups": 2, "DescribeImages": 1, "DescribeSnapshots": 1, "RunInstances": 1, "TerminateInstances": 1,
		"DescribeInstances": groups + 3} {
		if sent[action] > most {
			t.Errorf("%d times %s, want at most %d", sent[action], action, most)
		}
	}
}

// planned asks what a plan asks of a donor's pool.
func planned(ctx context.Context, p *aws.Provider, donor kamino.InstanceID) (versions int, err error) {
	id, err := p.PoolOf(ctx, donor)
	if err != nil {
		return 0, err
	}
	pool, err := p.Pool(ctx, id)
	if err != nil {
		return 0, err
	}
	found, err := p.Find(ctx, pool, kamino.KindVersion, "")
	if err != nil {
		return 0, err
	}
	if _, err := p.Find(ctx, pool, kamino.KindSnapshot, kamino.SnapshotName(pool.Name)); err != nil {
		return 0, err
	}
	if _, err := p.Canaries(ctx, pool); err != nil {
		return 0, err
	}
	if _, err := p.CanaryFit(ctx, pool); err != nil {
		return 0, err
	}
	in, err := p.Instance(ctx, donor)
	if err != nil {
		return 0, err
	}
	_, _, err = p.Fit(ctx, pool, in, nil)
	return len(found), err
}
