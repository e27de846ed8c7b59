package machines

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// tools are the programs that must be installed, with their packages on Debian.
var tools = map[string]string{
	"qemu-system-x86_64": "qemu-system-x86",
	"qemu-img":           "qemu-utils",
	"mmdebstrap":         "mmdebstrap",
	"mke2fs":             "e2fsprogs",
}

// MissingError says which programs are not installed. kamino-lab exits with 4 on it.
type MissingError struct {
	Programs []string
	Packages []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s not found: apt-get install -y --no-install-recommends %s",
		strings.Join(e.Programs, ", "), strings.Join(e.Packages, " "))
}

// ExitCode of a command that ends with this error.
func (e *MissingError) ExitCode() int { return 4 }

// Preflight returns a *MissingError when a program is not installed.
func Preflight() error { return preflight(exec.LookPath) }

func preflight(look func(string) (string, error)) error {
	missing := &MissingError{}
	for program, pkg := range tools {
		// ErrDot: found, but in the working directory, which nobody meant.
		if _, err := look(program); err != nil && !errors.Is(err, exec.ErrDot) {
			missing.Programs = append(missing.Programs, program)
			if !slices.Contains(missing.Packages, pkg) {
				missing.Packages = append(missing.Packages, pkg)
			}
		}
	}
	if len(missing.Programs) == 0 {
		return nil
	}
	slices.Sort(missing.Programs)
	slices.Sort(missing.Packages)
	return missing
}
