package crash

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"

	"kamino.dev/kamino"
)

// action is what a call asks of AWS; "" for any other.
func (c *Call) action() string {
	service, action, _ := strings.Cut(strings.TrimPrefix(c.Path, "/"), "/")
	if !slices.Contains([]string{"ec2", "autoscaling", "ssm"}, service) {
		return ""
	}
	return action
}

// meaning tells what a call of AWS means. All are POSTs to one address: so the path is made of
// service and action, the query of what identifies a read, and what only reads is a GET.
func (w *onAWS) meaning(c *Call, r *http.Request) {
	in := url.Values{}
	service, action := "ec2", ""
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		service, action = "ssm", strings.TrimPrefix(target, "AmazonSSM.")
		var doc map[string]any
		_ = json.Unmarshal(c.body, &doc) // what is no JSON has no fields
		for name, value := range doc {
			if text, ok := value.(string); ok {
				in.Set(name, text)
			}
		}
	} else {
		in, _ = url.ParseQuery(string(c.body)) // what cannot be read has no action
		if action = in.Get("Action"); in.Get("Version") == "2011-01-01" {
			service = "autoscaling"
		}
	}
	c.Path, c.Query = "/"+service+"/"+action, ""
	asks := strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get")
	dry := in.Get("DryRun") == "true"
	if c.Write = !asks && !dry; !c.Write {
		c.Method = http.MethodGet
		in.Del("Action")
		c.Query = in.Encode()
		c.List = asks && slices.Contains([]string{"DescribeInstances", "DescribeImages", "DescribeSnapshots"}, action) &&
			in.Get("InstanceId.1") == "" && in.Get("ImageId.1") == ""
	}
	c.token = dry // tried once, before anything
	c.creates = c.Write && slices.Contains([]string{"CreateSnapshot", "RegisterImage", "RunInstances"}, action)
	c.means.Bucket = "aws " + action
	if c.Write {
		w.write(c, action, in)
	}
}

// tagsOf are the tags that a request brings.
func tagsOf(in url.Values) map[string]string {
	tags := map[string]string{}
	for i := 1; in.Has("TagSpecification.1.Tag." + strconv.Itoa(i) + ".Key"); i++ {
		n := "TagSpecification.1.Tag." + strconv.Itoa(i)
		tags[in.Get(n+".Key")] = in.Get(n + ".Value")
	}
	return tags
}

