package seal

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Revive starts whatever of the known services the operator has enabled, in the order runtime before kubelet. It is for
// when the process that stopped them is gone, and nobody knows any more which ones ran.
func (s *Services) Revive(ctx context.Context) error {
	s.try(ctx, "journalctl", "--flush")
	units := slices.Concat(beforeRuntime, runtimeUnits, otherUnits, s.Extra)
	slices.Reverse(units)
	var err error
	for _, u := range units {
		if _, eerr := s.Host.Run(ctx, "systemctl", "is-enabled", "--quiet", u); eerr != nil {
			continue // not installed, or not wanted
		}
		if _, serr := s.Host.Run(ctx, "systemctl", "start", u); serr != nil {
			err = errors.Join(err, fmt.Errorf("start %s: %w", u, serr))
		}
	}
	return err
}
