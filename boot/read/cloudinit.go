package read

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/lazyregexp"
)

// cloudInitUnits maps the stage names of `cloud-init analyze` to units. The network stage's unit
// was cloud-init.service up to 24.2 and is cloud-init-network.service since; both count as one
// stage.
var cloudInitUnits = map[string]string{
	"init-local":     "cloud-init-local.service",
	"init-network":   "cloud-init.service",
	"modules-config": "cloud-config.service",
	"modules-final":  "cloud-final.service",
}

// pauseSpans are the telemetry spans of cloud-init's DataSourceAzure in which a pre-provisioned VM
// waits for its owner.
var pauseSpans = map[string]bool{
	"wait-for-media-disconnect-connect": true, "_wait_for_pps_running_reuse": true, "_wait_for_pps_savable_reuse": true,
	"_wait_for_nic_detach": true, "_wait_for_hot_attached_primary_nic": true, "_wait_for_pps_unknown_reuse": true,
	"_poll_imds": true, "get-reprovision-data-from-imds": true, "wait-for-pps-os-disk-reuse": true, "_wait_for_pps_os_disk_shutdown": true,
}

// cloudEvent is one start or finish that cloud-init reported; at is wall clock µs since 1970.
type cloudEvent struct {
	name, result string
	start        bool
	at           boot.Micros
}

var (
	cloudLine   = lazyregexp.New(`^(?:(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{3})|([A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d))`)
	cloudBanner = lazyregexp.New(`Cloud-init v\. ?(\S+) running '([a-z:-]+)' at (.+?)\. Up ([0-9.]+) seconds`)
	cloudReport = lazyregexp.New(`\b(start|finish): ([A-Za-z0-9_/.:-]+):(?: (SUCCESS|FAIL|WARN|[A-Z]+):)?`)
	cloudPPS    = lazyregexp.New(`PPS type: (\w+)`)
	cloudSource = lazyregexp.New(`Loaded datasource (\w+)`)
)

// cloudOwn is how a line of cloud-init's own log begins; Amazon Linux 2 writes it by syslog, rsyslog with
// either stamp. The machine's other logs have lines of cloud-init as well.
var cloudOwn = lazyregexp.New(`^(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d{3} - |(?:[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,6}(?:Z|[+-]\d\d:\d\d)) [^\n]*\.py\[[A-Z]+\]: )`)

// begun tells whether the first line with a stamp is one of cloud-init's own log. Before it may stand
// the end of a line: a log is cut where it is rotated.
func begun(head []byte) bool {
	n := 0
	for line := range bytes.SplitSeq(head, []byte("\n")) {
		if cloudOwn.Match(line) {
			return true
		}
		if n++; n == maxProse || cloudLine.Match(line) {
			return false
		}
	}
	return false
}

func sniffCloudInitLog(head []byte) bool {
	return begun(head) && (bytes.Contains(head, []byte("Cloud-init v.")) || bytes.Contains(head, []byte("[DEBUG]: start: ")) ||
		bytes.Contains(head, []byte("cloud-init[")))
}

// readCloudInitLog reads /var/log/cloud-init.log, of which the last boot counts. The "Up N seconds"
// of each stage's banner ties the wall clock of the log to the monotonic clock, which is better
// than the kernel's wall time: that may be stepped.
func readCloudInitLog(data []byte) (*boot.Capture, error) {
	r := &cloudLog{c: &boot.Capture{}}
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		r.line(string(line))
	}
	r.end()
	if len(r.events) == 0 && len(r.anchors) == 0 {
		return nil, errors.New("no stage and no event in it; is it /var/log/cloud-init.log?")
	}
	for i := 1; i < len(r.anchors); i++ {
		step := r.anchors[i].offset - r.anchors[i-1].offset
		if step > boot.ClockTolerance || step < -boot.ClockTolerance {
			r.c.Marks = append(r.c.Marks, boot.Mark{Name: boot.MarkClockJump, At: r.anchors[i].mono, Source: "cloud-init.log",
				Detail: fmt.Sprintf("wall clock moved by %s between two stages", step)})
		}
	}
	if len(r.anchors) > 0 {
		r.c.Manager.KernelRealtime = max(r.anchors[0].offset, 0)
	}
	r.c.Spans = cloudSpans(r.events, r.monotonic)
	if len(r.anchors) == 0 {
		float(r.c, r.events)
	}
	if r.coarse {
		r.c.Note("this cloud-init.log has whole seconds: lengths in it are exact to 1 s")
	}
	return r.c, nil
}

