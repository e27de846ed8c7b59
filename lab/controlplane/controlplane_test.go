package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"kamino.dev/kamino/lab/controlplane"
)

func TestX(t *testing.T) {
	t0 := time.Now()
	bin, err := controlplane.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log("build", time.Since(t0))
	t0 = time.Now()
	cp, err := controlplane.Start(context.Background(), controlplane.Options{Dir: t.TempDir(), Binary: bin, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("start", time.Since(t0))
	for n, pid := range cp.Pids() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for _, l := range splitLines(string(b)) {
			if len(l) > 5 && l[:5] == "VmRSS" {
				t.Log(n, l)
			}
		}
	}
	t0 = time.Now()
	cp.Stop()
	t.Log("stop", time.Since(t0))
}
func splitLines(s string) (r []string) {
	i := 0
	for j := range s {
		if s[j] == '\n' {
			r = append(r, s[i:j])
			i = j + 1
		}
	}
	return
}
