// Package browser opens pages in a headless Chromium, for tests.
package browser

import (
	"bytes"
	"os/exec"
	"testing"
)

// Chromium is the path of a browser on this machine.
type Chromium string

// Find returns the browser of this machine. A test on one without is skipped, and says so.
func Find(t testing.TB) Chromium {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return Chromium(path)
		}
	}
	t.Skip("no Chromium here: the page is not opened (apt-get install chromium)")
	return ""
}

// Run starts the browser with more options, and returns what it prints and what it logs. It has no
// profile of before, and asks nobody but the page's own host.
func (c Chromium) Run(t testing.TB, args ...string) (out, log []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(c),
		append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
			"--enable-logging=stderr", "--v=0",
			"--user-data-dir=" + t.TempDir()}, args...)...)
	var printed, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &logged
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, logged.String())
	}
	return printed.Bytes(), logged.Bytes()
}
