package controlplane

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockName is the file in a control plane's directory that is locked while it runs.
const lockName = ".lock"

// lockFile waits until nobody else has locked a file, and locks it.
func lockFile(path string) (unlock func(), err error) {
	return lock(path, syscall.LOCK_EX)
}

// claim locks the file of a directory, or says that another lab has it: its
// data would be deleted under its feet.
func claim(path string) (unlock func(), err error) {
	release, err := lock(path, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.New("another lab runs in that directory: end it, or choose another one")
	}
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path) // it is empty, and locked until the next line
		release()
	}, nil
}

func lock(path string, how int) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
