package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PowerOff makes every file system read-only and switches the machine off. It does not ask systemd:
// an orderly shutdown runs services that write the identity back to the disk which was just sealed
// (seen with Azure's deallocation, where /etc/machine-id came back; ../../docs/agent.md, "Why the
// power goes off at once").
func (System) PowerOff(ctx context.Context) error {
	unix.Sync()
	// SysRq u remounts everything read-only, which leaves a clean file system in the snapshot
	// instead of one that needs its journal replayed
	// (https://docs.kernel.org/admin-guide/sysrq.html). It works in the background.
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("u"), 0); err == nil {
		waitReadOnly(ctx, 5*time.Second)
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return nil
}

func waitReadOnly(ctx context.Context, most time.Duration) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(most)
	for {
		var fs unix.Statfs_t
		if unix.Statfs("/", &fs) == nil && fs.Flags&unix.ST_RDONLY != 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-timeout:
			return
		case <-tick.C:
		}
	}
}

// UnmountBelow detaches every mount below a directory that one of the patterns (path.Match) names,
// deepest first, so that what is removed there is the disk's and not a volume's. A mount that
// refuses is reported: a rule must not walk into it.
func UnmountBelow(dirs ...string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	points := mountsBelow(string(info), dirs)
	for _, p := range points {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

func mountsBelow(mountinfo string, dirs []string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		// proc(5): "36 35 98:0 /mnt1 /mnt2 rw,…", the fifth field is the mount point, spaces as
		// \040.
		field := strings.Fields(line)
		if len(field) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(field[4])
		if Below(point, dirs) {
			points = append(points, point)
		}
	}
	sort.Slice(points, func(i, j int) bool { return len(points[i]) > len(points[j]) })
	return points
}

// Below reports whether point is below, and not at, a directory that one of the patterns names.
func Below(point string, dirs []string) bool {
	parts := strings.Split(point, "/")
	return slices.ContainsFunc(dirs, func(dir string) bool {
		n := strings.Count(dir, "/") + 1
		if n >= len(parts) {
			return false
		}
		ok, err := path.Match(dir, strings.Join(parts[:n], "/"))
		return err == nil && ok
	})
}

// MountMedia mounts the provisioning CD read-only, if there is one
// (https://learn.microsoft.com/azure/virtual-machines/linux/create-upload-generic: /dev/sr0, UDF or
// ISO 9660).
func MountMedia(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var err error
	for _, kind := range []string{"udf", "iso9660"} {
		if err = unix.Mount("/dev/sr0", dir, kind, unix.MS_RDONLY|unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, ""); err == nil {
			return nil
		}
	}
	return fmt.Errorf("mount provisioning media: %w", err)
}

// UnmountMedia undoes MountMedia.
func UnmountMedia(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }

// InHost executes a command in the mount namespace of process 1, as "nsenter --target 1 --mount"
// does: the way from a pod with hostPID to the host's own systemd.
func InHost(ctx context.Context, stdout, stderr io.Writer, name string, args ...string) error {
	result := make(chan error, 1)
	go func() {
		// The thread is changed for good, so it is never unlocked and ends with this goroutine.
		runtime.LockOSThread()
		result <- inHost(ctx, stdout, stderr, name, args)
	}()
	return <-result
}

func inHost(ctx context.Context, stdout, stderr io.Writer, name string, args []string) error {
	ns, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the host's mount namespace (does the pod have hostPID and privileged?): %w", err)
	}
	defer unix.Close(ns)
	// setns refuses a thread that shares its working directory and root with others (setns(2)).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the host's mount namespace: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_IGNORE_CHROOT=1", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s on the host: %w", line(name, args), err)
	}
	return nil
}
