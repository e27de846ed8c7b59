package scan

import "slices"

// Kinds are all kinds of finding, sorted.
func Kinds() []string {
	kinds := []string{"core-dump", "donor-address", "donor-host", "donor-mac", "donor-machine-id", "donor-vm-id", "key-store",
		"machine-identity", "private-key", "secret",
		"sensitive-place", "swap", "user-credential"}
	for _, p := range patterns {
		kinds = append(kinds, p.kind)
	}
	for _, n := range names {
		kinds = append(kinds, n.kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}
