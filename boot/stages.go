package boot

import "slices"

// cloudStages are cloud-init's stages in their order: the span's name in its log, and the unit's. The
// unit files order each after the one before
// (https://cloudinit.readthedocs.io/en/latest/explanation/boot.html).
var cloudStages = []struct{ span, unit string }{
	{"init-local", "cloud-init-local.service"},
	{"init-network", "cloud-init.service"},
	{"modules-config", "cloud-config.service"},
	{"modules-final", "cloud-final.service"},
}

// withStages is the capture with a unit for each stage of cloud-init that its own log knows and that
// no record of units does. The capture itself is not changed.
func (c *Capture) withStages() *Capture {
	known := map[string]string{}
	for i := range c.Units {
		if u := &c.Units[i]; u.FirstStamps() != (Stamps{}) {
			known[Normalize(u.ID)] = u.ID
		}
	}
	var made []Unit
	before := ""
	for _, stage := range cloudStages {
		if id := known[stage.unit]; id != "" {
			before = id
			continue
		}
		i := slices.IndexFunc(c.Spans, func(s Span) bool { return s.Kind == SpanStage && s.Name == stage.span })
		if i < 0 {
			continue
		}
		s := c.Spans[i]
		u := Unit{ID: stage.unit, Stamps: Stamps{Activating: s.Start, Activated: s.End}}
		if before != "" {
			u.After = []string{before}
		}
		// A log in whole seconds may let a stage end after the next has begun.
		if n := len(made); n > 0 && made[n-1].ID == before && made[n-1].Activated > u.Activating {
			made[n-1].Activated = max(u.Activating, made[n-1].Activating)
		}
		before = u.ID
		made = append(made, u)
	}
	if len(made) == 0 {
		return c
	}
	with := *c
	with.Units = append(slices.Clip(c.Units), made...)
	return &with
}
