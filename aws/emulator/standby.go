package emulator

import (
	"slices"
	"time"
)

// members are those of a group that a call names; 20 at most.
func (c *call) members() (*group, []*member, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, nil, err
	}
	ids := texts(c.in, "InstanceIds")
	if len(ids) == 0 || len(ids) > 20 {
		return nil, nil, invalid("The number of instance ids must be between 1 and 20")
	}
	var found []*member
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		m := g.member(id)
		if m == nil {
			return nil, nil, invalid("The instance %s is not part of Auto Scaling group %s.", id, g.Name)
		}
		found = append(found, m)
	}
	return g, found, nil
}

// shrink takes members out of the desired capacity, where a call wants that.
func (c *call) shrink(g *group, members []*member, what string) (decrement bool, err *apiError) {
	if !truth(c.in, "ShouldDecrementDesiredCapacity") {
		return false, nil
	}
	n := units(members...) // that weights count here is assumed, unverified on real AWS
	if g.Desired-n < g.Min {
		return true, invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To %s %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.Name, g.Min, g.Max, g.Desired, what, len(members))
	}
	g.Desired -= n
	return true, nil
}

// enterStandby takes instances out of service. Without decrement others are launched for them. That
// one in Standby already is refused is assumed, unverified on real AWS.
func enterStandby(c *call) (object, *apiError) {
	g, members, err := c.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.State != inService {
			return nil, invalid("The instance %s is not in InService.", m.ID)
		}
	}
	if _, err := c.shrink(g, members, "place into standby"); err != nil {
		return nil, err
	}
	return c.move(g, members, "Moving EC2 instance to Standby: ", "InProgress", 50, enteringStandby, standby, c.s.delays.EnterStandby), nil
}

// exitStandby brings them back, and only then looks how they are: one that is not running is
// replaced.
func exitStandby(c *call) (object, *apiError) {
	g, members, err := c.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.State != standby {
			return nil, invalid("The instance %s is not in Standby.", m.ID)
		}
	}
	if g.suspended("Launch") { // text assumed, unverified on real AWS
		return nil, invalid("The Launch process of AutoScalingGroup %s is suspended.", g.Name)
	}
	if g.Desired+units(members...) > g.Max {
		return nil, invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To move out of standby %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.Name, g.Min, g.Max, g.Desired, len(members))
	}
	g.Desired += units(members...)
	return c.move(g, members, "Moving EC2 instance out of Standby: ", "PreInService", 30, joining, inService, c.s.delays.ExitStandby), nil
}

// hooked lets a member that comes back from Standby wait for a launch hook. Whether AWS runs one
// then is documented nowhere: the worse is assumed, unverified on real AWS.
func (s *Server) hooked(g *group, m *member, h Hook) {
	m.State = waiting
	name, id := g.Name, m.ID
	s.later(h.Timeout, func() {
		g := s.store.Groups[name]
		if g == nil {
			return
		}
		if m := g.member(id); m != nil && m.State == waiting {
			m.State = inService
			if h.Abandon {
				s.remove(g, m, "an instance failed to complete a lifecycle action: it was abandoned after a heartbeat timeout.")
			}
		}
		s.dirty[name] = true
	})
}

// move brings members from one state to another over a third.
func (c *call) move(g *group, members []*member, what, status string, progress int, over, to string, latency time.Duration) object {
	var out []any
	for _, m := range members {
		m.State, m.Launching, m.Doubted = over, false, false
		a := c.s.act(g, what+m.ID, "instance "+m.ID+" was moved in response to a user request.", status)
		a.Progress = progress
		out = append(out, g.showActivity(a))
		name, id, act := g.Name, m.ID, a.ID
		c.s.later(c.slow(latency), func() {
			g := c.s.store.Groups[name]
			if g == nil {
				return
			}
			m := g.member(id)
			if h, ok := g.hook(false); ok && over == joining && m != nil && m.State == over {
				c.s.hooked(g, m, h)
			} else if m != nil && m.State == over {
				m.State = to
			}
			c.s.done(g, act)
			c.s.dirty[name] = true
		})
	}
	c.s.dirty[g.Name] = true
	return object{"Activities": out}
}

// detachInstances lets members go on outside the group.
func detachInstances(c *call) (object, *apiError) {
	g, members, err := c.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.State != inService && m.State != standby {
			return nil, invalid("The instance %s is not in InService or Standby.", m.ID)
		}
	}
	if _, err := c.shrink(g, members, "detach"); err != nil {
		return nil, err
	}
	var out []any
	for _, m := range members {
		a := c.s.act(g, "Detaching EC2 instance: "+m.ID, "instance "+m.ID+" was detached in response to a user request.", "InProgress")
		out = append(out, g.showActivity(a))
		if i := c.s.store.Instances[m.ID]; i != nil {
			delete(i.Tags, groupNameTag)
		}
		c.s.drop(g, m.ID)
		c.s.done(g, a.ID)
	}
	c.s.dirty[g.Name] = true
	return object{"Activities": out}, nil
}

// attachInstances takes running instances that are in no group into one.
func attachInstances(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	var all []*instance
	for _, id := range texts(c.in, "InstanceIds") {
		i := c.s.store.Instances[id]
		switch {
		case i == nil || i.State != running:
			return nil, invalid("Invalid Instance ID(s): [%s]. Instance(s) must be running", id)
		case i.Group != "":
			return nil, invalid("Instance(s) with id(s) [%s] is already part of AutoScalingGroup", id)
		case !slices.Contains(g.Zones, i.Zone):
			return nil, invalid("The availability zone of %s is not one of the group's", id)
		}
		all = append(all, i)
	}
	if g.suspended("Launch") || g.Desired+len(all) > g.Max {
		return nil, invalid("AutoScalingGroup %s has min-size=%d, max-size=%d, and desired-size=%d. To attach %d instance, please update the AutoScalingGroup sizes appropriately.",
			g.Name, g.Min, g.Max, g.Desired, len(all))
	}
	for _, i := range all {
		i.Group = g.Name
		i.Tags[groupNameTag] = g.Name
		g.Members = append(g.Members, &member{ID: i.ID, State: inService, Health: "Healthy", Zone: i.Zone,
			Type:     text(i.Data, "InstanceType"),
			Template: i.Template, Name: c.s.templateName(i.Template), Version: i.Version})
	}
	g.Desired += len(all)
	c.s.dirty[g.Name] = true
	return nil, nil
}

// terminateMember works on members in Standby, too. What a decrement then means is documented
// nowhere; here it lowers the desired capacity (assumed, unverified on real AWS).
func terminateMember(c *call) (object, *apiError) {
	id := text(c.in, "InstanceId")
	for _, g := range c.s.groups() {
		m := g.member(id)
		if m == nil {
			continue
		}
		if m.State == leaving {
			return nil, refuse("ScalingActivityInProgress", "Activity %s is in progress for instance %s", "terminate", id)
		}
		if _, err := c.shrink(g, []*member{m}, "terminate"); err != nil {
			return nil, err
		}
		a := c.s.remove(g, m, "instance "+id+" was taken out of service in response to a user request.")
		c.s.dirty[g.Name] = true
		return object{"Activity": g.showActivity(a)}, nil
	}
	return nil, invalid("Instance Id not found - No managed instance found for instance ID: %s", id)
}
