package emulator

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lifecycle states of a group's instances that are acted on.
const (
	inService       = "InService"
	joining         = "Pending"
	waiting         = "Pending:Wait" // in a lifecycle hook
	leaving         = "Terminating"
	enteringStandby = "EnteringStandby"
	standby         = "Standby"
	detaching       = "Detaching"
)

// group is an Auto Scaling group.
type group struct {
	Name          string
	Order         int
	Created       time.Time
	Min, Max      int
	Desired       int
	Zones         []string
	Subnets       []string
	Template      object // LaunchTemplateSpecification as it was given; nil with a policy
	Mixed         object // MixedInstancesPolicy as it was given
	Configuration string // launch configuration; nothing launches from it here
	HealthCheck   string
	Grace         string
	Cooldown      string
	Protect       bool // new instances against scale-in
	Lifetime      string
	Suspended     map[string]string // process: reason
	Tags          []groupTag
	Members       []*member
	Activities    []*activity // newest first
	Refreshes     []string    // statuses of instance refreshes, newest first
	Warm          int         // instances in the warm pool
	WarmPool      bool        // there is one

	Hooks       []Hook
	Rebalancing int  // how many above the desired capacity AZRebalance has launched
	Uneven      bool // the zones are out of balance, and something is going to be done about it
	Resting     bool // after a launch that failed
	Deleting    bool
}

type groupTag struct {
	Key, Value string
	Propagate  bool
}

// member is an instance in a group.
type member struct {
	ID, State, Health string
	Zone, Type        string
	Template, Name    string
	Version           int // that it was launched from, for ever
	Protected         bool
	Doubted           bool // seen not running, and not marked yet
	Launching         bool // Pending since it was launched, not since it left Standby
	Weight            int  // units of the desired capacity, where the group's policy has weights; 0: none, and it is one
}

// activity is a line of a group's history.
type activity struct {
	ID, Description, Cause, Status, Message string
	Progress                                int
	Start, End                              time.Time
}

func (g *group) member(id string) *member {
	for _, m := range g.Members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// Hook is a lifecycle hook of a group, which nobody completes
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks.html).
type Hook struct {
	Name    string
	Leaving bool          // of terminations; else of launches
	Timeout time.Duration // until the default result
	Abandon bool          // the default result of a launch: the instance is terminated
}

// hook is the first of a transition.
func (g *group) hook(leaving bool) (Hook, bool) {
	i := slices.IndexFunc(g.Hooks, func(h Hook) bool { return h.Leaving == leaving })
	if i < 0 {
		return Hook{}, false
	}
	return g.Hooks[i], true
}

func describeHooks(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	return object{"LifecycleHooks": each(g.Hooks, func(h Hook) any {
		return object{"LifecycleHookName": h.Name, "AutoScalingGroupName": g.Name, "HeartbeatTimeout": int(h.Timeout.Seconds()),
			"GlobalTimeout":       100 * int(h.Timeout.Seconds()),
			"LifecycleTransition": "autoscaling:EC2_INSTANCE_" + map[bool]string{true: "TERMINATING", false: "LAUNCHING"}[h.Leaving],
			"DefaultResult":       map[bool]string{true: "ABANDON", false: "CONTINUE"}[h.Abandon]}
	})}, nil
}

// units is how much of the desired capacity members are.
func units(members ...*member) (n int) {
	for _, m := range members {
		n += max(m.Weight, 1)
	}
	return n
}

func (g *group) suspended(process string) bool { _, ok := g.Suspended[process]; return ok }

// drop takes a member out of its group.
func (s *Server) drop(g *group, id string) {
	g.Members = slices.DeleteFunc(g.Members, func(m *member) bool { return m.ID == id })
	if i := s.store.Instances[id]; i != nil {
		i.Group = ""
	}
}

// act begins an activity.
func (s *Server) act(g *group, description, cause, status string) *activity {
	a := &activity{ID: identifier(), Description: description, Cause: "At " + s.Clock.Now().Format(time.RFC3339) + " " + cause,
		Status: status, Start: s.Clock.Now()}
	g.Activities = append([]*activity{a}, g.Activities...)
	return a
}

