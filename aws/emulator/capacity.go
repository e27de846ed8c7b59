package emulator

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// groupNameTag is what tells an instance's group
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-tagging.html).
const groupNameTag = "aws:autoscaling:groupName"

// settleGroups lets every group act to which something was done.
func (s *Server) settleGroups() {
	for _, name := range slices.Sorted(maps.Keys(s.dirty)) {
		delete(s.dirty, name)
		if g := s.store.Groups[name]; g != nil {
			s.settle(g)
		}
	}
}

// settle is one look of a group at itself: who has come and gone, who is ill, how many there are,
// and whether the zones are even.
func (s *Server) settle(g *group) {
	s.arrivals(g)
	s.health(g)
	if g.Deleting && len(g.Members) == 0 {
		delete(s.store.Groups, g.Name)
		return
	}
	s.fill(g)
	s.scaleIn(g)
	s.balance(g)
}

// arrivals take in who runs, and let go who is terminated.
func (s *Server) arrivals(g *group) {
	waiting := false
	for _, m := range slices.Clone(g.Members) {
		i := s.store.Instances[m.ID]
		gone := i == nil || i.State == terminated
		switch {
		case gone && (m.State == leaving || m.State == standby || m.State == enteringStandby):
			s.drop(g, m.ID)
		case m.State == joining && m.Launching && i != nil && i.State == running:
			m.State, m.Launching = inService, false
		case m.State == joining && m.Launching && gone:
			s.drop(g, m.ID)
		case m.State == joining && m.Launching:
			waiting = true
		}
	}
	if !waiting {
		g.Rebalancing = 0
	}
}

// health marks and replaces who is in service and not running; neither grace period nor protection
// against scale-in keep it
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/health-checks-overview.html).
func (s *Server) health(g *group) {
	for _, m := range slices.Clone(g.Members) {
		if m.State != inService {
			continue
		}
		i := s.store.Instances[m.ID]
		ill := i == nil || i.State != running
		if ill && !m.Doubted && m.Health == "Healthy" && !g.suspended("HealthCheck") {
			m.Doubted = true
			name, id := g.Name, m.ID
			s.later(s.delays.HealthCheck, func() { s.judge(name, id) })
		}
		if m.Health == "Unhealthy" && !g.suspended("ReplaceUnhealthy") && !g.suspended("Terminate") {
			s.remove(g, m, "an instance was taken out of service in response to an EC2 health check indicating it has been terminated or stopped.")
		}
	}
}

// judge marks a member Unhealthy that is still not running. It never heals by itself.
func (s *Server) judge(name, id string) {
	g := s.store.Groups[name]
	if g == nil {
		return
	}
	m := g.member(id)
	if m == nil || m.State != inService || !m.Doubted {
		return
	}
	m.Doubted = false
	if i := s.store.Instances[id]; (i == nil || i.State != running) && !g.suspended("HealthCheck") {
		m.Health = "Unhealthy"
	}
	s.dirty[name] = true
}

// remove terminates a member; the instance's own protection does not keep it.
func (s *Server) remove(g *group, m *member, cause string) *activity {
	m.State = leaving
	a := s.act(g, "Terminating EC2 instance: "+m.ID, cause, "InProgress")
	if i := s.store.Instances[m.ID]; i != nil {
		end := func() {
			if i := s.store.Instances[m.ID]; i != nil {
				s.terminate(i, "Server.ScheduledStop: terminated by Auto Scaling")
			}
		}
		if h, ok := g.hook(true); ok { // the instance runs on meanwhile
			s.later(h.Timeout, end)
		} else {
			end()
		}
	}
	name, id := g.Name, a.ID
	s.later(s.delays.Terminate, func() {
		if g := s.store.Groups[name]; g != nil {
			s.done(g, id)
			s.dirty[name] = true
		}
	})
	return a
}

// counted are members that count for the desired capacity.
func (g *group) counted() (found []*member) {
	for _, m := range g.Members {
		if m.State == joining || m.State == waiting || m.State == inService {
			found = append(found, m)
		}
	}
	return found
}

// perZone counts those members.
func (g *group) perZone() map[string]int {
	n := map[string]int{}
	for _, zone := range g.Zones {
		n[zone] = 0
	}
	for _, m := range g.counted() {
		n[m.Zone]++
	}
	return n
}

// least is the zone with the fewest members, most that with the most.
func (g *group) least() string { return g.zone(func(a, b int) bool { return a < b }) }
func (g *group) most() string  { return g.zone(func(a, b int) bool { return a > b }) }

func (g *group) zone(better func(a, b int) bool) string {
	n, best := g.perZone(), ""
	for _, zone := range slices.Sorted(maps.Keys(n)) {
		if best == "" || better(n[zone], n[best]) {
			best = zone
		}
	}
	return best
}

// fill launches what is missing, one after another, in the zone that has fewest.
func (s *Server) fill(g *group) {
	for units(g.counted()...) < g.Desired+g.Rebalancing && !g.suspended("Launch") && !g.Resting && !g.Deleting {
		s.launchMember(g)
	}
}

