package emulator

import (
	"maps"
	"slices"
	"strings"
)

func createGroup(c *call) (object, *apiError) {
	name := text(c.in, "AutoScalingGroupName")
	if c.s.store.Groups[name] != nil {
		return nil, refuse("AlreadyExists", "AutoScalingGroup by this name already exists - A group with the name %s already exists", name)
	}
	c.s.store.Serial++
	g := &group{Name: name, Order: c.s.store.Serial, Created: c.now, Suspended: map[string]string{}}
	if err := c.amend(g); err != nil {
		return nil, err
	}
	if _, ok := number(c.in, "DesiredCapacity"); !ok {
		g.Desired = g.Min
	}
	g.Tags = merged(nil, c.in)
	c.s.store.Groups[name] = g
	c.s.dirty[name] = true
	return nil, nil
}

// updateGroup changes what is given, and nothing else. There is no condition: the last writer wins.
func updateGroup(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	changed := *g
	if err := c.amend(&changed); err != nil {
		return nil, err
	}
	*g = changed
	c.s.dirty[g.Name] = true
	return nil, nil
}

// amend writes what a call says into a group, and checks what comes of it.
func (c *call) amend(g *group) *apiError {
	for field, name := range map[*int]string{&g.Min: "MinSize", &g.Max: "MaxSize"} {
		if n, ok := number(c.in, name); ok {
			*field = n
		}
	}
	if n, ok := number(c.in, "DesiredCapacity"); ok {
		if n < g.Min || n > g.Max {
			return invalid("Desired capacity:%d must be between the specified min size:%d and max size:%d", n, g.Min, g.Max)
		}
		g.Desired = n
	}
	if g.Min > g.Max {
		return invalid("Max bound, %d, must be greater than or equal to min bound, %d", g.Max, g.Min)
	}
	g.Desired = min(max(g.Desired, g.Min), g.Max)
	for field, name := range map[*string]string{&g.HealthCheck: "HealthCheckType", &g.Grace: "HealthCheckGracePeriod",
		&g.Cooldown: "DefaultCooldown",
		&g.Lifetime: "MaxInstanceLifetime", &g.Configuration: "LaunchConfigurationName"} {
		if value := text(c.in, name); value != "" {
			*field = value
		}
	}
	if protect := text(c.in, "NewInstancesProtectedFromScaleIn"); protect != "" {
		g.Protect = protect == "true"
	}
	if zones := texts(c.in, "AvailabilityZones"); len(zones) > 0 {
		g.Zones, g.Subnets = zones, nil
	}
	if subnets := text(c.in, "VPCZoneIdentifier"); subnets != "" {
		g.Zones, g.Subnets = nil, strings.Split(subnets, ",")
		for _, subnet := range g.Subnets {
			if zone := c.s.zoneOf(subnet); !slices.Contains(g.Zones, zone) {
				g.Zones = append(g.Zones, zone)
			}
		}
	}
	return c.amendRecipe(g)
}

