package labtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildAt builds a command of the product as it was at a commit of this repository, as make builds
// it. A clone without that commit, or an unpacked archive, has nothing to build it from: the test
// skips and says so.
func BuildAt(t *testing.T, commit, pkg string) (program string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "safe.directory=" + root}, args...)...)
	}
	if out, err := git("cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: the former version cannot be built, this clone has no commit %s (git fetch --unshallow): %v %s", commit, err, out)
	}
	dir, archive := t.TempDir(), filepath.Join(t.TempDir(), "former.tar")
	program = filepath.Join(t.TempDir(), filepath.Base(pkg))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, pkg)
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	for _, cmd := range []*exec.Cmd{git("archive", "--output="+archive, commit), exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir), build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return program
}
