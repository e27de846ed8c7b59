package aws

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// whole sends requests whose bodies are its own. The SDK closes a body as soon as an answer begins;
// a transport that has not quite finished writing then takes the end of that body for an error, and
// closes the connection while the answer is read (smithy-go v1.28.8, safeWriteToReadCloser.WriteTo;
// seen on a busy machine).
type whole struct {
	client sdk.HTTPClient
	heard  func(call, code string) // nil, or as Config has it
}

// Do implements the SDK's HTTPClient.
func (w whole) Do(r *http.Request) (*http.Response, error) {
	own := r
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		own = r.WithContext(r.Context())
		own.Body, own.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	}
	resp, err := w.client.Do(own)
	if w.heard != nil {
		code := "error"
		if err == nil {
			code = strconv.Itoa(resp.StatusCode)
		}
		w.heard(middleware.GetServiceID(r.Context())+" "+middleware.GetOperationName(r.Context()), code)
	}
	return resp, err
}

// call is one operation of a service.
type call[I, O, P any] func(context.Context, *I, ...func(*P)) (*O, error)

// The operations that Kamino uses, as values of their own. The linker keeps every method of a type
// that is stored in an interface. The client of EC2 has 700, which made the program 40 MB larger. The
// paginators of the SDK store it in one, so none is used.
type (
	ec2Call[I, O any]     = call[I, O, ec2.Options]
	scalingCall[I, O any] = call[I, O, autoscaling.Options]

	ec2Calls struct {
		DescribeImages                 ec2Call[ec2.DescribeImagesInput, ec2.DescribeImagesOutput]
		DescribeInstanceAttribute      ec2Call[ec2.DescribeInstanceAttributeInput, ec2.DescribeInstanceAttributeOutput]
		DescribeInstances              ec2Call[ec2.DescribeInstancesInput, ec2.DescribeInstancesOutput]
		DescribeLaunchTemplateVersions ec2Call[ec2.DescribeLaunchTemplateVersionsInput, ec2.DescribeLaunchTemplateVersionsOutput]
		DescribeSnapshots              ec2Call[ec2.DescribeSnapshotsInput, ec2.DescribeSnapshotsOutput]
		DescribeVolumes                ec2Call[ec2.DescribeVolumesInput, ec2.DescribeVolumesOutput]
		GetConsoleOutput               ec2Call[ec2.GetConsoleOutputInput, ec2.GetConsoleOutputOutput]
		CreateLaunchTemplateVersion    ec2Call[ec2.CreateLaunchTemplateVersionInput, ec2.CreateLaunchTemplateVersionOutput]
		CreateSnapshot                 ec2Call[ec2.CreateSnapshotInput, ec2.CreateSnapshotOutput]
		CreateTags                     ec2Call[ec2.CreateTagsInput, ec2.CreateTagsOutput]
		DeleteSnapshot                 ec2Call[ec2.DeleteSnapshotInput, ec2.DeleteSnapshotOutput]
		DeleteTags                     ec2Call[ec2.DeleteTagsInput, ec2.DeleteTagsOutput]
		DeregisterImage                ec2Call[ec2.DeregisterImageInput, ec2.DeregisterImageOutput]
		ModifyLaunchTemplate           ec2Call[ec2.ModifyLaunchTemplateInput, ec2.ModifyLaunchTemplateOutput]
		RegisterImage                  ec2Call[ec2.RegisterImageInput, ec2.RegisterImageOutput]
		RunInstances                   ec2Call[ec2.RunInstancesInput, ec2.RunInstancesOutput]
		StartInstances                 ec2Call[ec2.StartInstancesInput, ec2.StartInstancesOutput]
		StopInstances                  ec2Call[ec2.StopInstancesInput, ec2.StopInstancesOutput]
		TerminateInstances             ec2Call[ec2.TerminateInstancesInput, ec2.TerminateInstancesOutput]
	}
	scalingCalls struct {
		CreateOrUpdateTags           scalingCall[autoscaling.CreateOrUpdateTagsInput, autoscaling.CreateOrUpdateTagsOutput]
		DeleteTags                   scalingCall[autoscaling.DeleteTagsInput, autoscaling.DeleteTagsOutput]
		DescribeAutoScalingGroups    scalingCall[autoscaling.DescribeAutoScalingGroupsInput, autoscaling.DescribeAutoScalingGroupsOutput]
		DescribeLaunchConfigurations scalingCall[autoscaling.DescribeLaunchConfigurationsInput,
			autoscaling.DescribeLaunchConfigurationsOutput]
		DescribeLifecycleHooks    scalingCall[autoscaling.DescribeLifecycleHooksInput, autoscaling.DescribeLifecycleHooksOutput]
		DescribeInstanceRefreshes scalingCall[autoscaling.DescribeInstanceRefreshesInput, autoscaling.DescribeInstanceRefreshesOutput]
		EnterStandby              scalingCall[autoscaling.EnterStandbyInput, autoscaling.EnterStandbyOutput]
		ExitStandby               scalingCall[autoscaling.ExitStandbyInput, autoscaling.ExitStandbyOutput]
		ResumeProcesses           scalingCall[autoscaling.ResumeProcessesInput, autoscaling.ResumeProcessesOutput]
		SetDesiredCapacity        scalingCall[autoscaling.SetDesiredCapacityInput, autoscaling.SetDesiredCapacityOutput]
		SuspendProcesses          scalingCall[autoscaling.SuspendProcessesInput, autoscaling.SuspendProcessesOutput]
		UpdateAutoScalingGroup    scalingCall[autoscaling.UpdateAutoScalingGroupInput, autoscaling.UpdateAutoScalingGroupOutput]
	}
	ssmCalls struct {
		GetParameters call[ssm.GetParametersInput, ssm.GetParametersOutput, ssm.Options]
		PutParameter  call[ssm.PutParameterInput, ssm.PutParameterOutput, ssm.Options]
	}
)

func newCalls(c sdk.Config) (ec2Calls, scalingCalls, ssmCalls) {
	e, a, s := ec2.NewFromConfig(c), autoscaling.NewFromConfig(c), ssm.NewFromConfig(c)
	return ec2Calls{
			e.DescribeImages, e.DescribeInstanceAttribute, e.DescribeInstances, e.DescribeLaunchTemplateVersions, e.DescribeSnapshots,
			e.DescribeVolumes,
			e.GetConsoleOutput, e.CreateLaunchTemplateVersion, e.CreateSnapshot, e.CreateTags, e.DeleteSnapshot, e.DeleteTags,
			e.DeregisterImage,
			e.ModifyLaunchTemplate, e.RegisterImage, e.RunInstances, e.StartInstances, e.StopInstances, e.TerminateInstances,
		}, scalingCalls{
			a.CreateOrUpdateTags, a.DeleteTags, a.DescribeAutoScalingGroups, a.DescribeLaunchConfigurations, a.DescribeLifecycleHooks,
			a.DescribeInstanceRefreshes, a.EnterStandby, a.ExitStandby, a.ResumeProcesses,
			a.SetDesiredCapacity, a.SuspendProcesses, a.UpdateAutoScalingGroup,
		}, ssmCalls{s.GetParameters, s.PutParameter}
}

// pages calls an operation with the token of each page, nil for the first.
func pages(next func(token *string) (*string, error)) error {
	token, err := next(nil)
	for err == nil && text(token) != "" {
		token, err = next(token)
	}
	return err
}
