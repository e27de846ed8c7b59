package boot

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzRead gives any bytes to the readers, and what they make of it to all that prints and draws.
func FuzzRead(f *testing.F) {
	f.Add(realDump(f))
	f.Add(fixture(f, "real/plot.svg"))
	f.Add(exportFormat(nodeJournal()))
	f.Add(jsonFormat(nodeJournal()))
	f.Add([]byte(cloudText))
	f.Add([]byte(`[{"name":"a.service","activated":9000000,"activating":5000000,"time":4000000,"deactivated":30000000,"deactivating":30000000}]`))
	f.Add([]byte(`[{"name":"init-local","event_type":"start","timestamp":1700000005.5},{"name":"init-local","event_type":"finish","timestamp":1700000007.5}]`))
	f.Add([]byte(`{"schema":"kamino.dev/boot-capture/v1","manager":{"userspace":2,"finish":9007199254740992,"firmware":9007199254740992},"units":[{"id":"kubelet.service","activating":5,"after":["a","b"]},{"id":"a","names":["b"],"activated":3,"first":{"activating":1}}],"spans":[{"name":"p","kind":"pause","unit":"a","start":1},{"name":"t","kind":"task","start":2,"end":6}],"marks":[{"name":"node-ready","at":7}]}`))
	seeds, err := filepath.Glob("testdata/seed/*.show")
	if err != nil || len(seeds) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, s := range seeds {
		data, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(data)
		if err != nil {
			if c != nil {
				t.Error("an error and a capture")
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("what was read is not valid: %v", err)
		}
		text, err := everything(c)
		if err != nil {
			t.Fatal(err)
		}
		if utf8.Valid(data) && !utf8.ValidString(text) {
			t.Error("valid text became invalid")
		}
		if err := c.Merge(&Capture{Schema: Schema}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzMerge merges two records of the same boot, in both orders.
func FuzzMerge(f *testing.F) {
	f.Add(realDump(f), []byte(cloudText))
	f.Add(exportFormat(nodeJournal()), realDump(f))
	f.Add([]byte(cloudText), exportFormat(nodeJournal()))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		for _, order := range [][2][]byte{{one, two}, {two, one}} {
			a, err := Read(order[0])
			if err != nil {
				return
			}
			b, err := Read(order[1])
			if err != nil {
				return
			}
			if a.Merge(b) != nil {
				return
			}
			if err := a.Validate(); err != nil {
				t.Fatalf("two valid records merged are not valid: %v", err)
			}
			if _, err := everything(a); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzNormalize: a name that was normalised stays, and none becomes empty.
func FuzzNormalize(f *testing.F) {
	for _, name := range []string{"kubelet.service", `dev-disk-by\x2duuid-4fa1.device`, "user@1000.service", `run-1\x2d2.mount`, "a@b@1.c"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once := Normalize(name)
		if twice := Normalize(once); twice != once {
			t.Errorf("%q became %q and then %q", name, once, twice)
		}
		if name != "" && once == "" {
			t.Errorf("%q became nothing", name)
		}
	})
}

// FuzzTimespan reads a formatted length back: it is the length, cut to milliseconds if it has any.
func FuzzTimespan(f *testing.F) {
	for _, n := range []uint64{0, 1, 999, 1000, 59999999, 60000000, 1000410000, 1<<64 - 2, 1<<64 - 448000} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n uint64) {
		if n == 1<<64-1 {
			return // "infinity"
		}
		s := timespan(n)
		var back uint64
		for _, word := range strings.Fields(s) {
			number := strings.TrimRight(word, "yearmonthwdhinsu")
			whole, fraction, _ := strings.Cut(number, ".")
			value, err := strconv.ParseUint(whole, 10, 64)
			if err != nil {
				t.Fatalf("timespan(%d) = %q: %v", n, s, err)
			}
			i := slices.IndexFunc(spanUnits, func(u spanUnit) bool { return u.suffix == strings.TrimPrefix(word, number) })
			if i < 0 && n > 0 {
				t.Fatalf("timespan(%d) = %q: what is %q?", n, s, word)
			}
			if n > 0 {
				back += value * spanUnits[i].usec
			}
			if fraction != "" {
				ms, err := strconv.ParseUint(fraction, 10, 64)
				if err != nil || len(fraction) != 3 {
					t.Fatalf("timespan(%d) = %q: fraction %q", n, s, fraction)
				}
				back += ms * 1000
			}
		}
		if back > n || n-back >= 1000 || n < 1000 && back != n {
			t.Errorf("timespan(%d) = %q, which is %d", n, s, back)
		}
	})
}
