package main

import (
	"context"

	"kamino.dev/kamino/agent/capture"
	"kamino.dev/kamino/boot"
)

// bootLive looks at this machine.
func bootLive(ctx context.Context) (*boot.Capture, error) {
	return capture.Live(ctx, capture.Options{})
}
