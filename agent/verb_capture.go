package agent

import (
	"context"
	"time"

	"kamino.dev/kamino/agent/capture"
)

func runCapture(ctx context.Context, e *env, args []string) error {
	f := e.flags("capture")
	e.platformFlags(f)
	wait := f.Duration("wait", 5*time.Minute, "how long to wait for startup to finish and the first pod")
	delay := f.Duration("delay", 0, "delay before the first sample (a sample costs about 0.1 CPU-seconds)")
	if err := parse(f, args); err != nil {
		return err
	}
	return capture.Run(ctx, capture.Options{Root: e.root, Wait: *wait, Delay: *delay, Metadata: e.imds, Agent: Version}, e.out)
}
