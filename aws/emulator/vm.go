package emulator

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// States of an instance and their codes (EC2 API reference, InstanceState).
const (
	pending      = "pending"
	running      = "running"
	shuttingDown = "shutting-down"
	terminated   = "terminated"
	stopping     = "stopping"
	stopped      = "stopped"
)

var stateCodes = map[string]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48, stopping: 64, stopped: 80}

// instance is one virtual machine.
type instance struct {
	meta
	State       string
	Why         string // of its last change of state
	Turn        int    // changes with each power operation, so that an overtaken one has no effect
	Zone        string
	Subnet      string
	Image       string
	Template    string
	Version     int
	Group       string   // of Auto Scaling
	IP          string   //
	Volumes     []attach //
	RootDevice  string
	RootType    string // ebs or instance-store
	Data        object // as the template and RunInstances had it, fields of RequestLaunchTemplateData
	Arch        string
	Platform    string
	ProductCode string
	Operator    string // principal of the service that manages it, as eks.amazonaws.com
	Reservation string
	Boots       int
	Console     string
}

// attach is a volume at an instance.
type attach struct {
	Device, Volume string
	Delete         bool // with the instance
}

// volume is an EBS volume. Files is what is on it, symbolically.
type volume struct {
	meta
	Zone       string
	Snapshot   string
	Instance   string
	Size       int
	Type       string
	Iops       int    // of io1, io2 and gp3
	Throughput int    // of gp3, in MiB/s
	KMSKey     string // "" where it is not encrypted
	Files      map[string]string
}

func (v *volume) fact(filter string) ([]string, bool) {
	facts := map[string]string{"volume-id": v.ID, "snapshot-id": v.Snapshot, "attachment.instance-id": v.Instance,
		"availability-zone": v.Zone,
		"size":              strconv.Itoa(v.Size), "volume-type": v.Type, "encrypted": strconv.FormatBool(v.KMSKey != "")}
	value, ok := facts[filter]
	return []string{value}, ok
}

func (i *instance) dns() string {
	return "ip-" + strings.ReplaceAll(i.IP, ".", "-")
}

func (i *instance) fact(filter string) ([]string, bool) {
	facts := map[string]string{
		"instance-id": i.ID, "instance-state-name": i.State, "instance-state-code": strconv.Itoa(stateCodes[i.State]), "image-id": i.Image,
		"availability-zone": i.Zone, "subnet-id": i.Subnet, "instance-type": text(i.Data, "InstanceType"), "private-ip-address": i.IP,
		"architecture": i.Arch, "root-device-type": i.RootType, "root-device-name": i.RootDevice, "instance-lifecycle": i.lifecycle(),
		"key-name": text(i.Data, "KeyName"), "reservation-id": i.Reservation, "private-dns-name": i.dns() + ".",
		"client-token": text(i.Data, "ClientToken"),
	}
	value, ok := facts[filter]
	if filter == "private-dns-name" {
		return []string{i.dns() + ".*", i.dns()}, true
	}
	if filter == "block-device-mapping.volume-id" {
		return mapped(i.Volumes, func(a attach) string { return a.Volume }), true
	}
	return []string{value}, ok
}

func mapped[T any](list []T, f func(T) string) (out []string) {
	for _, item := range list {
		out = append(out, f(item))
	}
	return out
}

func (i *instance) lifecycle() string {
	if text(i.Data, "InstanceMarketOptions", "MarketType") == "spot" {
		return "spot"
	}
	return ""
}

// alive says whether an instance still is a machine.
func (i *instance) alive() bool { return i.State != shuttingDown && i.State != terminated }

func stateOf(state string) object { return object{"code": stateCodes[state], "name": state} }