// done ends an activity by ID.
func (s *Server) done(g *group, id string) {
	for _, a := range g.Activities {
		if a.ID == id && a.End.IsZero() {
			a.Status, a.Progress, a.End = "Successful", 100, s.Clock.Now()
		}
	}
}

func (g *group) showActivity(a *activity) any {
	o := object{"ActivityId": a.ID, "AutoScalingGroupName": g.Name, "Description": a.Description, "Cause": a.Cause, "StartTime": a.Start,
		"StatusCode": a.Status, "StatusMessage": a.Message, "Progress": a.Progress}
	if !a.End.IsZero() {
		o["EndTime"] = a.End
	}
	return o
}

func (c *call) group() (*group, *apiError) {
	name := text(c.in, "AutoScalingGroupName")
	if g := c.s.store.Groups[name]; g != nil {
		return g, nil
	}
	return nil, invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", name)
}

// showGroup is a group as DescribeAutoScalingGroups has it. Of a template both ID and name are
// shown.
func (c *call) showGroup(g *group) any {
	o := object{
		"AutoScalingGroupName": g.Name, "AutoScalingGroupARN": "arn:aws:autoscaling:" + c.s.Region + ":" + c.s.Account +
			":autoScalingGroup:" + strconv.Itoa(g.Order) + ":autoScalingGroupName/" + g.Name,
		"MinSize": g.Min, "MaxSize": g.Max, "DesiredCapacity": g.Desired, "DefaultCooldown": cmp.Or(g.Cooldown, "300"),
		"AvailabilityZones": list(g.Zones),
		"VPCZoneIdentifier": strings.Join(g.Subnets, ","), "HealthCheckType": cmp.Or(g.HealthCheck, "EC2"),
		"HealthCheckGracePeriod": cmp.Or(g.Grace, "300"),
		"CreatedTime":            g.Created, "NewInstancesProtectedFromScaleIn": g.Protect, "LaunchConfigurationName": g.Configuration,
		"TerminationPolicies": list([]string{"Default"}), "MaxInstanceLifetime": g.Lifetime,
		"ServiceLinkedRoleARN": "arn:aws:iam::" + c.s.Account +
			":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
		"Instances": each(g.Members, func(m *member) any { return m.show("") }),
		"SuspendedProcesses": each(slices.Sorted(maps.Keys(g.Suspended)), func(p string) any {
			return object{"ProcessName": p, "SuspensionReason": g.Suspended[p]}
		}),
		"Tags": each(g.Tags, func(t groupTag) any {
			return object{"ResourceId": g.Name, "ResourceType": "auto-scaling-group", "Key": t.Key, "Value": t.Value,
				"PropagateAtLaunch": t.Propagate}
		}),
	}
	if g.Template != nil {
		o["LaunchTemplate"] = c.s.fullSpec(g.Template)
	}
	if g.Mixed != nil {
		mixed, _ := copied(g.Mixed).(object)
		if template := part(mixed, "LaunchTemplate"); template != nil {
			template["LaunchTemplateSpecification"] = c.s.fullSpec(part(template, "LaunchTemplateSpecification"))
		}
		o["MixedInstancesPolicy"] = mixed
	}
	if g.Deleting {
		o["Status"] = "Delete in progress"
	}
	if g.WarmPool {
		o["WarmPoolConfiguration"] = object{"MinSize": g.Warm, "PoolState": "Stopped"}
	}
	if g.Warm > 0 {
		o["WarmPoolSize"] = g.Warm
	}
	return o
}

// fullSpec has ID and name of a template; a version that was not given is not shown.
func (s *Server) fullSpec(spec object) object {
	out := maps.Clone(spec)
	if t, err := s.findTemplate(spec); err == nil {
		out["LaunchTemplateId"], out["LaunchTemplateName"] = t.ID, t.Name
	}
	return out
}

func list(values []string) []any { return each(values, func(v string) any { return v }) }

// show is a member; DescribeAutoScalingInstances names its group and writes its health in capitals.
func (m *member) show(group string) any {
	o := object{"InstanceId": m.ID, "AvailabilityZone": m.Zone, "LifecycleState": m.State, "HealthStatus": m.Health, "InstanceType": m.Type,
		"ProtectedFromScaleIn": m.Protected}
	if m.Weight > 0 {
		o["WeightedCapacity"] = m.Weight
	}
	if m.Template != "" {
		o["LaunchTemplate"] = object{"LaunchTemplateId": m.Template, "LaunchTemplateName": m.Name, "Version": m.Version}
	}
	if group != "" {
		o["AutoScalingGroupName"], o["HealthStatus"] = group, strings.ToUpper(m.Health)
	}
	return o
}

