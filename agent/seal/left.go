package seal

import (
	"errors"
	"fmt"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
)

// noContainers refuses a disk on which a runtime runs, or still knows a container or a writable
// layer.
func noContainers(d *disk.Disk) error {
	left, err := runtimes.Containers(d)
	if err = errors.Join(err, runtimes.Stopped(d)); err != nil || len(left) == 0 {
		return err
	}
	const most = 10
	var lines []string
	for _, c := range left[:min(len(left), most)] {
		lines = append(lines, "  "+disk.Line(c.About))
	}
	if n := len(left) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", n))
	}
	return fmt.Errorf("seal refused: %d containers or their writable layers are left on this disk:\n%s\nRemove them with their runtime; what they were given and wrote would be in the image.",
		len(left), strings.Join(lines, "\n"))
}
