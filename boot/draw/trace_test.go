package draw_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
	"kamino.dev/kamino/boot/internal/sample"
)

const sec = boot.Micros(1e6)

func analysis(t testing.TB, c *boot.Capture) *boot.Analysis {
	t.Helper()
	a, err := boot.Analyze(c, boot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type traced struct {
	Name  string
	Ph    string
	PID   int `json:"pid"`
	TID   int `json:"tid"`
	TS    *int64
	Dur   *int64
	ID    int
	BP    string
	Cat   string
	Scope string `json:"s"`
	Args  map[string]any
}

func traceOf(t testing.TB, c *boot.Capture) []traced {
	t.Helper()
	var b bytes.Buffer
	if err := draw.Trace(&b, c, analysis(t, c)); err != nil {
		t.Fatal(err)
	}
	var doc struct{ TraceEvents []traced }
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.TraceEvents
}

// tracks are a trace's slices by track, the names of the tracks, and its arrows by ID.
type tracks struct {
	bars   map[track][]traced
	named  map[track]string
	arrows map[int][]traced
}

type track struct{ pid, tid int }

func sortTrace(t *testing.T, events []traced) tracks {
	t.Helper()
	out := tracks{map[track][]traced{}, map[track]string{}, map[int][]traced{}}
	for _, e := range events {
		at := track{e.PID, e.TID}
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				out.named[at], _ = e.Args["name"].(string)
			}
			continue
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				t.Errorf("%s has no length", e.Name)
			}
			out.bars[at] = append(out.bars[at], e)
		case "s", "f":
			out.arrows[e.ID] = append(out.arrows[e.ID], e)
		case "i":
		default:
			t.Errorf("kind %q is not known", e.Ph)
		}
		if e.TS == nil || *e.TS < 0 {
			t.Errorf("%s %s has no time", e.Ph, e.Name)
		}
	}
	return out
}

// TestTrace checks what importers of the format ask for: known kinds, no negative time, no two
// slices at once on a track, a name for every track, both ends of every arrow inside a slice of its
// track.
func TestTrace(t *testing.T) {
	for name, o := range map[string]sample.Options{"ordinary": {Seed: 1}, "parked": {Seed: 2, Parked: 1000 * sec}, "clone": {Seed: 3, Clone: true}} {
		t.Run(name, func(t *testing.T) {
			c := sample.Node(o)
			c.Manager.Firmware, c.Manager.Loader = 9*sec, 4*sec
			got := sortTrace(t, traceOf(t, c))
			units := map[string]track{}
			for at, list := range got.bars {
				if got.named[at] == "" {
					t.Errorf("%s: track %v has no name", name, at)
				}
				slices.SortFunc(list, func(a, b traced) int { return cmp.Compare(*a.TS, *b.TS) })
				for i, e := range list {
					if i > 0 && *list[i-1].TS+*list[i-1].Dur > *e.TS {
						t.Errorf("%s: %s and %s are at once on a track", name, list[i-1].Name, e.Name)
					}
					if other, ok := units[e.Name]; ok && other != at && e.Cat != "phase" {
						t.Errorf("%s: %s has two tracks", name, e.Name)
					}
					units[e.Name] = at
				}
			}
			if len(got.arrows) < 10 {
				t.Errorf("%s: %d arrows along the chain", name, len(got.arrows))
			}
			for id, ends := range got.arrows {
				if len(ends) != 2 || *ends[0].TS > *ends[1].TS {
					t.Fatalf("%s: arrow %d is %+v", name, id, ends)
				}
				for _, e := range ends {
					if !slices.ContainsFunc(got.bars[track{e.PID, e.TID}], func(s traced) bool { return *s.TS <= *e.TS && *e.TS <= *s.TS+*s.Dur }) {
						t.Errorf("%s: an end of arrow %d is in no slice", name, id)
					}
				}
			}
			if _, ok := units["parked"]; ok != (o.Parked > 0) {
				t.Errorf("%s: a track of parked time: %v", name, ok)
			}
		})
	}
}

// TestTraceSplitsParked: the slice of the unit in which the machine was parked has a hole there.
func TestTraceSplitsParked(t *testing.T) {
	var local []traced
	for _, e := range traceOf(t, sample.Node(sample.Options{Seed: 2, Parked: 1000 * sec})) {
		if e.Ph == "X" && e.Name == "cloud-init-local.service" {
			local = append(local, e)
		}
	}
	if len(local) != 2 {
		t.Fatalf("cloud-init-local.service has %d slices, want 2", len(local))
	}
	if gap := *local[1].TS - *local[0].TS - *local[0].Dur; gap != int64(1000*sec) {
		t.Errorf("the hole is %d µs, want 1000 s", gap)
	}
}

// TestPlainPicture: a picture is whole XML with the chain in it, and the parked time by name.
func TestPlainPicture(t *testing.T) {
	c := sample.Node(sample.Options{Name: "node-1", Seed: 2, Parked: 1000 * sec})
	var b bytes.Buffer
	if err := draw.SVG(&b, c, analysis(t, c)); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.Bytes())
	for _, want := range []string{"node-1: kubelet started", "cloud-init.service", "parked", "16min 40s", `class="chain"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(b.String(), "<script") {
		t.Error("a plain picture has a script")
	}
}

// TestPictureOddNames: what no XML can have is in a picture of no name.
func TestPictureOddNames(t *testing.T) {
	for _, odd := range []string{"a\x00b.service", "x\x01\x1b[31m.service", "a\rb\r\n\xff\ufffe\uffff\u2028.service", "]]></title>"} {
		c := sample.Node(sample.Options{Name: odd, Seed: 1})
		c.Host.OS, c.Host.Kernel, c.Host.Image, c.Host.BootID = odd, odd, odd, odd
		for i := range c.Units {
			if i%3 == 0 {
				c.Units[i].ID = odd
			}
		}
		for i := range c.Spans {
			c.Spans[i].Name = odd
		}
		var b bytes.Buffer
		if err := draw.SVG(&b, c, analysis(t, c)); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, b.Bytes())
	}
}

func wellFormed(t *testing.T, data []byte) {
	t.Helper()
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well formed: %v", err)
		}
	}
}
