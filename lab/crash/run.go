package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of Run. Dir and Binary are required.
type Options struct {
	Dir     string // for the stations
	Binary  string // path of kamino-lab
	Program string // of BuildKamino, to be killed with SIGKILL; "" ends goroutines instead
	Workers int    // stations side by side; 0 means 2
	Sample  int    // how many cases: one of every cell, then what Seed draws; 0 means all
	Seed    uint64
	AWS     bool // the cloud is AWS, not Azure
	Work    Work // the commands that are disturbed, with commas; "" is every one
	// Match, if set, chooses cases.
	Match func(*Case) bool
	// Progress, if set, hears of every outcome, one at a time.
	Progress func(done, all int, o Outcome)
}

// Report is what a run of the harness found.
type Report struct {
	Calls      int
	Outcomes   []Outcome
	Cells      map[Cell]int
	Empty      []Cell
	Violations int
	Away       []time.Duration
	Took       time.Duration

	aws  bool
	work Work
}

// Work is a command of Kamino's.
type Work string

// The commands that are disturbed.
const (
	Update   Work = "update"
	Patch    Work = "patch"
	Keep     Work = "controller"
	Rollback Work = "rollback"
	Withdraw Work = "withdraw"
	Promote  Work = "promote"
)

// Works are all commands that can be disturbed on a cloud.
func Works(aws bool) []Work {
	if aws {
		return []Work{Update, Rollback, Withdraw, Promote}
	}
	return []Work{Update, Patch, Keep, Rollback, Withdraw, Promote}
}

// Each are the commands that a list names.
func (w Work) Each() (out []Work) {
	for one := range strings.SplitSeq(string(w), ",") {
		out = append(out, Work(one))
	}
	return out
}

// has says whether a command is one of those that are asked for.
func (w Work) has(one Work) bool { return w == "" || slices.Contains(w.Each(), one) }

// work is the command of a world.
func (s Shape) work() Work {
	switch {
	case s.Kept:
		return Keep
	case s.Patch:
		return Patch
	}
	return cmp.Or(s.Command, Update)
}

// plays says whether what is asked for includes a shape.
func (w Work) plays(s Shape) bool { return w.has(s.work()) }

// Run tries all cases, or a sample, on stations of its own. An error beside a report names the
// cases that could not be played.
func Run(ctx context.Context, opts Options) (*Report, error) {
	began := time.Now()
	if opts.Workers == 0 {
		opts.Workers = 2
	}
	stations, err := openStations(ctx, opts)
	defer func() {
		for _, s := range stations {
			s.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	goldens, err := Goldens(ctx, stations[0], opts.AWS, opts.Work)
	if err != nil {
		return nil, err
	}
	cases := Enumerate(goldens)
	if opts.Program != "" {
		cases = slices.DeleteFunc(cases, func(c *Case) bool { return !c.killsOnly() })
		for _, s := range stations {
			s.UseProcesses(opts.Program)
		}
	}
	cases = choose(cases, opts)
	report := &Report{Cells: map[Cell]int{}, aws: opts.AWS, work: opts.Work}
	for _, g := range goldens {
		for _, row := range g.Rows {
			if g.scope(row) {
				report.Calls++
			}
		}
	}
	err = report.try(ctx, stations, cases, opts.Progress)
	report.sum()
	report.Took = time.Since(began)
	return report, err
}

// Goldens makes the undisturbed runs of a command, or of all.
func Goldens(ctx context.Context, s *Station, aws bool, work Work) ([]*Golden, error) {
	var out []*Golden
	shapes := Shapes()
	if aws {
		shapes = awsShapes()
	}
	for _, shape := range shapes {
		if !work.plays(shape) {
			continue
		}
		g, err := runGolden(ctx, s, shape)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

func openStations(ctx context.Context, opts Options) ([]*Station, error) {
	stations := make([]*Station, opts.Workers)
	errs := make([]error, opts.Workers)
	var starting sync.WaitGroup
	for i := range stations {
		starting.Go(func() {
			dir := filepath.Join(opts.Dir, fmt.Sprintf("station-%d", i+1))
			if errs[i] = os.MkdirAll(dir, 0o700); errs[i] == nil {
				stations[i], errs[i] = NewStation(ctx, dir, opts.Binary)
			}
		})
	}
	starting.Wait()
	return slices.DeleteFunc(stations, func(s *Station) bool { return s == nil }), errors.Join(errs...)
}

// killsOnly tells whether a case needs nothing but a kill.
func (c *Case) killsOnly() bool {
	return c.Strike.Kind.Kills() && c.Skew == 0 && !c.Golden.Shape.Kept
}

// choose takes the cases that were asked for. A sample has a case of every cell, as far as it is
// large enough, and beyond them what the seed draws.
func choose(cases []*Case, opts Options) []*Case {
	if opts.Match != nil {
		cases = slices.DeleteFunc(cases, func(c *Case) bool { return !opts.Match(c) })
	}
	if opts.Sample == 0 || opts.Sample >= len(cases) {
		return cases
	}
	drawn := rand.New(rand.NewPCG(opts.Seed, 0)).Perm(len(cases))
	seen := map[Cell]bool{}
	var first, rest []int
	for _, i := range drawn {
		if cell := cases[i].Cell; !seen[cell] {
			seen[cell] = true
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	chosen := append(first, rest...)[:opts.Sample]
	slices.Sort(chosen) // in the order of a run
	out := make([]*Case, len(chosen))
	for at, i := range chosen {
		out[at] = cases[i]
	}
	return out
}

// try works through the cases with all stations.
func (r *Report) try(ctx context.Context, stations []*Station, cases []*Case, progress func(int, int, Outcome)) error {
	queue := make(chan *Case, len(cases))
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	for _, s := range stations {
		workers.Go(func() {
			for c := range queue {
				if ctx.Err() != nil {
					return
				}
				o, err := c.Try(ctx, s, false)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
				} else {
					r.Outcomes = append(r.Outcomes, o)
				}
				if progress != nil {
					progress(len(r.Outcomes)+len(errs), len(cases), o)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// sum counts.
func (r *Report) sum() {
	for _, o := range r.Outcomes {
		if len(o.Violations) > 0 {
			r.Violations++
		}
		if o.Hit {
			r.Cells[o.Case.Cell]++
		} else {
			r.Violations++ // a case that does not happen proves nothing
		}
		r.Away = append(r.Away, o.Away...)
	}
	for _, cell := range required(r.aws, r.work) {
		if r.Cells[cell] == 0 {
			r.Empty = append(r.Empty, cell)
		}
	}
}
