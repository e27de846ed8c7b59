package emulator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Statement is one of a policy document of IAM
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements.html).
type Statement struct {
	Effect    string // Allow or Deny
	Action    values
	Resource  values
	Condition map[string]map[string]values // by operator, then by context key
}

// values are one text in JSON, or several.
type values []string

// UnmarshalJSON implements json.Unmarshaler.
func (v *values) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*v = values{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(v))
}

// operators of conditions that are known here.
var operators = map[string]func(want, have string) bool{
	"StringEquals": func(want, have string) bool { return want == have },
	"StringLike":   like, "ArnLike": like, "ArnEquals": like,
}

// ParsePolicy makes a policy of documents. What it would not enforce is an error.
func ParsePolicy(documents ...[]byte) (p Policy, err error) {
	for _, raw := range documents {
		var d struct {
			Version   string
			Statement []Statement
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return p, fmt.Errorf("read policy: %w", err)
		}
		for _, s := range d.Statement {
			for operator := range s.Condition {
				bare := strings.TrimPrefix(operator, "ForAllValues:")
				if operators[bare] == nil && bare != "Null" {
					return p, fmt.Errorf("condition operator %s is not known", operator)
				}
			}
			if len(s.Action) == 0 || len(s.Resource) == 0 || s.Effect != "Allow" && s.Effect != "Deny" {
				return p, fmt.Errorf("statement without effect, action or resource: %+v", s)
			}
		}
		p.Statements = append(p.Statements, d.Statement...)
	}
	return p, nil
}

// MustPolicy is ParsePolicy for documents that are part of a program.
func MustPolicy(documents ...[]byte) Policy {
	p, err := ParsePolicy(documents...)
	if err != nil {
		panic(err)
	}
	return p
}

// Without is the policy less an action in all of its statements.
func (p Policy) Without(action string) Policy {
	var rest []Statement
	for _, s := range p.Statements {
		s.Action = slices.DeleteFunc(slices.Clone(s.Action), func(a string) bool { return a == action })
		if len(s.Action) > 0 {
			rest = append(rest, s)
		}
	}
	p.Statements = rest
	return p
}

// target is what a call does something to, as policies see it: a resource, and the context keys
// that are there.
type target struct {
	arn  string
	keys map[string][]string
}

// anything is the target of actions that policies cannot narrow.
var anything = []target{{arn: "*"}}

// matches says whether a statement speaks of an action on a target.
func (s Statement) matches(action string, t target) bool {
	fits := func(pattern string) bool { return like(strings.ToLower(pattern), strings.ToLower(action)) }
	if !slices.ContainsFunc(s.Action, fits) || !slices.ContainsFunc(s.Resource, func(pattern string) bool { return like(pattern, t.arn) }) {
		return false
	}
	for operator, keys := range s.Condition {
		for key, wanted := range keys {
			if !holds(operator, wanted, t.keys[key]) {
				return false
			}
		}
	}
	return true
}

// holds compares the values of a context key with those of a condition. A key that is absent meets
// none but Null and ForAllValues
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html).
func holds(operator string, wanted, have []string) bool {
	if operator == "Null" {
		return (len(have) == 0) == slices.Contains(wanted, "true")
	}
	bare, all := strings.CutPrefix(operator, "ForAllValues:")
	met := func(h string) bool {
		return slices.ContainsFunc(wanted, func(w string) bool { return operators[bare](w, h) })
	}
	if all {
		return !slices.ContainsFunc(have, func(h string) bool { return !met(h) })
	}
	return slices.ContainsFunc(have, met)
}

// arn of a resource of EC2. Those of images and snapshots name no account.
func (s *Server) arn(kind, id string) string {
	account := s.Account
	if kind == "image" || kind == "snapshot" {
		account = ""
	}
	return "arn:aws:ec2:" + s.Region + ":" + account + ":" + kind + "/" + id
}

