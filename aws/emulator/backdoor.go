package emulator

import (
	"fmt"
	"maps"
)

// Machine is an instance as it is, whatever Describe calls show.
type Machine struct {
	ID, State, Zone, Image, Group string
	TemplateVersion               int
	Lifecycle                     string // in its group: InService, Standby, …
	Boots                         int
	Tags                          map[string]string
}

// Machines lists all instances in the order of their launch, terminated ones included.
func (s *Server) Machines() []Machine {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Machine
	for _, i := range inOrder(s.store.Instances) {
		m := Machine{ID: i.ID, State: i.State, Zone: i.Zone, Image: i.Image, Group: i.Group, TemplateVersion: i.Version, Boots: i.Boots, Tags: maps.Clone(i.Tags)}
		if g := s.store.Groups[i.Group]; g != nil {
			if member := g.member(i.ID); member != nil {
				m.Lifecycle = member.State
			}
		}
		out = append(out, m)
	}
	return out
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

// Suspended says whether a process of a group is stopped.
func (s *Server) Suspended(group, process string) bool {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.store.Groups[group]
	return g != nil && g.suspended(process)
}

// Made counts our snapshots and images, and the versions of a template by name.
func (s *Server) Made(template string) (snapshots, images, versions int) {
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
