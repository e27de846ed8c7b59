package emulator

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// rateOfSnapshots is the least time between two snapshots of one volume.
const rateOfSnapshots = 15 * time.Second

// nameKept is how long the name of a deregistered image is refused ("for a while" in
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/deregister-ami.html; the figure is assumed,
// unverified on real AWS).
const nameKept = 30 * time.Second

// image is an AMI.
type image struct {
	meta
	Name        string
	Description string
	State       string // pending, available, failed, disabled
	Why         string
	Owner       string // account, "" for our own
	Source      string // instance it was made of
	SourceImage string
	Arch        string
	Platform    string
	ProductCode string
	RootDevice  string
	RootType    string
	Mappings    []mapping
	Fields      object // as RegisterImage takes them: BootMode, TpmSupport, ImdsSupport, …
	Protected   bool   // against deregistration
}

// mapping is a block device of an image.
type mapping struct {
	Device, Snapshot, Type, KMSKey string
	Size, Iops, Throughput         int
	Keep                           bool // DeleteOnTermination=false
}

func (im *image) fact(filter string) ([]string, bool) {
	facts := map[string]string{"image-id": im.ID, "name": im.Name, "state": im.State, "architecture": im.Arch,
		"root-device-name": im.RootDevice,
		"root-device-type": im.RootType, "description": im.Description, "source-instance-id": im.Source, "virtualization-type": "hvm",
		"is-public": strconv.FormatBool(im.Owner != ""), "image-type": "machine", "owner-id": im.Owner}
	if filter == "block-device-mapping.snapshot-id" {
		return mapped(im.Mappings, func(m mapping) string { return m.Snapshot }), true
	}
	value, ok := facts[filter]
	return []string{value}, ok
}

// usage is the usage operation that goes with platform details
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-info-fields.html).
func usage(platform string) string {
	return map[string]string{"": "RunInstances", "Red Hat Enterprise Linux": "RunInstances:0010", "SUSE Linux": "RunInstances:000g",
		"Ubuntu Pro": "RunInstances:0g00", "Windows": "RunInstances:0002"}[platform]
}

func noImage(id string) *apiError {
	return refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
}

func (c *call) showImage(im *image) any {
	o := object{
		"imageId": im.ID, "name": im.Name, "description": im.Description, "imageState": im.State,
		"imageOwnerId":  cmp.Or(im.Owner, c.s.Account),
		"imageLocation": cmp.Or(im.Owner, c.s.Account) + "/" + im.Name, "isPublic": im.Owner != "", "architecture": im.Arch,
		"imageType":    "machine",
		"creationDate": im.Created.UTC().Format("2006-01-02T15:04:05.000Z"), "rootDeviceName": im.RootDevice, "rootDeviceType": im.RootType,
		"hypervisor":         "xen",
		"virtualizationType": "hvm", "enaSupport": text(im.Fields, "EnaSupport") != "false",
		"platformDetails": cmp.Or(im.Platform, "Linux/UNIX"), "usageOperation": usage(im.Platform),
		"sourceInstanceId": im.Source, "sourceImageId": im.SourceImage, "tagSet": tagList(im.Tags),
		"sriovNetSupport": text(im.Fields, "SriovNetSupport"),
		"bootMode":        text(im.Fields, "BootMode"), "tpmSupport": text(im.Fields, "TpmSupport"),
		"imdsSupport":              text(im.Fields, "ImdsSupport"),
		"deregistrationProtection": map[bool]string{true: "enabled", false: "disabled"}[im.Protected],
		"blockDeviceMapping": each(im.Mappings, func(m mapping) any {
			ebs := object{"snapshotId": m.Snapshot, "volumeSize": m.Size, "volumeType": m.Type, "deleteOnTermination": !m.Keep,
				"encrypted": m.KMSKey != ""}
			if m.Iops > 0 {
				ebs["iops"] = m.Iops
			}
			if m.Throughput > 0 {
				ebs["throughput"] = m.Throughput
			}
			return object{"deviceName": m.Device, "ebs": ebs}
		}),
	}
	if im.Why != "" {
		o["stateReason"] = object{"code": "Server.InternalError", "message": im.Why}
	}
	if im.ProductCode != "" {
		o["productCodes"] = []any{object{"productCode": im.ProductCode, "type": "marketplace"}}
	}
	if im.Platform == "Windows" {
		o["platform"] = "windows"
	}
	return o
}

