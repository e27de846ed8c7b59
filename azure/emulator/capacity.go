package emulator

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// grow adds instances to a scale set; their disks come from the image the model
// names now, and without it nothing grows.
func (t *tx) grow(pool *resource, n int) ([]*resource, *apiError) {
	if n <= 0 || part(pool.doc, "properties", "virtualMachineProfile") == nil {
		return nil, nil
	}
	if err := t.roomForModel(pool); err != nil {
		return nil, err
	}
	im, err := t.birthImage(pool)
	if err != nil {
		return nil, err
	}
	var born []*resource
	for range n {
		born = append(born, t.newInstance(pool, im))
	}
	return born, nil
}

// resize brings the instances to the capacity of the model. Those to go are marked Deleting.
func (t *tx) resize(old, pool *resource) ([]*resource, *apiError) {
	before, _ := number(old.doc, "sku", "capacity")
	wanted, _ := number(pool.doc, "sku", "capacity")
	if wanted >= before {
		return t.grow(pool, wanted-before)
	}
	living := t.instancesOf(pool)
	for i := len(living) - 1; i >= 0 && before > wanted; i-- {
		r := living[i]
		if r.state() == "Deleting" || truth(r.doc, "properties", "protectionPolicy", "protectFromScaleIn") ||
			truth(r.doc, "properties", "protectionPolicy", "protectFromScaleSetActions") {
			continue
		}
		t.preempt(r.id)
		t.edit(r.id).setState("Deleting")
		before--
	}
	if before > wanted {
		set(pool.doc, before, "sku", "capacity")
	}
	return nil, nil
}

// accompany makes a model operation carry the birth and the end of instances.
func (s *Server) accompany(p *pending, pool *resource, t *tx, born []*resource) {
	var dying []Instance
	for _, r := range t.instancesOf(pool) {
		if _, written := t.writes[key(r.id)]; written && r.state() == "Deleting" {
			dying = append(dying, t.instance(r))
		}
	}
	if len(born)+len(dying) == 0 {
		return
	}
	var children []Instance
	for _, r := range born {
		children = append(children, t.instance(r))
	}
	finish := p.finish
	p.finish = func(t *tx) *apiError {
		for _, i := range dying {
			if r := t.get(i.ID); r != nil {
				t.discard(r)
			}
		}
		if err := t.settleBirths(children); err != nil {
			return err
		}
		return finish(t)
	}
	if len(dying) > 0 {
		p.latency = max(p.latency, s.delays.DeleteInstance)
	}
	if len(born) > 0 {
		p.latency = max(p.latency, s.delays.CreateInstance)
		s.expectReady(p, t, children)
	}
	if s.Machines != nil {
		p.work = func(ctx context.Context) error {
			return errors.Join(s.each(ctx, dying, s.Machines.Delete), s.each(ctx, children, s.create))
		}
	}
}

// expectReady lets a model operation wait for the report of new machines, where that is asked for.
func (s *Server) expectReady(p *pending, t *tx, children []Instance) {
	if !s.RequireReady {
		return
	}
	p.latency = s.delays.ProvisioningTimeout
	p.early = func(t *tx) bool {
		for _, i := range children {
			if r := t.get(i.ID); r != nil && r.state() == "Creating" {
				return false
			}
		}
		return true
	}
	if s.Machines == nil {
		t.after = append(t.after, &pending{latency: s.delays.CreateInstance, finish: func(t *tx) *apiError {
			for _, i := range children {
				if r := t.get(i.ID); r != nil && power(r) == PowerStarting {
					setPower(t.edit(i.ID), PowerRunning, t.now)
				}
			}
			return nil
		}})
	}
}

// settleBirths completes new instances, or fails those that never reported ready.
func (t *tx) settleBirths(children []Instance) *apiError {
	var late *apiError
	for _, i := range children {
		r := t.get(i.ID)
		if r == nil || r.state() != "Creating" {
			continue
		}
		if !t.s.RequireReady {
			t.ready(i.ID)
			continue
		}
		r = t.edit(i.ID)
		r.setState("Failed")
		r.facts["failure"] = "OSProvisioningTimedOut"
		setPower(r, power(r), t.now)
		late = refuse(http.StatusConflict, "OSProvisioningTimedOut",
			"OS Provisioning for VM '%s' did not finish in the allotted time. The VM may still finish provisioning successfully. Please check provisioning state later. For details on how to check current provisioning state of Windows VMs, refer to https://aka.ms/WindowsVMLifecycle and Linux VMs, refer to https://aka.ms/LinuxVMLifecycle.", i.Name)
	}
	return late
}

