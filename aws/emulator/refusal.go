package emulator

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// taggable are the kinds of resource for which a call takes tags (EC2 API reference,
// TagSpecifications of each).
var taggable = map[string][]string{
	"CreateSnapshot": {"snapshot"}, "RegisterImage": {"image", "snapshot"}, "CreateImage": {"image", "snapshot"},
	"CreateLaunchTemplate": {"launch-template"},
	"RunInstances":         {"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"},
}

// Limits of tags (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions).
const (
	mostTags    = 50
	longestKey  = 128
	longestText = 256 // of a value
)

// longestDescription is in characters (EC2 API reference, RegisterImage: 255).
const longestDescription = 255

// listedIDs are the IDs beside which a list takes no MaxResults (EC2 API reference, MaxResults of
// each), and the least MaxResults that it takes.
var listedIDs = map[string]struct {
	ids   string
	least int
}{
	"DescribeInstances": {"InstanceId", 5}, "DescribeInstanceStatus": {"InstanceId", 5}, "DescribeVolumes": {"VolumeId", 5},
	"DescribeSnapshots": {"SnapshotId", 5},
	"DescribeImages":    {"ImageId", 1}, "DescribeTags": {"", 5}, "DescribeLaunchTemplates": {"", 1},
	"DescribeLaunchTemplateVersions": {"", 1},
}

// wellFormed is an ID of EC2 (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html).
var wellFormed = regexp.MustCompile(`^[a-z]+-([0-9a-f]{8}|[0-9a-f]{17})$`)

// malformed are the codes for an ID that none can have.
var malformed = map[string]string{"InstanceId": "InvalidInstanceID.Malformed", "ImageId": "InvalidAMIID.Malformed",
	"SnapshotId": "InvalidSnapshotID.Malformed",
	"VolumeId":   "InvalidVolumeID.Malformed"}

// limited refuses what a service refuses for its form alone, whatever there is. Where no source
// tells code and words, they are assumed, unverified on real AWS.
func (c *call) limited() *apiError {
	switch c.service {
	case ec2:
		return c.limitedEC2()
	case autoScaling:
		return c.limitedScaling()
	case ssm:
		return c.limitedSSM()
	}
	return nil
}

func (c *call) limitedEC2() *apiError {
	if err := c.limitedList(); err != nil {
		return err
	}
	for _, spec := range items(c.in, "TagSpecification") {
		kind := text(spec, "ResourceType")
		if !slices.Contains(taggable[c.action], kind) {
			return refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind)
		}
		if err := limitedTags(items(spec, "Tag")); err != nil {
			return err
		}
	}
	if c.action == "CreateTags" {
		if err := limitedTags(items(c.in, "Tag")); err != nil {
			return err
		}
	}
	if d := text(c.in, "Description"); len(d) > longestDescription {
		return refuse("InvalidParameterValue", "Character sets beyond ASCII and descriptions of more than %d characters are not supported.",
			longestDescription)
	}
	return nil
}

func (c *call) limitedList() *apiError {
	l, ok := listedIDs[c.action]
	for name, code := range malformed {
		for _, id := range texts(c.in, name) {
			if ok && !wellFormed.MatchString(id) {
				return refuse(code, "Invalid id: \"%s\"", id)
			}
		}
	}
	n, limited := number(c.in, "MaxResults")
	switch {
	case !ok || !limited:
	case l.ids != "" && len(texts(c.in, l.ids)) > 0:
		return refuse("InvalidParameterCombination", "The parameter %s cannot be used with the parameter maxResults", lowered(l.ids))
	case n < l.least || n > 1000:
		return refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and 1000.",
			n, l.least)
	}
	return nil
}

func limitedTags(tags []object) *apiError {
	seen := map[string]bool{}
	for _, t := range tags {
		key, value := text(t, "Key"), text(t, "Value")
		switch {
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		case key == "" || len(key) > longestKey:
			return refuse("InvalidParameterValue", "Tag key exceeds the maximum length of %d characters", longestKey)
		case len(value) > longestText:
			return refuse("InvalidParameterValue", "Tag value exceeds the maximum length of %d characters", longestText)
		case seen[key]:
			return refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
		}
		seen[key] = true
	}
	return tooMany(len(tags))
}

func tooMany(tags int) *apiError {
	if tags > mostTags {
		return refuse("TagLimitExceeded", "More than %d tags specified", mostTags)
	}
	return nil
}