// there are resources of EC2 by ID, with their tags as context keys.
func (c *call) there(ids ...string) (all []target) {
	kinds := map[string]string{"i": "instance", "vol": "volume", "snap": "snapshot", "ami": "image", "lt": "launch-template"}
	tagged := c.s.tagged()
	for _, id := range ids {
		prefix, _, _ := strings.Cut(id, "-")
		t := target{arn: c.s.arn(kinds[prefix], id), keys: map[string][]string{}}
		if m, ok := tagged[id]; ok {
			for key, value := range m.Tags {
				t.keys["aws:ResourceTag/"+key], t.keys["ec2:ResourceTag/"+key] = []string{value}, []string{value}
			}
		}
		all = append(all, t)
	}
	return all
}

// asked are the tags that a call gives, as context keys.
func asked(tags []object) map[string][]string {
	keys := map[string][]string{}
	for _, t := range tags {
		key := text(t, "Key")
		keys["aws:RequestTag/"+key] = []string{text(t, "Value")}
		keys["aws:TagKeys"] = append(keys["aws:TagKeys"], key)
	}
	return keys
}

// fresh is a resource that a call is to make, with the tags that the call gives it.
func (c *call) fresh(kind string, in object) target {
	var tags []object
	for _, spec := range items(in, "TagSpecification") {
		if text(spec, "ResourceType") == kind {
			tags = append(tags, items(spec, "Tag")...)
		}
	}
	return target{arn: c.s.arn(kind, "*"), keys: asked(tags)}
}

// with adds a context key to targets.
func with(all []target, key, value string) []target {
	for _, t := range all {
		t.keys[key] = []string{value}
	}
	return all
}

// targets are what a call's own action needs, as the Service Authorization Reference has it
// (https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html, and those
// of Auto Scaling and Systems Manager).
func (c *call) targets() []target {
	in := c.in
	switch c.name() {
	case "ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances", "ec2:RebootInstances":
		return c.there(texts(in, "InstanceId")...)
	case "ec2:GetConsoleOutput", "ec2:DescribeInstanceAttribute", "ec2:ModifyInstanceAttribute":
		return c.there(text(in, "InstanceId"))
	case "ec2:CreateSnapshot":
		return append(c.there(text(in, "VolumeId")), c.fresh("snapshot", in))
	case "ec2:DeleteSnapshot":
		return c.there(text(in, "SnapshotId"))
	case "ec2:RegisterImage":
		all := []target{c.fresh("image", in)}
		for _, b := range items(in, "BlockDeviceMapping") {
			if id := text(b, "Ebs", "SnapshotId"); id != "" {
				all = append(all, c.there(id)...)
			}
		}
		return all
	case "ec2:DeregisterImage":
		return c.there(text(in, "ImageId"))
	case "ec2:CreateTags", "ec2:DeleteTags":
		all := c.there(texts(in, "ResourceId")...)
		for _, t := range all {
			for key, value := range asked(items(in, "Tag")) {
				t.keys[key] = value
			}
		}
		return all
	case "ec2:CreateLaunchTemplateVersion", "ec2:ModifyLaunchTemplate", "ec2:DeleteLaunchTemplate", "ec2:DeleteLaunchTemplateVersions":
		if t, err := c.s.findTemplate(in); err == nil {
			return c.there(t.ID)
		}
		return c.there(text(in, "LaunchTemplateId"))
	}
	return c.targetsElsewhere()
}

func (c *call) targetsElsewhere() (all []target) {
	in := c.in
	switch c.name() {
	case "autoscaling:UpdateAutoScalingGroup", "autoscaling:EnterStandby", "autoscaling:ExitStandby", "autoscaling:SuspendProcesses",
		"autoscaling:ResumeProcesses",
		"autoscaling:SetDesiredCapacity", "autoscaling:DetachInstances", "autoscaling:AttachInstances",
		"autoscaling:DeleteAutoScalingGroup":
		return []target{c.ofGroup(text(in, "AutoScalingGroupName"), nil)}
	case "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags":
		for _, t := range items(in, "Tags") {
			all = append(all, c.ofGroup(text(t, "ResourceId"), []object{t}))
		}
		return all
	case "ssm:PutParameter", "ssm:GetParameter", "ssm:GetParameterHistory", "ssm:LabelParameterVersion", "ssm:DeleteParameter":
		return []target{c.ofParameter(text(in, "Name"))}
	case "ssm:GetParameters":
		for _, name := range texts(in, "Names") {
			all = append(all, c.ofParameter(name))
		}
		return all
	}
	return anything
}