// create makes one machine and shows it as soon as it is there.
func (s *Server) create(ctx context.Context, i Instance) error {
	if err := s.Machines.Create(ctx, i); err != nil {
		return err
	}
	s.alter(func(t *tx) {
		if r := t.get(i.ID); r == nil || r.state() != "Creating" {
			return
		}
		if s.RequireReady {
			setPower(t.edit(i.ID), PowerRunning, t.now)
			return
		}
		t.ready(i.ID)
	})
	return nil
}

// each does something to several machines at once.
func (s *Server) each(ctx context.Context, list []Instance, do func(context.Context, Instance) error) error {
	var group sync.WaitGroup
	failures := make([]error, len(list))
	for n, i := range list {
		group.Go(func() { failures[n] = do(ctx, i) })
	}
	group.Wait()
	return errors.Join(failures...)
}

// discard removes an instance and its disk.
func (t *tx) discard(r *resource) {
	if disk := text(r.facts, "disk"); disk != "" {
		t.remove(disk)
	}
	t.remove(r.id)
}

// reportReady is the guest saying that it is provisioned, or why it is not.
func (s *Server) reportReady(id string, ready bool, reason string) {
	s.mu.Lock()
	t := s.begin()
	if r := t.edit(id); r != nil {
		r.facts["reported"] = map[bool]string{true: "Ready", false: "NotReady"}[ready]
		r.facts["reportedReason"], r.facts["reportedAt"] = reason, stamp(t.now)
		if ready && r.state() == "Creating" {
			t.ready(id)
		}
	}
	pool := ""
	if r := t.get(id); r != nil {
		pool = text(r.facts, "pool")
	}
	t.commit()
	if r := s.store.current[key(pool)]; r != nil && r.op != "" {
		s.hasten(r.op)
	}
	s.mu.Unlock()
	s.deliver()
}

// removeInstances deletes instances by name, as cluster-autoscaler does; protection
// does not keep them (Azure/AKS#2164).
func (c *call) removeInstances(rs []*resource) reply {
	s := c.s
	var dying []Instance
	var holds []string
	for _, r := range rs {
		c.t.preempt(r.id)
		r = c.t.edit(r.id)
		was := r.state()
		r.setState("Deleting")
		dying, holds = append(dying, c.t.instance(r)), append(holds, r.id)
		if pool := c.t.edit(text(r.facts, "pool")); pool != nil && was != "Deleting" {
			capacity, _ := number(pool.doc, "sku", "capacity")
			set(pool.doc, max(0, capacity-1), "sku", "capacity")
			pool.touch()
		}
	}
	p := &pending{family: computeFamily, holds: holds, latency: s.delays.DeleteInstance}
	p.finish = func(t *tx) *apiError {
		for _, i := range dying {
			if r := t.get(i.ID); r != nil {
				t.discard(r)
			}
		}
		return nil
	}
	p.fail = func(t *tx, _ *apiError) {
		for _, i := range dying {
			if r := t.edit(i.ID); r != nil {
				r.setState("Failed")
				if pool := t.edit(i.PoolID); pool != nil {
					capacity, _ := number(pool.doc, "sku", "capacity")
					set(pool.doc, capacity+1, "sku", "capacity")
				}
			}
		}
	}
	if len(rs) > 0 {
		p.location = rs[0].location()
	}
	if s.Machines != nil {
		p.work = func(ctx context.Context) error { return s.each(ctx, dying, s.Machines.Delete) }
	}
	return reply{status: http.StatusAccepted, op: p}
}

// repairLater replaces a stopped instance where automatic repairs are on (that a
// powered-off machine counts as unhealthy is assumed, unverified on real Azure).
func (t *tx) repairLater(id string) {
	r := t.get(id)
	pool := t.get(text(r.facts, "pool"))
	if pool == nil || !truth(pool.doc, "properties", "automaticRepairsPolicy", "enabled") {
		return
	}
	grace := 10 * time.Minute
	if text(pool.doc, "properties", "automaticRepairsPolicy", "gracePeriod") == "PT30M" {
		grace = 30 * time.Minute
	}
	t.after = append(t.after, &pending{latency: grace, finish: func(t *tx) *apiError {
		if r := t.get(id); r != nil && r.op == "" && (power(r) == PowerStopped || power(r) == PowerDeallocated) {
			t.after = append(t.after, t.replacement(id, (*resource).follow))
		}
		return nil
	}})
}
