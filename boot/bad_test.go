package boot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestBadInput: what is no boot is refused in words that name the format and what to do.
func TestBadInput(t *testing.T) {
	for _, tc := range []struct{ name, data, want string }{
		{"nothing", "", "empty input"},
		{"white space", " \n\t\n", "empty input"},
		{"prose", "hello, world", "no boot recognised"},
		{"binary", "\x7fELF\x02\x01\x01\x00", "no boot recognised"},
		{"capture cut off", `{"schema":"kamino.dev/boot-capture/v1","units":[{"id":"a.ser`, "was the file cut off?"},
		{"capture of another version", `{"schema":"kamino.dev/boot-capture/v9"}`, `schema is "kamino.dev/boot-capture/v9"`},
		{"foreign JSON object", `{"kind":"Pod","metadata":{"name":"x"}}`, `schema is ""`},
		{"foreign JSON list", `[{"kind":"Pod"}]`, "no boot recognised"},
		{"JSON of another shape", `{"schema":"kamino.dev/boot-capture/v1","units":{"a":1}}`, "cannot unmarshal"},
		{"negative stamp", `{"schema":"kamino.dev/boot-capture/v1","units":[{"id":"a","activating":-5}]}`, "outside 0 to 2^53"},
		{"stamp beyond any clock", `{"schema":"kamino.dev/boot-capture/v1","manager":{"finish":9007199254740993}}`, "outside 0 to 2^53"},
		{"unit without a name", `{"schema":"kamino.dev/boot-capture/v1","units":[{"activating":5}]}`, "has no id"},
		{"negative span", `{"schema":"kamino.dev/boot-capture/v1","spans":[{"name":"x","start":-1}]}`, "span x"},
		{"negative mark", `{"schema":"kamino.dev/boot-capture/v1","marks":[{"name":"x","at":-1}]}`, "mark x"},
		{"dump with a stamp that is no number", "UserspaceTimestampMonotonic=soon\n", "is not a number of microseconds"},
		{"dump with an impossible stamp", "UserspaceTimestampMonotonic=99999999999999999\n", "below 2^53"},
		{"dump of nothing", "Foo=bar\nBaz=1\n", "neither a manager nor a unit"},
		{"SVG of something else", `<svg xmlns="http://www.w3.org/2000/svg"><circle r="4"/></svg>`, "not one of `systemd-analyze plot`"},
		{"SVG without bars", `<svg xmlns="http://www.w3.org/2000/svg"><!-- systemd-analyze --></svg>`, "without a single unit's bar"},
		{"SVG cut off", `<svg xmlns="http://www.w3.org/2000/svg"><!-- systemd-analyze --><g><text x="1"`, "cut off or not well formed"},
		{"HTML", "<!doctype html><html><svg></svg></html>", "not one of `systemd-analyze plot`"},
		{"plot list without units that started", `[{"name":"a","activating":0,"activated":0}]`, "without units that started"},
		{"plot list cut off", `[{"name":"a","activating":5,`, "was the file cut off?"},
		{"journal without stamps", "__CURSOR=x\nMESSAGE=hello\n\n", "no entry with a monotonic stamp"},
		{"journal cut off in its first entry", "__CURSOR=x\nMESSAGE\n\xff\x00", "cut off"},
		{"journal JSON cut off in its first entry", `{"__REALTIME_TIMESTAMP":"1","__MONO`, "cut off"},
		{"cloud-init log without a stage", "2026-01-14 08:00:00,000 - util.py[DEBUG]: Cloud-init v. what\n", "no stage and no event"},
		{"cloud-init dump cut off", `[{"name":"init-local","event_type":"start","timestamp":1.5},`, "was the file cut off?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Read([]byte(tc.data))
			if err == nil {
				t.Fatalf("read as %v", c.Sources)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error is %q, want %q in it", err, tc.want)
			}
		})
	}
}

// zeros is an endless input of spaces.
type zeros struct{ given int }

func (z *zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	z.given += len(p)
	return len(p), nil
}

