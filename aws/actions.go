package aws

// Actions are what docs/aws-policy.json allows, CanaryActions what docs/aws-policy-canary.json does
// besides. Tests hold that each is needed, and that they are enough. UpdateAutoScalingGroup is for
// groups that name their template's version by number, and asks for two rights of a canary, too:
// ec2:RunInstances and iam:PassRole
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-launch-template-permissions.html).
func Actions() []string {
	return []string{
		"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeInstanceRefreshes", "autoscaling:DescribeLaunchConfigurations", "ec2:DescribeImages", "ec2:DescribeInstanceAttribute",
		"ec2:DescribeInstances", "ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSnapshots", "ec2:DescribeVolumes", "ssm:GetParameters",

		"autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags", "autoscaling:EnterStandby", "autoscaling:ExitStandby", "autoscaling:ResumeProcesses",
		"autoscaling:SetDesiredCapacity", "autoscaling:SuspendProcesses", "ec2:StartInstances", "ec2:StopInstances",

		"ec2:CreateSnapshot", "ec2:CreateTags", "ec2:DeleteSnapshot", "ec2:DeleteTags", "ec2:DeregisterImage", "ec2:RegisterImage",

		"ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate", "ssm:PutParameter", "autoscaling:UpdateAutoScalingGroup",
	}
}

// CanaryActions are the rights of a canary.
func CanaryActions() []string {
	return []string{"ec2:GetConsoleOutput", "ec2:RunInstances", "ec2:TerminateInstances", "iam:PassRole"}
}
