package sim

import (
	"context"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// holdTime is what the way into service and out of it takes.
const holdTime = 5 * time.Second

// factoryProvider is the provider of a world whose pools replace what is off in service, and whose
// cloud tells no VM: an ID is never given twice there.
type factoryProvider struct{ simProvider }

func (f factoryProvider) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	out, err := f.simProvider.Instance(ctx, id)
	out.VMID = ""
	return out, err
}

func (f factoryProvider) Canaries(ctx context.Context, pool kamino.Pool) ([]kamino.Canary, error) {
	out, err := f.simProvider.Canaries(ctx, pool)
	for i := range out {
		out[i].VMID = ""
	}
	return out, err
}

// Holding implements kamino.Standby.
func (f factoryProvider) Holding(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) (out kamino.Holding, err error) {
	w := f.p.w
	err = f.p.call(ctx, call{method: "Holding", subject: lastSegment(string(id))}, func(g *fault) error {
		p, m := w.pools[pool.ID], w.machines[id]
		switch {
		case p == nil, (m == nil || g.is(worlds.Absent) || w.vanishing()) && !p.suspended:
			return fmt.Errorf("instance %s of pool %s: %w", id, pool.Name, kamino.ErrNotFound)
		case m == nil || m.standing() == kamino.InService && p.suspended:
			out = kamino.Remains
		default:
			out = m.standing()
		}
		return nil
	})
	return out, err
}

func (m *machine) standing() kamino.Holding {
	if m.held == "" {
		return kamino.InService
	}
	return m.held
}

// Hold implements kamino.Standby.
func (f factoryProvider) Hold(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	w := f.p.w
	return f.p.call(ctx, call{method: "Hold", subject: lastSegment(string(id)), write: true}, func(g *fault) error {
		p, m := w.pools[pool.ID], w.machines[id]
		if p == nil || m == nil {
			return fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
		}
		if m.standing() != kamino.InService {
			return nil
		}
		w.audit.before(invariant.Call{Process: f.p.name, Verb: invariant.Hold, Pool: string(pool.ID), Machine: string(id),
			SeenVM: f.p.seenVM[id]})
		p.suspended, p.capacity, p.revision = true, p.capacity-1, w.next()
		m.moves(w, kamino.Held, g.is(worlds.OperationFailed))
		w.happened("%s takes %s out of service", f.p.name, m.Hostname)
		return nil
	})
}

// moves lets a machine come to stand otherwise in a while.
func (m *machine) moves(w *world, to kamino.Holding, fails bool) {
	was, p := m.held, w.pools[m.Pool]
	m.held = kamino.Moving
	w.after(holdTime, func() {
		if fails {
			if m.held, p.revision = was, w.next(); to == kamino.Held {
				p.capacity++
			} else {
				p.capacity--
			}
			return
		}
		m.held = to
		w.happened("%s is %s", m.Hostname, to)
	})
}

// Release implements kamino.Standby.
func (f factoryProvider) Release(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	w := f.p.w
	return f.p.call(ctx, call{method: "Release", subject: lastSegment(string(id)), write: true}, func(g *fault) error {
		p, m := w.pools[pool.ID], w.machines[id]
		switch {
		case p == nil:
			return fmt.Errorf("pool %s: %w", pool.Name, kamino.ErrNotFound)
		case m == nil || m.standing() == kamino.InService:
			p.suspended = false
			w.happened("nothing of pool %s is suspended", p.id.Name())
			return nil
		case m.held == kamino.Moving:
			return nil
		case m.Power != kamino.PowerOn:
			return fmt.Errorf("instance %s is %s: %w", id, m.Power, kamino.ErrInProgress)
		case p.most > 0 && p.capacity >= p.most:
			return fmt.Errorf("the capacity of pool %s is its maximum, %d: %w", pool.Name, p.most, kamino.ErrInProgress)
		}
		w.audit.before(invariant.Call{Process: f.p.name, Verb: invariant.Release, Pool: string(pool.ID), Machine: string(id),
			SeenVM: f.p.seenVM[id]})
		p.capacity, p.revision = p.capacity+1, w.next()
		m.moves(w, kamino.InService, g.is(worlds.OperationFailed))
		w.happened("%s puts %s back in service", f.p.name, m.Hostname)
		return nil
	})
}

// Lost implements kamino.Standby.
func (f factoryProvider) Lost(pool kamino.Pool, id kamino.InstanceID) kamino.Warning {
	return kamino.Warning{Found: fmt.Sprintf("pool %s has one instance less: %s is gone", pool.Name, lastSegment(string(id))),
		Do: fmt.Sprintf("set its capacity to %d", pool.Capacity+1)}
}