// write tells what a write means. Tags and suspended processes of a group are on the way of a
// donor out of service, or back; the invariants look at how it stands.
func (w *onAWS) write(c *Call, action string, in url.Values) {
	m, tags := &c.means, tagsOf(in)
	made := func(kind invariant.Kind, name, source string) invariant.Artifact {
		return invariant.Artifact{Kind: kind, Pool: w.pool, Name: name, Run: tags[kamino.TagRun], Receipt: tags[kamino.TagReceipt],
			Ours: true, Source: source}
	}
	switch action {
	case "StartInstances":
		m.Verb, m.Machine = invariant.PowerOn, w.machineBy(in.Get("InstanceId.1"))
	case "StopInstances":
		m.Verb, m.Machine = invariant.PowerOff, w.machineBy(in.Get("InstanceId.1"))
	case "CreateSnapshot":
		m.Verb, m.Made = invariant.CreateSnapshot, made(invariant.Snapshot, tags["kamino-snapshot"], in.Get("VolumeId"))
	case "RegisterImage":
		m.Verb, m.Made = invariant.CreateVersion, made(invariant.Version, tags["kamino-version"],
			in.Get("BlockDeviceMapping.1.Ebs.SnapshotId"))
	case "DeregisterImage":
		m.Verb, m.Kind, m.Target = invariant.DeleteArtifact, invariant.Version, in.Get("ImageId")
	case "DeleteSnapshot":
		m.Verb, m.Kind, m.Target = invariant.DeleteArtifact, invariant.Snapshot, in.Get("SnapshotId")
		if w.goesWithImage(m.Target) {
			m.Kind = invariant.Version
		}
	case "CreateTags", "DeleteTags":
		if m.Verb = invariant.MarkVersion; strings.HasPrefix(c.Path, "/autoscaling/") {
			m.Verb = invariant.Release
		}
	case "CreateOrUpdateTags", "SuspendProcesses":
		m.Verb = invariant.Hold
	case "EnterStandby":
		m.Verb, m.Machine = invariant.Hold, w.machineBy(in.Get("InstanceIds.member.1"))
	case "ResumeProcesses":
		m.Verb = invariant.Release
	case "ExitStandby":
		m.Verb, m.Machine = invariant.Release, w.machineBy(in.Get("InstanceIds.member.1"))
	case "SetDesiredCapacity":
		m.Verb, c.unconditional = invariant.SetCapacity, true
		m.Instances, _ = strconv.Atoi(in.Get("DesiredCapacity"))
	case "PutParameter":
		g, _ := w.cloud.Group(poolName)
		m.Verb, m.Target, c.unconditional = invariant.SetModel, in.Get("Value"), true
		c.prepares = g.Named != "resolve:ssm:"+in.Get("Name")
	case "CreateLaunchTemplateVersion": // the group goes on with the one that it names; $Latest is refused
		m.Verb, c.unconditional, c.prepares = invariant.SetModel, true, true
	case "ModifyLaunchTemplate", "UpdateAutoScalingGroup":
		m.Verb, m.Target, c.unconditional = invariant.SetModel, w.promotedLast(), true
	case "RunInstances":
		m.Verb, m.Target = invariant.LaunchCanary, in.Get("ImageId")
	case "TerminateInstances":
		m.Verb, m.Target = invariant.RemoveCanary, in.Get("InstanceId.1")
	}
}

// promotedLast is what the run is about to promote: its version, which the version of the template
// names that is put in effect.
func (w *onAWS) promotedLast() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.state.Artifacts {
		if a.Kind == invariant.Version && a.Name == w.lease().Version {
			return a.ID
		}
	}
	return ""
}

// goesWithImage: the snapshot was a part of an image, and the run deletes that version. A run that
// finds one whose image is gone deletes it as a snapshot.
func (w *onAWS) goesWithImage(snapshot string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imaged[snapshot] && slices.Contains(w.lease().Acts, "delete-version")
}

// machineBy is the ID by which nodes name an instance.
func (w *onAWS) machineBy(id string) string {
	m, _ := w.cloud.Machine(id)
	return awsScheme + m.Zone + "/" + id
}

// awsCodes are how each service says that it does not do a call: its status and code, by fault, for
// EC2, Auto Scaling and SSM.
var awsCodes = map[worlds.Fault][3]struct {
	status int
	code   string
}{
	worlds.Conflict:     {{400, "IncorrectState"}, {400, "ScalingActivityInProgress"}, {400, "TooManyUpdates"}},
	worlds.Precondition: {{400, "IncorrectInstanceState"}, {500, "ResourceContention"}, {400, "TooManyUpdates"}},
	worlds.Throttled:    {{503, "RequestLimitExceeded"}, {400, "Throttling"}, {400, "ThrottlingException"}},
	worlds.ServerError:  {{500, "InternalError"}, {500, "InternalFailure"}, {500, "InternalServerError"}},
	worlds.NoAnswer:     {{500, "InternalError"}, {500, "InternalFailure"}, {500, "InternalServerError"}},
	worlds.FalseFailure: {{500, "InternalError"}, {500, "InternalFailure"}, {500, "InternalServerError"}},
	worlds.Forbidden:    {{403, "UnauthorizedOperation"}, {403, "AccessDenied"}, {400, "AccessDeniedException"}},
	worlds.Blind:        {{401, "AuthFailure"}, {403, "InvalidClientTokenId"}, {400, "UnrecognizedClientException"}},
	worlds.Quota:        {{400, "ResourceLimitExceeded"}, {400, "LimitExceeded"}, {400, "ParameterLimitExceeded"}},
}

