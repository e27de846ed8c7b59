// Command kamino-agent is what runs on a node: it seals a donor's disk, makes a clone start as
// itself, and keeps its configuration up to date. `kamino-agent help` lists its verbs;
// docs/agent.md is the operator's page.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"kamino.dev/kamino/agent"
	"kamino.dev/kamino/agent/inventory"
)

// version is set by the build (-ldflags "-X main.version=v1.2.3").
var version = "dev"

func main() {
	agent.Version, agent.Yield = version, inventory.LowPriority
	ctx, stop := context.Background(), context.CancelFunc(func() {})
	if agent.Takes(os.Args[1:]) {
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	code := agent.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