func (c *call) ofGroup(name string, tags []object) target {
	t := target{arn: "arn:aws:autoscaling:" + c.s.Region + ":" + c.s.Account + ":autoScalingGroup:*:autoScalingGroupName/" +
		name, keys: asked(tags)}
	if g := c.s.store.Groups[name]; g != nil {
		for _, tag := range g.Tags {
			t.keys["aws:ResourceTag/"+tag.Key], t.keys["autoscaling:ResourceTag/"+tag.Key] = []string{tag.Value}, []string{tag.Value}
		}
	}
	return t
}

// ofParameter has one slash before the name. Those of AWS name no account.
func (c *call) ofParameter(selector string) target {
	name, _, _ := strings.Cut(selector, ":")
	account := c.s.Account
	if strings.HasPrefix(name, "/aws/") {
		account = ""
	}
	return target{arn: "arn:aws:ssm:" + c.s.Region + ":" + account + ":parameter/" + strings.TrimPrefix(name, "/")}
}

// needRun refuses a launch whose sender may not do all of it: on each resource, tag what is made,
// pass the role, and read the parameter that the template names. A group asks for the same when it
// is given a template
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-launch-template-permissions.html).
// An instance profile is taken to have a role of its name.
func (c *call) needRun(data object, template string) *apiError {
	all := []target{{arn: c.s.arn("image", text(data, "ImageId")), keys: map[string][]string{}}}
	if strings.HasPrefix(text(data, "ImageId"), "ami-") {
		all = c.there(text(data, "ImageId"))
	}
	if template != "" {
		all = append(all, c.there(template)...)
	}
	made := []target{c.fresh("instance", data), c.fresh("volume", data), c.fresh("network-interface", data)}
	all = append(all, made...)
	for _, kind := range []string{"subnet", "security-group"} {
		all = append(all, target{arn: c.s.arn(kind, "*"), keys: map[string][]string{}})
	}
	if template != "" {
		all = with(all, "ec2:LaunchTemplate", c.s.arn("launch-template", template))
	}
	if err := c.needOn("ec2:RunInstances", all); err != nil {
		return err
	}
	if err := c.needTags("RunInstances", made); err != nil {
		return err
	}
	if profile := part(data, "IamInstanceProfile"); profile != nil {
		name := text(profile, "Name")
		if arn := text(profile, "Arn"); name == "" {
			name = arn[strings.LastIndex(arn, "/")+1:]
		}
		role := target{arn: "arn:aws:iam::" + c.s.Account + ":role/" + name,
			keys: map[string][]string{"iam:PassedToService": {"ec2.amazonaws.com"}}}
		if err := c.needOn("iam:PassRole", []target{role}); err != nil {
			return err
		}
	}
	if name, ok := strings.CutPrefix(text(data, "ImageId"), resolvePrefix); ok {
		return c.needOn("ssm:GetParameters", []target{c.ofParameter(name)})
	}
	return nil
}

// needTags refuses a call that gives tags to what it makes, and whose sender may not.
func (c *call) needTags(action string, made []target) *apiError {
	tagged := slices.DeleteFunc(slices.Clone(made), func(t target) bool { return len(t.keys["aws:TagKeys"]) == 0 })
	return c.needOn("ec2:CreateTags", with(tagged, "ec2:CreateAction", action))
}

// needTagsOfCall is that of the calls that make one kind of thing.
func (c *call) needTagsOfCall() *apiError {
	kind := map[string]string{"ec2:CreateSnapshot": "snapshot", "ec2:RegisterImage": "image", "ec2:CreateImage": "image",
		"ec2:CreateLaunchTemplate": "launch-template"}[c.name()]
	if kind == "" {
		return nil
	}
	return c.needTags(c.action, []target{c.fresh(kind, c.in)})
}