// awsMissing are how EC2 says that it does not find what a call names.
var awsMissing = map[string]string{
	"DescribeInstances": "InvalidInstanceID.NotFound", "DescribeInstanceAttribute": "InvalidInstanceID.NotFound",
	"GetConsoleOutput": "InvalidInstanceID.NotFound",
	"DescribeVolumes":  "InvalidVolume.NotFound", "DescribeLaunchTemplateVersions": "InvalidLaunchTemplateId.NotFound",
}

// pass brings a call to AWS.
func (w *onAWS) pass(c *Call, r *http.Request, kind worlds.Fault) *reply {
	if kind == worlds.Vanished {
		w.vanished = w.clock.Now().Add(worlds.Vanishing)
	}
	hidden := w.clock.Now().Before(w.vanished) && slices.Contains([]string{"DescribeInstances", "DescribeImages", "DescribeSnapshots"},
		c.action())
	if kind == worlds.Absent || kind == worlds.Empty || hidden {
		if answer := c.nothing(); answer != nil {
			return answer
		}
		kind = worlds.Absent
	}
	if f := w.faulty(kind, c); f != nil {
		w.cloud.AddFault(*f)
		defer w.cloud.RemoveFaults()
	}
	answer := newReply()
	inner := r.Clone(w.ctx)
	inner.Body = body(c.body)
	w.cloud.ServeHTTP(answer, inner)
	return answer
}

// nothing is the answer to a list that has nothing in it; nil for a call that names what it wants.
func (c *Call) nothing() *reply {
	r := newReply()
	switch action := c.action(); {
	case c.List:
		r.body.WriteString(`<` + action + `Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>crash</requestId></` +
			action + `Response>`)
	case strings.HasPrefix(c.Path, "/autoscaling/"):
		r.body.WriteString(`<` + action + `Response xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><` + action + `Result></` +
			action + `Result></` + action + `Response>`)
	case action == "GetParameters":
		r.body.WriteString(`{"Parameters":[],"InvalidParameters":["none"]}`)
	default:
		return nil
	}
	r.header.Set("Content-Type", "text/xml")
	return r
}

// faulty is the emulator's fault for one of the dictionary.
func (w *onAWS) faulty(k worlds.Fault, c *Call) *awsemulator.Fault {
	f := &awsemulator.Fault{Kind: awsemulator.Reply, Message: "the crash harness answers"}
	service := slices.Index([]string{"ec2", "autoscaling", "ssm"}, strings.Split(c.Path, "/")[1])
	answers, refused := awsCodes[k]
	switch k {
	case worlds.FalseFailure:
		f.Kind = awsemulator.FalseFailure
	case worlds.FalseSuccess:
		return &awsemulator.Fault{Kind: awsemulator.FalseSuccess}
	case worlds.OperationFailed:
		return &awsemulator.Fault{Kind: awsemulator.Fail}
	case worlds.OperationEndless:
		f.Kind, f.Duration = awsemulator.Slow, endless
		if c.means.Verb == invariant.CreateVersion {
			f.Duration = endlessBuild
		}
		return f
	case worlds.LateCreate:
		f.Kind, f.Duration = awsemulator.Stale, lateCreate
		return f
	case worlds.Absent:
		f.Status, f.Code = http.StatusBadRequest, awsMissing[c.action()]
		if f.Code == "" {
			return nil
		}
		return f
	case worlds.Quota:
		if c.means.Verb == invariant.PowerOn || c.means.Verb == invariant.LaunchCanary {
			f.Status, f.Code = http.StatusInternalServerError, "InsufficientInstanceCapacity"
			return f
		}
	}
	if !refused || service < 0 {
		return nil
	}
	f.Status, f.Code = answers[service].status, answers[service].code
	return f
}