// show is an instance as DescribeInstances has it.
func (c *call) show(i *instance) any {
	mappings := each(i.Volumes, func(a attach) any {
		return object{"deviceName": a.Device, "ebs": object{"volumeId": a.Volume, "status": "attached", "attachTime": i.Created,
			"deleteOnTermination": a.Delete}}
	})
	o := object{
		"instanceId": i.ID, "imageId": i.Image, "instanceState": stateOf(i.State), "privateDnsName": i.dns() + "." + c.s.Region +
			".compute.internal",
		"reason": i.Why, "keyName": text(i.Data, "KeyName"), "amiLaunchIndex": 0, "instanceType": text(i.Data, "InstanceType"),
		"launchTime": i.Created,
		"placement":  object{"availabilityZone": i.Zone, "groupName": text(i.Data, "Placement", "GroupName"), "tenancy": "default"},
		"monitoring": object{"state": "disabled"}, "subnetId": i.Subnet, "vpcId": "vpc-0e0e0e0e0e0e0e0e0", "privateIpAddress": i.IP,
		"architecture": i.Arch, "rootDeviceType": i.RootType, "rootDeviceName": i.RootDevice, "blockDeviceMapping": mappings,
		"virtualizationType": "hvm", "hypervisor": "xen", "enaSupport": true, "ebsOptimized": truth(i.Data, "EbsOptimized"),
		"tagSet":          tagList(i.Tags),
		"platformDetails": cmp.Or(i.Platform, "Linux/UNIX"), "usageOperation": usage(i.Platform), "instanceLifecycle": i.lifecycle(),
		"clientToken": text(i.Data, "ClientToken"),
		"metadataOptions": object{"state": "applied", "httpTokens": cmp.Or(text(i.Data, "MetadataOptions", "HttpTokens"), "required"),
			"httpPutResponseHopLimit": cmp.Or(text(i.Data, "MetadataOptions", "HttpPutResponseHopLimit"), "2"), "httpEndpoint": "enabled",
			"instanceMetadataTags": cmp.Or(text(i.Data, "MetadataOptions", "InstanceMetadataTags"), "disabled")},
		"hibernationOptions": object{"configured": truth(i.Data, "HibernationOptions", "Configured")},
	}
	if strings.HasPrefix(i.Platform, "Windows") {
		o["platform"] = "windows"
	}
	if profile := part(i.Data, "IamInstanceProfile"); profile != nil {
		o["iamInstanceProfile"] = object{"arn": cmp.Or(text(profile, "Arn"), "arn:aws:iam::"+c.s.Account+":instance-profile/"+
			text(profile, "Name"))}
	}
	if i.ProductCode != "" {
		o["productCodes"] = []any{object{"productCode": i.ProductCode, "type": "marketplace"}}
	}
	if i.Operator != "" {
		o["operator"] = object{"managed": true, "principal": i.Operator}
	}
	if i.State == stopped || i.State == terminated {
		code, _, told := strings.Cut(i.Why, ": ")
		if !told {
			code = "Client.UserInitiatedShutdown"
		}
		o["stateReason"] = object{"code": code, "message": cmp.Or(i.Why, "Client.UserInitiatedShutdown: User initiated shutdown")}
	}
	return o
}

func noInstance(id string) *apiError {
	return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
}

func describeInstances(c *call) (object, *apiError) {
	return describe(c, c.s.store.Instances, texts(c.in, "InstanceId"), noInstance, "reservationSet", func(i *instance) any {
		return object{"reservationId": i.Reservation, "ownerId": c.s.Account, "instancesSet": []any{c.show(i)}}
	})
}

// describeInstanceStatus leaves out what does not run, unless told.
func describeInstanceStatus(c *call) (object, *apiError) {
	found, err := pick(c, c.s.store.Instances, texts(c.in, "InstanceId"), noInstance)
	if err != nil {
		return nil, err
	}
	if !truth(c.in, "IncludeAllInstances") {
		found = slices.DeleteFunc(found, func(i *instance) bool { return i.State != running })
	}
	return paged(c, found, "instanceStatusSet", func(i *instance) any {
		ok := object{"status": map[bool]string{true: "ok", false: "not-applicable"}[i.State == running]}
		return object{"instanceId": i.ID, "availabilityZone": i.Zone, "instanceState": stateOf(i.State), "systemStatus": ok,
			"instanceStatus": ok}
	})
}

func (c *call) instance(id string) (*instance, *apiError) {
	i, ok := known(c, c.s.store.Instances, id)
	if !ok {
		return nil, noInstance(id)
	}
	return i, nil
}

