package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
)

// TestSignals ends an update by SIGINT and by SIGTERM at each of its steps: as
// soon as the log tells that the step has begun. Before the process ends, the
// donor must be back.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, s := range engine.Pipeline() {
		switch s.Name {
		case kamino.StepHold, kamino.StepRelease:
			continue // scale sets leave a machine alone that is off
		case kamino.StepPrune:
			continue // where nothing is old it goes by what clean has listed, and is over at once
		}
		for name, signal := range map[string]syscall.Signal{"int": syscall.SIGINT, "term": syscall.SIGTERM} {
			t.Run(name+"-"+s.Name, func(t *testing.T) {
				t.Parallel()
				interruptAt(t, moment{s.Name, kamino.EventStarted, ""}, signal)
			})
		}
	}
	// What a step has begun may be half done.
	for name, m := range map[string]moment{
		"protecting":   {"protect", kamino.EventActed, ""},
		"blocking":     {"drain", kamino.EventActed, "block"},
		"evicting":     {"drain", kamino.EventActed, "evict"},
		"sealing":      {"seal", kamino.EventActed, "seal the disk"},
		"sealed":       {"seal", kamino.EventWaiting, ""},
		"snapshotting": {"snapshot", kamino.EventActed, ""},
		"starting":     {"start", kamino.EventActed, ""},
		"booting":      {"start", kamino.EventWaiting, ""},
		"returning":    {"return", kamino.EventActed, ""},
		"building":     {"image", kamino.EventWaiting, ""},
		"writing":      {"model", kamino.EventActed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interruptAt(t, m, syscall.SIGTERM)
		})
	}
}

// moment is a line of the log at which a signal is sent.
type moment struct {
	step string
	kind kamino.EventKind
	text string // part of the line
}

func (m moment) is(line logLine) bool {
	return line.step == m.step && line.kind == string(m.kind) && strings.Contains(line.text, m.text)
}

func interruptAt(t *testing.T, at moment, signal syscall.Signal) {
	p := newPool(t, 1)
	// Every look at the images takes a while, so that no later step is over
	// before the signal has arrived.
	id := shared.Cloud.AddFault(emulator.Fault{Kind: emulator.Delay, Method: "GET", Times: -1, Duration: 100e6,
		Path: "**/images/" + kamino.DefinitionName(p.name) + "/**"})
	t.Cleanup(func() { shared.Cloud.RemoveFault(id) })
	args := updateArgs(p.node(0), "--new-updated-nodes", "1")
	before, model := p.get(p.node(0)), p.model()
	sent := false
	c := call{onLine: func(line logLine, process *os.Process) {
		if at.is(line) && !sent {
			sent = true
			if err := process.Signal(signal); err != nil {
				t.Error(err)
			}
		}
	}}
	o := c.run(t, args...)
	if !sent {
		t.Fatalf("no line of the log told of %+v:\n%s", at, o.log)
	}
	if o.code != 1 {
		t.Errorf("exit code %d, want 1\n%s", o.code, o.log)
	}
	if r := o.report(t); r.OK || !strings.Contains(r.Error, "interrupted") {
		t.Errorf("the report says ok=%t, error %q", r.OK, r.Error)
	}
	p.expectSame(before, p.get(before.Name))
	p.expectRunning(0)
	p.expectFree()
	if now := p.model(); now != model && beforeStep(at.step, "model") {
		t.Errorf("the model was changed to %s", now)
	}
	if t.Failed() {
		t.Log(o.log)
	}
}

// beforeStep says whether a step of the pipeline comes before another.
func beforeStep(step, other string) bool {
	for _, s := range engine.Pipeline() {
		if s.Name == other {
			return false
		}
		if s.Name == step {
			return true
		}
	}
	return false
}

// TestSecondSignal ends the process at once, and what is left is told.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1)
	before := p.get(p.node(0))
	signals := 0
	c := call{onLine: func(line logLine, process *os.Process) {
		drained := line.step == "drain" && line.kind == string(kamino.EventDone)
		giving := strings.Contains(line.text, "giving back what the run took")
		if drained && signals == 0 || giving && signals == 1 {
			signals++
			if err := process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}}
	o := c.run(t, updateArgs(before.Name)...)
	if o.code != 130 || signals != 2 {
		t.Fatalf("exit code %d after %d signals, want 130 after 2\n%s", o.code, signals, o.log)
	}
	for _, want := range []string{"Left: pool " + p.name, "kamino restore"} {
		if !strings.Contains(o.log, want) {
			t.Errorf("the log does not tell %q:\n%s", want, o.log)
		}
	}
}

// TestReaderGone: kamino outlives the reader of what it prints, and its terminal, and the donor
// comes back. Ctrl-C ends "tee" in "kamino update 2>&1 | tee log" at once; of an ssh session that
// ends, the shell and the kernel each send a hangup.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	// Under nohup a child would ignore hangups, too; what is caught here is as usual there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(caught) })
	for name, tt := range map[string]struct {
		signals []syscall.Signal
		code    int
	}{
		"ctrl-c":      {[]syscall.Signal{syscall.SIGINT}, 1},
		"reader ends": {nil, 0},
		"hangup":      {[]syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 1)
			before := p.get(p.node(0))
			cmd := exec.CommandContext(t.Context(), binary, updateArgs(before.Name)...)
			cmd.Env = environment(shared, nil)
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout, cmd.Stderr = writer, writer
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			writer.Close()
			lines := bufio.NewScanner(reader)
			for lines.Scan() && parseLine(lines.Text()).step != "snapshot" {
			}
			for _, s := range tt.signals {
				if err := cmd.Process.Signal(s); err != nil {
					t.Error(err)
				}
			}
			reader.Close()
			_ = cmd.Wait() // the state tells
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("%s, want exit code %d", cmd.ProcessState, tt.code)
			}
			p.expectSame(before, p.get(before.Name))
			p.expectFree()
		})
	}
}
