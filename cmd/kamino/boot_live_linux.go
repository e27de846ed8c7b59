package main

import (
	"context"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/boot"
)

// bootLive captures the boot of this machine.
func bootLive(ctx context.Context) (*boot.Capture, error) {
	c, err := capture.Live(ctx, capture.Options{})
	if err != nil {
		return nil, kamino.WithHint(fmt.Errorf("read the boot of this machine: %w", err),
			"run as root on a machine that booted with systemd, or give a FILE")
	}
	return c, nil
}
