package host

import (
	"slices"
	"strings"
)

// ListFailed are the arguments of systemctl that list what [FailedUnits] reads.
var ListFailed = []string{"list-units", "--failed", "--plain", "--no-legend", "--no-pager"}

// FailedUnits reads systemctl's list of failed units, sorted, without scopes: no file defines one,
// a program registers it for processes that it has started (systemd.scope(5)), as the container
// runtime does for each container and logind for each login. One that failed, because its processes
// ran out of memory or did not end in time, says nothing of the disk.
func FailedUnits(list string) (names []string) {
	for line := range strings.Lines(list) {
		if field := strings.Fields(line); len(field) > 0 && !strings.HasSuffix(field[0], ".scope") {
			names = append(names, field[0])
		}
	}
	slices.Sort(names)
	return names
}