// describeImages shows disabled images only to who asks for them.
func describeImages(c *call) (object, *apiError) {
	ids := texts(c.in, "ImageId")
	found, err := pick(c, c.s.store.Images, ids, noImage)
	if err != nil {
		return nil, err
	}
	owners := texts(c.in, "Owner")
	found = slices.DeleteFunc(found, func(im *image) bool {
		owner := cmp.Or(im.Owner, "self")
		if len(owners) > 0 && !slices.Contains(owners, owner) && !(owner == "self" && slices.Contains(owners, c.s.Account)) {
			return true
		}
		return im.State == "disabled" && !truth(c.in, "IncludeDisabled") && len(ids) == 0
	})
	return paged(c, found, "imagesSet", func(im *image) any { return c.showImage(im) })
}

var imageName = regexp.MustCompile(`^[A-Za-z0-9 ()\[\]./\-'@_]{3,128}$`)

// newImage checks what an image is to be called and begins it.
func (c *call) newImage(tags map[string]string) (*image, *apiError) {
	s, name := c.s, text(c.in, "Name")
	if !imageName.MatchString(name) {
		return nil, refuse("InvalidAMIName.Malformed",
			"AMI names must be between 3 and 128 characters long, and may contain letters, numbers, '(', ')', '.', '-', '/' and '_'")
	}
	for _, other := range s.store.Images {
		if other.Name == name && other.Owner == "" && other.State != "failed" {
			return nil, refuse("InvalidAMIName.Duplicate", "AMI name %s is already in use by AMI %s", name, other.ID)
		}
	}
	if until, ok := s.store.FreeNames[name]; ok && c.now.Before(until) {
		return nil, refuse("InvalidAMIName.Duplicate", "AMI name %s is already in use", name)
	}
	return &image{meta: s.born("ami", tags), Name: name, Description: text(c.in, "Description"), State: "pending", RootType: "ebs",
		Fields: object{}}, nil
}

// appear keeps an image and lets it become available.
func (c *call) appear(im *image, latency time.Duration) {
	s, id, bad := c.s, im.ID, c.fails()
	s.store.Images[id] = im
	s.later(c.slow(latency), func() {
		if im := s.store.Images[id]; im != nil && bad {
			im.State, im.Why = "failed", "Server.InternalError: Internal error on image creation"
		} else if im != nil {
			im.State = "available"
		}
	})
}

// createImage makes an image of an instance with snapshots of its volumes. It knows no client
// token. A running instance is rebooted unless NoReboot.
func createImage(c *call) (object, *apiError) {
	i, err := c.instance(text(c.in, "InstanceId"))
	if err != nil {
		return nil, err
	}
	if i.State != running && i.State != stopped {
		return nil, refuse("IncorrectState", "Instance is not in state 'running' or 'stopped'") // code assumed, unverified on real AWS
	}
	im, err := c.newImage(tagsFor(c.in, "image"))
	if err != nil {
		return nil, err
	}
	if i.State == running && !truth(c.in, "NoReboot") {
		i.Boots++
	}
	im.Source, im.SourceImage, im.Arch, im.Platform, im.ProductCode, im.RootDevice = i.ID, i.Image, i.Arch, i.Platform,
		i.ProductCode, i.RootDevice
	if from := c.s.store.Images[i.Image]; from != nil {
		im.Fields, _ = copied(from.Fields).(object)
	}
	for _, a := range i.Volumes {
		change, left := c.override(a.Device)
		if left {
			continue
		}
		v := c.s.store.Volumes[a.Volume]
		sn := c.s.snap(v, "Created by CreateImage("+i.ID+") for "+im.ID, tagsFor(c.in, "snapshot"))
		c.complete(sn)
		m := mapping{Device: a.Device, Snapshot: sn.ID, Type: v.Type, Size: v.Size, Iops: v.Iops, Throughput: v.Throughput,
			KMSKey: v.KMSKey, Keep: !a.Delete}
		m.change(change)
		im.Mappings = append(im.Mappings, m)
	}
	c.appear(im, c.s.delays.Image)
	return object{"imageId": im.ID}, nil
}

// override is what a call says of a device; left is true where it is to be left out.
func (c *call) override(device string) (change object, left bool) {
	for _, b := range items(c.in, "BlockDeviceMapping") {
		if text(b, "DeviceName") == device {
			_, left = b["NoDevice"]
			return part(b, "Ebs"), left
		}
	}
	return nil, false
}