// orderOf is what a group launches from at this moment: the first override of a mixed policy goes
// before its template (assumed, unverified on real AWS).
func (s *Server) orderOf(g *group) (order, *apiError) {
	spec, over := g.Template, object{}
	if g.Mixed != nil {
		spec = part(g.Mixed, "LaunchTemplate", "LaunchTemplateSpecification")
		if overrides := items(g.Mixed, "LaunchTemplate", "Overrides"); len(overrides) > 0 {
			over = overrides[0]
		}
		if own := part(over, "LaunchTemplateSpecification"); own != nil {
			spec = own
		}
	}
	t, v, err := s.findVersion(spec)
	if err != nil {
		return order{}, err
	}
	data, _ := copied(v.Data).(object)
	for _, name := range []string{"InstanceType", "ImageId"} {
		if value := text(over, name); value != "" {
			data[name] = value
		}
	}
	if strings.HasPrefix(text(data, "ImageId"), resolvePrefix) && (g.WarmPool || part(over, "InstanceRequirements") != nil) {
		// That neither goes with a parameter is documented
		// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/using-systems-manager-parameters.html),
		// that the launch fails is assumed, unverified on real AWS.
		return order{}, refuse("ValidationError", "A launch template with a Systems Manager parameter is not supported for groups with a warm pool or instance requirements.")
	}
	weight, _ := number(over, "WeightedCapacity")
	return order{data: data, weight: weight, template: t.ID, version: v.Number, group: g.Name, tags: tagsFor(data, "instance")}, nil
}

// launchMember launches one instance, or writes down why not and rests.
func (s *Server) launchMember(g *group) {
	o, err := s.orderOf(g)
	if err == nil {
		o.zone = g.least()
		for _, subnet := range g.Subnets {
			if s.zoneOf(subnet) == o.zone {
				o.subnet = subnet
			}
		}
		for _, t := range g.Tags {
			if t.Propagate {
				o.tags[t.Key] = t.Value
			}
		}
		o.tags[groupNameTag] = g.Name
		o.tags["aws:ec2launchtemplate:id"], o.tags["aws:ec2launchtemplate:version"] = o.template, strconv.Itoa(o.version)
		if f := s.acting(launchAction); f != nil {
			err = f.error()
		}
	}
	var i *instance
	if err == nil {
		i, err = s.launch(o)
	}
	if err != nil {
		s.launchFailed(g, err)
		return
	}
	a := s.act(g, "Launching a new EC2 instance: "+i.ID,
		"an instance was started in response to a difference between desired and actual capacity.", "PreInService")
	g.Members = append(g.Members, &member{ID: i.ID, State: joining, Health: "Healthy", Zone: i.Zone, Type: text(i.Data, "InstanceType"),
		Template: i.Template, Name: s.templateName(i.Template), Version: i.Version, Protected: g.Protect, Launching: true,
		Weight: o.weight})
	name, id := g.Name, a.ID
	s.later(s.delays.Launch, func() {
		if g := s.store.Groups[name]; g != nil {
			s.done(g, id)
			s.dirty[name] = true
		}
	})
}

// launchFailed is seen in the activities only, and tried again later.
func (s *Server) launchFailed(g *group, err *apiError) {
	a := s.act(g, "Launching a new EC2 instance", "an instance was started in response to a difference between desired and actual capacity.", "Failed")
	a.Message, a.End, a.Progress = err.Message+" Launching EC2 instance failed.", s.Clock.Now(), 100
	if len(a.Message) > 255 {
		a.Message = a.Message[:255]
	}
	g.Resting = true
	name := g.Name
	s.later(max(s.delays.RetryLaunch, time.Second), func() {
		if g := s.store.Groups[name]; g != nil {
			g.Resting = false
			s.dirty[name] = true
		}
	})
}

func (s *Server) templateName(id string) string {
	if t := s.store.Templates[id]; t != nil {
		return t.Name
	}
	return ""
}

// scaleIn terminates what is too many by the default policy: of the zone with the most, the oldest
// template version, then the oldest instance, and never what is protected or in Standby
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-termination-policies.html).
func (s *Server) scaleIn(g *group) {
	for units(g.counted()...) > g.Desired+g.Rebalancing && !g.suspended("Terminate") {
		zone := g.most()
		var worst *member
		for _, elsewhere := range []bool{false, true} {
			for _, m := range g.counted() {
				if m.Protected || m.State != inService || !elsewhere && m.Zone != zone {
					continue
				}
				if worst == nil || m.Version < worst.Version {
					worst = m
				}
			}
			if worst != nil {
				break
			}
		}
		if worst == nil || units(g.counted()...)-units(worst) < g.Desired { // with weights a group may have more than it wants
			return
		}
		s.remove(g, worst, "an instance was selected for termination in response to a difference between desired and actual capacity.")
	}
}

// balance launches in a zone that has two members fewer than another; once that one is in service
// scaleIn takes one of the other zone.
func (s *Server) balance(g *group) {
	if !s.uneven(g) || g.Uneven {
		return
	}
	g.Uneven = true
	name := g.Name
	s.later(s.delays.Rebalance, func() {
		g := s.store.Groups[name]
		if g == nil {
			return
		}
		g.Uneven = false
		if s.uneven(g) {
			g.Rebalancing = 1
			s.fill(g)
		}
		s.dirty[name] = true
	})
}

// uneven says whether AZRebalance would act: nothing else is going on, and it may.
func (s *Server) uneven(g *group) bool {
	if g.suspended("AZRebalance") || g.suspended("Launch") || g.suspended("Terminate") || g.Rebalancing > 0 || g.Resting || g.Deleting {
		return false
	}
	for _, m := range g.Members {
		if m.State == joining || m.State == leaving {
			return false
		}
	}
	n := g.perZone()
	return len(n) > 1 && n[g.most()]-n[g.least()] > 1
}
