package seal

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// bind moves what is at dir to the directory other and shows that at dir instead.
func bind(t *testing.T, other, dir string) (unbind func()) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", dir+"/.", other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(filepath.Join(other, "f")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(other, dir, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mounting is not allowed here: %v", err)
	}
	done := false
	unbind = func() {
		if !done {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
		done = true
	}
	t.Cleanup(unbind)
	return unbind
}
