//go:build !linux

package main

import (
	"context"
	"errors"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
)

// bootLive returns an error on machines that do not boot with systemd.
func bootLive(context.Context) (*boot.Capture, error) {
	return nil, kamino.WithHint(errors.New("read the boot of this machine: only Linux has systemd"), "give a FILE")
}