func (s *Server) groups() []*group {
	return slices.SortedFunc(maps.Values(s.store.Groups), func(a, b *group) int { return cmp.Compare(a.Order, b.Order) })
}

// describeGroups filters by name and by tag-key, tag-value and tag:KEY.
func describeGroups(c *call) (object, *apiError) {
	names := texts(c.in, "AutoScalingGroupNames")
	var found []*group
	for _, g := range c.s.groups() {
		if len(names) > 0 && !slices.Contains(names, g.Name) {
			continue
		}
		tags := &meta{Tags: map[string]string{}}
		for _, t := range g.Tags {
			tags.Tags[t.Key] = t.Value
		}
		ok := true
		for _, f := range items(c.in, "Filters") {
			values, known := tagFacts(tags, text(f, "Name"))
			if !known {
				return nil, invalid("Filter type %s is not correct. Allowed Filter types are: tag-key tag-value tag:<key>", text(f, "Name"))
			}
			ok = ok && anyLike(texts(f, "Values"), values)
		}
		if ok {
			found = append(found, g)
		}
	}
	return records(c, found, "AutoScalingGroups", func(g *group) any { return c.showGroup(g) })
}

// records is a page as Auto Scaling has them.
func records[T any](c *call, found []T, set string, show func(T) any) (object, *apiError) {
	size, ok := number(c.in, "MaxRecords")
	if !ok {
		size = cmp.Or(c.s.PageSize, 50)
	}
	found, next, err := page(found, size, text(c.in, "NextToken"))
	if err != nil {
		return nil, err
	}
	return object{set: each(found, show), "NextToken": next}, nil
}

// configuration is a launch configuration.
type configuration struct {
	Name, Image, Type string
	Created           time.Time
}

// describeConfigurations ignores names that it does not know.
func describeConfigurations(c *call) (object, *apiError) {
	names := texts(c.in, "LaunchConfigurationNames")
	var found []*configuration
	for _, name := range slices.Sorted(maps.Keys(c.s.store.Configurations)) {
		if len(names) == 0 || slices.Contains(names, name) {
			found = append(found, c.s.store.Configurations[name])
		}
	}
	return records(c, found, "LaunchConfigurations", func(l *configuration) any {
		return object{"LaunchConfigurationName": l.Name, "ImageId": l.Image, "InstanceType": l.Type, "CreatedTime": l.Created}
	})
}

// describeMembers ignores IDs that it does not know.
func describeMembers(c *call) (object, *apiError) {
	ids := texts(c.in, "InstanceIds")
	if len(ids) > 50 {
		return nil, invalid("The number of instance ids that may be passed in is limited to 50")
	}
	var found []any
	for _, g := range c.s.groups() {
		for _, m := range g.Members {
			if len(ids) == 0 || slices.Contains(ids, m.ID) {
				found = append(found, m.show(g.Name))
			}
		}
	}
	return records(c, found, "AutoScalingInstances", func(o any) any { return o })
}

func describeActivities(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	return records(c, g.Activities, "Activities", func(a *activity) any { return g.showActivity(a) })
}

func describeRefreshes(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	return records(c, g.Refreshes, "InstanceRefreshes", func(status string) any {
		return object{"InstanceRefreshId": "refresh-" + g.Name, "AutoScalingGroupName": g.Name, "Status": status, "StartTime": g.Created}
	})
}

func describeWarmPool(c *call) (object, *apiError) {
	g, err := c.group()
	if err != nil {
		return nil, err
	}
	if !g.WarmPool {
		return object{}, nil
	}
	return records(c, make([]struct{}, g.Warm), "Instances", func(struct{}) any {
		return object{"InstanceId": "i-0aaaaaaaaaaaaaaaa", "LifecycleState": "Warmed:Stopped", "HealthStatus": "Healthy",
			"AvailabilityZone": g.Zones[0], "ProtectedFromScaleIn": false}
	})
}
