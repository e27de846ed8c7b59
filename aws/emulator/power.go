package emulator

import (
	"slices"
	"time"
)

// turn moves an instance to a state, and to another one after a while, unless something else is
// done to it before.
func (s *Server) turn(i *instance, now, then string, after time.Duration, why string) {
	i.State, i.Why = now, why
	i.Turn++
	s.touched(i)
	id, turn := i.ID, i.Turn
	s.later(after, func() {
		if i := s.store.Instances[id]; i != nil && i.Turn == turn {
			s.arrive(i, then)
		}
	})
}

// arrive is an instance reaching a state that lasts.
func (s *Server) arrive(i *instance, state string) {
	i.State = state
	switch state {
	case running:
		i.Boots++
	case terminated:
		s.forget(i)
	}
	s.touched(i)
}

// forget deletes the volumes that go with a terminated instance, and later the instance itself.
func (s *Server) forget(i *instance) {
	for _, a := range i.Volumes {
		if a.Delete {
			delete(s.store.Volumes, a.Volume)
		}
	}
	i.Volumes = nil
	id := i.ID
	s.later(s.delays.Forget, func() { delete(s.store.Instances, id) })
}

// touched lets an instance's group act, and tells who has subscribed.
func (s *Server) touched(i *instance) {
	s.moved = append(s.moved, i.ID)
	if i.Group != "" {
		s.dirty[i.Group] = true
	}
}

func changed(i *instance, before string) any {
	return object{"instanceId": i.ID, "previousState": stateOf(before), "currentState": stateOf(i.State)}
}

// powered does something to each instance that a call names, once none of them refuses.
func (c *call) powered(check func(*instance) *apiError, do func(*instance)) (object, *apiError) {
	ids := texts(c.in, "InstanceId")
	if len(ids) == 0 {
		return nil, refuse("MissingParameter", "The request must contain the parameter InstanceId")
	}
	var all []*instance
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		i, err := c.instance(id)
		if err == nil {
			err = check(i)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	var out []any
	for _, i := range all {
		before := i.State
		do(i)
		out = append(out, changed(i, before))
	}
	return object{"instancesSet": out}, nil
}

func stopInstances(c *call) (object, *apiError) {
	check := func(i *instance) *apiError {
		switch {
		case i.State == pending || !i.alive():
			return refuse("IncorrectInstanceState", "This instance '%s' is not in a state from which it can be stopped.", i.ID)
		case i.lifecycle() == "spot":
			return refuse("UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", i.ID)
		case i.RootType != "ebs":
			return refuse("UnsupportedOperation", "The instance '%s' does not have an 'ebs' root device type and cannot be stopped.", i.ID)
		case truth(i.Data, "DisableApiStop"):
			return refuse("OperationNotPermitted",
				"The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.", i.ID)
		}
		return nil
	}
	latency := c.s.delays.Stop
	if truth(c.in, "Force") || truth(c.in, "SkipOsShutdown") {
		latency = c.s.delays.ForceStop
	}
	return c.powered(check, func(i *instance) {
		if i.State == running {
			c.s.turn(i, stopping, stopped, c.slow(latency), "User initiated ("+c.now.Format("2006-01-02 15:04:05 GMT")+")")
		}
	})
}

func startInstances(c *call) (object, *apiError) {
	check := func(i *instance) *apiError {
		if i.State == stopping || !i.alive() {
			return refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", i.ID)
		}
		return nil
	}
	return c.powered(check, func(i *instance) {
		if i.State != stopped {
			return
		}
		if c.fails() { // assumed, unverified on real AWS: an instance that comes up is stopped again
			c.s.turn(i, pending, stopped, c.slow(c.s.delays.Start), "Server.InternalError: Internal error on launch")
			return
		}
		if v := c.s.rootVolume(i); v != nil && v.KMSKey != "" && c.need("kms:CreateGrant") != nil {
			// The call is allowed, and the instance stops again
			// (https://repost.aws/knowledge-center/kms-iam-ec2-permission).
			c.s.turn(i, pending, stopped, c.slow(c.s.delays.Start), "Client.InternalError: Client error on launch")
			return
		}
		c.s.turn(i, pending, running, c.slow(c.s.delays.Start), "")
	})
}

func rebootInstances(c *call) (object, *apiError) {
	check := func(i *instance) *apiError {
		if i.State != running {
			return refuse("IncorrectState", "The instance '%s' is not in the 'running' state.", i.ID)
		}
		return nil
	}
	if _, err := c.powered(check, func(i *instance) { i.Boots++ }); err != nil {
		return nil, err
	}
	return nil, nil
}

func terminateInstances(c *call) (object, *apiError) {
	check := func(i *instance) *apiError {
		if truth(i.Data, "DisableApiTermination") {
			return refuse("OperationNotPermitted",
				"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", i.ID)
		}
		return nil
	}
	return c.powered(check, func(i *instance) { c.s.terminate(i, "User initiated") })
}

// terminate ends an instance; one that is ended already stays as it is.
func (s *Server) terminate(i *instance, why string) {
	if i.alive() {
		s.turn(i, shuttingDown, terminated, s.delays.Terminate, why)
	}
}

// PowerOff is the guest of an instance shutting down by itself: it stops, or is terminated, as
// InstanceInitiatedShutdownBehavior says.
func (s *Server) PowerOff(id string) {
	s.start()
	s.alter(func() {
		i := s.store.Instances[id]
		switch {
		case i == nil || i.State != running:
		case text(i.Data, "InstanceInitiatedShutdownBehavior") == "terminate":
			s.turn(i, shuttingDown, terminated, s.delays.Terminate, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
		default:
			s.turn(i, stopping, stopped, s.delays.ForceStop, "Client.InstanceInitiatedShutdown: Instance initiated shutdown")
		}
	})
}
