package boot

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

func TestTimespan(t *testing.T) {
	for in, want := range map[uint64]string{
		0: "0", 1: "1us", 999: "999us", 1000: "1ms", 270999: "270ms", 1000000: "1s", 1033000: "1.033s", 1000001: "1.000s",
		59999999: "59.999s", 60000000: "1min", 60000500: "1min", 1000410000: "16min 40.410s", 3723004000: "1h 2min 3.004s",
		1<<64 - 1: "infinity", 1<<64 - 448000: "584542y 2w 2d 20h 1min 49.103s",
	} {
		if got := timespan(in); got != want {
			t.Errorf("timespan(%d) = %q, want %q", in, got, want)
		}
	}
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
			number := strings.TrimRightFunc(word, unicode.IsLetter)
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
