package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one that runs, with the systemd unit in which it does (empty: in none).
type Process struct {
	PID  int
	Name string // as ps(1) shows it, without its arguments
	Unit string
}

func (p Process) String() string {
	unit := p.Unit
	if unit == "" {
		unit = "no unit"
	}
	return fmt.Sprintf("%s (process %d, %s)", p.Name, p.PID, unit)
}

// EndOthers ends every process but this one, its ancestors, kernel threads, and those of units that
// keep names: first with SIGTERM, after patience with SIGKILL. It returns which it ended; those
// that are still there after twice the patience are an error. It is for what outlives its unit:
// shims of containers, sessions, daemons that a shell started.
func EndOthers(ctx context.Context, patience time.Duration, keep func(unit string) bool) ([]Process, error) {
	others := func() ([]Process, error) { return strays("/proc", os.Getpid(), keep) }
	all, err := others()
	if err != nil {
		return nil, err
	}
	left := all
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		for _, p := range left {
			if err := unix.Kill(p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
				return all, fmt.Errorf("end %s: %w", p, err)
			}
		}
		if left, err = none(ctx, patience, others); err != nil || len(left) == 0 {
			return all, err
		}
	}
	return all, fmt.Errorf("end processes: %v are still running", left)
}

// none waits until others are none, for most at the longest, and returns the last ones.
func none(ctx context.Context, most time.Duration, others func() ([]Process, error)) ([]Process, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(most)
	for {
		left, err := others()
		if err != nil || len(left) == 0 {
			return left, err
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-timeout:
			return left, nil
		case <-tick.C:
		}
	}
}

// strays reads proc(5) for the processes that EndOthers ends.
func strays(proc string, self int, keep func(unit string) bool) (all []Process, err error) {
	dirs, err := filepath.Glob(proc + "/[0-9]*")
	if err != nil {
		return nil, err
	}
	spared := map[int]bool{1: true}
	for pid := self; pid > 1 && !spared[pid]; {
		spared[pid] = true
		pid = readStat(proc, pid).parent
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(path.Base(dir))
		if err != nil || spared[pid] {
			continue
		}
		st := readStat(proc, pid)
		if st.gone || st.kernel {
			continue
		}
		// A daemon of the root file system's storage asks to be spared by this (systemd's
		// ROOT_STORAGE_DAEMONS.md).
		if line, err := os.ReadFile(dir + "/cmdline"); err == nil && bytes.HasPrefix(line, []byte("@")) {
			continue
		}
		if unit := unitOf(proc, pid); !keep(unit) {
			all = append(all, Process{pid, st.name, unit})
		}
	}
	return all, nil
}

type stat struct {
	name         string
	parent       int
	kernel, gone bool
}

// kernelThread is PF_KTHREAD of linux/sched.h.
const kernelThread = 0x00200000

// readStat reads proc(5)'s PID/stat: "123 (name with spaces) S 1 …", parent is the fourth field,
// flags the ninth. A process that has ended, or waits to be reaped, is gone.
func readStat(proc string, pid int) stat {
	text, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", proc, pid))
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if err != nil || open < 0 || end < open {
		return stat{gone: true}
	}
	field := strings.Fields(string(text[end+1:]))
	if len(field) < 7 {
		return stat{gone: true}
	}
	parent, _ := strconv.Atoi(field[1]) // the kernel writes numbers
	flags, _ := strconv.ParseUint(field[6], 10, 64)
	return stat{string(text[open+1 : end]), parent, flags&kernelThread != 0, field[0] == "Z" || field[0] == "X"}
}

// unitOf is the unit of a process: the last service or scope of its place among systemd's control
// groups (cgroups(7)).
func unitOf(proc string, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("%s/%d/cgroup", proc, pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		// "0::/system.slice/ssh.service"; with the older hierarchy
		// "1:name=systemd:/system.slice/ssh.service" as well.
		field := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(field) < 3 || field[1] != "" && field[1] != "name=systemd" {
			continue
		}
		parts := strings.Split(field[2], "/")
		for i := len(parts) - 1; i >= 0; i-- {
			if ext := path.Ext(parts[i]); ext == ".service" || ext == ".scope" {
				return parts[i]
			}
		}
	}
	return ""
}

// Session is the session or user service in which this process runs; empty when it is in a service
// of the system.
func Session() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err == nil && bytes.Contains(text, []byte("/user.slice/")) {
		return unitOf("/proc", os.Getpid())
	}
	return ""
}
