package providertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// proves tries what a provider promises that can start canaries. Where it cannot, that shows.
func proves(t *testing.T, begin func(t *testing.T) World) {
	for _, c := range []struct {
		name string
		try  func(*testing.T, *prover)
	}{
		{"CanaryFit tells the machine and writes nothing", canaryFit},
		{"a canary boots the hidden version beside the pool, once, and goes away", canaryLife},
		{"what is no canary of the pool is left alone", canaryForeign},
		{"PreflightCanary says nothing against credentials that suffice", canaryPreflight},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t)
			p, ok := w.Provider.(kamino.Prover)
			if !ok {
				t.Skip("pending: this provider starts no canaries, so its runs need --prove none")
			}
			c.try(t, &prover{Prover: p, world: &world{World: w, t: t}})
		})
	}
}

// prover is a world whose provider can start canaries.
type prover struct {
	kamino.Prover
	*world
}

// hidden makes a version that is not offered.
func (p *prover) hidden() kamino.Artifact {
	p.t.Helper()
	v := p.version("2026.1.2")[0]
	p.must(p.Provider.Withdraw(p.ctx(), p.pool(), v.Name, kamino.Bad{Reason: "a test"}))
	p.eventually("the version is hidden", func() bool {
		found := p.find(kamino.KindVersion, v.Name)
		return len(found) == 1 && found[0].Excluded && found[0].Ready
	})
	return v
}

func (p *prover) order(v kamino.Artifact, run string) kamino.CanaryOrder {
	return kamino.CanaryOrder{Name: kamino.CanaryName(p.pool().ID, run), Version: v.ID, Run: run, Nonce: "nonce-1",
		Expires: time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (p *prover) canaries() []kamino.Canary {
	p.t.Helper()
	found, err := p.Canaries(p.ctx(), p.pool())
	p.must(err)
	return found
}

func canaryFit(t *testing.T, p *prover) {
	before := p.pool()
	fit, err := p.CanaryFit(p.ctx(), before)
	if err != nil || fit.Size == "" || len(fit.Refusals) > 0 {
		t.Errorf("an ordinary pool: %+v, %v", fit, err)
	}
	if now := p.pool(); now.Revision != before.Revision || len(p.canaries()) != 0 {
		t.Errorf("who asks what a canary would be has made one, or changed the pool from revision %s to %s", before.Revision, now.Revision)
	}
}

func canaryLife(t *testing.T, p *prover) {
	order := p.order(p.hidden(), "run-1")
	before, members := p.pool(), p.members()
	for range 2 {
		p.must(p.LaunchCanary(p.ctx(), before, order))
	}
	var c kamino.Canary
	p.eventually("the canary runs", func() bool {
		found := p.canaries()
		if len(found) > 1 {
			t.Fatalf("canaries %+v, want one", found)
		}
		if len(found) == 0 {
			return false // not every cloud lists at once what was just made
		}
		c = found[0]
		if c.State == kamino.Failed {
			t.Fatalf("the canary failed: %+v", c)
		}
		return c.State == kamino.Succeeded && c.Power == kamino.PowerOn
	})
	if c.Name != order.Name || c.Version != order.Version || c.Run != order.Run || !c.Expires.Equal(order.Expires) || c.Hostname == "" {
		t.Errorf("canary %+v of order %+v", c, order)
	}
	if id, err := p.Provider.PoolOf(p.ctx(), c.Instance); err == nil && id == before.ID {
		t.Errorf("the canary's instance %s counts as one of the pool", c.Instance)
	}
	if in, err := p.Provider.Instance(p.ctx(), c.Instance); err != nil || in.VMID != c.VMID || in.Image != order.Version {
		t.Errorf("the canary's instance is %+v, %v", in, err)
	}
	if now := p.pool(); now.Revision != before.Revision || now.Capacity != before.Capacity || !slices.Equal(p.members(), members) {
		t.Errorf("the canary has changed the pool from %+v to %+v", before, now)
	}
	p.must(p.LaunchCanary(p.ctx(), before, order))
	other := order
	other.Run = "run-2"
	if err := p.LaunchCanary(p.ctx(), before, other); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("another run's order for a canary that exists: %v, want ErrConflict", err)
	}
	p.must(p.RemoveCanary(p.ctx(), before, order.Name))
	p.eventually("the canary is gone", func() bool { return len(p.canaries()) == 0 })
	p.must(p.RemoveCanary(p.ctx(), before, order.Name))
	if _, err := p.Provider.Instance(p.ctx(), c.Instance); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("the instance of a canary that is gone: %v, want ErrNotFound", err)
	}
	if now := p.members(); !slices.Equal(now, members) {
		t.Errorf("the pool had %v and has %v", members, now)
	}
}

func canaryForeign(t *testing.T, p *prover) {
	pool := p.pool()
	if err := p.RemoveCanary(p.ctx(), pool, pool.Name); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("the pool itself as a canary to be removed: %v, want ErrConflict", err)
	}
	if after := p.pool(); after.Capacity != pool.Capacity || after.Revision != pool.Revision {
		t.Errorf("the pool was %+v and is %+v", pool, after)
	}
}

func canaryPreflight(_ *testing.T, p *prover) {
	for range 2 {
		_, err := p.PreflightCanary(p.ctx())
		p.must(err)
	}
}
