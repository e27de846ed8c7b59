package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
)

// barred is a cluster that lists its nodes to nobody.
type barred struct {
	kamino.Cluster
	asked *atomic.Int32
}

func (b barred) Nodes(context.Context) ([]kamino.Node, error) {
	b.asked.Add(1)
	return nil, fmt.Errorf("list nodes: %w", kamino.ErrForbidden)
}

// TestWatchAgain: new nodes that may not be listed for a while are not left unwatched for good, and
// the log says so.
func TestWatchAgain(t *testing.T) {
	var log bytes.Buffer
	var asked atomic.Int32
	r := &reconciler{seen: &kamino.Engine{Cluster: barred{asked: &asked}}, watches: map[kamino.PoolID]watching{}, opts: Options{Log: slog.New(slog.NewTextHandler(&log, nil))},
		runs: &runs{on: t.Context(), wake: func(string) { t.Error("it would be tried again without a pause") }, ended: func(string, string, []kamino.PoolResult, error) {}}}
	spec, w := v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}, world{now: now}
	w.view.Status.Next, w.view.Promoted = "2026.11.23", now.Add(-time.Minute)
	for pass := range int32(2) {
		r.watch("blue", spec, w, "/pools/blue", kamino.AutoOptions{})
		r.runs.busy.Wait()
		if asked.Load() != pass+1 || strings.Count(log.String(), "version=2026.11.23") != int(pass)+1 {
			t.Fatalf("pass %d: nodes were asked for %d times\n%s", pass, asked.Load(), log.String())
		}
	}
}
