package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Cost is what one run of a program took.
type Cost struct {
	Wall, CPU time.Duration
	Megabytes float64 // most memory that was resident, in MiB
}

// Run starts a prepared command, waits until it ends, and returns what it cost and
// the error of its Wait, *exec.ExitError for an exit code.
//
// The memory is the VmHWM of proc(5), read every 5 ms, so the last growth may be
// missed. The Maxrss of getrusage(2) will not do: on Linux it is no less than what
// the parent had when it started the child.
func Run(cmd *exec.Cmd) (Cost, error) {
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return Cost{}, err
	}
	ended, peak := make(chan struct{}), make(chan float64)
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		var most float64
		for {
			most = max(most, Resident(cmd.Process.Pid))
			select {
			case <-ended:
				peak <- most
				return
			case <-ticker.C:
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	return Cost{Wall: time.Since(began), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), Megabytes: <-peak}, err
}

// Resident is the most a process had resident so far, in MiB; 0 once it has ended.
func Resident(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return parseResident(string(text))
}

func parseResident(status string) float64 {
	for line := range strings.Lines(status) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}
