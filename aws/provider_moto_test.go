package aws_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	parameters "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws"
	"kamino.dev/kamino/providertest"
)

// motoAddress tells the child process of TestMoto where moto listens.
const motoAddress = "KAMINO_TEST_MOTO"

// motoCannot are the clauses of the contract that moto 5.2.1 does not keep, and why. What is in the
// list and passes is an error as well as what fails and is not.
var motoCannot = map[string]string{
	"a donor that is off stays, unless the world says otherwise":  "its groups leave alone what is off",
	"SetCapacity is conditional":                                  "its groups launch from the literal text resolve:ssm:NAME, and answer 500",
	"a former image comes back, and the rest of the recipe stays": "its template versions inherit nothing from SourceVersion, so the world has no edit and the clause skips",
}

// TestMoto: a cloud that others wrote plays the contract, less a list that is checked.
func TestMoto(t *testing.T) {
	server, err := exec.LookPath("moto_server")
	if err != nil {
		t.Skip("moto is not installed: pip install 'moto[server]'")
	}
	address := startMoto(t, server)
	child := exec.Command(os.Args[0], "-test.run", "^TestMotoClauses$", "-test.v")
	child.Env = append(os.Environ(), motoAddress+"="+address)
	out, err := child.CombinedOutput()
	verdicts := regexp.MustCompile(`(?m)^    --- (PASS|FAIL|SKIP): TestMotoClauses/(.*) \(`).FindAllStringSubmatch(string(out), -1)
	if len(verdicts) < 15 {
		t.Fatalf("%d verdicts, %v:\n%s", len(verdicts), err, out)
	}
	passed, missed := 0, maps.Clone(motoCannot)
	for _, v := range verdicts {
		name := strings.ReplaceAll(v[2], "_", " ")
		why, listed := motoCannot[name]
		delete(missed, name)
		switch {
		case v[1] == "PASS" && listed:
			t.Errorf("moto keeps %q, which the list denies: %s", name, why)
		case v[1] == "FAIL" && !listed:
			t.Errorf("moto does not keep %q, which the list does not tell", name)
		case v[1] == "SKIP" && !listed:
			t.Errorf("moto does not play %q, and nobody would see that", name)
		case v[1] == "PASS":
			passed++
		}
	}
	if len(missed) > 0 {
		t.Errorf("the list names clauses that there are none of: %v", missed)
	}
	t.Logf("moto keeps %d clauses of %d", passed, len(verdicts))
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// startMoto runs moto for a test and waits until it answers.
func startMoto(t *testing.T, server string) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(address, ":")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, server, "-H", "127.0.0.1", "-p", port)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") })
	// Its own 1,102 images, which it goes through at every look, would take minutes.
	images := filepath.Join(t.TempDir(), "images.json")
	if err := os.WriteFile(images, []byte(motoImages), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "MOTO_AMIS_PATH="+images)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() }) // it ends by the signal
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if res, err := http.Get("http://" + address + "/moto-api/data.json"); err == nil {
			_ = res.Body.Close()
			return address
		}
	}
	t.Fatalf("moto does not answer: %s", said.String())
	return ""
}

// motoImages is the one image of that moto. The root volume of its instances is always at
// /dev/sda1, whatever their image says.
const motoImages = `[{"ami_id": "ami-0123456789abcdef0", "name": "node", "description": "a node", "owner_id": "801119661308", "public": true,
"virtualization_type": "hvm", "architecture": "x86_64", "state": "available", "platform": null, "image_type": "machine", "hypervisor": "xen",
"root_device_name": "/dev/sda1", "root_device_type": "ebs", "sriov": "simple"}]`

// crutch stands before moto for what it lacks altogether: instance refreshes, and tags of images
// that are registered.
type crutch struct{}

func (c crutch) RoundTrip(r *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return nil, err
	}
	if form.Get("Action") == "DescribeInstanceRefreshes" {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(
			`<DescribeInstanceRefreshesResponse><DescribeInstanceRefreshesResult><InstanceRefreshes/></DescribeInstanceRefreshesResult></DescribeInstanceRefreshesResponse>`))}, nil
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || form.Get("Action") != "RegisterImage" || res.StatusCode != http.StatusOK {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, c.tag(r, form, regexp.MustCompile("ami-[0-9a-f]+").FindString(string(body)))
}

