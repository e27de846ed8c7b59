"""Drives the emulator with boto3, as a client that shares nothing with it or with package aws.

Usage: witness.py ENDPOINT. Ends with status 1 and an assertion where a reply is not as AWS's own
service models and documentation have it.
"""
import base64
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, WaiterError

ENDPOINT = sys.argv[1]
# Debian 12 has boto3 1.26, which does not know all fields and parameters.
CURRENT = tuple(int(n) for n in boto3.__version__.split(".")[:2]) >= (1, 35)
QUICK = {"Delay": 0.05, "MaxAttempts": 400}


def client(name):
    return boto3.client(name, endpoint_url=ENDPOINT, region_name="eu-central-1", aws_access_key_id="AKIATEST",
                        aws_secret_access_key="not-a-secret", config=Config(retries={"max_attempts": 1, "mode": "standard"}))


ec2, asg, ssm, sts = client("ec2"), client("autoscaling"), client("ssm"), client("sts")


def refused(code, call, **parameters):
    try:
        call(**parameters)
    except ClientError as e:
        assert e.response["Error"]["Code"] == code, (code, e.response["Error"])
        return e.response
    raise AssertionError(f"{call} was not refused with {code}")


def visible(call, **parameters):
    """Reads what was just made, which EC2 may not find at first: waiters that read no NotFound give up."""
    for _ in range(2000):
        try:
            return call(**parameters)
        except ClientError as e:
            assert e.response["Error"]["Code"].endswith(".NotFound"), e
    raise AssertionError("never visible")


def wait(what, **parameters):
    ec2.get_waiter(what).wait(WaiterConfig=QUICK, **parameters)


def until(condition):
    for _ in range(2000):
        if condition():
            return
    raise AssertionError("never")


def group():
    return asg.describe_auto_scaling_groups(AutoScalingGroupNames=["blue"])["AutoScalingGroups"][0]


def lifecycle(instance):
    found = asg.describe_auto_scaling_instances(InstanceIds=[instance])["AutoScalingInstances"]
    return found[0]["LifecycleState"] if found else None


# Who calls, and where.
assert sts.get_caller_identity()["Account"] == "123456789012"
assert ec2.describe_regions()["Regions"][0]["RegionName"] == "eu-central-1"
assert len(ec2.describe_availability_zones()["AvailabilityZones"]) == 3

