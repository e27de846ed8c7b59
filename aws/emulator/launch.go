package emulator

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// maxUserData is in bytes, before base64
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html).
const maxUserData = 16 << 10

// userData refuses what is too long or no base64.
func userData(data object) *apiError {
	raw, err := base64.StdEncoding.DecodeString(text(data, "UserData"))
	switch {
	case err != nil:
		return refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	case len(raw) > maxUserData:
		return refuse("InvalidParameterValue", "User data is limited to %d bytes", maxUserData)
	}
	return nil
}

// order is what an instance is launched from.
type order struct {
	data     object // fields of RequestLaunchTemplateData
	template string
	version  int
	zone     string
	subnet   string
	group    string
	tags     map[string]string
	weight   int // in a group
}

var arm = regexp.MustCompile(`^[a-z]+[0-9]+g|^a1\.`)

// launch makes an instance. What its template says is resolved now.
func (s *Server) launch(o order) (*instance, *apiError) {
	im, err := s.launchable(text(o.data, "ImageId"))
	if err != nil {
		return nil, err
	}
	kind := text(o.data, "InstanceType")
	arch := map[bool]string{true: "arm64", false: "x86_64"}[arm.MatchString(kind)]
	switch {
	case kind == "":
		return nil, refuse("MissingParameter", "The request must contain the parameter InstanceType")
	case arch != im.Arch:
		return nil, refuse("InvalidParameterValue",
			"The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.", arch, im.Arch)
	}
	if err := userData(o.data); err != nil {
		return nil, err
	}
	for key := range o.tags {
		if err := metadataTag(o.data, key); err != nil {
			return nil, err
		}
	}
	disks, err := s.disks(o.data, im)
	if err != nil {
		return nil, err
	}
	data, _ := copied(o.data).(object)
	i := &instance{meta: s.born("i", maps.Clone(o.tags)), State: pending, Zone: o.zone, Subnet: o.subnet, Image: im.ID,
		Template: o.template, Version: o.version,
		Group: o.group, RootDevice: im.RootDevice, RootType: im.RootType, Data: data, Arch: im.Arch, Platform: im.Platform,
		ProductCode: im.ProductCode}
	i.Reservation = "r" + strings.TrimPrefix(i.ID, "i")
	i.IP = fmt.Sprintf("10.0.%d.%d", i.Order/250%250, i.Order%250+4)
	s.store.Instances[i.ID] = i
	s.attachVolumes(i, disks)
	s.turn(i, pending, running, s.delays.Launch, "")
	return i, nil
}

// launchable finds the image of a launch; a parameter is resolved.
func (s *Server) launchable(id string) (*image, *apiError) {
	if name, ok := strings.CutPrefix(id, resolvePrefix); ok {
		resolved, err := s.resolve(name)
		if err != nil {
			return nil, err
		}
		id = resolved
	}
	im := s.store.Images[id]
	switch {
	case id == "":
		return nil, refuse("MissingParameter", "The request must contain the parameter ImageId")
	case im == nil:
		return nil, noImage(id)
	case im.State == "pending":
		return nil, refuse("InvalidAMIID.Unavailable", "The image ID '%s' is not available: AMI %s is pending, and cannot be run.", id, id)
	case im.State != "available":
		return nil, refuse("InvalidAMIID.Unavailable", "The image ID '%s' is not available", id)
	}
	return im, nil
}

// disks are the image's mappings, with what a template says of them and adds.
func (s *Server) disks(data object, im *image) ([]mapping, *apiError) {
	mappings := append([]mapping{}, im.Mappings...)
	for _, b := range items(data, "BlockDeviceMapping") {
		device, known := text(b, "DeviceName"), false
		for n := range mappings {
			if mappings[n].Device == device {
				mappings[n].change(part(b, "Ebs"))
				known = true
			}
		}
		if !known && part(b, "Ebs") != nil {
			m := mapping{Device: device, Type: "gp3", Size: 8}
			m.change(part(b, "Ebs"))
			mappings = append(mappings, m)
		}
	}
	for n := range mappings {
		m := &mappings[n]
		if m.Type = cmp.Or(m.Type, "gp3"); m.Type == "gp3" { // what it has unless told (EC2 API reference, EbsBlockDevice)
			m.Iops, m.Throughput = cmp.Or(m.Iops, 3000), cmp.Or(m.Throughput, 125)
		}
		if err := s.limitedDisk(*m); err != nil {
			return nil, err
		}
	}
	return mappings, nil
}

