package emulator

import (
	"net/http"
	"strings"
)

// The services, as policies name them.
const (
	ec2         = "ec2"
	autoScaling = "autoscaling"
	ssm         = "ssm"
	sts         = "sts"
)

// versions tell the services of query protocols apart.
var versions = map[string]string{"2016-11-15": ec2, "2011-01-01": autoScaling, "2011-06-15": sts}

type handler func(*call) (object, *apiError)

// handlers are all actions that are served.
var handlers = map[string]handler{
	"ec2:DescribeInstances": describeInstances, "ec2:DescribeInstanceStatus": describeInstanceStatus,
	"ec2:DescribeInstanceAttribute": describeInstanceAttribute, "ec2:ModifyInstanceAttribute": modifyInstanceAttribute,
	"ec2:RunInstances": runInstances, "ec2:StartInstances": startInstances, "ec2:StopInstances": stopInstances,
	"ec2:RebootInstances": rebootInstances, "ec2:TerminateInstances": terminateInstances, "ec2:GetConsoleOutput": getConsoleOutput,
	"ec2:DescribeVolumes": describeVolumes, "ec2:CreateSnapshot": createSnapshot, "ec2:DescribeSnapshots": describeSnapshots,
	"ec2:DeleteSnapshot": deleteSnapshot, "ec2:CreateImage": createImage, "ec2:RegisterImage": registerImage,
	"ec2:DescribeImages": describeImages, "ec2:DeregisterImage": deregisterImage, "ec2:DisableImage": disableImage,
	"ec2:EnableImage": enableImage, "ec2:CreateTags": createTags, "ec2:DeleteTags": deleteTags, "ec2:DescribeTags": describeTags,
	"ec2:CreateLaunchTemplate": createLaunchTemplate, "ec2:CreateLaunchTemplateVersion": createLaunchTemplateVersion,
	"ec2:DescribeLaunchTemplates": describeLaunchTemplates, "ec2:DescribeLaunchTemplateVersions": describeLaunchTemplateVersions,
	"ec2:ModifyLaunchTemplate": modifyLaunchTemplate, "ec2:DeleteLaunchTemplate": deleteLaunchTemplate,
	"ec2:DeleteLaunchTemplateVersions": deleteLaunchTemplateVersions, "ec2:DescribeRegions": describeRegions,
	"ec2:DescribeAvailabilityZones": describeAvailabilityZones,

	"autoscaling:CreateAutoScalingGroup": createGroup, "autoscaling:UpdateAutoScalingGroup": updateGroup,
	"autoscaling:DeleteAutoScalingGroup": deleteGroup, "autoscaling:DescribeAutoScalingGroups": describeGroups,
	"autoscaling:DescribeAutoScalingInstances": describeMembers, "autoscaling:DescribeScalingActivities": describeActivities,
	"autoscaling:SetDesiredCapacity": setDesiredCapacity, "autoscaling:EnterStandby": enterStandby, "autoscaling:ExitStandby": exitStandby,
	"autoscaling:SuspendProcesses": suspendProcesses, "autoscaling:ResumeProcesses": resumeProcesses,
	"autoscaling:DetachInstances": detachInstances, "autoscaling:AttachInstances": attachInstances,
	"autoscaling:SetInstanceProtection": setInstanceProtection, "autoscaling:SetInstanceHealth": setInstanceHealth,
	"autoscaling:TerminateInstanceInAutoScalingGroup": terminateMember, "autoscaling:CreateOrUpdateTags": createOrUpdateTags,
	"autoscaling:DeleteTags":                deleteGroupTags,
	"autoscaling:DescribeInstanceRefreshes": describeRefreshes, "autoscaling:DescribeWarmPool": describeWarmPool,
	"autoscaling:DescribeLaunchConfigurations": describeConfigurations, "autoscaling:DescribeLifecycleHooks": describeHooks,

	"ssm:PutParameter": putParameter, "ssm:GetParameter": getParameter, "ssm:GetParameters": getParameters,
	"ssm:GetParameterHistory": getParameterHistory, "ssm:LabelParameterVersion": labelParameterVersion,
	"ssm:DeleteParameter": deleteParameter,

	"sts:GetCallerIdentity": getCallerIdentity, "sts:AssumeRole": assumeRole, "sts:AssumeRoleWithWebIdentity": assumeRole,
}

// reads says whether a call only looks.
func (c *call) reads() bool {
	return strings.HasPrefix(c.action, "Describe") || strings.HasPrefix(c.action, "Get")
}

// answer does a call and what follows from it at once.
func (s *Server) answer(c *call) (object, *apiError) {
	defer s.announce()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.Clock.Now()
	do := handlers[c.name()]
	if do == nil {
		return nil, refuse("InvalidAction", "The action %s is not valid for this web service.", c.action)
	}
	if err := s.admitted(c); err != nil {
		return nil, err
	}
	if c.service == ec2 && truth(c.in, "DryRun") {
		return nil, &apiError{Status: http.StatusPreconditionFailed, Code: "DryRunOperation",
			Message: "Request would have succeeded, but DryRun flag is set."}
	}
	if err := c.limited(); err != nil {
		return nil, err
	}
	if c.reads() {
		return s.look(c, do)
	}
	return s.change(c, do)
}

// admitted checks who calls, what he may, and how often.
func (s *Server) admitted(c *call) *apiError {
	if err := s.authenticate(c); err != nil {
		return err
	}
	if err := s.throttle(c); err != nil {
		return err
	}
	if c.name() == "ec2:RunInstances" {
		return c.mayRun()
	}
	if err := c.needOn(c.name(), c.targets()); err != nil {
		return err
	}
	return c.needTagsOfCall()
}

// look answers a read, from the past where a fault wants it.
func (s *Server) look(c *call, do handler) (object, *apiError) {
	if s.stale == nil || !c.now.Before(s.staleUntil) {
		s.stale = nil
		return do(c)
	}
	present := s.store
	s.store = s.stale
	defer func() { s.store = present }()
	return do(c)
}

// change answers a write. A handler refuses before it changes anything.
func (s *Server) change(c *call, do handler) (object, *apiError) {
	var before *store
	if c.fault != nil && (c.fault.Kind == FalseSuccess || c.fault.Kind == Stale) {
		before = s.store.copy()
	}
	out, err := do(c)
	if before != nil && c.fault.Kind == FalseSuccess {
		s.store, s.due, s.dirty = before, nil, map[string]bool{}
		return out, err
	}
	s.drain()
	if before != nil && err == nil {
		s.stale, s.staleUntil = before, c.now.Add(c.fault.Duration)
	}
	return out, err
}
