package read

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

// What `cloud-init analyze show` and `cloud-init analyze blame` print (cloudinit/analyze/show.py).
var (
	showRecord = lazyregexp.New(`^-- Boot Record \d+ --$`)
	showBegan  = lazyregexp.New(`^Starting stage: (\S+)$`)
	showEvent  = lazyregexp.New("^\\|? *`->(.*) @(\\d+\\.\\d+)s \\+(\\d+\\.\\d+)s$")
	showEnded  = lazyregexp.New(`^Finished stage: \((\S+)\) (\d+\.\d+) seconds$`)
	showBlame  = lazyregexp.New(`^ *(\d+\.\d{5})s \((\S+)\)$`)
)

func sniffCloudInitText(head []byte) bool {
	for line := range strings.SplitSeq(string(head), "\n") {
		line = tidyLine(line)
		if showBegan.MatchString(line) || showBlame.MatchString(line) || showEvent.MatchString(line) {
			return true
		}
	}
	return false
}

// analyzeRecord collects what `cloud-init analyze` printed of one boot.
type analyzeRecord struct {
	spans   []boot.Span
	lengths []boot.Length
	open    []int // spans that have begun, outermost first
	unit    string
	last    boot.Micros // the latest end
}

// readCloudInitText reads the text of `cloud-init analyze show` and `cloud-init analyze blame`, of which
// the last boot counts. Times of show count from cloud-init's first event; blame has lengths only.
func readCloudInitText(data []byte) (*boot.Capture, error) {
	r, boots, parts := &analyzeRecord{}, 0, 0
	whole := r               // the last record with the beginning of a boot
	blame := analyzeRecord{} // the last record of lengths, where the text has both
	for line := range strings.SplitSeq(string(data), "\n") {
		line = tidyLine(line)
		if showRecord.MatchString(line) {
			r, parts = &analyzeRecord{}, parts+1
			continue
		}
		if r.line(line); r != whole && len(whole.spans) > 0 && len(r.spans) == 0 && len(r.lengths) > 0 { // of the same boots
			if blame.lengths = r.lengths; len(r.lengths) == 1 {
				parts--
			}
			continue
		}
		if r != whole && (r.local() || len(r.spans) == 0 && len(r.lengths) > 0) {
			whole, parts = r, 0
			boots++
		}
	}
	if len(whole.spans) == 0 && len(whole.lengths) == 0 {
		whole = r
	}
	if len(whole.spans) == 0 && len(whole.lengths) == 0 {
		return nil, errors.New("no stage and no module in it; print it anew with `cloud-init analyze show`")
	}
	whole.spans = slices.DeleteFunc(whole.spans, func(s boot.Span) bool { return s.Start == 0 }) // begun, and nothing after it
	c := &boot.Capture{Spans: whole.spans, Lengths: append(whole.lengths, blame.lengths...), Sources: []string{"cloud-init-blame"}}
	if len(c.Spans) > 0 {
		c.Sources, c.Floating = []string{"cloud-init-show"}, boot.FloatNowhere
		c.Note(boot.NoteFloating)
		c.Note("the text of cloud-init analyze show does not say when a stage began: it is taken to begin with its first event")
	} else {
		c.Note("the text of cloud-init analyze blame has lengths without times; `cloud-init analyze show` or cloud-init.log has both")
	}
	if boots > 1 {
		c.Note("the text has %s; this is the last", boot.Count(boots, "boot"))
	}
	if parts > 0 && whole != r {
		c.Note("%s after it counted from another moment, and was left out: old versions of cloud-init divide one boot; use cloud-init.log",
			boot.Count(parts, "record"))
	}
	return c, nil
}

// local tells whether the record has the beginning of a boot.
func (r *analyzeRecord) local() bool { return len(r.spans) > 0 && r.spans[0].Name == "init-local" }

func (r *analyzeRecord) line(line string) {
	if m := showBegan.FindStringSubmatch(line); m != nil {
		s := boot.Span{Name: m[1], Kind: boot.SpanTask, Unit: r.unit, Source: "cloud-init analyze"}
		if unit, ok := cloudInitUnits[m[1]]; ok {
			s.Kind, s.Unit, r.unit = boot.SpanStage, unit, unit
		}
		r.open = append(r.open, len(r.spans))
		r.spans = append(r.spans, s)
	} else if m := showEvent.FindStringSubmatch(line); m != nil {
		r.event(m[1], showSeconds(m[2]), showSeconds(m[3]))
	} else if m := showEnded.FindStringSubmatch(line); m != nil {
		r.ended(m[1], showSeconds(m[2]))
	} else if m := showBlame.FindStringSubmatch(line); m != nil {
		r.lengths = append(r.lengths, boot.Length{Name: m[2], Took: showSeconds(m[1])})
	}
}

// event takes a module or another step: what it did, and when.
func (r *analyzeRecord) event(did string, at, took boot.Micros) {
	at += 1e6 // as all spans without a place
	for _, i := range r.open {
		if r.spans[i].Start == 0 {
			r.spans[i].Start = at
		}
	}
	name, _, _ := strings.Cut(did, " ")
	if !strings.HasPrefix(name, "config-") {
		name = boot.Shorten(did, 60)
	}
	if n := len(r.open); n > 0 {
		name = r.spans[r.open[n-1]].Name + "/" + name
	}
	end := min(at+took, boot.MaxStamp)
	r.spans = append(r.spans, boot.Span{Name: name, Kind: boot.SpanTask, Unit: r.unit, Start: min(at, boot.MaxStamp), End: end,
		Source: "cloud-init analyze"})
	r.last = max(r.last, end)
}

// ended closes a stage, and what began inside it and was not closed.
func (r *analyzeRecord) ended(name string, took boot.Micros) {
	for n := len(r.open) - 1; n >= 0; n-- {
		s := &r.spans[r.open[n]]
		if s.Name != name {
			continue
		}
		if s.Start == 0 {
			s.Start = max(r.last, 1e6)
		}
		s.End = min(s.Start+took, boot.MaxStamp)
		r.last = max(r.last, s.End)
		r.open = r.open[:n]
		return
	}
}

// showSeconds reads seconds with five decimals; what is beyond any clock counts as none.
func showSeconds(s string) boot.Micros {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f*1e6 > float64(boot.MaxStamp)/2 {
		return 0
	}
	return boot.Micros(f*1e6 + 0.5)
}
