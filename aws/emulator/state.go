package emulator

import (
	"maps"
	"slices"
	"strings"
)

// GroupState is a group as it is, with what its next instance is launched from.
type GroupState struct {
	Desired, Min, Max int
	Suspended         []string
	Tags              map[string]string
	Version           int            // of its template
	Named             string         // ImageId there
	Image             string         // that this means; "" nothing
	Data              map[string]any // of the version, without the image
	Refreshing        bool
	// Terminations are those that the group began by itself, oldest first: the instance, and why.
	Terminations []Termination
}

// Termination is one instance that a group let go.
type Termination struct{ Instance, Cause string }

// Group is a group as it is; false where there is none.
func (s *Server) Group(name string) (GroupState, bool) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.store.Groups[name]
	if g == nil {
		return GroupState{}, false
	}
	out := GroupState{Desired: g.Desired, Min: g.Min, Max: g.Max, Suspended: slices.Sorted(maps.Keys(g.Suspended)),
		Tags:       map[string]string{},
		Refreshing: len(g.Refreshes) > 0 && g.Refreshes[0] == "InProgress"}
	for _, t := range g.Tags {
		out.Tags[t.Key] = t.Value
	}
	for _, a := range slices.Backward(g.Activities) {
		if id, ok := strings.CutPrefix(a.Description, "Terminating EC2 instance: "); ok {
			out.Terminations = append(out.Terminations, Termination{id, a.Cause})
		}
	}
	if o, err := s.orderOf(g); err == nil {
		out.Version, out.Named, out.Data = o.version, text(o.data, "ImageId"), o.data
		delete(out.Data, "ImageId")
		out.Image = out.Named
		if parameter, ok := strings.CutPrefix(out.Named, resolvePrefix); ok {
			out.Image, _ = s.resolve(parameter) // "" where it does not resolve
		}
	}
	return out, true
}

// Made is an image or a snapshot of the account's own, as it is.
type Made struct {
	ID, Name, State string
	Source          string   // volume of a snapshot
	Snapshots       []string // of an image
	Tags            map[string]string
}

// Images lists the account's own.
func (s *Server) Images() (out []Made) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, im := range inOrder(s.store.Images) {
		if im.Owner != "" {
			continue
		}
		m := Made{ID: im.ID, Name: im.Name, State: im.State, Tags: maps.Clone(im.Tags)}
		for _, mapping := range im.Mappings {
			m.Snapshots = append(m.Snapshots, mapping.Snapshot)
		}
		out = append(out, m)
	}
	return out
}

// Snapshots lists them all, those of images included.
func (s *Server) Snapshots() (out []Made) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sn := range inOrder(s.store.Snapshots) {
		out = append(out, Made{ID: sn.ID, State: sn.State, Source: sn.Volume, Tags: maps.Clone(sn.Tags)})
	}
	return out
}

// Parameter is what a launch reads of a parameter; "" where it does not resolve.
func (s *Server) Parameter(name string) string {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	value, _ := s.resolve(name)
	return value
}

// Refresh leaves a group with one instance refresh, somebody's, of a status.
func (s *Server) Refresh(group, status string) {
	s.start()
	s.alter(func() {
		if g := s.store.Groups[group]; g != nil {
			g.Refreshes = []string{status}
		}
	})
}