type cloudLog struct {
	c       *boot.Capture
	events  []cloudEvent
	anchors []cloudAnchor
	waiting bool
	// date is when the latest stage began, as its banner says, and ahead is how far the stamps of the
	// lines are ahead of UTC.
	date   time.Time
	ahead  time.Duration
	coarse bool
	// last is the latest line's time, and finishes tells whether cloud-init says when a stage ends:
	// 0.7.5 does not.
	last     boot.Micros
	finishes bool
}

// end closes the stage that runs, with the latest line, where the log does not say when stages end.
func (r *cloudLog) end() {
	if n := len(r.events); n > 0 && !r.finishes && r.events[n-1].start {
		r.events = append(r.events, cloudEvent{name: r.events[n-1].name, at: r.last})
	}
}

// cloudAnchor says that from the wall clock time on, monotonic time is wall clock minus offset.
type cloudAnchor struct{ wall, mono, offset boot.Micros }

func (r *cloudLog) line(line string) {
	stamp := cloudLine.FindStringSubmatch(line)
	if stamp == nil {
		return
	}
	banner := cloudBanner.FindStringSubmatch(line)
	if banner != nil {
		r.calendar(stamp, banner[3])
		r.end()
	}
	if !r.date.IsZero() && r.coarse != (stamp[1] == "") { // what a script printed
		return
	}
	at, ok := r.time(stamp)
	if !ok {
		return
	}
	r.last = at
	if r.waiting {
		r.waiting = false
		r.events = append(r.events, cloudEvent{name: "azure-ds/wait-for-media-disconnect-connect", at: at})
	}
	if banner != nil {
		r.banner(banner, at)
		return
	}
	if m := cloudReport.FindStringSubmatch(line); m != nil {
		r.finishes = r.finishes || m[1] == "finish"
		r.events = append(r.events, cloudEvent{name: m[2], result: m[3], start: m[1] == "start", at: at})
		return
	}
	if m := cloudPPS.FindStringSubmatch(line); m != nil {
		r.c.CloudInit.PPSType = m[1]
	}
	if m := cloudSource.FindStringSubmatch(line); m != nil {
		r.c.CloudInit.Datasource = m[1]
	}
	if strings.Contains(line, "Wait for vnetswitch to happen") {
		r.events = append(r.events, cloudEvent{name: "azure-ds/wait-for-media-disconnect-connect", start: true, at: at})
		r.waiting = true
	}
}

func (r *cloudLog) banner(m []string, at boot.Micros) {
	stage := strings.ReplaceAll(m[2], ":", "-")
	if stage == "init" {
		stage = "init-network"
	}
	if stage == "init-local" { // a new boot begins; what came before belongs to older ones
		*r = cloudLog{c: &boot.Capture{}, date: r.date, ahead: r.ahead, coarse: r.coarse}
	}
	r.c.CloudInit.Version = m[1]
	var up float64
	if _, err := fmt.Sscanf(m[4], "%g", &up); err == nil && up > 0 && up < 1e9 {
		mono := boot.Micros(up * 1e6)
		r.anchors = append(r.anchors, cloudAnchor{at, mono, at - mono})
	}
	r.events = append(r.events, cloudEvent{name: stage, start: true, at: at})
}

// monotonic converts by the latest anchor that is not after the moment.
func (r *cloudLog) monotonic(wall boot.Micros) boot.Micros {
	if len(r.anchors) == 0 {
		return wall
	}
	a := r.anchors[0]
	for _, b := range r.anchors[1:] {
		if b.wall <= wall {
			a = b
		}
	}
	return min(max(wall-a.offset, 1), boot.MaxStamp)
}

