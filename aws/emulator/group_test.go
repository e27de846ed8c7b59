package emulator

import (
	"testing"
	"time"
)

// TestStoppedInService: a group replaces what is stopped in service, protected or not.
func TestStoppedInService(t *testing.T) {
	w := begin(t, nil)
	donor := w.donor()
	w.do("autoscaling:SetInstanceProtection", blue, "blue", "InstanceIds.member.1", donor, "ProtectedFromScaleIn", "true")
	w.do("ec2:StopInstances", "InstanceId.1", donor)
	w.clock.Advance(10 * time.Minute)
	if got := w.machine(donor).State; got != terminated {
		t.Errorf("the donor is %s", got)
	}
	if n := len(w.in(inService)); n != 3 {
		t.Errorf("%d in service", n)
	}
}

// TestStandby: one in Standby may stop and start; one that leaves it stopped is replaced.
func TestStandby(t *testing.T) {
	for _, started := range []bool{true, false} {
		w := begin(t, nil)
		donor := w.donor()
		w.standby(donor)
		w.do("ec2:StopInstances", "InstanceId.1", donor)
		w.clock.Advance(time.Hour)
		if m := w.machine(donor); m.State != stopped || m.Lifecycle != standby || len(w.in(inService)) != 2 {
			t.Fatalf("donor %+v, %d in service", m, len(w.in(inService)))
		}
		if started {
			w.do("ec2:StartInstances", "InstanceId.1", donor)
			w.clock.Advance(time.Minute)
		}
		w.do("autoscaling:ExitStandby", blue, "blue", "InstanceIds.member.1", donor)
		w.clock.Advance(10 * time.Minute)
		m, n := w.machine(donor), len(w.in(inService))
		if started && (m.State != running || m.Lifecycle != inService) || !started && m.State != terminated || n != 3 {
			t.Errorf("started %t: donor %+v, %d in service", started, m, n)
		}
	}
}

// TestStandbyCapacity: the minimum forbids the decrement, the maximum the return; without decrement
// another is launched.
func TestStandbyCapacity(t *testing.T) {
	w := begin(t, nil, Group{Name: "blue", Count: 2, Min: 2, Max: 2, Zones: 1})
	donor := w.donor()
	enter := []string{blue, "blue", "InstanceIds.member.1", donor, "ShouldDecrementDesiredCapacity"}
	w.refused("ValidationError", "autoscaling:EnterStandby", append(enter, "true")...)
	w.do("autoscaling:EnterStandby", append(enter, "false")...)
	w.refused("ValidationError", "autoscaling:EnterStandby", append(enter, "false")...)
	w.clock.Advance(5 * time.Minute)
	if n := len(w.in(inService)); n != 2 {
		t.Fatalf("%d in service", n)
	}
	exit := []string{blue, "blue", "InstanceIds.member.1", donor}
	w.refused("ValidationError", "autoscaling:ExitStandby", exit...)
	w.do("autoscaling:UpdateAutoScalingGroup", blue, "blue", "MaxSize", "3")
	w.do("autoscaling:SuspendProcesses", blue, "blue", "ScalingProcesses.member.1", "Launch")
	w.refused("ValidationError", "autoscaling:ExitStandby", exit...)
	w.do("autoscaling:ResumeProcesses", blue, "blue")
	w.do("autoscaling:ExitStandby", exit...)
	w.clock.Advance(5 * time.Minute)
	if n := len(w.in(inService)); n != 3 || w.machine(donor).Lifecycle != inService {
		t.Fatalf("%d in service, donor %s", n, w.machine(donor).Lifecycle)
	}
}

// TestRebalance: Standby leaves a zone empty, and what that sets off, unless it is suspended.
func TestRebalance(t *testing.T) {
	for _, suspended := range []bool{true, false} {
		w := begin(t, nil, Group{Name: "blue", Count: 3, Zones: 2})
		before := w.s.Machines()
		alone := before[1].ID
		if before[0].Zone != before[2].Zone || before[1].Zone == before[0].Zone {
			t.Fatalf("zones %s %s %s", before[0].Zone, before[1].Zone, before[2].Zone)
		}
		if suspended {
			w.do("autoscaling:SuspendProcesses", blue, "blue", "ScalingProcesses.member.1", "AZRebalance")
		}
		w.do("autoscaling:EnterStandby", blue, "blue", "InstanceIds.member.1", alone, "ShouldDecrementDesiredCapacity", "true")
		w.clock.Advance(time.Hour)
		after := w.s.Machines()
		if replaced := len(after) != 3 || after[0].State != running; replaced == suspended {
			t.Errorf("suspended %t: %+v", suspended, after)
		}
		if n := len(w.in(inService)); n != 2 {
			t.Errorf("%d in service", n)
		}
	}
}

