package emulator

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
)

// Machine is an instance as it is, whatever Describe calls show.
type Machine struct {
	ID, State, Zone, Image, Group string
	TemplateVersion               int
	Lifecycle                     string // in its group: InService, Standby, …
	Boots                         int
	Tags                          map[string]string
	Type, Arch                    string // m6i.large; x86_64 or arm64
	Hostname                      string // private DNS name
	Volume                        string // of its root
	UserData                      string // not in base64
}

// Machines lists all instances in the order of their launch, terminated ones included.
func (s *Server) Machines() []Machine {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Machine
	for _, i := range inOrder(s.store.Instances) {
		out = append(out, s.machine(i))
	}
	return out
}

// Machine is one instance; false where there is none of that ID.
func (s *Server) Machine(id string) (Machine, bool) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.store.Instances[id]; i != nil {
		return s.machine(i), true
	}
	return Machine{}, false
}

func (s *Server) machine(i *instance) Machine {
	user, _ := base64.StdEncoding.DecodeString(text(i.Data, "UserData")) // was looked at when it was launched
	m := Machine{ID: i.ID, State: i.State, Zone: i.Zone, Image: i.Image, Group: i.Group, TemplateVersion: i.Version, Boots: i.Boots,
		Tags: maps.Clone(i.Tags),
		Type: text(i.Data, "InstanceType"), Arch: i.Arch, Hostname: i.dns() + "." + s.Region + ".compute.internal", UserData: string(user)}
	if v := s.rootVolume(i); v != nil {
		m.Volume = v.ID
	}
	if g := s.store.Groups[i.Group]; g != nil {
		if member := g.member(i.ID); member != nil {
			m.Lifecycle = member.State
		}
	}
	return m
}

// Subscribe calls f with every instance whose state changed, as it is by then, one at a time and in
// order, until it is cancelled. f must not block, nor change anything of the server.
func (s *Server) Subscribe(f func(Machine)) (cancel func()) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribed++
	n := s.subscribed
	s.subscribers[n] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, n)
	}
}

// announce tells what moved since it was last called. The caller does not hold the lock.
func (s *Server) announce() {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	var moved []Machine
	for _, id := range s.moved {
		if i := s.store.Instances[id]; i != nil {
			moved = append(moved, s.machine(i))
		}
	}
	s.moved = nil
	hear := slices.Collect(maps.Values(s.subscribers))
	s.mu.Unlock()
	for _, m := range moved {
		for _, f := range hear {
			f(m)
		}
	}
}

// WriteConsole adds to what an instance wrote to its serial console.
func (s *Server) WriteConsole(instance, text string) {
	s.start()
	s.alter(func() {
		if i := s.store.Instances[instance]; i != nil {
			i.Console += text
		}
	})
}

// Attach lets somebody attach an empty volume to an instance, as the CSI driver of EBS does.
func (s *Server) Attach(instance, device string) {
	s.start()
	s.alter(func() {
		if i := s.store.Instances[instance]; i != nil {
			v := &volume{meta: s.born("vol", nil), Zone: i.Zone, Instance: i.ID, Size: 8, Type: "gp3", Iops: 3000, Throughput: 125,
				Files: map[string]string{}}
			s.ready(&v.meta)
			s.store.Volumes[v.ID] = v
			i.Volumes = append(i.Volumes, attach{Device: device, Volume: v.ID})
		}
	})
}

// SwapDisk gives an instance another root volume, on which nothing is. The former one is kept, at no
// instance.
func (s *Server) SwapDisk(instance string) {
	s.start()
	s.alter(func() {
		i := s.store.Instances[instance]
		if i == nil {
			return
		}
		for n := range i.Volumes {
			old := s.store.Volumes[i.Volumes[n].Volume]
			if i.Volumes[n].Device != i.RootDevice || old == nil {
				continue
			}
			fresh := *old
			fresh.meta, fresh.Files = s.born("vol", nil), map[string]string{}
			s.ready(&fresh.meta)
			s.store.Volumes[fresh.ID], i.Volumes[n].Volume = &fresh, fresh.ID
			old.Instance = ""
		}
	})
}

// WriteDisk changes what is on the root volume of an instance.
func (s *Server) WriteDisk(instance string, change func(files map[string]string)) error {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.root(instance)
	if v == nil {
		return fmt.Errorf("instance %s has no root volume", instance)
	}
	change(v.Files)
	return nil
}

// ReadDisk is what is on the root volume of an instance.
func (s *Server) ReadDisk(instance string) (map[string]string, error) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.root(instance)
	if v == nil {
		return nil, fmt.Errorf("instance %s has no root volume", instance)
	}
	return maps.Clone(v.Files), nil
}

func (s *Server) root(id string) *volume {
	if i := s.store.Instances[id]; i != nil {
		return s.rootVolume(i)
	}
	return nil
}

// Suspend stops a process of a group, as somebody else would.
func (s *Server) Suspend(group, process string) {
	s.start()
	s.alter(func() {
		if g := s.store.Groups[group]; g != nil {
			g.Suspended[process] = "by somebody else"
		}
	})
}

// Resume lets somebody start a process of a group again.
func (s *Server) Resume(group, process string) {
	s.start()
	s.alter(func() {
		if g := s.store.Groups[group]; g != nil {
			delete(g.Suspended, process)
		}
	})
}

// Suspended says whether a process of a group is stopped.
func (s *Server) Suspended(group, process string) bool {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.store.Groups[group]
	return g != nil && g.suspended(process)
}

// Loose are the snapshots that no image is made of.
func (s *Server) Loose() []string {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var loose []string
	for _, sn := range inOrder(s.store.Snapshots) {
		used := slices.ContainsFunc(inOrder(s.store.Images), func(im *image) bool {
			return slices.ContainsFunc(im.Mappings, func(m mapping) bool { return m.Snapshot == sn.ID })
		})
		if !used {
			loose = append(loose, sn.ID)
		}
	}
	return loose
}

// Counts tells how many are our snapshots and images, and the versions of a template by name.
func (s *Server) Counts(template string) (snapshots, images, versions int) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, im := range s.store.Images {
		if im.Owner == "" {
			images++
		}
	}
	if t, err := s.findTemplate(object{"LaunchTemplateName": template}); err == nil {
		versions = len(t.Versions)
	}
	return len(s.store.Snapshots), images, versions
}
