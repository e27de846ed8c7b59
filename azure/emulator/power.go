package emulator

import (
	"context"
	"net/http"
	"time"
)

// powerChange is one of powerOff, start, deallocate, restart.
type powerChange struct {
	name    string
	during  string
	end     string
	latency time.Duration
	check   func(*resource) *apiError
	work    func(context.Context, Instance) error
	effect  func(*tx, *resource)
}

func (c *call) powerOff() powerChange {
	cut := c.r.URL.Query().Get("skipShutdown") == "true"
	ch := powerChange{name: "powerOff", during: PowerStopping, end: PowerStopped, latency: c.s.delays.Stop}
	if cut {
		ch.latency = c.s.delays.Cut
	}
	if m := c.s.Machines; m != nil {
		ch.work = func(ctx context.Context, i Instance) error { return m.Stop(ctx, i, cut) }
	}
	return ch
}

func (c *call) powerOn() powerChange {
	ch := powerChange{name: "start", during: PowerStarting, end: PowerRunning, latency: c.s.delays.Start}
	if m := c.s.Machines; m != nil {
		ch.work = m.Start
	}
	return ch
}

func (c *call) deallocate() powerChange {
	ch := powerChange{name: "deallocate", during: PowerDeallocating, end: PowerDeallocated, latency: c.s.delays.Deallocate}
	ch.check = func(r *resource) *apiError { return noEphemeral(r, "deallocate") }
	// The host is given up: temporary disk and vTPM state are gone (azure-compute-docs,
	// states-billing.md).
	ch.effect = func(_ *tx, r *resource) { r.facts["tpmReset"] = true }
	if m := c.s.Machines; m != nil {
		ch.work = func(ctx context.Context, i Instance) error { return m.Stop(ctx, i, false) }
	}
	return ch
}

func (c *call) restart() powerChange {
	ch := powerChange{name: "restart", during: PowerStarting, end: PowerRunning, latency: c.s.delays.Start}
	if m := c.s.Machines; m != nil {
		ch.work = func(ctx context.Context, i Instance) error {
			if err := m.Stop(ctx, i, false); err != nil {
				return err
			}
			return m.Start(ctx, i)
		}
	}
	return ch
}

// change runs a power change on instances.
func (c *call) change(rs []*resource, ch powerChange) reply {
	p := &pending{family: computeFamily}
	former := map[string]string{}
	var moving []Instance
	for _, r := range rs {
		if err := busy(r); err != nil {
			return reply{err: err}
		}
		if r.state() == "Creating" || r.state() == "Deleting" {
			return failed(http.StatusConflict, "OperationNotAllowed", "Operation '%s' is not allowed on VM '%s' since the VM is %s.",
				ch.name, r.name(), r.state())
		}
		if ch.check != nil {
			if err := ch.check(r); err != nil {
				return reply{err: err}
			}
		}
		p.location = r.location()
		if power(r) == ch.end && ch.name != "restart" {
			continue // already so
		}
		former[r.id] = power(r)
		latency := ch.latency
		if ch.during == PowerStopping && power(r) == PowerStopped || ch.during == PowerDeallocating && power(r) == PowerStopped {
			latency = min(latency, c.s.delays.Cut)
		}
		p.latency = max(p.latency, latency)
		moving, p.holds = append(moving, c.t.instance(r)), append(p.holds, r.id)
		r = c.t.edit(r.id)
		r.setState("Updating")
		setPower(r, ch.during, c.now)
	}
	p.finish = func(t *tx) *apiError { t.settlePower(former, ch); return nil }
	p.fail = func(t *tx, _ *apiError) {
		for id, code := range former {
			if r := t.edit(id); r != nil && r.state() == "Updating" {
				r.setState("Failed")
				setPower(r, code, t.now)
			}
		}
	}
	if ch.work != nil && len(moving) > 0 {
		p.work = func(ctx context.Context) error { return c.s.each(ctx, moving, ch.work) }
	}
	return reply{status: http.StatusAccepted, op: p}
}

func (t *tx) settlePower(former map[string]string, ch powerChange) {
	for id := range former {
		r := t.edit(id)
		if r == nil || r.state() != "Updating" {
			continue // deleted meanwhile
		}
		r.setState("Succeeded")
		setPower(r, ch.end, t.now)
		if ch.effect != nil {
			ch.effect(t, r)
		}
		if ch.end == PowerStopped || ch.end == PowerDeallocated {
			t.repairLater(id)
		}
	}
}

// chosen are the instances a scale-set action is about: those its body names, or all.
func (c *call) chosen() ([]*resource, *apiError) {
	pool := c.t.get(c.target.id)
	if pool == nil {
		return nil, notFound(c, c.target.id).err
	}
	all := c.t.instancesOf(pool)
	ids, named := c.body["instanceIds"].([]any)
	if !named || len(ids) == 1 && ids[0] == "*" {
		return all, nil
	}
	var found []*resource
	for _, id := range ids {
		var hit *resource
		for _, r := range all {
			if name, _ := id.(string); fold(r.name(), name) {
				hit = r
			}
		}
		if hit == nil {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter",
				"The provided instanceId %v is not an active Virtual Machine Scale Set VM instanceId.", id)
		}
		found = append(found, hit)
	}
	return found, nil
}

// onSet makes a scale-set action of a change to instances. Instances with
// protectFromScaleSetActions refuse it (for a named instance assumed, unverified on real Azure).
func onSet(act func(*call, []*resource) reply) func(*call) reply {
	return func(c *call) reply {
		rs, err := c.chosen()
		if err != nil {
			return reply{err: err}
		}
		for _, r := range rs {
			if truth(r.doc, "properties", "protectionPolicy", "protectFromScaleSetActions") {
				return failed(http.StatusConflict, "OperationNotAllowed",
					"The operation is not allowed on VM '%s' since it is protected from Virtual Machine Scale Set operations.", r.name())
			}
		}
		return act(c, rs)
	}
}

// onOne makes an instance action of it.
func onOne(act func(*call, []*resource) reply) func(*call) reply {
	return func(c *call) reply {
		r := c.t.get(c.target.id)
		if r == nil {
			return notFound(c, c.target.id)
		}
		return act(c, []*resource{r})
	}
}
