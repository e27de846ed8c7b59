package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	rand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

func named(names ...string) (out []kamino.Version) {
	for _, n := range names {
		out = append(out, kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: n, State: kamino.Succeeded, Tags: map[string]string{kamino.TagBuiltFrom: "n"}}))
	}
	slices.SortStableFunc(out, func(a, b kamino.Version) int { return kamino.CompareVersions(b.Name, a.Name) })
	return out
}

// TestVersionCalendars makes images on random days, several on some, while a
// program that knows one a day makes others and old ones are pruned: names only
// grow, tell their day, are taken once, and fit into 32 bits.
func TestVersionCalendars(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		day := time.Date(2023+rng.IntN(6), time.Month(1+rng.IntN(12)), 1+rng.IntN(28), rng.IntN(24), 0, 0, 0, time.UTC)
		var have []kamino.Version
		ever, newest := map[string]bool{}, ""
		foreign := rng.IntN(3) == 0
		for range 40 {
			day = day.Add(time.Duration(rng.IntN(5*24)) * time.Hour / 2)
			if foreign && rng.IntN(6) == 0 && kamino.NewestOfDay(have, day) == nil && !ever[kamino.VersionName(day)] {
				ever[kamino.VersionName(day)] = true
				have = named(append(names(have), kamino.VersionName(day))...)
				if kamino.CompareVersions(kamino.VersionName(day), newest) > 0 {
					newest = kamino.VersionName(day)
				}
				continue
			}
			next, err := kamino.NextVersion(have, day)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			at, err := kamino.VersionDate(next)
			if err != nil || kamino.VersionName(at) != kamino.VersionName(day) || ever[next] || kamino.CompareVersions(next, newest) <= 0 {
				t.Fatalf("seed %d: on %s, after %s with %v, the next is %s (%v, taken %v)", seed, day, newest, names(have), next, err, ever[next])
			}
			third := next[strings.LastIndexByte(next, '.')+1:]
			if n, err := strconv.ParseInt(third, 10, 32); err != nil || n < 1 {
				t.Fatalf("seed %d: %s is no version of a gallery", seed, next)
			}
			ever[next], newest = true, next
			have = named(append(names(have), next)...)
			if have[0].Name != next {
				t.Fatalf("seed %d: %s is not the latest of %v", seed, next, names(have))
			}
			for _, v := range Prunable(have, 2+rng.IntN(3), rng.IntN(2), kamino.Ledger{}) {
				if v.Outnumbered(have) != nil {
					t.Fatalf("seed %d: %s would be pruned, it is newer than %v", seed, v.Name, names(have))
				}
				if rng.IntN(3) > 0 {
					have = slices.DeleteFunc(have, func(o kamino.Version) bool { return o.Name == v.Name })
				}
			}
		}
	}
}

func names(list []kamino.Version) (out []string) {
	for _, v := range list {
		out = append(out, v.Name)
	}
	return out
}

// TestOutnumbered: a version that was made later than one which counts as later
// is told, and is not deleted as an old one.
func TestOutnumbered(t *testing.T) {
	have := named("2026.11.2301", "2026.11.2300", "2026.11.2201", "2026.11.24", "2026.11.22")
	for _, v := range have {
		if by := v.Outnumbered(have); (by != nil) != (v.Name == "2026.11.24") || by != nil && by.Name != "2026.11.2301" {
			t.Errorf("%s is outnumbered by %v", v.Name, by)
		}
	}
	if got := fmt.Sprint(names(Prunable(have, 2, 1, kamino.Ledger{}))); got != "[2026.11.22 2026.11.2201]" {
		t.Errorf("would be pruned: %s", got)
	}
}

