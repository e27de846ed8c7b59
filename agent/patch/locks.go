package patch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockFiles are those of dpkg, apt, unattended-upgrades and rpm, all locked with fcntl(2).
var lockFiles = []string{
	"var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock", "var/lib/apt/daily_lock",
	"run/unattended-upgrades.lock", "var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock",
}

const lockPause = 2 * time.Second

// awaitLocks waits until nobody holds a lock of the package managers.
func (n Node) awaitLocks(ctx context.Context) error {
	for {
		name, process := n.locked()
		if name == "" {
			return nil
		}
		if err := n.Wait(ctx, lockPause); err != nil {
			return fmt.Errorf("process %d holds /%s: %w", process, name, err)
		}
	}
}

// locked finds a lock that somebody holds.
func (n Node) locked() (name string, process int32) {
	for _, name := range lockFiles {
		f, err := os.OpenFile(n.Disk.Host(name), os.O_RDWR, 0)
		if err != nil {
			continue // nobody has made it
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
		_ = f.Close() // only read
		if err == nil && lock.Type != unix.F_UNLCK {
			return name, lock.Pid
		}
	}
	return "", 0
}

// saysLocked recognises what managers print that do not wait for a lock: apt and
// unattended-upgrade.
func saysLocked(text string) bool {
	for _, words := range []string{"Could not get lock", "Unable to acquire the dpkg frontend lock", "Unable to lock directory",
		"Cache lock can not be acquired",
		"Lock file is already taken"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// tail keeps the end of what is written to it.
type tail struct {
	most    int
	written int
	text    []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.written += len(p)
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-t.most):]
	return len(p), nil
}

// since is what was written after that many bytes, as far as it is kept.
func (t *tail) since(mark int) string {
	return string(t.text[max(0, len(t.text)-(t.written-mark)):])
}

// String is the end in whole lines.
func (t *tail) String() string {
	text := string(t.text)
	if t.written > len(t.text) {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.ToValidUTF8(strings.TrimSpace(text), "?")
}