# Groups and instances, whole and in pages.
g = group()
assert g["MinSize"] == 1 and g["DesiredCapacity"] == 5 and len(g["Instances"]) == 5, g
assert g["LaunchTemplate"]["LaunchTemplateName"] == "blue" and "Version" not in g["LaunchTemplate"], g["LaunchTemplate"]
assert {"Key": "empty", "Value": "", "ResourceId": "blue", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": True} in g["Tags"], g["Tags"]
assert not asg.describe_auto_scaling_groups(Filters=[{"Name": "tag:empty", "Values": ["full"]}])["AutoScalingGroups"]
assert len(asg.describe_auto_scaling_groups(Filters=[{"Name": "tag-key", "Values": ["empty"]}])["AutoScalingGroups"]) == 1
pages = list(ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
instances = [i for p in pages for r in p["Reservations"] for i in r["Instances"]]
assert len(pages) == 1 and len({i["InstanceId"] for i in instances}) == 5
refused("InvalidParameterValue", ec2.describe_instances, MaxResults=4)
refused("InvalidParameterCombination", ec2.describe_instances, MaxResults=5, InstanceIds=[instances[0]["InstanceId"]])
tags = list(ec2.get_paginator("describe_tags").paginate(PaginationConfig={"PageSize": 5}))
assert len(tags) > 2 and all(len(p["Tags"]) == 5 for p in tags[:-1]), tags
members = list(asg.get_paginator("describe_auto_scaling_instances").paginate(PaginationConfig={"PageSize": 2}))
assert sum(len(p["AutoScalingInstances"]) for p in members) == 5
assert asg.describe_auto_scaling_instances(InstanceIds=["i-0123456789abcdef0"])["AutoScalingInstances"] == []
donor = instances[0]
me = donor["InstanceId"]
assert donor["State"] == {"Code": 16, "Name": "running"} and donor["Architecture"] == "x86_64" and donor["RootDeviceName"] == "/dev/xvda"
assert {"Key": "empty", "Value": ""} in donor["Tags"], donor["Tags"]
assert donor["MetadataOptions"]["HttpPutResponseHopLimit"] == 2 and donor["LaunchTime"].year == 2026 or donor["LaunchTime"].year >= 2024
filters = [{"Name": "tag:Name", "Values": ["bl?e"]}, {"Name": "instance-state-name", "Values": ["running", "stopped"]}]
assert len(ec2.describe_instances(Filters=filters)["Reservations"]) == 5
assert not ec2.describe_instances(Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}])["Reservations"]
refused("InvalidParameterValue", ec2.describe_instances, Filters=[{"Name": "colour", "Values": ["red"]}])
refused("InvalidInstanceID.NotFound", ec2.describe_instances, InstanceIds=["i-0123456789abcdef0"])
assert ec2.describe_instance_status(InstanceIds=[me])["InstanceStatuses"][0]["InstanceStatus"]["Status"] == "ok"
behavior = ec2.describe_instance_attribute(InstanceId=me, Attribute="instanceInitiatedShutdownBehavior")
assert behavior["InstanceInitiatedShutdownBehavior"]["Value"] == "stop"
ec2.modify_instance_attribute(InstanceId=me, DisableApiStop={"Value": True})
refused("OperationNotPermitted", ec2.stop_instances, InstanceIds=[me])
ec2.modify_instance_attribute(InstanceId=me, DisableApiStop={"Value": False})
assert "boot 1" in ec2.get_console_output(InstanceId=me)["Output"]
volume = donor["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
disk = ec2.describe_volumes(VolumeIds=[volume])["Volumes"][0]
assert disk["Size"] == 20 and disk["Attachments"][0]["InstanceId"] == me
refused("InvalidVolume.NotFound", ec2.describe_volumes, VolumeIds=["vol-0123456789abcdef0"])
stock = ec2.describe_images(ImageIds=[donor["ImageId"]])["Images"][0]
assert stock["EnaSupport"] is True and stock["BootMode"] == "uefi-preferred" and stock["OwnerId"] != "123456789012"
refused("InvalidAMIID.NotFound", ec2.describe_images, ImageIds=["ami-0123456789abcdef0"])

# DryRun.
assert refused("DryRunOperation", ec2.stop_instances, InstanceIds=[me], DryRun=True)["ResponseMetadata"]["HTTPStatusCode"] == 412

# The donor goes to Standby, stops, is copied, starts, and comes back.
asg.suspend_processes(AutoScalingGroupName="blue", ScalingProcesses=["AZRebalance"])
assert [p["ProcessName"] for p in group()["SuspendedProcesses"]] == ["AZRebalance"]
entered = asg.enter_standby(AutoScalingGroupName="blue", InstanceIds=[me], ShouldDecrementDesiredCapacity=True)
assert entered["Activities"][0]["StatusCode"] == "InProgress" and entered["Activities"][0]["Progress"] == 50
refused("ValidationError", asg.enter_standby, AutoScalingGroupName="blue", InstanceIds=[me], ShouldDecrementDesiredCapacity=True)
until(lambda: lifecycle(me) == "Standby")
assert group()["DesiredCapacity"] == 4
stopping = ec2.stop_instances(InstanceIds=[me])["StoppingInstances"][0]
assert stopping["CurrentState"]["Name"] == "stopping" and stopping["PreviousState"]["Name"] == "running"
wait("instance_stopped", InstanceIds=[me])
tags = [{"Key": "kamino-run", "Value": "r1"}]
snapshot = ec2.create_snapshot(VolumeId=volume, Description="d", TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}])
assert snapshot["State"] == "pending" and snapshot["VolumeSize"] == 20
visible(ec2.describe_snapshots, SnapshotIds=[snapshot["SnapshotId"]])
wait("snapshot_completed", SnapshotIds=[snapshot["SnapshotId"]])
made = ec2.describe_snapshots(OwnerIds=["self"], Filters=[{"Name": "tag:kamino-run", "Values": ["r1"]}])["Snapshots"]
assert len(made) == 1 and made[0]["Progress"] == "100%", made
registered = ec2.register_image(Name="registered", RootDeviceName="/dev/xvda", Architecture="x86_64", VirtualizationType="hvm", EnaSupport=True, BootMode="uefi",
                                BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": snapshot["SnapshotId"], "VolumeType": "gp3"}}])["ImageId"]
wait("image_exists", ImageIds=[registered])
wait("image_available", ImageIds=[registered])
refused("InvalidSnapshot.InUse", ec2.delete_snapshot, SnapshotId=snapshot["SnapshotId"])
image = ec2.create_image(InstanceId=me, Name="kamino-blue-2026.11.22", NoReboot=True, TagSpecifications=[{"ResourceType": "image", "Tags": tags}])["ImageId"]
refused("InvalidAMIName.Duplicate", ec2.create_image, InstanceId=me, Name="kamino-blue-2026.11.22")
wait("image_exists", ImageIds=[image])
wait("image_available", ImageIds=[image])
mine = ec2.describe_images(Owners=["self"], Filters=[{"Name": "tag:kamino-run", "Values": ["r1"]}])["Images"]
assert [i["ImageId"] for i in mine] == [image], mine
if CURRENT:
    assert mine[0]["SourceInstanceId"] == me, mine
ec2.start_instances(InstanceIds=[me])
wait("instance_running", InstanceIds=[me])
assert asg.exit_standby(AutoScalingGroupName="blue", InstanceIds=[me])["Activities"][0]["StatusCode"] == "PreInService"
until(lambda: lifecycle(me) == "InService")
asg.resume_processes(AutoScalingGroupName="blue", ScalingProcesses=["AZRebalance"])
assert group()["DesiredCapacity"] == 5 and group()["SuspendedProcesses"] == []

# The pointer.
PARAMETER = "/kamino/lab/blue/image"
refused("ParameterNotFound", ssm.get_parameter, Name=PARAMETER)
assert ssm.put_parameter(Name=PARAMETER, Value=donor["ImageId"], Type="String", DataType="aws:ec2:image")["Version"] == 1
until(lambda: not ssm.get_parameters(Names=[PARAMETER])["InvalidParameters"])
refused("ParameterAlreadyExists", ssm.put_parameter, Name=PARAMETER, Value=image, Type="String")
data = {"ImageId": "resolve:ssm:" + PARAMETER}
version = ec2.create_launch_template_version(LaunchTemplateName="blue", SourceVersion="$Default", LaunchTemplateData=data, ClientToken="c1")
assert "Warning" not in version and version["LaunchTemplateVersion"]["VersionNumber"] == 2
old = ec2.describe_launch_template_versions(LaunchTemplateName="blue", Versions=["1"])["LaunchTemplateVersions"][0]["LaunchTemplateData"]
new = version["LaunchTemplateVersion"]["LaunchTemplateData"]
assert {k for k in old if old[k] != new.get(k)} == {"ImageId"} and set(old) == set(new), (old, new)
assert base64.b64decode(new["UserData"]).startswith(b"MIME-Version")
refused("InvalidLaunchTemplateId.VersionNotFound", ec2.modify_launch_template, LaunchTemplateName="blue", DefaultVersion="9")
assert ec2.modify_launch_template(LaunchTemplateName="blue", DefaultVersion="2")["LaunchTemplate"]["DefaultVersionNumber"] == 2
assert ec2.describe_launch_templates(LaunchTemplateNames=["blue"])["LaunchTemplates"][0]["LatestVersionNumber"] == 2
ssm.put_parameter(Name=PARAMETER, Value=image, DataType="aws:ec2:image", Overwrite=True)
until(lambda: ssm.get_parameter(Name=PARAMETER)["Parameter"]["Version"] == 2)
history = ssm.get_parameter_history(Name=PARAMETER)["Parameters"]
assert [p["Value"] for p in history] == [donor["ImageId"], image]
ssm.label_parameter_version(Name=PARAMETER, ParameterVersion=1, Labels=["former"])
assert ssm.get_parameter(Name=PARAMETER + ":former")["Parameter"]["Value"] == donor["ImageId"]
if CURRENT:
    resolved = ec2.describe_launch_template_versions(LaunchTemplateName="blue", Versions=["$Latest"], ResolveAlias=True)["LaunchTemplateVersions"][0]
    assert resolved["LaunchTemplateData"]["ImageId"] == image
refused("SsmInvalidParameter", ec2.create_launch_template_version, LaunchTemplateName="blue", LaunchTemplateData={"ImageId": "resolve:ssm:/none"})
asg.set_desired_capacity(AutoScalingGroupName="blue", DesiredCapacity=6)
until(lambda: len([i for i in group()["Instances"] if i["LifecycleState"] == "InService"]) == 6)
fresh = [i for i in group()["Instances"] if i["LaunchTemplate"]["Version"] == "2"]
assert len(fresh) == 1
assert ec2.describe_instances(InstanceIds=[fresh[0]["InstanceId"]])["Reservations"][0]["Instances"][0]["ImageId"] == image
refused("ValidationError", asg.set_desired_capacity, AutoScalingGroupName="blue", DesiredCapacity=60)
activities = asg.describe_scaling_activities(AutoScalingGroupName="blue", MaxRecords=1)
assert activities["NextToken"] and activities["Activities"][0]["StatusCode"] in ("PreInService", "Successful")
assert asg.describe_instance_refreshes(AutoScalingGroupName="blue")["InstanceRefreshes"] == []
assert asg.describe_warm_pool(AutoScalingGroupName="blue").get("Instances", []) == []

# A canary beside the group.
canary = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": "blue", "Version": "2"}, ImageId=image, MinCount=1, MaxCount=1, ClientToken="canary",
                           TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "kamino-canary", "Value": image}]}])["Instances"][0]["InstanceId"]