// calendar learns from a stage's banner the year, which syslog leaves out, and the zone of the stamps:
// cloud-init writes UTC, old versions and syslog write local time.
func (r *cloudLog) calendar(stamp []string, text string) {
	date, err := time.Parse(time.RFC1123Z, text)
	if err != nil || !credibleTime(date) {
		return
	}
	r.date, r.ahead, r.coarse = date.UTC(), 0, stamp[1] == ""
	at, ok := r.time(stamp)
	if !ok {
		return
	}
	const quarter = 15 * time.Minute
	off := time.UnixMicro(int64(at)).Sub(date)
	if zone := off.Round(quarter); zone.Abs() <= 14*time.Hour && (off-zone).Abs() < quarter/5 {
		r.ahead = zone
	}
}

// time is a line's own time in UTC.
func (r *cloudLog) time(stamp []string) (boot.Micros, bool) {
	var t time.Time
	var err error
	if stamp[1] != "" {
		t, err = time.Parse("2006-01-02 15:04:05.000", stamp[1]+" "+stamp[2]+"."+stamp[3])
	} else {
		if r.date.IsZero() {
			return 0, false
		}
		t, err = time.Parse("Jan _2 15:04:05", stamp[4])
		t = nearYear(t, r.date)
	}
	if t = t.Add(-r.ahead); err != nil || !credibleTime(t) {
		return 0, false
	}
	return boot.Micros(t.UnixMicro()), true
}

func sniffCloudInitDump(head []byte) bool {
	return head[0] == '[' && bytes.Contains(head, []byte(`"event_type"`)) && bytes.Contains(head, []byte(`"timestamp"`))
}

// readCloudInitDump reads `cloud-init analyze dump`, of which the last boot counts. It has wall
// clock stamps only: alone, its zero is the first event; merged with a record of units it is put in
// its place.
func readCloudInitDump(data []byte) (*boot.Capture, error) {
	var rows []struct {
		Name      string  `json:"name"`
		EventType string  `json:"event_type"`
		Timestamp float64 `json:"timestamp"`
		Result    string  `json:"result"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, jsonError(err)
	}
	var events []cloudEvent
	for _, r := range rows {
		if !(r.Timestamp > 0 && r.Timestamp < float64(boot.MaxStamp)/1e6) {
			continue
		}
		e := cloudEvent{name: r.Name, result: r.Result, start: r.EventType == "start", at: boot.Micros(math.Round(r.Timestamp * 1e6))}
		if e.start && e.name == "init-local" {
			events = nil
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		return nil, errors.New("a list without events")
	}
	c := &boot.Capture{}
	c.Spans = cloudSpans(events, func(wall boot.Micros) boot.Micros { return wall })
	float(c, events)
	return c, nil
}

// float moves spans with wall clock stamps so that the first event is at one second, and remembers
// that they have no place.
func float(c *boot.Capture, events []cloudEvent) {
	first := slices.MinFunc(events, func(a, b cloudEvent) int { return cmp.Compare(a.at, b.at) }).at
	c.ShiftSpans(1000000 - first)
	c.Floating = max(first-1000000, 1)
	c.Note(boot.NoteFloating)
}

// cloudSpans pairs starts and finishes. A stage that is started twice (by its banner and by its
// first event) is one span.
func cloudSpans(events []cloudEvent, when func(boot.Micros) boot.Micros) []boot.Span {
	var spans []boot.Span
	open := map[string]int{}
	stage := ""
	for _, e := range events {
		i, isOpen := open[e.name]
		unit, isStage := cloudInitUnits[e.name]
		if isStage && e.start {
			stage = unit
		}
		switch {
		case e.start && !isOpen:
			s := boot.Span{Name: e.name, Kind: boot.SpanTask, Unit: stage, Start: when(e.at), Source: "cloud-init"}
			if isStage {
				s.Kind, s.Unit = boot.SpanStage, unit
			} else if _, leaf, ok := strings.Cut(e.name, "/"); ok && strings.HasPrefix(e.name, "azure-ds/") && pauseSpans[leaf] {
				s.Kind = boot.SpanPause
			}
			open[e.name] = len(spans)
			spans = append(spans, s)
		case !e.start && isOpen:
			spans[i].End = max(when(e.at), spans[i].Start)
			spans[i].Result = e.result
			delete(open, e.name)
		}
	}
	return spans
}