// attachVolumes makes the volumes of mappings.
func (s *Server) attachVolumes(i *instance, mappings []mapping) {
	for _, m := range mappings {
		v := &volume{meta: s.born("vol", tagsFor(i.Data, "volume")), Zone: i.Zone, Snapshot: m.Snapshot, Instance: i.ID, Size: m.Size,
			Type: m.Type, Iops: m.Iops, Throughput: m.Throughput, KMSKey: m.KMSKey, Files: map[string]string{}}
		if sn := s.store.Snapshots[m.Snapshot]; sn != nil {
			maps.Copy(v.Files, sn.Files)
		}
		s.store.Volumes[v.ID] = v
		i.Volumes = append(i.Volumes, attach{Device: m.Device, Volume: v.ID, Delete: !m.Keep})
	}
}

// runInstances launches instances that are in no group. What the call says goes before the
// template.
func runInstances(c *call) (object, *apiError) {
	s, o := c.s, order{}
	if id, err := c.once(); err != nil {
		return nil, err
	} else if i := s.store.Instances[id]; i != nil {
		return object{"reservationId": i.Reservation, "ownerId": s.Account, "instancesSet": []any{c.show(i)}}, nil
	}
	if err := c.ordered(&o); err != nil {
		return nil, err
	}
	if text(c.in, "SubnetId") != "" && len(items(o.data, "NetworkInterface")) > 0 {
		return nil, refuse("InvalidParameterCombination",
			"Network interfaces and an instance-level subnet ID may not be specified on the same request")
	}
	o.tags = tagsFor(o.data, "instance")
	if o.template != "" {
		o.tags["aws:ec2launchtemplate:id"], o.tags["aws:ec2launchtemplate:version"] = o.template, fmt.Sprint(o.version)
	}
	o.subnet = cmp.Or(text(c.in, "SubnetId"), "subnet-0a")
	o.zone = s.zoneOf(o.subnet)
	if zone := text(o.data, "Placement", "AvailabilityZone"); zone != "" && zone != o.zone { // the code and the words are unverified
		return nil, &apiError{Code: "InvalidParameterValue", Message: "Value (" + zone +
			") for parameter availabilityZone is invalid. Subnet '" + o.subnet + "' is in the availability zone " + o.zone}
	}
	count, _ := number(c.in, "MaxCount")
	var out []any
	var first *instance
	for range max(count, 1) {
		i, err := s.launch(o)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = i
			c.remember(i.ID)
		}
		i.Reservation = first.Reservation
		out = append(out, c.show(i))
	}
	return object{"reservationId": first.Reservation, "ownerId": s.Account, "instancesSet": out}, nil
}

// ordered reads what a call of RunInstances wants: what it says goes before its template.
func (c *call) ordered(o *order) *apiError {
	o.data = object{}
	if spec := part(c.in, "LaunchTemplate"); spec != nil {
		t, v, err := c.s.findVersion(spec)
		if err != nil {
			return err
		}
		o.data, _ = copied(v.Data).(object)
		o.template, o.version = t.ID, v.Number
	}
	given, _ := copied(c.in).(object)
	for _, name := range []string{"LaunchTemplate", "Action", "Version", "MinCount", "MaxCount", "SubnetId", "DryRun"} {
		delete(given, name)
	}
	maps.Copy(o.data, given)
	return nil
}

// mayRun refuses a launch for which its sender lacks a right; a template that is not there names
// nothing.
func (c *call) mayRun() *apiError {
	var o order
	if err := c.ordered(&o); err != nil {
		o.data = c.in
	}
	return c.needRun(o.data, o.template)
}

// zoneOf is where a subnet lies: the last letter of its ID, for those of scenarios.
func (s *Server) zoneOf(subnet string) string {
	if len(subnet) > 0 && subnet[len(subnet)-1] >= 'a' && subnet[len(subnet)-1] <= 'c' {
		return s.Region + subnet[len(subnet)-1:]
	}
	return s.Region + "a"
}

func describeRegions(c *call) (object, *apiError) {
	return object{"regionInfo": []any{object{"regionName": c.s.Region, "regionEndpoint": "ec2." + c.s.Region + ".amazonaws.com",
		"optInStatus": "opt-in-not-required"}}}, nil
}

func describeAvailabilityZones(c *call) (object, *apiError) {
	return object{"availabilityZoneInfo": each([]string{"a", "b", "c"}, func(letter string) any {
		return object{"zoneName": c.s.Region + letter, "zoneState": "available", "regionName": c.s.Region, "zoneId": "euc1-az" + letter,
			"zoneType": "availability-zone"}
	})}, nil
}
