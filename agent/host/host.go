// Package host runs what cannot be done by writing files: system services, container runtime,
// mounts, power.
//
// There are three hosts. [System] executes on the running system. [Recorder], used whenever the
// agent works on a root directory other than "/", executes nothing: it writes what it would have
// executed to a log and answers from a script, so that an attached disk never disturbs the machine
// that seals it, and a test sees every command. [Idle] refuses every command.
package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Host executes commands. An error of a command that ran and failed is *Failed.
type Host interface {
	// Run executes a command and returns its standard output.
	Run(ctx context.Context, name string, args ...string) (string, error)
	// Live reports whether commands have an effect on this machine.
	Live() bool
	// PowerOff syncs and switches off at once, without an orderly shutdown: see [System.PowerOff].
	PowerOff(ctx context.Context) error
}

// Failed is a command that ran and did not succeed.
type Failed struct {
	Command string
	Code    int
	Output  string
}

func (f *Failed) Error() string {
	if f.Output == "" {
		return fmt.Sprintf("%s: exit code %d", f.Command, f.Code)
	}
	return fmt.Sprintf("%s: exit code %d: %s", f.Command, f.Code, f.Output)
}

// Code is the exit code behind err, or -1.
func Code(err error) int {
	var f *Failed
	if errors.As(err, &f) {
		return f.Code
	}
	return -1
}

// System is the running machine.
type System struct {
	// Most bounds a command whose caller set no deadline; zero: five minutes. One that hangs must
	// fail the first boot, which reports the error and tries again, and not hold it up for ever.
	Most time.Duration
}

// Live is true.
func (System) Live() bool { return true }

// Run executes name. Standard error is kept for the message of a failure.
func (s System) Run(ctx context.Context, name string, args ...string) (string, error) {
	const usual = 5 * time.Minute
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cmp.Or(s.Most, usual))
		defer cancel()
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return out.String(), fmt.Errorf("run %s: it did not end in time: %w", line(name, args), ctx.Err())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), &Failed{line(name, args), exit.ExitCode(), strings.TrimSpace(problems.String())}
	}
	if err != nil {
		return out.String(), fmt.Errorf("run %s: %w", line(name, args), err)
	}
	return out.String(), nil
}

// Recorder executes nothing. Every command becomes one line of Log; Replies is a file of lines
// "COMMAND PREFIX<TAB>EXIT CODE<TAB>OUTPUT" of which the first whose prefix fits is the answer (\n
// in OUTPUT is a line break). A command without a reply succeeds silently. Both file names may be
// empty.
type Recorder struct {
	Log     string
	Replies string
}

// Live is false.
func (Recorder) Live() bool { return false }

// Run writes the command down and looks its answer up.
func (r Recorder) Run(_ context.Context, name string, args ...string) (string, error) {
	command := line(name, args)
	if err := r.write(command); err != nil {
		return "", err
	}
	if r.Replies == "" {
		return "", nil
	}
	script, err := os.ReadFile(r.Replies)
	if err != nil {
		return "", fmt.Errorf("read replies: %w", err)
	}
	for reply := range strings.Lines(string(script)) {
		field := strings.SplitN(strings.TrimRight(reply, "\n"), "\t", 3)
		if len(field) != 3 || !strings.HasPrefix(command, field[0]) {
			continue
		}
		out := strings.ReplaceAll(field[2], `\n`, "\n")
		if field[1] != "0" {
			code := 1
			_, _ = fmt.Sscan(field[1], &code)
			return out, &Failed{command, code, out}
		}
		return out, nil
	}
	return "", nil
}

// PowerOff is written down.
func (r Recorder) PowerOff(context.Context) error { return r.write("poweroff") }

func (r Recorder) write(command string) error {
	if r.Log == "" {
		return nil
	}
	f, err := os.OpenFile(r.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("record command: %w", err)
	}
	_, err = f.WriteString(command + "\n")
	return errors.Join(err, f.Close())
}

func line(name string, args []string) string {
	return strings.Join(append([]string{name}, args...), " ")
}

// ErrIdle is the error of a command that was not executed on purpose.
var ErrIdle = errors.New("not executed")

// Idle executes nothing: every command is told to Skipped and fails with ErrIdle. It is for looking
// at a configuration that nobody trusts yet.
type Idle struct{ Skipped func(command string) }

// Live is false.
func (Idle) Live() bool { return false }

// Run is ErrIdle.
func (i Idle) Run(_ context.Context, name string, args ...string) (string, error) {
	i.Skipped(line(name, args))
	return "", ErrIdle
}

// PowerOff is ErrIdle.
func (Idle) PowerOff(context.Context) error { return ErrIdle }
