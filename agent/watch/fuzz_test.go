package watch

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeconfig"
)

// FuzzPrevious: whatever stands in the file of the former generation, going back to it writes files
// of the disk or ends with an error.
func FuzzPrevious(f *testing.F) {
	d := disktest.New(f, map[string]string{nodeconfig.FormerPath: ""})
	for _, seed := range []string{`[{"path":"etc/a","data":"eA==","mode":420,"was":true,"unit":"kubelet.service"},{"path":"etc/b","was":false}]`,
		`[{"path":"../../x","was":true}]`, `[{"path":"","was":true},{"path":"etc","was":false}]`, "null", "{"} {
		f.Add(seed)
	}
	ended, now := errors.New("ended"), time.Unix(0, 0)
	w := &Watcher{Disk: d, Host: host.Recorder{}, Client: &http.Client{Transport: noService{}}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Wait: func(context.Context, time.Duration) error { return ended }}
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(d.Host(nodeconfig.FormerPath), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = w.Recover(t.Context())
	})
}

type noService struct{}

func (noService) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("none") }
