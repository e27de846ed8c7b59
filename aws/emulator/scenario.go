package emulator

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
)

// Group is an Auto Scaling group of a scenario with its launch template, which has the group's
// name. The zero value of every field but Name is useful.
type Group struct {
	Name     string
	Count    int    // desired capacity
	Min, Max int    // Max 0: Count and ten
	Zones    int    // how many of the Region's three; 0: three
	Type     string // of its machines; "": m6i.large, or m6g.large for arm64
	Arch     string // "": x86_64
	DiskGB   int    // of the root; 0: 20
	KMSKey   string // of the root; "": not encrypted
	Version  string // as the group names it: "": $Default
	Mixed    bool   // it has a mixed instances policy
	// Attributes: the policy chooses instance types by attributes.
	Attributes bool
	// Override are further fields of that policy's override, from now on; a weight is from the
	// first.
	Override map[string]any
	Image    string // ImageId of the template; "": a stock image of Amazon
	// Parameter, where set, holds that image and is what the template names.
	Parameter string
	UserData  string // "": a NodeConfig
	// Data are further fields of the template, named as RequestLaunchTemplateData in queries.
	Data          map[string]any
	Tags          map[string]string // propagated to its instances
	Platform      string            // of the stock image: "": Linux/UNIX
	ProductCode   string            // of the stock image
	InstanceStore bool              // the stock image has no EBS root
	Second        string            // device of a second volume that the stock image brings; "": none
	Operator      string            // principal that manages its instances
	Hooks         []Hook            // lifecycle hooks
	Refresh       string            // status of its last instance refresh
	Warm          int               // instances in its warm pool
	WarmPool      bool              // it has a warm pool, though one without instances
	Configuration string            // launch configuration in place of the template
}

// Seed adds groups. Their instances run already and are in service, with what a bootstrap wrote on
// their disks.
func (s *Server) Seed(groups ...Group) {
	s.start()
	s.alter(func() {
		for _, g := range groups {
			s.seed(g)
		}
	})
}

func (s *Server) seed(in Group) {
	s.store.Serial++
	if in.Image == "" {
		in.Image = s.stockImage(in)
	}
	if in.Parameter != "" {
		s.store.Parameters[in.Parameter] = &parameter{Name: in.Parameter, Last: 1, Versions: []*parameterVersion{
			{Number: 1, Value: in.Image, Type: "String", DataType: imageType, Modified: s.Clock.Now(), Checked: true}}}
		in.Image = resolvePrefix + in.Parameter
	}
	g := &group{Name: in.Name, Order: s.store.Serial, Created: s.Clock.Now(), Min: in.Min,
		Max: cmp.Or(in.Max, in.Count+10), Desired: in.Count,
		Suspended: map[string]string{}, Hooks: in.Hooks, Configuration: in.Configuration, Warm: in.Warm,
		WarmPool: in.WarmPool || in.Warm > 0}
	for _, letter := range "abc"[:min(cmp.Or(in.Zones, 3), 3)] {
		g.Zones, g.Subnets = append(g.Zones, s.Region+string(letter)), append(g.Subnets, "subnet-0"+string(letter))
	}
	for key, value := range in.Tags {
		g.Tags = append(g.Tags, groupTag{key, value, true})
	}
	if in.Refresh != "" {
		g.Refreshes = []string{in.Refresh}
	}
	t := s.newTemplate(in.Name, in.templateData(), nil)
	s.ready(&t.meta)
	spec := object{"LaunchTemplateId": t.ID, "Version": in.Version}
	if in.Version == "" {
		delete(spec, "Version")
	}
	over := object{}
	if in.Attributes {
		wanted := object{"InstanceRequirements": object{"VCpuCount": object{"Min": "2"}, "MemoryMiB": object{"Min": "4096"}}}
		g.Mixed = object{"LaunchTemplate": object{"LaunchTemplateSpecification": spec, "Overrides": []any{wanted}}}
	} else if in.Mixed {
		over = object{"InstanceType": text(t.Versions[1].Data, "InstanceType")}
		g.Mixed = object{"LaunchTemplate": object{"LaunchTemplateSpecification": spec, "Overrides": []any{over}},
			"InstancesDistribution": object{"OnDemandBaseCapacity": "0", "OnDemandPercentageAboveBaseCapacity": "100"}}
	} else {
		g.Template = spec
	}
	s.store.Groups[g.Name] = g
	if weight := text(object(in.Override), "WeightedCapacity"); weight != "" {
		over["WeightedCapacity"] = weight
	}
	for units(g.counted()...) < in.Count && !g.Resting {
		s.launchMember(g)
	}
	for _, m := range g.Members {
		s.bootstrap(m, in)
	}
	for _, a := range g.Activities {
		s.done(g, a.ID)
	}
	maps.Copy(over, in.Override)
	if in.Configuration != "" {
		g.Template, g.Mixed = nil, nil
		s.store.Configurations[in.Configuration] = &configuration{Name: in.Configuration, Image: in.Image,
			Type: text(t.Versions[1].Data, "InstanceType"), Created: g.Created}
	}
}

