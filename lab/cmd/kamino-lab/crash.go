package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/crash"
)

// crashCommand tries to make Kamino lose something.
type crashCommand struct {
	output    string
	sample    int
	seed      uint64
	workers   int
	processes bool
	program   string
	source    string
	sim       string
	only      string
	logs      string
	cloud     string
	work      string
}

func newCrashCommand() *cobra.Command {
	c := &crashCommand{}
	cmd := &cobra.Command{
		Use:   "crash",
		Short: "Kill, lie to and interfere with Kamino at every call, and check whether anything is lost",
		Long: `Run kamino update, patch, rollback, withdraw, promote or a controller again and again between a real kube-apiserver and the
emulator of a cloud, and do harm at one external call each time: kill it before, during and
after the call, answer with every lie that the two sides are known for, let
others change the world at that moment. Then the command is run again, all
invariants must have held, and the end must be that of an undisturbed run.

With --process the kills are SIGKILL of real processes; without, the engine runs
in goroutines that end at the same places, and lies and rivals are tried, too.
The random walks and the seeded defects are those of the product's own
simulation, which is run from its source unless --sim names its result.

Exits with 1 if anything is violated or a required cell of the matrix is empty.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.Run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.output, "output", "o", "text", "text or json")
	f.StringVar(&c.cloud, "cloud", "azure", "azure or aws")
	f.StringVar(&c.work, "work", "", "what is disturbed: some of update, patch, controller, rollback, withdraw, promote, separated by commas (default all)")
	f.IntVar(&c.sample, "sample", 0, "try only so many cases: one of every cell, then what --seed draws; 0 tries all")
	f.Uint64Var(&c.seed, "seed", 0, "what draws the sample (default: from the time, and printed)")
	f.IntVar(&c.workers, "workers", 2*runtime.NumCPU(), "how many control planes to use side by side; much of its time each waits")
	f.BoolVar(&c.processes, "process", false, "kill real processes with SIGKILL")
	f.StringVar(&c.program, "kamino", "", "program to kill, built with the tag labclock (default: built from --source)")
	f.StringVar(&c.source, "source", "", "directory of the product's module (default: found above the working directory)")
	f.StringVar(&c.sim, "sim", "", "result of the simulation, as KAMINO_SIM_JSON makes it; \"-\" leaves it out")
	f.StringVar(&c.only, "case", "", "try only cases whose name matches this regular expression, for example '^S8/'")
	f.StringVar(&c.logs, "logs", "", "directory for what happened in each case that violates something")
	return cmd
}

// Run does it.
func (c *crashCommand) Run(cmd *cobra.Command) error {
	if c.output != "text" && c.output != "json" {
		return fmt.Errorf("invalid output format %q: use -o text or -o json", c.output)
	}
	if c.cloud != "azure" && c.cloud != lab.OnAWS {
		return fmt.Errorf("unknown cloud %q: use --cloud azure or --cloud aws", c.cloud)
	}
	for _, work := range crash.Work(c.work).Each() {
		if known := crash.Works(c.cloud == lab.OnAWS); c.work != "" && !slices.Contains(known, work) {
			return fmt.Errorf("work %q is unknown on %s: use some of %v, separated by commas", work, c.cloud, known)
		}
	}
	if c.work == string(crash.Keep) && c.processes {
		return errors.New("--process kills commands: omit it with --work controller (make test-storm kills processes of the controller)")
	}
	if c.sample < 0 || c.workers < 1 {
		return fmt.Errorf("--sample %d must be 0 or more and --workers %d positive", c.sample, c.workers)
	}
	if c.sample > 0 && c.seed == 0 {
		c.seed = uint64(time.Now().Unix())
	}
	if c.sample > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "crash: a sample: --sample %d --seed %d\n", c.sample, c.seed)
	}
	ctx := cmd.Context()
	opts, cleanup, err := c.options(ctx, cmd)
	defer cleanup()
	if err != nil {
		return err
	}
	report, unplayed := crash.Run(ctx, opts)
	if report == nil {
		return unplayed
	}
	summary := report.Summary()
	summary.Processes = c.processes
	if err := c.simulation(ctx, &summary); err != nil {
		return err
	}
	whole := c.only == "" && !c.processes && (c.sample == 0 || c.sample >= summary.Cells.Required)
	if !whole {
		summary.Cells.Names = nil // most cells are empty in a part
	}
	if c.output == "json" {
		err = summary.WriteJSON(cmd.OutOrStdout())
	} else {
		report.WriteText(cmd.OutOrStdout(), summary)
	}
	switch {
	case err != nil || unplayed != nil:
		return errors.Join(err, unplayed) // hours of other cases are told all the same
	case summary.Violations > 0:
		return fmt.Errorf("%d cases violate something; look closer with --case and --logs", summary.Violations)
	case whole && summary.Cells.Empty > 0:
		return fmt.Errorf("%d required cells have no case: %v", summary.Cells.Empty, summary.Cells.Names)
	case summary.Defects.Caught < summary.Defects.Seeded:
		return fmt.Errorf("%d of %d seeded defects are not caught", summary.Defects.Seeded-summary.Defects.Caught, summary.Defects.Seeded)
	}
	return nil
}

func (c *crashCommand) options(ctx context.Context, cmd *cobra.Command) (opts crash.Options, cleanup func(), err error) {
	cleanup = func() {}
	pattern, err := regexp.Compile(c.only)
	if err != nil {
		return opts, cleanup, fmt.Errorf("read --case: %w", err)
	}
	binary, err := os.Executable()
	if err != nil {
		return opts, cleanup, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "kamino-crash-")
	if err != nil {
		return opts, cleanup, fmt.Errorf("make directory: %w", err)
	}
	cleanup = func() { _ = os.RemoveAll(dir) } // only a temporary directory
	if c.processes && c.program == "" {
		root, err := c.root()
		if err != nil {
			return opts, cleanup, err
		}
		c.program = filepath.Join(dir, "kamino")
		if err := crash.BuildKamino(ctx, root, c.program, crash.PollInterval, 0); err != nil {
			return opts, cleanup, err
		}
	}
	opts = crash.Options{Dir: dir, Binary: binary, Workers: c.workers, Sample: c.sample, Seed: c.seed, AWS: c.cloud == lab.OnAWS,
		Work:     crash.Work(c.work),
		Match:    func(x *crash.Case) bool { return pattern.MatchString(x.Name) },
		Progress: func(done, all int, o crash.Outcome) { c.progress(cmd, done, all, o) }}
	if c.processes {
		opts.Program = c.program
	}
	return opts, cleanup, nil
}

// progress tells every hundredth case, and each that violates something.
func (c *crashCommand) progress(cmd *cobra.Command, done, all int, o crash.Outcome) {
	for _, what := range o.Violations {
		fmt.Fprintf(cmd.ErrOrStderr(), "crash: VIOLATED %s: %s\n", o.Case.Name, what)
	}
	if len(o.Violations) > 0 && c.logs != "" {
		path := filepath.Join(c.logs, fmt.Sprintf("%04d.log", done))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(o.Case.Name+"\n"+strings.Join(o.History, "\n")+"\n"), 0o644)); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "crash: write log: %v\n", err)
		}
	}
	if done%100 == 0 || done == all {
		fmt.Fprintf(cmd.ErrOrStderr(), "crash: %d of %d cases\n", done, all)
	}
}

// root is the directory of the product's module.
func (c *crashCommand) root() (string, error) {
	dir := c.source
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return "", fmt.Errorf("find working directory: %w", err)
		}
	}
	for ; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module kamino.dev/kamino\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no source of Kamino above this directory: name it with --source, or name --kamino and --sim")
		}
	}
}

// simulation adds what the product's random walks and seeded defects found.
func (c *crashCommand) simulation(ctx context.Context, s *crash.Summary) error {
	if c.sim == "-" || c.cloud == lab.OnAWS || c.work == string(crash.Patch) || c.work == string(crash.Keep) || c.sample > 0 ||
		c.only != "" || c.processes && c.sim == "" {
		return nil
	}
	path := c.sim
	if path == "" {
		root, err := c.root()
		if err != nil {
			return err
		}
		path = filepath.Join(os.TempDir(), fmt.Sprintf("kamino-sim-%d.json", os.Getpid()))
		defer os.Remove(path)
		cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run=^(TestWalks|TestDefects)$", "-timeout=5h", "./internal/sim")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "KAMINO_SIM_JSON="+path, "SWEEP=all", "GOFLAGS=-buildvcs=false")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run the simulation: %w\n%s", err, text)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read result of the simulation: %w", err)
	}
	var result worlds.Report
	if err := json.Unmarshal(text, &result); err != nil {
		return fmt.Errorf("read result of the simulation: %w", err)
	}
	s.Seeds, s.Defects = result.Seeds, result.Defects
	s.Violations += result.Violations
	return nil
}
