package agent

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"kamino.dev/kamino/agent/host"
)

// MainOn is Main with a host that only records, and with a flag that the program has not:
// --interrupt-after RULE stops a seal dead, as a power failure would.
func MainOn(ctx context.Context, h host.Recorder, args []string, stdout, stderr io.Writer) int {
	e := &env{out: stdout, err: stderr, log: slog.New(slog.NewTextHandler(stderr, nil)), newHost: func(bool) host.Host { return h },
		inHost: func(ctx context.Context, _, _ io.Writer, name string, args ...string) error {
			_, err := h.Run(ctx, name, args...)
			return err
		}}
	if i := slices.Index(args, "--interrupt-after"); i >= 0 {
		e.interruptAfter = args[i+1]
		args = slices.Delete(slices.Clone(args), i, i+2)
	}
	return e.main(ctx, args)
}
