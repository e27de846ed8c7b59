package inventory

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// spare asks the kernel not to take what is read here for a sign that it is needed in the page
// cache (Linux 6.3 and later; earlier ones ignore it).
func spare(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_NOREUSE) }

// LowPriority makes this whole process yield to everything else on the machine: nice 19 and the
// idle class for the disk (ioprio_set(2)). Both belong to threads, and new threads inherit them.
func LowPriority() error {
	const (
		whoProcess = 1       // IOPRIO_WHO_PROCESS
		idle       = 3 << 13 // IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)
	)
	// Twice: a thread that another one started meanwhile may have missed the first.
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("lower priority: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.Setpriority(unix.PRIO_PROCESS, id, 19); err != nil {
				return fmt.Errorf("lower priority: %w", err)
			}
			if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(id), idle); errno != 0 {
				return fmt.Errorf("lower priority of the disk: %w", errno)
			}
		}
	}
	return nil
}
