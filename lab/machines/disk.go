package machines

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// CorruptError says that a disk image does not hold what was written to it.
type CorruptError struct {
	Path   string
	Detail string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("disk image %s is corrupted: %s; remove it and run again", e.Path, e.Detail)
}

// errFull is what writing reports when the file system has no room.
var errFull = errors.New("no space left on the file system")

// overlay makes a disk whose unwritten parts are those of backing.
func overlay(ctx context.Context, backing, path string) error {
	return qemuImg(ctx, "create", "-q", "-f", "qcow2", "-b", backing, "-F", "qcow2", path)
}

// flatten makes one compressed image of a disk and everything below it.
func flatten(ctx context.Context, from, to string) error {
	return whole(to, func(temporary string) error {
		return qemuImg(ctx, "convert", "-q", "-c", "-W", "-m", "2", "-O", "qcow2", "-o", "compression_type=zstd", from, temporary)
	})
}

// duplicate copies a disk, holes included. Its backing file stays the same.
func duplicate(ctx context.Context, from, to string) error {
	return whole(to, func(temporary string) error {
		return command(ctx, "cp", "--reflink=auto", "--sparse=always", from, temporary)
	})
}

// whole lets a file appear under its name only when it is complete.
func whole(path string, write func(temporary string) error) error {
	temporary := path + ".partial"
	if err := write(temporary); err != nil {
		_ = os.Remove(temporary) // may not be there; the failure above is what matters
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("complete %s: %w", path, err)
	}
	return nil
}

// check asks qemu-img whether the image's own tables are right. Anything else is a *CorruptError.
func check(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "qemu-img", "check", "--output=json", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var report struct {
		Corruptions int `json:"corruptions"`
		Leaks       int `json:"leaks"`
		CheckErrors int `json:"check-errors"`
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil {
		return &CorruptError{path, strings.TrimSpace(stderr.String())}
	}
	if report.Corruptions+report.CheckErrors > 0 {
		return &CorruptError{path, fmt.Sprintf("qemu-img check finds %d corruptions and %d errors", report.Corruptions, report.CheckErrors)}
	}
	// Exit code 3 means leaked clusters: room lost, nothing else.
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) {
		return fmt.Errorf("check %s: %w: %s", path, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// sum is the SHA-256 of a file, in hexadecimal.
func sum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeSum writes the file's checksum beside it, for intact.
func writeSum(path string) error {
	digest, err := sum(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path+".sha256", []byte(digest+"  "+filepath.Base(path)+"\n"), 0o644)
}

// intact compares a file with the checksum beside it; a difference is a *CorruptError.
func intact(path string) error {
	text, err := os.ReadFile(path + ".sha256")
	if err != nil {
		return fmt.Errorf("read checksum: %w", err)
	}
	digest, err := sum(path)
	if err != nil {
		return err
	}
	if want, _, _ := strings.Cut(string(text), " "); want != digest {
		return &CorruptError{path, "its SHA-256 is " + digest + ", not " + want}
	}
	return nil
}

// room fails when the file system of dir has fewer than need bytes free.
func room(dir string, need int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fmt.Errorf("%w of %s: %d MB are free, %d MB are needed; free some, or name another directory with --dir", errFull, dir,
			free>>20, need>>20)
	}
	return nil
}

func qemuImg(ctx context.Context, args ...string) error { return command(ctx, "qemu-img", args...) }

// command runs a program to its end; what it wrote is in the error.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(string(out))
	if strings.Contains(text, "No space left on device") {
		err = fmt.Errorf("%w (%w)", errFull, err)
	}
	lines := strings.Split(text, "\n")
	return fmt.Errorf("run %s %s: %w\n%s", name, strings.Join(args[:min(len(args), 2)], " "), err,
		strings.Join(lines[max(0, len(lines)-12):], "\n"))
}
