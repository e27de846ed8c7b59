package emulator

import (
	"testing"
	"time"
)

// TestEventualConsistency: what was just made is not found, and by its tags even later.
func TestEventualConsistency(t *testing.T) {
	w := begin(t, nil)
	id := w.do("ec2:RunInstances", "LaunchTemplate.LaunchTemplateName", "blue", "MinCount", "1", "MaxCount", "1").one("instancesSet/item/instanceId")
	byTag := func() int {
		return len(w.do("ec2:DescribeInstances", "Filter.1.Name", "tag:Name", "Filter.1.Value.1", "bl*", "Filter.2.Name", "instance-id", "Filter.2.Value.1", id).all("reservationSet/item"))
	}
	w.refused("InvalidInstanceID.NotFound", "ec2:DescribeInstances", "InstanceId.1", id)
	w.clock.Advance(4 * time.Second)
	w.do("ec2:DescribeInstances", "InstanceId.1", id)
	if n := byTag(); n != 0 {
		t.Errorf("%d found by tag", n)
	}
	w.clock.Advance(10 * time.Second)
	if n := byTag(); n != 1 {
		t.Errorf("%d found by tag", n)
	}
}

func TestFaults(t *testing.T) {
	w := begin(t, nil)
	donor := w.donor()
	stop := []string{"InstanceId.1", donor}
	w.s.AddFault(Fault{Action: "ec2:StopInstances", Kind: Reply, Status: 500, Code: "InsufficientInstanceCapacity"})
	w.refused("InsufficientInstanceCapacity", "ec2:StopInstances", stop...)
	w.s.AddFault(Fault{Action: "ec2:Stop*", Kind: FalseSuccess})
	w.do("ec2:StopInstances", stop...)
	if got := w.machine(donor).State; got != running {
		t.Errorf("after a false success: %s", got)
	}
	w.s.AddFault(Fault{Action: "autoscaling:*", Kind: Throttled})
	w.refused("Throttling", "autoscaling:DescribeAutoScalingGroups")
	w.s.RemoveFaults()
	w.standby(donor)
	w.s.AddFault(Fault{Action: "ec2:StopInstances", Kind: Stale, Duration: 10 * time.Second})
	w.do("ec2:StopInstances", stop...)
	shown := func() string {
		return w.do("ec2:DescribeInstances", stop...).one("reservationSet/item/instancesSet/item/instanceState/name")
	}
	if got := shown(); got != running {
		t.Errorf("a stale read shows %s", got)
	}
	w.clock.Advance(11 * time.Second)
	if got := shown(); got != stopping {
		t.Errorf("after it a read shows %s", got)
	}
	w.clock.Advance(2 * time.Minute)
	w.s.AddFault(Fault{Action: "ec2:StartInstances", Kind: DropAfter})
	if _, err := w.post(ec2, "StartInstances", stop); err == nil {
		t.Error("a dropped connection has answered")
	}
	if got := w.machine(donor).State; got != pending {
		t.Errorf("after a dropped answer: %s", got)
	}
	w.clock.Advance(time.Minute)
	w.s.AddFault(Fault{Action: "ec2:StopInstances", Kind: Late, Duration: time.Minute})
	if _, err := w.post(ec2, "StopInstances", stop); err == nil || w.machine(donor).State != running {
		t.Error("a late call has answered or is done already")
	}
	w.clock.Advance(time.Minute)
	if got := w.machine(donor).State; got != stopping {
		t.Errorf("a late call has made it %s", got)
	}
	w.s.AddFault(Fault{Action: "ec2:CreateTags", Kind: FalseFailure})
	w.refused("InternalError", "ec2:CreateTags", "ResourceId.1", donor, "Tag.1.Key", "k", "Tag.1.Value", "v")
	if w.machine(donor).Tags["k"] != "v" {
		t.Error("a false failure has not done it")
	}
	log := w.s.Requests(0)
	if last := log[len(log)-1]; last.Action != "CreateTags" || last.Fault == "" || last.Code != "InternalError" || last.AccessKey != key {
		t.Errorf("log %+v", last)
	}
}