// attributes are those of DescribeInstanceAttribute that have one value, and their names in a
// launch template.
var attributes = map[string]string{"instanceInitiatedShutdownBehavior": "InstanceInitiatedShutdownBehavior",
	"disableApiTermination": "DisableApiTermination", "disableApiStop": "DisableApiStop", "userData": "UserData",
	"instanceType": "InstanceType"}

func describeInstanceAttribute(c *call) (object, *apiError) {
	i, err := c.instance(text(c.in, "InstanceId"))
	if err != nil {
		return nil, err
	}
	name := text(c.in, "Attribute")
	field, ok := attributes[name]
	if !ok {
		return nil, refuse("InvalidParameterValue", "Value (%s) for parameter attribute is invalid. Unknown attribute.", name)
	}
	value := text(i.Data, field)
	switch {
	case value == "" && name == "instanceInitiatedShutdownBehavior":
		value = "stop"
	case value == "" && strings.HasPrefix(name, "disable"):
		value = "false"
	}
	return object{"instanceId": i.ID, name: object{"value": value}}, nil
}

func modifyInstanceAttribute(c *call) (object, *apiError) {
	i, err := c.instance(text(c.in, "InstanceId"))
	if err != nil {
		return nil, err
	}
	for _, field := range attributes {
		if value := text(c.in, field, "Value"); value != "" {
			i.Data[field] = value
		}
	}
	return nil, nil
}

func getConsoleOutput(c *call) (object, *apiError) {
	i, err := c.instance(text(c.in, "InstanceId"))
	if err != nil {
		return nil, err
	}
	output := fmt.Sprintf("boot %d of %s\n%s", i.Boots, i.dns(), i.Console)
	return object{"instanceId": i.ID, "timestamp": i.Created, "output": base64.StdEncoding.EncodeToString([]byte(output))}, nil
}

func describeVolumes(c *call) (object, *apiError) {
	missing := func(id string) *apiError {
		return refuse("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	}
	return describe(c, c.s.store.Volumes, texts(c.in, "VolumeId"), missing, "volumeSet", func(v *volume) any {
		o := object{"volumeId": v.ID, "size": v.Size, "snapshotId": v.Snapshot, "availabilityZone": v.Zone, "status": "in-use",
			"createTime": v.Created,
			"volumeType": v.Type, "encrypted": v.KMSKey != "", "kmsKeyId": v.KMSKey, "tagSet": tagList(v.Tags)}
		if v.Iops > 0 {
			o["iops"] = v.Iops
		}
		if v.Throughput > 0 {
			o["throughput"] = v.Throughput
		}
		if i := c.s.store.Instances[v.Instance]; i != nil {
			for _, a := range i.Volumes {
				if a.Volume == v.ID {
					o["attachmentSet"] = []any{object{"volumeId": v.ID, "instanceId": i.ID, "device": a.Device, "status": "attached",
						"attachTime": v.Created, "deleteOnTermination": a.Delete}}
				}
			}
		} else {
			o["status"] = "available"
		}
		return o
	})
}

// rootVolume is the volume that an instance boots from; nil for an instance store.
func (s *Server) rootVolume(i *instance) *volume {
	for _, a := range i.Volumes {
		if a.Device == i.RootDevice {
			return s.store.Volumes[a.Volume]
		}
	}
	return nil
}

// tagged is everything that has tags, and what kind it is.
func (s *Server) tagged() map[string]struct {
	kind string
	*meta
} {
	all := map[string]struct {
		kind string
		*meta
	}{}
	add := func(kind string, m *meta) {
		all[m.ID] = struct {
			kind string
			*meta
		}{kind, m}
	}
	st := s.store
	for i := range maps.Values(st.Instances) {
		add("instance", &i.meta)
	}
	for v := range maps.Values(st.Volumes) {
		add("volume", &v.meta)
	}
	for sn := range maps.Values(st.Snapshots) {
		add("snapshot", &sn.meta)
	}
	for im := range maps.Values(st.Images) {
		add("image", &im.meta)
	}
	for t := range maps.Values(st.Templates) {
		add("launch-template", &t.meta)
	}
	return all
}