// tag does what RegisterImage was asked to.
func (crutch) tag(r *http.Request, form url.Values, image string) error {
	tags := url.Values{"Action": {"CreateTags"}, "Version": {form.Get("Version")}, "ResourceId.1": {image}}
	for name, values := range form {
		if rest, ok := strings.CutPrefix(name, "TagSpecification.1."); ok && strings.HasPrefix(rest, "Tag.") {
			tags[rest] = values
		}
	}
	second := r.Clone(r.Context())
	raw := tags.Encode()
	second.Body, second.ContentLength = io.NopCloser(strings.NewReader(raw)), int64(len(raw))
	res, err := http.DefaultTransport.RoundTrip(second)
	if err == nil {
		err = res.Body.Close()
	}
	return err
}

// TestMotoClauses is run by TestMoto.
func TestMotoClauses(t *testing.T) {
	address := os.Getenv(motoAddress)
	if address == "" {
		t.Skip("run by TestMoto")
	}
	providertest.Run(t, func(t *testing.T) providertest.World { return motoWorld(t, "http://"+address) })
}

// motoWorld is a group of three of its own.
func motoWorld(t *testing.T, endpoint string) providertest.World {
	t.Helper()
	name := regexp.MustCompile(`[^A-Za-z]`).ReplaceAllString(t.Name()[len("TestMotoClauses/"):], "")
	p := connect(t, endpoint, aws.Config{Transport: &http.Client{Transport: crutch{}}})
	ctx := t.Context()
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cloud, groups := ec2.NewFromConfig(loaded), autoscaling.NewFromConfig(loaded)
	images, err := cloud.DescribeImages(ctx, &ec2.DescribeImagesInput{})
	if err != nil || len(images.Images) == 0 {
		t.Fatal("no image in moto", err)
	}
	template, err := cloud.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: &types.RequestLaunchTemplateData{
		ImageId: images.Images[0].ImageId, InstanceType: types.InstanceTypeM5Large, UserData: sdk.String(multipartUserData)}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = groups.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: &name, MinSize: sdk.Int32(1), MaxSize: sdk.Int32(9),
		DesiredCapacity: sdk.Int32(3), AvailabilityZones: []string{"eu-central-1a"}, LaunchTemplate: &scaling.LaunchTemplateSpecification{
			LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId, Version: sdk.String("$Default")}})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := groups.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
	if err != nil || len(listed.AutoScalingGroups) != 1 || len(listed.AutoScalingGroups[0].Instances) != 3 {
		t.Fatalf("%+v, %v", listed, err)
	}
	point(t, loaded, template.LaunchTemplate.LaunchTemplateId, images.Images[0].ImageId, "/kamino/lab/"+name+"/image")
	in := listed.AutoScalingGroups[0].Instances[0]
	donor := kamino.InstanceID(fmt.Sprintf("aws:///%s/%s", sdk.ToString(in.AvailabilityZone), sdk.ToString(in.InstanceId)))
	return providertest.World{Provider: p, Donor: donor, Pass: func(time.Duration) {}, Replaces: true}
}

// point lets a template name a parameter from its second version on, as moto launches from the
// literal text. By version moto can promote nothing: it inherits nothing from SourceVersion, which
// Promote sees and refuses.
func point(t *testing.T, loaded sdk.Config, template, image *string, name string) {
	t.Helper()
	_, err := ssm.NewFromConfig(loaded).PutParameter(t.Context(), &ssm.PutParameterInput{Name: &name, Value: image, Type: parameters.ParameterTypeString,
		DataType: sdk.String("aws:ec2:image")})
	if err != nil {
		t.Fatal(err)
	}
	cloud := ec2.NewFromConfig(loaded)
	_, err = cloud.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateId: template, LaunchTemplateData: &types.RequestLaunchTemplateData{
		ImageId: sdk.String("resolve:ssm:" + name), InstanceType: types.InstanceTypeM5Large, UserData: sdk.String(multipartUserData)}})
	if err == nil {
		_, err = cloud.ModifyLaunchTemplate(t.Context(), &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: template, DefaultVersion: sdk.String("2")})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// multipartUserData is base64 of a NodeConfig of EKS.
const multipartUserData = "TUlNRS1WZXJzaW9uOiAxLjAKQ29udGVudC1UeXBlOiBtdWx0aXBhcnQvbWl4ZWQ7IGJvdW5kYXJ5PSJCIgoKLS1CCkNvbnRlbnQtVHlwZTogYXBwbGljYXRpb24vbm9kZS5la3MuYXdzCgpraW5kOiBOb2RlQ29uZmlnCi0tQi0tCg=="
