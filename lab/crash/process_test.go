package crash

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// useProcesses builds the program and lets the station run it.
func useProcesses(t *testing.T) {
	t.Helper()
	program := os.Getenv("KAMINO_LABCLOCK")
	if program == "" {
		program = filepath.Join(t.TempDir(), "kamino")
		if err := BuildKamino(t.Context(), "../..", program, PollInterval, 0); err != nil {
			t.Fatal(err)
		}
	}
	station.UseProcesses(program)
	t.Cleanup(func() { station.UseProcesses("") })
}

// TestProcessesLeaveTheSame: a process that gets SIGKILL and a goroutine that
// ends at the same call leave the same behind, and both make the same calls.
func TestProcessesLeaveTheSame(t *testing.T) {
	golden := undisturbed(t)[0]
	var err error
	var sample []*Case
	for _, c := range Enumerate([]*Golden{golden}) {
		if c.Strike.Kind.Kills() && !c.Heal && c.Skew == 0 && c.Start.IsZero() {
			c.Peek = true
			sample = append(sample, c)
		}
	}
	const positions = 6
	sample = choose(sample, Options{Sample: positions})
	inside := make([]Outcome, len(sample))
	for i, c := range sample {
		if inside[i], err = c.Try(t.Context(), station, false); err != nil {
			t.Fatal(err)
		}
	}
	useProcesses(t)
	real, err := runGolden(t.Context(), station, Shapes()[0])
	if err != nil {
		t.Fatal(err)
	}
	if a, b := callList(golden), callList(real); !slices.Equal(a, b) {
		t.Fatalf("a process makes other calls: %q", differences(a, b))
	}
	for i, c := range sample {
		outside, err := c.Try(t.Context(), station, false)
		if err != nil {
			t.Fatal(err)
		}
		if !outside.Hit || !inside[i].Hit {
			t.Errorf("%s: hit %v inside, %v outside", c.Name, inside[i].Hit, outside.Hit)
		}
		for _, line := range differences(inside[i].After, outside.After) {
			t.Errorf("%s leaves another state: %s", c.Name, line)
		}
		for _, what := range append(inside[i].Violations, outside.Violations...) {
			t.Errorf("%s: %s", c.Name, what)
		}
	}
}

func callList(g *Golden) []string {
	var out []string
	for _, c := range g.Calls {
		out = append(out, masked(c.String()))
	}
	return out
}