// limitedDisk refuses what a volume of a type cannot have, and one that is too small for its
// snapshot (EC2 API reference, EbsBlockDevice: Iops is required for io1 and io2, and is for them
// and gp3 only, Throughput for gp3 only).
func (s *Server) limitedDisk(m mapping) *apiError {
	provisioned := m.Type == "io1" || m.Type == "io2"
	switch sn := s.store.Snapshots[m.Snapshot]; {
	case provisioned && m.Iops == 0:
		return refuse("InvalidBlockDeviceMapping", "The parameter iops must be specified for %s volumes.", m.Type)
	case m.Iops > 0 && !provisioned && m.Type != "gp3":
		return refuse("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", m.Type)
	case m.Throughput > 0 && m.Type != "gp3":
		return refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", m.Type)
	case sn != nil && m.Size > 0 && m.Size < sn.Size:
		return refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB",
			m.Size, sn.ID, sn.Size)
	}
	return nil
}

// limitedBoot refuses boot modes that a machine does not have: arm64 boots by UEFI only, and a TPM
// needs UEFI (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ami-boot.html, enable-nitrotpm-prerequisites.html).
func limitedBoot(in object) *apiError {
	if text(in, "BootMode") != "legacy-bios" {
		return nil
	}
	switch {
	case text(in, "Architecture") == "arm64":
		return refuse("InvalidParameterValue", "The boot mode legacy-bios is not supported for the architecture arm64.")
	case text(in, "TpmSupport") != "":
		return refuse("InvalidParameterCombination", "TPM support needs the boot mode uefi.")
	}
	return nil
}

func (c *call) limitedScaling() *apiError {
	most := 100
	if c.action == "DescribeAutoScalingInstances" {
		most = 50
	}
	if n, ok := number(c.in, "MaxRecords"); ok && n > most {
		return invalid("1 validation error detected: Value '%d' at 'maxRecords' failed to satisfy constraint: Member must have value less than or equal to %d", n, most)
	}
	for _, t := range items(c.in, "Tags") {
		key := text(t, "Key")
		switch {
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return invalid("aws: prefixed tag key names are not allowed for external use.")
		case key == "" || len(key) > longestKey || len(text(t, "Value")) > longestText:
			return invalid("1 validation error detected: a key has 1 to %d characters, a value at most %d", longestKey, longestText)
		}
	}
	specs := []object{part(c.in, "LaunchTemplate"), part(c.in, "MixedInstancesPolicy", "LaunchTemplate", "LaunchTemplateSpecification")}
	for _, o := range items(c.in, "MixedInstancesPolicy", "LaunchTemplate", "Overrides") {
		specs = append(specs, part(o, "LaunchTemplateSpecification"))
	}
	for _, spec := range specs {
		if text(spec, "LaunchTemplateId") != "" && text(spec, "LaunchTemplateName") != "" {
			return invalid("Valid requests must contain either launchTemplateId or LaunchTemplateName")
		}
	}
	return nil
}

// mostNames is how many parameters one call reads; longestValue is of a parameter of the standard
// tier (SSM API reference, GetParameters and PutParameter).
const (
	mostNames    = 10
	longestValue = 4096
)

var parameterName = regexp.MustCompile(`^[a-zA-Z0-9_.\-/]+$`)

func (c *call) limitedSSM() *apiError {
	names := texts(c.in, "Names")
	name := text(c.in, "Name")
	first := strings.ToLower(strings.TrimPrefix(name, "/"))
	switch {
	case c.action == "GetParameters" && (len(names) == 0 || len(names) > mostNames):
		return refuse("ValidationException", "1 validation error detected: Value '%s' at 'names' failed to satisfy constraint: Member must have length less than or equal to %d", fmt.Sprint(names), mostNames)
	case c.action != "PutParameter":
	case strings.HasPrefix(first, "aws") || strings.HasPrefix(first, "ssm"):
		return refuse("ValidationException", "Parameter name: can't be prefixed with \"aws\" or \"ssm\" (case-insensitive).")
	case name != "" && !parameterName.MatchString(name):
		return refuse("ValidationException", "Parameter name must be a fully qualified name or consist of letters, digits and the symbols .-_/")
	case len(text(c.in, "Value")) > longestValue:
		return refuse("ValidationException", "Standard tier parameters support a maximum parameter value of %d characters.", longestValue)
	}
	return nil
}
