package boot

// Timeline is a capture as its own boot saw it: what a picture is drawn from.
type Timeline struct {
	// Capture counts from the boot's own start ([Analysis.Since]); the units are those of the
	// capture given, in its order, and after them the stages of cloud-init that only its log knows.
	*Capture
	// First holds each unit's first activation.
	First []Stamps

	index *index
}

// NewTimeline looks at a capture, which it does not change.
func NewTimeline(c *Capture) *Timeline {
	x := newIndex(c)
	return &Timeline{Capture: x.c, First: x.first, index: x}
}

// Causes are the units, by their place in Units, that unit i can have waited for: those ordered
// before it or triggering it that were up before it began. The latest comes first.
func (t *Timeline) Causes(i int) []int {
	var out []int
	for _, e := range t.index.causes(i) {
		out = append(out, e.unit)
	}
	return out
}