// TestHiddenVersions: what was never offered pushes nothing out that was, and is what comes next.
func TestHiddenVersions(t *testing.T) {
	var have []kamino.Version
	for i := 5; i > 0; i-- {
		v := kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: fmt.Sprintf("2026.11.0%d", i), ID: fmt.Sprintf("/d/versions/2026.11.0%d", i), State: kamino.Succeeded,
			Tags: map[string]string{kamino.TagBuiltFrom: "n"}})
		state := kamino.TagOfferOffered
		if i > 3 {
			state = kamino.TagOfferHidden
		}
		have = append(have, v.Offering(state))
	}
	if got := fmt.Sprint(names(Prunable(have, 2, 1, kamino.Ledger{}))); got != "[2026.11.01]" {
		t.Errorf("prunable %s", got)
	}
	if p, l := kamino.Promotable(have, kamino.Proving{Mode: kamino.ProveNone}), kamino.Latest(have); p.Name != "2026.11.05" || l.Name != "2026.11.03" {
		t.Errorf("promotable %s, latest %s", p.Name, l.Name)
	}
	if pin := kamino.MovedPin("/D", have); pin != nil {
		t.Errorf("nobody moved the pointer: %+v", pin)
	}
	have[2].Excluded = true // by a person
	if pin := kamino.MovedPin("/D", have); pin == nil || pin.Image != have[3].ID || pin.Wrote != have[2].ID {
		t.Errorf("pin %+v", pin)
	}
	if pin := kamino.MovedPin(have[2].ID, have); pin != nil {
		t.Errorf("a pool that goes by version: %+v", pin)
	}
}

// TestWithdrawnVersions: what was promoted, withdrawn, or never offered counts apart, so that a
// version which waits takes no other's place; what may yet be promoted stays, and what an instance
// or a definition needs.
func TestWithdrawnVersions(t *testing.T) {
	var have []kamino.Version
	for i := 9; i > 0; i-- {
		v := kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: fmt.Sprintf("2026.11.0%d", i), ID: fmt.Sprintf("/d/versions/2026.11.0%d", i), State: kamino.Succeeded,
			Tags: map[string]string{kamino.TagBuiltFrom: "n"}})
		switch i {
		case 9, 4:
			v = v.Offering(kamino.TagOfferHidden)
		case 8, 7, 6, 3:
			v = v.Withdrawn(kamino.Bad{Reason: "a test"})
		default:
			v = v.Offered()
		}
		have = append(have, v)
	}
	for _, tt := range []struct {
		keep, apart int
		change      func()
		want        string
	}{
		{2, 1, func() {}, "[2026.11.01 2026.11.03 2026.11.04 2026.11.06 2026.11.07]"}, // 9 may yet be promoted, 8 tells why it was withdrawn
		{2, 3, func() {}, "[2026.11.01 2026.11.03]"},
		{3, 0, func() { have[2].Instances = 1 }, "[2026.11.03 2026.11.04 2026.11.06 2026.11.08]"},
		{3, 0, func() { have[5].InModel = true }, "[2026.11.01 2026.11.03 2026.11.06 2026.11.08]"}, // 4 was promoted by name
	} {
		t.Run(tt.want, func(t *testing.T) {
			tt.change()
			if got := fmt.Sprint(names(Prunable(have, tt.keep, tt.apart, kamino.Ledger{}))); got != tt.want {
				t.Errorf("keep %d and %d: prunable %s, want %s", tt.keep, tt.apart, got, tt.want)
			}
		})
	}
}

func (s *shelf) SaveList(_ context.Context, _ kamino.PoolID, run string, l kamino.DiskList) error {
	s.kept[run] = l
	return nil
}

func (s *shelf) Lists(context.Context, kamino.PoolID) (runs []string, err error) {
	return slices.Sorted(maps.Keys(s.kept)), nil
}

func (s *shelf) DeleteList(_ context.Context, run string) error {
	delete(s.kept, run)
	return nil
}

// told is what the agent writes on a node for an order.
func told(run, nonce string, lines ...string) kamino.Node {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for _, line := range lines {
		fmt.Fprintln(z, line)
	}
	_ = z.Close()
	text, _ := json.Marshal(map[string]any{"run": run, "nonce": nonce, "list": packed.Bytes()})
	return kamino.Node{Annotations: map[string]string{kamino.AnnotationPackages: string(text)}}
}
