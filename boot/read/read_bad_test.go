package read

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
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
		{"foreign JSON object", `{"kind":"Pod","metadata":{"name":"x"}}`, "it has no schema"},
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
			c, err := Bytes([]byte(tc.data))
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
	if _, err := From(z); err == nil || !strings.Contains(err.Error(), "more than the limit of 268435456") || z.given > 2*boot.MaxDocument {
		t.Errorf("error %v after %d bytes", err, z.given)
	}
	var b strings.Builder
	b.WriteString(`{"schema":"kamino.dev/boot-capture/v1","units":[{"id":"u0"}`)
	for i := range boot.MaxUnits {
		fmt.Fprintf(&b, `,{"id":"u%d"}`, i+1)
	}
	b.WriteString("]}")
	if _, err := Bytes([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "more than systemd's own limit") {
		t.Errorf("too many units: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

func TestBrokenReader(t *testing.T) {
	if _, err := From(io.MultiReader(strings.NewReader("{"), broken{})); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("error is %v", err)
	}
}
