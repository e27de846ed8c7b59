// Package docpage keeps tables of the documentation as the code has them.
package docpage

import (
	"fmt"
	"os"
	"strings"
)

// Keep compares what stands in a page between the lines begin and end with want. What differs is an
// error that says how to write it, or, with write, written.
func Keep(page, begin, end, want string, write bool) error {
	data, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(data), begin)
	former, tail, ended := strings.Cut(rest, end)
	switch {
	case !ok || !ended:
		return fmt.Errorf("%s has no place for the table: %q to %q", page, begin, end)
	case former == want:
		return nil
	case !write:
		return fmt.Errorf("%s is behind the code; write it as %q says", page, strings.TrimSpace(begin))
	}
	return os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644) // a page of the documentation
}