// amendRecipe changes what a group launches from. Which of the three it is may change.
func (c *call) amendRecipe(g *group) *apiError {
	template, mixed := part(c.in, "LaunchTemplate"), part(c.in, "MixedInstancesPolicy")
	switch {
	case template != nil && mixed != nil:
		return invalid("You must not specify both LaunchTemplate and MixedInstancesPolicy")
	case template != nil:
		g.Template, g.Mixed, g.Configuration = template, nil, ""
	case mixed != nil:
		whole := maps.Clone(g.Mixed)
		if whole == nil {
			whole = object{}
		}
		maps.Copy(whole, mixed)
		g.Template, g.Mixed, g.Configuration = nil, whole, ""
	case g.Template == nil && g.Mixed == nil && g.Configuration == "":
		return invalid("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
	default:
		return nil
	}
	if len(g.Zones) == 0 {
		return invalid("At least one Availability Zone or VPC Subnet is required.")
	}
	o, err := c.s.orderOf(g)
	if err == nil {
		err = userData(o.data)
	}
	if err == nil {
		_, err = c.s.launchable(text(o.data, "ImageId"))
	}
	if err != nil {
		return invalid("You must use a valid fully-formed launch template. %s", err.Message)
	}
	return c.needRun(o.data, o.template)
}

// merged is a list of tags with those of a call.
func merged(tags []groupTag, in object) []groupTag {
	tags = slices.Clone(tags)
	for _, t := range items(in, "Tags") {
		tag := groupTag{Key: text(t, "Key"), Value: text(t, "Value"), Propagate: truth(t, "PropagateAtLaunch")}
		tags = append(slices.DeleteFunc(tags, func(old groupTag) bool { return old.Key == tag.Key }), tag)
	}
	return tags
}

func createOrUpdateTags(c *call) (object, *apiError) {
	for _, t := range items(c.in, "Tags") {
		g := c.s.store.Groups[text(t, "ResourceId")]
		if g == nil {
			return nil, invalid("AutoScalingGroup name not found - no such group: %s", text(t, "ResourceId"))
		}
	}
	for _, t := range items(c.in, "Tags") {
		g := c.s.store.Groups[text(t, "ResourceId")]
		g.Tags = merged(g.Tags, object{"Tags": []any{t}})
	}
	return nil, nil
}

func deleteGroupTags(c *call) (object, *apiError) {
	for _, t := range items(c.in, "Tags") {
		if g := c.s.store.Groups[text(t, "ResourceId")]; g != nil {
			g.Tags = slices.DeleteFunc(slices.Clone(g.Tags), func(old groupTag) bool { return old.Key == text(t, "Key") })
		}
	}
	return nil, nil
}

// deleteGroup refuses a group that has instances, unless forced: then they are terminated.
func deleteGroup(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	if len(g.Members) > 0 && !truth(c.in, "ForceDelete") {
		return nil, refuse("ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.")
	}
	g.Deleting, g.Desired, g.Min = true, 0, 0
	for _, m := range g.Members {
		c.s.remove(g, m, "a user request force-deleted the AutoScalingGroup")
	}
	c.s.dirty[g.Name] = true
	return nil, nil
}

func setDesiredCapacity(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	n, ok := number(c.in, "DesiredCapacity")
	switch {
	case !ok || n > g.Max:
		return nil, invalid("New SetDesiredCapacity value %d is above max value %d for the AutoScalingGroup.", n, g.Max)
	case n < g.Min:
		return nil, invalid("New SetDesiredCapacity value %d is below min value %d for the AutoScalingGroup.", n, g.Min)
	}
	g.Desired = n
	c.s.dirty[g.Name] = true
	return nil, nil
}

// processes that can be suspended (Auto Scaling API reference, SuspendProcesses).
var processes = []string{"AZRebalance", "AddToLoadBalancer", "AlarmNotification", "HealthCheck", "InstanceRefresh", "Launch",
	"ReplaceUnhealthy", "ScheduledActions", "Terminate"}

// processesOf are those that a call names; none named: all.
func (c *call) processesOf() (*group, []string, *apiError) {
	g, err := c.group()
	named := texts(c.in, "ScalingProcesses")
	for _, p := range named {
		if !slices.Contains(processes, p) {
			return nil, nil, invalid("Process type %s is not supported", p)
		}
	}
	if len(named) == 0 {
		named = processes
	}
	return g, named, err
}

func suspendProcesses(c *call) (object, *apiError) {
	g, named, err := c.processesOf()
	if err != nil {
		return nil, err
	}
	for _, p := range named {
		if !g.suspended(p) {
			g.Suspended[p] = "User suspended at " + c.now.Format("2006-01-02T15:04:05Z")
		}
	}
	return nil, nil
}

func resumeProcesses(c *call) (object, *apiError) {
	g, named, err := c.processesOf()
	if err != nil {
		return nil, err
	}
	for _, p := range named {
		delete(g.Suspended, p)
	}
	c.s.dirty[g.Name] = true
	return nil, nil
}

func setInstanceProtection(c *call) (object, *apiError) {
	g, members, err := c.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		m.Protected = truth(c.in, "ProtectedFromScaleIn")
	}
	c.s.dirty[g.Name] = true
	return nil, nil
}

func setInstanceHealth(c *call) (object, *apiError) {
	id := text(c.in, "InstanceId")
	for _, g := range c.s.groups() {
		if m := g.member(id); m != nil {
			m.Health, m.Doubted = text(c.in, "HealthStatus"), false
			c.s.dirty[g.Name] = true
			return nil, nil
		}
	}
	return nil, invalid("Instance Id not found - No managed instance found for instance ID %s", id)
}