// change writes what a request or a template says of a device.
func (m *mapping) change(ebs object) {
	if kind := text(ebs, "VolumeType"); kind != "" && kind != m.Type { // assumed, unverified on real AWS
		m.Iops, m.Throughput = 0, 0
	}
	for field, name := range map[*int]string{&m.Size: "VolumeSize", &m.Iops: "Iops", &m.Throughput: "Throughput"} {
		if n, ok := number(ebs, name); ok {
			*field = n
		}
	}
	m.Type = cmp.Or(text(ebs, "VolumeType"), m.Type)
	m.KMSKey = cmp.Or(text(ebs, "KmsKeyId"), m.KMSKey)
	m.Snapshot = cmp.Or(text(ebs, "SnapshotId"), m.Snapshot)
	if keep := text(ebs, "DeleteOnTermination"); keep != "" {
		m.Keep = keep == "false"
	}
}

// registerImage makes an image of snapshots, with the defaults that are wrong for today's machines:
// i386 and no ENA (EC2 API reference, RegisterImage).
func registerImage(c *call) (object, *apiError) {
	var mappings []mapping
	for _, b := range items(c.in, "BlockDeviceMapping") {
		m := mapping{Device: text(b, "DeviceName"), Type: "gp2"}
		m.change(part(b, "Ebs"))
		sn, ok := known(c, c.s.store.Snapshots, m.Snapshot)
		switch {
		case !ok:
			return nil, noSnapshot(m.Snapshot)
		case sn.State != "completed": // code assumed, unverified on real AWS
			return nil, refuse("IncorrectState", "Snapshot is in invalid state - %s", sn.State)
		case dig(b, "Ebs", "Encrypted") != nil:
			return nil, refuse("InvalidBlockDeviceMapping", "Encrypted cannot be specified for a snapshot")
		}
		if err := c.s.limitedDisk(m); err != nil {
			return nil, err
		}
		m.Size, m.KMSKey = cmp.Or(m.Size, sn.Size), sn.KMSKey
		mappings = append(mappings, m)
	}
	root := text(c.in, "RootDeviceName")
	if !slices.ContainsFunc(mappings, func(m mapping) bool { return m.Device == root }) {
		return nil, refuse("InvalidBlockDeviceMapping", "The root device %q has no mapping", root)
	}
	if err := limitedBoot(c.in); err != nil {
		return nil, err
	}
	im, err := c.newImage(tagsFor(c.in, "image"))
	if err != nil {
		return nil, err
	}
	if !c.s.LosesBilling {
		for _, m := range mappings {
			if m.Device == root {
				im.Platform = c.s.store.Snapshots[m.Snapshot].Platform
			}
		}
	}
	im.Arch, im.RootDevice, im.Mappings = cmp.Or(text(c.in, "Architecture"), "i386"), root, mappings
	im.Fields = object{"EnaSupport": cmp.Or(text(c.in, "EnaSupport"), "false")}
	for _, name := range []string{"BootMode", "TpmSupport", "ImdsSupport", "SriovNetSupport"} {
		if value := text(c.in, name); value != "" {
			im.Fields[name] = value
		}
	}
	c.appear(im, c.s.delays.Register)
	return object{"imageId": im.ID}, nil
}

func (c *call) ownImage() (*image, *apiError) {
	im, ok := known(c, c.s.store.Images, text(c.in, "ImageId"))
	if !ok || im.Owner != "" {
		return nil, noImage(text(c.in, "ImageId"))
	}
	return im, nil
}

// deregisterImage leaves the snapshots, unless told. Instances that run are not affected.
func deregisterImage(c *call) (object, *apiError) {
	im, err := c.ownImage()
	if err != nil {
		return nil, err
	}
	if im.Protected {
		return nil, refuse("OperationNotPermitted", "The image '%s' has deregistration protection enabled.", im.ID)
	}
	delete(c.s.store.Images, im.ID)
	c.s.store.FreeNames[im.Name] = c.now.Add(c.s.scale(nameKept))
	var out []any
	if truth(c.in, "DeleteAssociatedSnapshots") {
		for _, m := range im.Mappings {
			delete(c.s.store.Snapshots, m.Snapshot)
			out = append(out, object{"snapshotId": m.Snapshot, "returnCode": "success"})
		}
	}
	return object{"return": true, "deleteSnapshotResultSet": out}, nil
}

func disableImage(c *call) (object, *apiError) { return c.setImageState("available", "disabled") }

func enableImage(c *call) (object, *apiError) { return c.setImageState("disabled", "available") }

func (c *call) setImageState(from, to string) (object, *apiError) {
	im, err := c.ownImage()
	if err != nil {
		return nil, err
	}
	if im.State != from && im.State != to {
		return nil, refuse("IncorrectState", "The image '%s' is in state %s", im.ID, im.State) // code assumed, unverified on real AWS
	}
	im.State = to
	return nil, nil
}