func TestEnormousInput(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this reads more than the 256 MB limit into memory")
	}
	z := &zeros{}
	if _, err := ReadFrom(z); err == nil || !strings.Contains(err.Error(), "more than the limit of 268435456") || z.given > 2*MaxDocument {
		t.Errorf("error %v after %d bytes", err, z.given)
	}
	var b strings.Builder
	b.WriteString(`{"schema":"kamino.dev/boot-capture/v1","units":[{"id":"u0"}`)
	for i := range maxUnits {
		fmt.Fprintf(&b, `,{"id":"u%d"}`, i+1)
	}
	b.WriteString("]}")
	if _, err := Read([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "more than systemd's own limit") {
		t.Errorf("too many units: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestBrokenReader(t *testing.T) {
	if _, err := ReadFrom(io.MultiReader(strings.NewReader("{"), broken{})); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("error is %v", err)
	}
}

// absurd finds numbers that only an underflow or a stamp taken for a length can make: years.
var absurd = regexp.MustCompile(`\d+y |-?\d{17,}`)

// everything writes all that there is of a capture. Refusals of the compat verbs are right for boots that have not finished.
func everything(c *Capture) (string, error) {
	a, err := Analyze(c, Options{Fuzz: 5e6})
	if err != nil {
		return "", err
	}
	var pool Pool
	pool.Add(Summarize("x", a))
	pool.Add(Summarize("y", a))
	report := pool.Report()
	cmp := Compare(a, a)
	var b bytes.Buffer
	for _, write := range []func(io.Writer) error{
		a.WriteText, a.WriteTime, a.WriteBlame, a.WriteChain, cmp.WriteText, cmp.WriteHTML, report.WriteText,
		func(w io.Writer) error { return WriteHTML(w, c, a) },
		func(w io.Writer) error { return WriteSVG(w, c, a) },
		func(w io.Writer) error { return WriteTrace(w, c, a) },
	} {
		if err := write(&b); err != nil {
			return "", err
		}
	}
	_ = CompatTime(io.Discard, c)
	_ = CompatBlame(io.Discard, c)
	_, _ = CompatChain(io.Discard, c, 5e6)
	return b.String(), sane(a)
}

// sane looks for lengths that cannot be.
func sane(a *Analysis) error {
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

// TestOddBoots: boots that are odd but real come to a result, with a remark that says what is odd.
func TestOddBoots(t *testing.T) {
	base := func(change func(*Manager)) *Capture {
		c := machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), svc("a.service", 3*sec, 9*sec))
		change(&c.Manager)
		return c
	}
	circle := machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), svc("a.service", 9*sec, 9*sec, "b.service"), svc("b.service", 9*sec, 9*sec, "a.service"))
	early := machine(svc("kubelet.service", 10*sec, 11*sec, "initrd.mount"), svc("initrd.mount", 5e5, 6e5))
	again := svc("a.service", 25*sec, 9*sec)
	for name, tc := range map[string]struct {
		boot   *Capture
		remark string
	}{
		"not finished":                {base(func(m *Manager) { m.Finish = 0 }), "had not finished"},
		"container":                   {base(func(m *Manager) { m.SecurityStart = 0 }), "a container"},
		"soft reboot":                 {base(func(m *Manager) { m.SoftReboots, m.ShutdownStart = 1, 5e5 }), "a soft reboot"},
		"all stamps zero":             {base(func(m *Manager) { *m = Manager{} }), ""},
		"finish before userspace":     {base(func(m *Manager) { m.Finish = 1 }), ""},
		"initrd after userspace":      {base(func(m *Manager) { m.InitRD = 20 * sec }), ""},
		"loader longer than firmware": {base(func(m *Manager) { m.Firmware, m.Loader = sec, 9*sec }), ""},
		"nothing in it":               {&Capture{Schema: Schema}, ""},
		"circle":                      {circle, ""},
		"unit before userspace":       {early, "started before userspace"},
		"starting again":              {machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), again), "mix two lives"},
		"no edges":                    {machine(svc("kubelet.service", 10*sec, 11*sec)), "no ordering edges"},
		"clock jump": {&Capture{Schema: Schema, Units: []Unit{svc("a.service", 3, 9, "b")}, Marks: []Mark{{Name: MarkClockJump, At: 5 * sec, Detail: "wall clock moved back by about 1h"}}},
			"moved back by about 1h"},
		"suspended":                         {&Capture{Schema: Schema, Units: []Unit{svc("a.service", 3, 9, "b")}, Marks: []Mark{{Name: "suspend", At: 5 * sec}}}, "stood still"},
		"a pause that ends before it began": {&Capture{Schema: Schema, Units: []Unit{svc("a.service", 3, 9)}, Spans: []Span{{Name: "x", Kind: SpanPause, Start: 9, End: 3}}}, ""},
		"a span of the whole time":          {&Capture{Schema: Schema, Units: []Unit{svc("kubelet.service", 9, 9)}, Spans: []Span{{Name: "x", Kind: SpanPause, Start: 0, End: maxStamp}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := everything(tc.boot)
			if err != nil {
				t.Fatal(err)
			}
			if tc.remark != "" && !strings.Contains(text, tc.remark) {
				t.Errorf("nothing says %q", tc.remark)
			}
			if bad := absurd.FindString(text); bad != "" && !strings.HasPrefix(name, "a span of") {
				t.Errorf("an absurd number: %q", bad)
			}
		})
	}
}
