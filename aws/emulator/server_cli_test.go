package emulator

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// cliSample is how many of cliCalls every run of the tests makes: aws takes most of a second to
// start.
const cliSample = 14

// cliCalls are commands of aws, what they print, and for some a name under which that is kept for
// the later ones. What is wanted of a refusal is its code, in parentheses as aws prints it.
var cliCalls = []struct{ keep, args, want string }{
	// Who calls; lists, filters and pages; a refusal; a donor in Standby, and a wait.
	{"", "sts get-caller-identity --query Account", "123456789012"},
	{"me", "autoscaling describe-auto-scaling-groups --auto-scaling-group-names blue --query AutoScalingGroups[0].Instances[0].InstanceId", "i-[0-9a-f]{17}"},
	{"", "autoscaling describe-auto-scaling-instances --page-size 2 --query length(AutoScalingInstances)", "2\n2\n1"},
	{"", "ec2 describe-instances --filters Name=tag:Name,Values=bl?e Name=instance-state-name,Values=running --query length(Reservations)", "5"},
	{"", "ec2 describe-instances --instance-ids i-0123456789abcdef0", "(InvalidInstanceID.NotFound)"},
	{"", "ec2 stop-instances --instance-ids $me --dry-run", "(DryRunOperation)"},
	{"", "autoscaling suspend-processes --auto-scaling-group-name blue --scaling-processes AZRebalance", ""},
	{"", "autoscaling enter-standby --auto-scaling-group-name blue --instance-ids $me --should-decrement-desired-capacity --query Activities[0].StatusCode", "InProgress"},
	{"image", "ec2 create-image --instance-id $me --name kamino-blue --no-reboot --query ImageId", "ami-[0-9a-f]{17}"},
	{"", "ec2 wait image-exists --image-ids $image", ""},
	{"", "ec2 wait image-available --image-ids $image", ""},
	{"", "ssm put-parameter --name /p --value $image --type String --data-type aws:ec2:image --query Version", "1"},
	{"", "ssm get-parameter --name /p --query Parameter.Value", "$image"},
	{"", "autoscaling exit-standby --auto-scaling-group-name blue --instance-ids $me --query Activities[0].Progress", "30"},

	{"", "ec2 describe-regions --query Regions[].RegionName", "eu-central-1"},
	{"", "ec2 describe-availability-zones --query length(AvailabilityZones)", "3"},
	{"", "autoscaling describe-auto-scaling-groups --page-size 1 --query length(AutoScalingGroups)", "1"},
	{"", "autoscaling describe-auto-scaling-groups --filters Name=tag-key,Values=empty --query AutoScalingGroups[].AutoScalingGroupName", "blue"},
	{"", "autoscaling describe-auto-scaling-groups --filters Name=tag:empty,Values=full --query length(AutoScalingGroups)", "0"},
	{"", "autoscaling describe-auto-scaling-groups --auto-scaling-group-names blue --query AutoScalingGroups[0].SuspendedProcesses[].ProcessName", "AZRebalance"},
	{"", "autoscaling resume-processes --auto-scaling-group-name blue --scaling-processes AZRebalance", ""},
	{"", "autoscaling suspend-processes --auto-scaling-group-name blue --scaling-processes Sleep", "(ValidationError)"},
	{"", "autoscaling enter-standby --auto-scaling-group-name none --instance-ids $me --should-decrement-desired-capacity", "(ValidationError)"},
	{"", "autoscaling create-or-update-tags --tags ResourceId=blue,ResourceType=auto-scaling-group,Key=k,Value=v,PropagateAtLaunch=false", ""},
	{"", "autoscaling delete-tags --tags ResourceId=blue,ResourceType=auto-scaling-group,Key=k", ""},
	{"", "autoscaling describe-scaling-activities --auto-scaling-group-name blue --max-items 1", "(?s)ACTIVITIES.*NEXTTOKEN.*"},
	{"", "autoscaling describe-instance-refreshes --auto-scaling-group-name blue --query length(InstanceRefreshes)", "0"},
	{"", "autoscaling describe-warm-pool --auto-scaling-group-name blue --query length(Instances||`[]`)", "0"},
	{"", "autoscaling set-instance-protection --auto-scaling-group-name blue --instance-ids $me --protected-from-scale-in", ""},
	{"", "autoscaling describe-auto-scaling-instances --instance-ids $me --query AutoScalingInstances[0].ProtectedFromScaleIn", "True"},
	{"", "ec2 describe-instance-status --instance-ids $me --query InstanceStatuses[0].InstanceStatus.Status", "ok"},
	{"", "ec2 describe-instance-attribute --instance-id $me --attribute instanceInitiatedShutdownBehavior --query InstanceInitiatedShutdownBehavior.Value", "stop"},
	{"", "ec2 modify-instance-attribute --instance-id $me --instance-initiated-shutdown-behavior stop", ""},
	{"", "ec2 get-console-output --instance-id $me --output text", "(?s).*boot 1.*"},
	{"", "ec2 reboot-instances --instance-ids $me", ""},
	{"volume", "ec2 describe-instances --instance-ids $me --query Reservations[0].Instances[0].BlockDeviceMappings[0].Ebs.VolumeId", "vol-[0-9a-f]{17}"},
	{"", "ec2 describe-volumes --volume-ids $volume --query Volumes[0].Size", "20"},
	{"", "ec2 describe-volumes --filters Name=attachment.instance-id,Values=$me --query length(Volumes)", "1"},
	{"snapshot", "ec2 create-snapshot --volume-id $volume --tag-specifications ResourceType=snapshot,Tags=[{Key=k,Value=v}] --query SnapshotId", "snap-[0-9a-f]{17}"},
	{"", "ec2 wait snapshot-completed --snapshot-ids $snapshot", ""},
	{"", "ec2 describe-snapshots --owner-ids self --filters Name=tag:k,Values=v --query Snapshots[].State", "completed"},
	{"registered", "ec2 register-image --name two --architecture x86_64 --root-device-name /dev/xvda --virtualization-type hvm --ena-support " +
		"--block-device-mappings DeviceName=/dev/xvda,Ebs={SnapshotId=$snapshot} --query ImageId", "ami-[0-9a-f]{17}"},
	{"", "ec2 register-image --name two --architecture x86_64 --root-device-name /dev/xvda --block-device-mappings DeviceName=/dev/xvda,Ebs={SnapshotId=$snapshot}",
		"(InvalidAMIName.Duplicate)"},
	{"", "ec2 delete-snapshot --snapshot-id $snapshot", "(InvalidSnapshot.InUse)"},
	{"", "ec2 wait image-available --image-ids $registered", ""},
	{"", "ec2 create-tags --resources $registered --tags Key=stage,Value=hidden", ""},
	{"", "ec2 describe-tags --filters Name=resource-id,Values=$registered --query Tags[].Value", "hidden"},
	{"", "ec2 delete-tags --resources $registered --tags Key=stage", ""},
	{"", "ec2 disable-image --image-id $registered --query Return", "True"},
	{"", "ec2 enable-image --image-id $registered --query Return", "True"},
	{"", "ec2 describe-images --owners self --filters Name=name,Values=tw* --query Images[].Name", "two"},
	{"", "ec2 deregister-image --image-id $registered", ".*"},
	{"", "ec2 delete-snapshot --snapshot-id $snapshot", ""},
	{"template", "ec2 describe-launch-templates --launch-template-names blue --query LaunchTemplates[0].LaunchTemplateId", "lt-[0-9a-f]{17}"},
	{"", "ec2 create-launch-template-version --launch-template-id $template --source-version 1 --launch-template-data {\"ImageId\":\"resolve:ssm:/p\"} --query LaunchTemplateVersion.VersionNumber", "2"},
	{"", "ec2 create-launch-template-version --launch-template-id $template --source-version 1 --launch-template-data {\"ImageId\":\"resolve:ssm:/none\"}", "(SsmInvalidParameter)"},
	{"", "ec2 modify-launch-template --launch-template-id $template --default-version 2 --query LaunchTemplate.DefaultVersionNumber", "2"},
	{"", "ec2 describe-launch-template-versions --launch-template-id $template --versions $Default --resolve-alias --query LaunchTemplateVersions[].LaunchTemplateData.ImageId", "$image"},
	{"", "ec2 delete-launch-template-versions --launch-template-id $template --versions 1 --query length(SuccessfullyDeletedLaunchTemplateVersions)", "1"},
	{"", "ssm put-parameter --name /p --value $image --type String --data-type aws:ec2:image", "(ParameterAlreadyExists)"},
	{"", "ssm label-parameter-version --name /p --labels good --query ParameterVersion", "1"},
	{"", "ssm get-parameter-history --name /p --query Parameters[].Labels[]", "good"},
	{"", "ssm get-parameters --names /p /none --query InvalidParameters", "/none"},
	{"", "autoscaling set-desired-capacity --auto-scaling-group-name blue --desired-capacity 99", "(ValidationError)"},
	{"", "autoscaling set-desired-capacity --auto-scaling-group-name blue --desired-capacity 6", ""},
	{"canary", "ec2 run-instances --launch-template LaunchTemplateId=$template --image-id $image --count 1 --query Instances[0].InstanceId", "i-[0-9a-f]{17}"},
	{"", "ec2 wait instance-exists --instance-ids $canary", ""},
	{"", "ec2 wait instance-running --instance-ids $canary", ""},
	{"", "ec2 stop-instances --instance-ids $canary --query StoppingInstances[0].PreviousState.Name", "running"},
	{"", "ec2 wait instance-stopped --instance-ids $canary", ""},
	{"", "ec2 start-instances --instance-ids $canary --query StartingInstances[0].PreviousState.Name", "stopped"},
	{"", "ec2 terminate-instances --instance-ids $canary --query TerminatingInstances[0].CurrentState.Name", "shutting-down"},
	{"", "ec2 wait instance-terminated --instance-ids $canary", ""},
	{"", "ec2 wait instance-running --instance-ids $canary", "Waiter InstanceRunning failed"},
	{"", "ec2 start-instances --instance-ids $canary", "(IncorrectInstanceState)"},
	{"", "ssm delete-parameter --name /p", ""},
	{"", "ssm get-parameter --name /p", "(ParameterNotFound)"},
	{"", "sts assume-role --role-arn arn:aws:iam::123456789012:role/kamino --role-session-name test --query AssumedRoleUser.Arn", "arn:aws:sts::123456789012:assumed-role/kamino/test"},
}

