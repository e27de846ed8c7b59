// Package disktest makes disks for tests.
package disktest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// New is a disk with files, given as path to content, that lasts as long as the
// test.
func New(t testing.TB, files map[string]string) *disk.Disk {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
