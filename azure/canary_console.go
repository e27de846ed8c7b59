package azure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"kamino.dev/kamino"
)

const (
	consoleMost  = 4 << 20 // bytes that are read of a console's log
	consoleLines = 40      // that are kept, the last ones
)

// Console implements kamino.Prover: Azure keeps the log of a serial console as a blob, and gives a
// URL for it that needs no token
// (https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-set-vms/retrieve-boot-diagnostics-data).
func (p *Provider) Console(ctx context.Context, pool kamino.Pool, canary kamino.Canary) ([]string, error) {
	at, err := p.place(pool)
	if err != nil {
		return nil, err
	}
	if canary.Instance == "" {
		return nil, fmt.Errorf("read the console of canary %s: %w: it has no instance yet", canary.Name, kamino.ErrUnsupported)
	}
	v, vm, err := parseInstance(canary.Instance)
	if err != nil {
		return nil, err
	}
	got, err := at.vms.RetrieveBootDiagnosticsData(ctx, v.group, v.name, vm, nil)
	if err != nil {
		return nil, translate(err, "find the console of canary %s", canary.Name)
	}
	lines, err := p.blob(ctx, value(got.SerialConsoleLogBlobURI))
	if err != nil {
		return nil, fmt.Errorf("read the console of canary %s: %w", canary.Name, err)
	}
	return lines, nil
}

// blob reads the last lines of a text by a URL, without a token, and without what a terminal would
// obey.
func (p *Provider) blob(ctx context.Context, url string) ([]string, error) {
	if !strings.HasPrefix(url, "https://") {
		return nil, fmt.Errorf("%w: boot diagnostics keep no log of it", kamino.ErrUnsupported)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := p.config.Transport
	if client == nil {
		client = &http.Client{Timeout: time.Minute} // as each call of the SDK has, see clientOptions
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", kamino.ErrUnavailable, firstLine(err.Error()))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, consoleMost))
	if err != nil {
		return nil, fmt.Errorf("%w: %s", kamino.ErrUnavailable, firstLine(err.Error()))
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: status %d", kamino.ErrUnavailable, resp.StatusCode)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(kamino.Plain(line)); line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-consoleLines):], nil
}