// bootstrap brings a member of a scenario to where an ordinary boot has brought it.
func (s *Server) bootstrap(m *member, in Group) {
	i := s.store.Instances[m.ID]
	i.State, i.Turn, i.Boots, i.Operator = running, i.Turn+1, 1, in.Operator
	s.moved = append(s.moved, i.ID)
	m.State, m.Launching = inService, false
	s.ready(&i.meta)
	for _, a := range i.Volumes {
		s.ready(&s.store.Volumes[a.Volume].meta)
	}
	if v := s.rootVolume(i); v != nil {
		v.Files["/etc/machine-id"] = i.ID
	}
}

// ready makes a thing of a scenario visible at once.
func (s *Server) ready(m *meta) { m.Visible, m.Tagged = m.Created, m.Created }

// stockImage is an image of Amazon that a scenario's template names.
func (s *Server) stockImage(in Group) string {
	im := &image{meta: s.born("ami", nil), Name: fmt.Sprintf("amazon-eks-node-al2023-%s-%d", cmp.Or(in.Arch, "x86_64"), s.store.Serial),
		State: "available", Owner: "602401143452",
		Arch: cmp.Or(in.Arch, "x86_64"), Platform: in.Platform, ProductCode: in.ProductCode, RootDevice: "/dev/xvda", RootType: "ebs",
		Fields: object{"EnaSupport": "true", "BootMode": "uefi-preferred", "ImdsSupport": "v2.0"}}
	if in.InstanceStore {
		im.RootType = "instance-store"
	} else {
		im.Mappings = []mapping{{Device: im.RootDevice, Snapshot: "snap-0" + im.ID[5:], Type: "gp3", Size: cmp.Or(in.DiskGB, 20),
			KMSKey: in.KMSKey}}
		if in.Second != "" {
			im.Mappings = append(im.Mappings, mapping{Device: in.Second, Snapshot: "snap-1" + im.ID[5:], Type: "gp3", Size: 20})
		}
	}
	s.ready(&im.meta)
	s.store.Images[im.ID] = im
	return im.ID
}

func (in Group) templateData() object {
	kind := map[bool]string{true: "m6g.large", false: "m6i.large"}[in.Arch == "arm64"]
	user := cmp.Or(in.UserData, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"B\"\n\n--B\nContent-Type: application/node.eks.aws\n\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n--B--\n")
	data := object{"ImageId": in.Image, "InstanceType": cmp.Or(in.Type, kind), "UserData": base64.StdEncoding.EncodeToString([]byte(user)),
		"IamInstanceProfile": object{"Name": "nodes"}, "SecurityGroupId": []any{"sg-01"},
		"MetadataOptions":  object{"HttpTokens": "required", "HttpPutResponseHopLimit": "2"},
		"TagSpecification": []any{object{"ResourceType": "instance", "Tag": []any{object{"Key": "Name", "Value": in.Name}}}}}
	maps.Copy(data, in.Data)
	return data
}