wait("instance_exists", InstanceIds=[canary])
wait("instance_running", InstanceIds=[canary])
assert lifecycle(canary) is None
found = ec2.describe_tags(Filters=[{"Name": "key", "Values": ["kamino-canary"]}, {"Name": "resource-type", "Values": ["instance"]}])["Tags"]
assert [t["ResourceId"] for t in found] == [canary], found
ec2.create_tags(Resources=[canary, image], Tags=[{"Key": "kamino-bad", "Value": "never Ready"}])
ec2.delete_tags(Resources=[canary], Tags=[{"Key": "kamino-bad"}])
ec2.terminate_instances(InstanceIds=[canary])
wait("instance_terminated", InstanceIds=[canary])

# A stopped instance in service is replaced.
ec2.stop_instances(InstanceIds=[me])
until(lambda: lifecycle(me) is None)
until(lambda: len([i for i in group()["Instances"] if i["LifecycleState"] == "InService"]) == 6)
try:
    ec2.get_waiter("instance_running").wait(InstanceIds=[me], WaiterConfig={"Delay": 0.05, "MaxAttempts": 5})
    raise AssertionError("a terminated instance runs")
except WaiterError as e:
    assert "terminal failure" in str(e), e

# What was made is removed again.
if CURRENT:
    ec2.disable_image(ImageId=registered)
    assert registered not in [i["ImageId"] for i in ec2.describe_images(Owners=["self"])["Images"]]
    ec2.enable_image(ImageId=registered)
