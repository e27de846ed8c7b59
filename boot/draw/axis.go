package draw

import (
	"cmp"
	"fmt"
	"slices"

	"kamino.dev/kamino/boot"
)

// axis maps time to pixels. Stretches in which nothing happened are squeezed to a break of fixed
// width, so that sixteen minutes of parking do not push the boot's seconds into one pixel.
type axis struct {
	pieces []piece
}

// piece is a stretch of the axis in which time runs evenly.
type piece struct {
	From, To boot.Micros
	X0, X1   float64
	// Break names what was squeezed: "parked" or "idle"; empty for ordinary time.
	Break string
	// Parked is how long the machine had been parked before: the axis is labelled net of it.
	Parked boot.Micros
}

const (
	breakWidth = 88.0
	// longIdle is the least stretch without any known activity that is squeezed.
	longIdle = boot.Micros(6 * 1000 * 1000)
	// longParked is the least parked stretch that is squeezed.
	longParked = boot.Micros(1000 * 1000)
	// idleMargin is left of an idle stretch on both sides, so that bars do not touch the break.
	idleMargin = boot.Micros(300 * 1000)
)

func newAxis(from, to boot.Micros, breaks []piece, x0, x1 float64) *axis {
	if to <= from {
		to = from + 1
	}
	a := &axis{}
	at := from
	for _, b := range breaks {
		b.From, b.To = max(b.From, at), min(b.To, to)
		if b.To-b.From < 1000 {
			continue
		}
		if b.From > at {
			a.pieces = append(a.pieces, piece{From: at, To: b.From})
		}
		a.pieces = append(a.pieces, b)
		at = b.To
	}
	if at < to {
		a.pieces = append(a.pieces, piece{From: at, To: to})
	}
	var even boot.Micros
	broken := 0
	for _, p := range a.pieces {
		if p.Break == "" {
			even += p.To - p.From
		} else {
			broken++
		}
	}
	width := breakWidth
	if float64(broken)*width > (x1-x0)/2 {
		width = (x1 - x0) / 2 / float64(broken)
	}
	scale := (x1 - x0 - float64(broken)*width) / float64(max(even, 1))
	x, parked := x0, boot.Micros(0)
	for i := range a.pieces {
		p := &a.pieces[i]
		p.X0, p.Parked = x, parked
		if p.Break == "parked" {
			parked += p.To - p.From
		}
		if p.Break != "" {
			x += width
		} else {
			x += float64(p.To-p.From) * scale
		}
		p.X1 = x
	}
	return a
}

// x is where a moment is drawn; moments outside the axis are drawn at its ends.
func (a *axis) x(t boot.Micros) float64 {
	for _, p := range a.pieces {
		if t <= p.To {
			return p.X0 + (p.X1-p.X0)*float64(max(t, p.From)-p.From)/float64(p.To-p.From)
		}
	}
	return a.pieces[len(a.pieces)-1].X1
}

// tick is a line on the axis.
type tick struct {
	X     float64
	Label string
}

// ticks are round moments, net of parking, at least gap pixels apart.
func (a *axis) ticks(gap float64) []tick {
	var scale float64
	for _, p := range a.pieces {
		if p.Break == "" && p.To > p.From {
			scale = (p.X1 - p.X0) / float64(p.To-p.From)
		}
	}
	step := tickStep(gap / max(scale, 1e-12))
	var out []tick
	last := -1e9
	for _, p := range a.pieces {
		if p.Break != "" {
			last = max(last, p.X1-gap/2)
			continue
		}
		from := p.From - p.Parked
		first := (from + step - 1) / step * step
		if from < 0 {
			first = from / step * step
		}
		for t := first; t <= p.To-p.Parked; t += step {
			if x := a.x(t + p.Parked); x >= last+gap*0.6 {
				out = append(out, tick{x, clock(t)})
				last = x
			}
		}
	}
	return out
}

// tickStep is the round length that is not less than the one given.
func tickStep(least float64) boot.Micros {
	for _, s := range []boot.Micros{1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1e6, 2e6, 5e6, 10e6, 15e6, 30e6, 60e6,
		120e6, 300e6, 600e6, 1800e6, 3600e6, 7200e6, 21600e6, 86400e6} {
		if float64(s) >= least {
			return s
		}
	}
	return boot.Micros(least/86400e6+1) * 86400e6
}

// clock writes a moment for the axis: "12s", "0.5s", "16:40", "1:02:03".
func clock(t boot.Micros) string {
	sign := ""
	if t < 0 {
		sign, t = "−", -t
	}
	sec := int64(t / 1e6)
	switch {
	case t == 0:
		return "0"
	case t < 60e6 && t%1e6 == 0:
		return fmt.Sprintf("%s%ds", sign, sec)
	case t < 60e6:
		return fmt.Sprintf("%s%gs", sign, float64(t)/1e6)
	case sec < 3600:
		return fmt.Sprintf("%s%d:%02d", sign, sec/60, sec%60)
	}
	return fmt.Sprintf("%s%d:%02d:%02d", sign, sec/3600, sec/60%60, sec%60)
}

// quiet finds the stretches in which no unit started, no task ran and no milestone came.
func quiet(busy []piece, from, to boot.Micros) []piece {
	slices.SortFunc(busy, func(a, b piece) int { return cmp.Compare(a.From, b.From) })
	var out []piece
	at := from
	for _, b := range append(busy, piece{From: to, To: to}) {
		if b.From-at >= longIdle {
			out = append(out, piece{From: at + idleMargin, To: b.From - idleMargin, Break: "idle"})
		}
		at = max(at, b.To)
	}
	return out
}
