// Package everything runs all that there is on a capture, for tests that give odd ones.
package everything

import (
	"bytes"
	"fmt"
	"io"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
)

// Of writes all that there is of a capture. Refusals of the compat verbs are right for boots that
// have not finished.
func Of(c *boot.Capture) (string, error) {
	a, err := boot.Analyze(c, boot.Options{Fuzz: 5e6})
	if err != nil {
		return "", err
	}
	var pool boot.Pool
	pool.Add(boot.Summarize("x", a))
	pool.Add(boot.Summarize("y", a))
	report := pool.Report()
	cmp := boot.Compare(a, a)
	var b bytes.Buffer
	for _, write := range []func(io.Writer) error{
		a.WriteText, a.WriteTime, a.WriteBlame, a.WriteChain, cmp.WriteText, report.WriteText,
		func(w io.Writer) error { return draw.Comparison(w, a, a) },
		func(w io.Writer) error { return draw.HTML(w, c, a) },
		func(w io.Writer) error { return draw.SVG(w, c, a) },
		func(w io.Writer) error { return draw.Trace(w, c, a) },
	} {
		if err := write(&b); err != nil {
			return "", err
		}
	}
	_ = boot.CompatTime(io.Discard, c)
	_ = boot.CompatBlame(io.Discard, c)
	_, _ = boot.CompatChain(io.Discard, c, 5e6)
	return b.String(), sane(a)
}

// sane looks for lengths that cannot be.
func sane(a *boot.Analysis) error {
	if a.ParkedFor < 0 {
		return fmt.Errorf("parked for %d", a.ParkedFor)
	}
	for _, p := range a.Phases {
		if p.Gross < 0 || p.Net < 0 || p.Net > p.Gross {
			return fmt.Errorf("phase %+v", p)
		}
	}
	for _, m := range a.Milestones {
		if m.Net < 0 || m.Net > m.At {
			return fmt.Errorf("milestone %+v", m)
		}
	}
	for i, s := range a.Segments {
		if s.Net < 0 || s.End < s.Start || i > 0 && s.Start < a.Segments[i-1].End {
			return fmt.Errorf("segments %+v", a.Segments)
		}
	}
	for _, u := range a.Blame {
		if u.Took < 0 || u.Net < 0 || u.Net > u.Took {
			return fmt.Errorf("blame %+v", u)
		}
	}
	for _, r := range a.Remedies {
		if r.Saves < 0 || r.Reaches < 0 {
			return fmt.Errorf("remedy %+v", r)
		}
	}
	return nil
}