ec2.deregister_image(ImageId=registered)
ec2.delete_snapshot(SnapshotId=snapshot["SnapshotId"])
refused("InvalidSnapshot.NotFound", ec2.delete_snapshot, SnapshotId=snapshot["SnapshotId"])
deleted = ec2.delete_launch_template_versions(LaunchTemplateName="blue", Versions=["1", "2"])
assert deleted["SuccessfullyDeletedLaunchTemplateVersions"][0]["VersionNumber"] == 1
assert deleted["UnsuccessfullyDeletedLaunchTemplateVersions"][0]["VersionNumber"] == 2
ssm.delete_parameter(Name=PARAMETER)

# A group of its own, from nothing to nothing.
template = ec2.create_launch_template(LaunchTemplateName="green", LaunchTemplateData={"ImageId": image, "InstanceType": "m6i.large"})["LaunchTemplate"]
asg.create_auto_scaling_group(AutoScalingGroupName="green", MinSize=0, MaxSize=2, DesiredCapacity=1, VPCZoneIdentifier="subnet-0a,subnet-0b",
                              LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"},
                              Tags=[{"Key": "k8s.io/cluster-autoscaler/enabled", "Value": "", "PropagateAtLaunch": True}])
refused("AlreadyExists", asg.create_auto_scaling_group, AutoScalingGroupName="green", MinSize=0, MaxSize=1, AvailabilityZones=["eu-central-1a"])
refused("ResourceInUse", asg.delete_auto_scaling_group, AutoScalingGroupName="green")
asg.update_auto_scaling_group(AutoScalingGroupName="green", MinSize=0, DesiredCapacity=0)
asg.delete_auto_scaling_group(AutoScalingGroupName="green", ForceDelete=True)
until(lambda: not asg.describe_auto_scaling_groups(AutoScalingGroupNames=["green"])["AutoScalingGroups"])
ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
refused("InvalidLaunchTemplateId.NotFound", ec2.describe_launch_templates, LaunchTemplateIds=[template["LaunchTemplateId"]])