// TestCLI: the aws command lists, filters, waits, and is refused.
func TestCLI(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Skip("the aws command is not installed: apt-get install awscli")
	}
	commands, least := cliCalls[:cliSample], 12
	if os.Getenv("KAMINO_WITNESS") != "" {
		commands, least = cliCalls, 60
	}
	s, url := witnessed(t, 5000) // fast: a wait of aws that is not over at once takes 15 s more
	kept := map[string]string{}
	put := func(text string) string {
		for name, value := range kept {
			text = strings.ReplaceAll(text, "$"+name, value)
		}
		return text
	}
	for _, c := range commands {
		args := strings.Fields(put(c.args))
		out, err := foreignCommand(t, "aws", append([]string{"--endpoint-url", url, "--output", "text"}, args...)...).CombinedOutput()
		got, want := strings.TrimSpace(string(out)), put(c.want)
		switch refusal := strings.HasPrefix(want, "(") && !strings.HasPrefix(want, "(?") || strings.Contains(want, " failed"); {
		case refusal != (err != nil), refusal && !strings.Contains(got, want):
			t.Errorf("aws %s: %v, %s, want %q", strings.Join(args, " "), err, got, want)
		case !refusal && !regexp.MustCompile("^"+want+"$").MatchString(got):
			t.Errorf("aws %s: %q, want %q", strings.Join(args, " "), got, want)
		}
		if c.keep != "" {
			kept[c.keep] = got
		}
	}
	n, actions := calls(s, "aws-cli/")
	fmt.Printf("WITNESS aws: %d commands, %d different calls of %d actions\n", len(commands), n, actions)
	if n < least {
		t.Errorf("%d different calls, want %d", n, least)
	}
}
