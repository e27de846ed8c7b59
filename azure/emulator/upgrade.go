package emulator

import (
	"context"
	"net/http"
)

// upgradeAutomatically is what Automatic and Rolling upgrade policies do after a change of
// the model: every instance gets a new disk from it. Manual does nothing.
// (https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-upgrade-policy)
func (t *tx) upgradeAutomatically(pool *resource) {
	mode := text(pool.doc, "properties", "upgradePolicy", "mode")
	if !fold(mode, "Automatic") && !fold(mode, "Rolling") {
		return
	}
	t.replaceAll(pool)
}

// replaceAll reimages every instance of a scale set, in the background.
func (t *tx) replaceAll(pool *resource) {
	for _, r := range t.instancesOf(pool) {
		if r.state() == "Succeeded" && !truth(r.doc, "properties", "protectionPolicy", "protectFromScaleSetActions") {
			t.after = append(t.after, t.replacement(r.id, (*resource).follow))
		}
	}
}

// upgradeOS is the automatic OS upgrade: scale sets that take "the latest" of a
// definition follow a new version unasked
// (https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-automatic-upgrade).
func (t *tx) upgradeOS(definition string) {
	for _, pool := range t.s.store.current {
		if pool.kind.name != scaleSets || !truth(pool.doc, "properties", "upgradePolicy", "automaticOSUpgradePolicy",
			"enableAutomaticOSUpgrade") ||
			!fold(text(imageOf(pool), "id"), definition) {
			continue
		}
		id := pool.id
		t.after = append(t.after, &pending{latency: t.s.delays.AutomaticUpgrade, finish: func(t *tx) *apiError {
			if pool := t.get(id); pool != nil {
				t.replaceAll(pool)
			}
			return nil
		}})
	}
}

// replacement is the operation that gives one instance a new OS disk; adopt says which model it
// refers to then.
func (t *tx) replacement(id string, adopt func(r, pool *resource)) *pending {
	s := t.s
	p := &pending{family: computeFamily, holds: []string{id}, latency: s.delays.Reimage}
	p.finish = func(t *tx) *apiError {
		if t.get(id) == nil {
			return nil
		}
		r := t.edit(id)
		pool := t.get(text(r.facts, "pool"))
		im, err := t.resolveImage(pool)
		if err != nil {
			return err
		}
		if s.Machines == nil {
			t.bear(r, pool, im)
		}
		adopt(r, pool)
		r.setState("Succeeded")
		setPower(r, PowerRunning, t.now)
		return nil
	}
	p.fail = func(t *tx, _ *apiError) {
		if r := t.edit(id); r != nil {
			r.setState("Failed")
		}
	}
	if s.Machines != nil {
		p.work = func(ctx context.Context) error { return s.rebuild(ctx, id) }
	}
	return p
}

// rebuild replaces the machine behind an instance.
func (s *Server) rebuild(ctx context.Context, id string) error {
	i, ok := s.Instance(id)
	if !ok {
		return nil
	}
	if err := s.Machines.Delete(ctx, i); err != nil {
		return err
	}
	var refused *apiError
	s.alter(func(t *tx) {
		r := t.edit(id)
		if r == nil {
			return
		}
		pool := t.get(text(r.facts, "pool"))
		var im image
		if im, refused = t.resolveImage(pool); refused == nil {
			t.bear(r, pool, im)
			setPower(r, PowerStarting, t.now)
		}
	})
	if refused != nil {
		return refused
	}
	if i, ok = s.Instance(id); !ok {
		return nil
	}
	return s.Machines.Create(ctx, i)
}

// reimage gives instances new OS disks. They go on referring to the model that they had
// (https://github.com/Azure/azure-cli/issues/28008: latestModelApplied stays false).
func (c *call) reimage(rs []*resource) reply {
	return c.replace(rs, func(*resource, *resource) {})
}

func (c *call) replace(rs []*resource, adopt func(r, pool *resource)) reply {
	p := &pending{family: computeFamily, latency: c.s.delays.Reimage}
	var parts []*pending
	for _, r := range rs {
		if err := busy(r); err != nil {
			return reply{err: err}
		}
		pool := c.t.get(text(r.facts, "pool"))
		if pool == nil {
			return failed(http.StatusConflict, "OperationNotAllowed", "VM '%s' belongs to no scale set.", r.name())
		}
		if _, err := c.t.resolveImage(pool); err != nil {
			return reply{err: err}
		}
		r = c.t.edit(r.id)
		r.setState("Updating")
		setPower(r, PowerStarting, c.now)
		p.location, p.holds = r.location(), append(p.holds, r.id)
		parts = append(parts, c.t.replacement(r.id, adopt))
	}
	p.finish = func(t *tx) *apiError {
		for _, one := range parts {
			if err := one.finish(t); err != nil {
				return err
			}
		}
		return nil
	}
	p.fail = func(t *tx, e *apiError) {
		for _, one := range parts {
			one.fail(t, e)
		}
	}
	if c.s.Machines != nil {
		p.work = func(ctx context.Context) error {
			for _, one := range parts {
				if err := one.work(ctx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return reply{status: http.StatusAccepted, op: p}
}

// manualUpgrade brings the named instances to the model: nothing happens to those that are at it,
// and those whose image reference it leaves as it is keep their disks, also where latest has moved
// (https://github.com/Azure/vm-scale-sets/issues/62).
func (c *call) manualUpgrade(rs []*resource) reply {
	var other []*resource
	upgraded := false
	for _, r := range rs {
		pool := c.t.get(text(r.facts, "pool"))
		if pool == nil || truth(r.doc, "properties", "latestModelApplied") {
			continue
		}
		if err := busy(r); err != nil {
			return reply{err: err}
		}
		upgraded = true
		if same(r.facts["reference"], imageOf(pool)) {
			c.t.edit(r.id).follow(pool)
		} else {
			other = append(other, r)
		}
	}
	switch {
	case len(other) > 0:
		return c.replace(other, (*resource).follow)
	case upgraded:
		return reply{status: http.StatusAccepted, op: &pending{family: computeFamily, latency: c.s.delays.UpdateInstance,
			finish: func(*tx) *apiError { return nil }}}
	}
	return reply{status: http.StatusOK}
}