// TestRights: by action, as the services say it, with what a template needs besides.
func TestRights(t *testing.T) {
	w := begin(t, func(s *Server) { s.Identities = []Identity{{AccessKey: key, Policy: &Policy{Allow: []string{"*"}}}} })
	update := []string{blue, "blue", "LaunchTemplate.LaunchTemplateName", "blue", "LaunchTemplate.Version", "1"}
	stop := []string{"InstanceId.1", w.donor(), "DryRun", "true"}
	w.refused("DryRunOperation", "ec2:StopInstances", stop...)
	w.do("autoscaling:UpdateAutoScalingGroup", update...)
	w.s.SetPolicy(key, Policy{Allow: []string{"*"}, Deny: []string{"iam:PassRole", "ec2:StopInstances", "ssm:GetParameter"}})
	w.refused("UnauthorizedOperation", "ec2:StopInstances", stop...)
	w.refused("AccessDenied", "autoscaling:UpdateAutoScalingGroup", update...)
	w.do("ec2:ModifyLaunchTemplate", "LaunchTemplateName", "blue", "SetDefaultVersion", "1")
	if _, code := w.ssm("GetParameter", object{"Name": "/p"}); code != "AccessDeniedException" {
		t.Error(code)
	}
	w.s.SetPolicy(key, Policy{})
	w.do("sts:GetCallerIdentity")
	w.refused("UnauthorizedOperation", "ec2:DescribeInstances")
	if got := w.machine(w.donor()).State; got != running {
		t.Errorf("the donor is %s", got)
	}
}

func TestCredentials(t *testing.T) {
	w := begin(t, func(s *Server) { s.Identities = []Identity{{AccessKey: "AKIAOTHER"}} })
	w.refused("AuthFailure", "ec2:DescribeInstances")
	w.refused("InvalidClientTokenId", "autoscaling:DescribeAutoScalingGroups")
	w = begin(t, func(s *Server) { s.Identities = []Identity{{AccessKey: key, Expires: s.Clock.Now().Add(time.Hour)}} })
	w.do("ec2:DescribeInstances")
	w.clock.Advance(2 * time.Hour)
	w.refused("RequestExpired", "ec2:DescribeInstances")
	w.refused("ExpiredToken", "autoscaling:DescribeAutoScalingGroups")
	w.refused("InvalidAction", "ec2:DescribeMoon")
}

// TestThrottle: five starts, then two a second.
func TestThrottle(t *testing.T) {
	w := begin(t, func(s *Server) { s.Throttle = true })
	start := []string{"InstanceId.1", w.donor()}
	for range 5 {
		w.do("ec2:StartInstances", start...)
	}
	w.refused("RequestLimitExceeded", "ec2:StartInstances", start...)
	w.clock.Advance(time.Second)
	w.do("ec2:StartInstances", start...)
}

// TestPages: every page but the last has a token, and a token of nobody is refused.
func TestPages(t *testing.T) {
	w := begin(t, nil, Group{Name: "blue", Count: 12})
	seen, token, pages := map[string]bool{}, "", 0
	for {
		call := []string{"MaxResults", "5"}
		if token != "" {
			call = append(call, "NextToken", token)
		}
		reply := w.do("ec2:DescribeInstances", call...)
		for _, id := range reply.all("reservationSet/item/instancesSet/item/instanceId") {
			seen[id] = true
		}
		pages++
		if token = reply.one("nextToken"); token == "" {
			break
		}
	}
	if len(seen) != 12 || pages != 3 {
		t.Errorf("%d instances on %d pages", len(seen), pages)
	}
	w.refused("InvalidNextToken", "ec2:DescribeInstances", "NextToken", "bm9uZQ==")
	w.refused("InvalidParameterValue", "ec2:DescribeInstances", "Filter.1.Name", "colour", "Filter.1.Value.1", "red")
}

// TestPower: what cannot be stopped or started says so.
func TestPower(t *testing.T) {
	spot := object{"InstanceMarketOptions": object{"MarketType": "spot"}}
	for _, g := range []Group{{Name: "blue", Count: 1, Data: spot}, {Name: "blue", Count: 1, InstanceStore: true}} {
		w := begin(t, nil, g)
		w.refused("UnsupportedOperation", "ec2:StopInstances", "InstanceId.1", w.donor())
	}
	w := begin(t, nil, Group{Name: "blue", Count: 1, Data: object{"DisableApiStop": "true"}})
	w.refused("OperationNotPermitted", "ec2:StopInstances", "InstanceId.1", w.donor())
	w.refused("InvalidInstanceID.NotFound", "ec2:StopInstances", "InstanceId.1", "i-0")
	w = begin(t, nil)
	w.standby(w.donor())
	w.do("ec2:StopInstances", "InstanceId.1", w.donor())
	w.refused("IncorrectInstanceState", "ec2:StartInstances", "InstanceId.1", w.donor())
	w.clock.Advance(2 * time.Minute)
	w.s.AddFault(Fault{Action: "ec2:StartInstances", Kind: Fail})
	w.do("ec2:StartInstances", "InstanceId.1", w.donor())
	w.clock.Advance(2 * time.Minute)
	if got := w.machine(w.donor()).State; got != stopped {
		t.Errorf("an instance that could not start is %s", got)
	}
}
