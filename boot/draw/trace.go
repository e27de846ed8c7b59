package draw

import (
	"encoding/json"
	"fmt"
	"io"

	"kamino.dev/kamino/boot"
)

// traceEvent is an event of the Chrome trace format, which Perfetto opens
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
type traceEvent struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	At    *boot.Micros   `json:"ts,omitempty"`
	Took  *boot.Micros   `json:"dur,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	Scope string         `json:"s,omitempty"`
	ID    int            `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

const (
	tracePhases = 1
	traceUnits  = 2
)

// Trace writes a Chrome trace for https://ui.perfetto.dev. Every unit has a track of its own,
// because the importer does not take overlapping slices on one; parked stretches split a unit's
// slice, and arrows follow the critical chain.
func Trace(w io.Writer, c *boot.Capture, a *boot.Analysis) error {
	s := newScene(c, a, 0, 1)
	var events []traceEvent
	name := func(kind string, pid, tid int, text string, sort int) {
		events = append(events, traceEvent{Name: kind + "_name", Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": text}},
			traceEvent{Name: kind + "_sort_index", Phase: "M", PID: pid, TID: tid, Args: map[string]any{"sort_index": sort}})
	}
	slice := func(label, cat string, pid, tid int, from, to boot.Micros, args map[string]any) {
		took := max(to-from, 0)
		events = append(events, traceEvent{Name: label, Phase: "X", PID: pid, TID: tid, At: &from, Took: &took, Cat: cat, Args: args})
	}
	name("process", tracePhases, 0, "boot of "+s.title(), 0)
	name("process", traceUnits, 0, "units", 1)
	name("thread", tracePhases, 1, "phases", 1)
	shift := boot.Micros(0) // the importer takes no negative time: firmware comes first
	for _, p := range a.Phases {
		shift = max(shift, -p.Start)
	}
	for i, p := range a.Phases {
		tid := 1
		if p.Name != "firmware" && p.Name != "loader" && p.Name != "kernel" && p.Name != "initrd" && p.Name != "userspace" {
			tid = i + 10
			name("thread", tracePhases, tid, p.Name, tid)
		}
		slice(p.Name, "phase", tracePhases, tid, p.Start+shift, p.End+shift, map[string]any{"net": p.Net.String(), "source": p.Source})
	}
	if len(a.Parked) > 0 {
		name("thread", tracePhases, 2, "parked", 2)
	}
	for _, p := range a.Parked {
		slice("parked", "parked", tracePhases, 2, p.From+shift, p.To+shift, map[string]any{"evidence": p.Evidence})
	}
	for _, m := range a.Milestones {
		at := m.At + shift
		events = append(events, traceEvent{Name: m.Name, Phase: "i", PID: tracePhases, TID: 1, At: &at, Scope: "p",
			Args: map[string]any{"net": m.Net.String()}})
	}
	for i := range s.rows {
		r := &s.rows[i]
		tid := i + 1
		name("thread", traceUnits, tid, r.name, tid)
		cat := "unit"
		if r.chain {
			cat = "critical"
		}
		args := map[string]any{"net": r.net.String(), "critical": r.chain}
		for _, p := range splitParked(r.start, r.done, a.Parked) {
			slice(r.name, cat, traceUnits, tid, p[0]+shift, p[1]+shift, args)
		}
		if r.cause >= 0 {
			events = append(events, s.arrow(i, shift)...)
		}
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// arrow goes from a row's cause to its start.
func (s *scene) arrow(i int, shift boot.Micros) []traceEvent {
	cause, to := s.rows[i].cause, s.rows[i].start+shift
	from := min(s.rows[cause].done+shift, to)
	return []traceEvent{
		{Name: "waited for", Phase: "s", PID: traceUnits, TID: cause + 1, At: &from, Cat: "chain", ID: i + 1},
		{Name: "waited for", Phase: "f", PID: traceUnits, TID: i + 1, At: &to, Cat: "chain", ID: i + 1, Bind: "e"},
	}
}

// splitParked cuts the parked stretches out of a slice.
func splitParked(from, to boot.Micros, parked []boot.Pause) [][2]boot.Micros {
	var out [][2]boot.Micros
	for _, p := range parked {
		if p.To <= from || p.From >= to {
			continue
		}
		if p.From > from {
			out = append(out, [2]boot.Micros{from, p.From})
		}
		from = min(p.To, to)
	}
	if from < to || len(out) == 0 {
		out = append(out, [2]boot.Micros{from, to})
	}
	return out
}