// TestScaleIn: the oldest template version goes first, never what is protected or in Standby.
func TestScaleIn(t *testing.T) {
	w := begin(t, nil)
	w.standby(w.donor())
	w.do("autoscaling:SetInstanceProtection", blue, "blue", "InstanceIds.member.1", w.s.Machines()[1].ID, "ProtectedFromScaleIn", "true")
	w.do("ec2:CreateLaunchTemplateVersion", "LaunchTemplateName", "blue", "SourceVersion", "1", "LaunchTemplateData.KeyName", "k")
	w.do("ec2:ModifyLaunchTemplate", "LaunchTemplateName", "blue", "SetDefaultVersion", "2")
	w.do("autoscaling:SetDesiredCapacity", blue, "blue", "DesiredCapacity", "3")
	w.clock.Advance(5 * time.Minute)
	w.do("autoscaling:SetDesiredCapacity", blue, "blue", "DesiredCapacity", "1")
	w.clock.Advance(10 * time.Minute)
	m := w.s.Machines()
	for n, want := range []string{running, running, terminated, terminated} {
		if m[n].State != want {
			t.Errorf("machine %d is %s, want %s", n, m[n].State, want)
		}
	}
}

// TestSuspended: HealthCheck suspended marks nobody, ReplaceUnhealthy suspended replaces later.
func TestSuspended(t *testing.T) {
	w := begin(t, nil)
	donor := w.donor()
	w.do("autoscaling:SuspendProcesses", blue, "blue", "ScalingProcesses.member.1", "HealthCheck", "ScalingProcesses.member.2", "ReplaceUnhealthy")
	w.do("ec2:StopInstances", "InstanceId.1", donor)
	w.clock.Advance(time.Hour)
	health := func() string {
		return w.do("autoscaling:DescribeAutoScalingInstances", "InstanceIds.member.1", donor).one("AutoScalingInstances/member/HealthStatus")
	}
	if got := health(); got != "HEALTHY" {
		t.Errorf("health %s", got)
	}
	w.do("autoscaling:ResumeProcesses", blue, "blue", "ScalingProcesses.member.1", "HealthCheck")
	w.clock.Advance(time.Hour)
	if got := health(); got != "UNHEALTHY" || w.machine(donor).State != stopped {
		t.Errorf("health %s, %s", got, w.machine(donor).State)
	}
	w.do("autoscaling:ResumeProcesses", blue, "blue")
	w.clock.Advance(10 * time.Minute)
	if got := w.machine(donor).State; got != terminated {
		t.Errorf("the donor is %s", got)
	}
}

// TestLaunchFails: it is told in the activities only, and tried again.
func TestLaunchFails(t *testing.T) {
	w := begin(t, nil)
	w.s.AddFault(Fault{Action: launchAction, Kind: Fail, Code: "InsufficientInstanceCapacity", Message: "We currently do not have sufficient capacity."})
	w.do("autoscaling:SetDesiredCapacity", blue, "blue", "DesiredCapacity", "4")
	first := w.do("autoscaling:DescribeScalingActivities", blue, "blue", "MaxRecords", "1")
	if first.one("Activities/member/StatusCode") != "Failed" || first.one("NextToken") == "" {
		t.Errorf("%+v", first)
	}
	w.clock.Advance(5 * time.Minute)
	if n := len(w.in(inService)); n != 4 {
		t.Errorf("%d in service", n)
	}
}

// TestShutdownBehavior: a guest that shuts down by itself stops or is lost.
func TestShutdownBehavior(t *testing.T) {
	for behavior, want := range map[string]string{"": stopped, "terminate": terminated} {
		data := object{}
		if behavior != "" {
			data["InstanceInitiatedShutdownBehavior"] = behavior
		}
		w := begin(t, nil, Group{Name: "blue", Count: 3, Data: data})
		donor := w.donor()
		got := w.do("ec2:DescribeInstanceAttribute", "InstanceId", donor, "Attribute", "instanceInitiatedShutdownBehavior").one("instanceInitiatedShutdownBehavior/value")
		if behavior != "" && got != behavior || behavior == "" && got != "stop" {
			t.Errorf("behavior %q", got)
		}
		w.standby(donor)
		w.s.PowerOff(donor)
		w.clock.Advance(10 * time.Minute)
		if got := w.machine(donor).State; got != want {
			t.Errorf("%q: %s", behavior, got)
		}
	}
}
