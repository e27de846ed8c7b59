package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// screen is what a terminal shows of what was written: lines, and the two sequences that
// the progress uses.
func screen(t *testing.T, written string) []string {
	t.Helper()
	lines, row := []string{""}, 0
	up := regexp.MustCompile(`^\x1b\[(\d)A\r`)
	for written != "" {
		switch m := up.FindStringSubmatch(written); {
		case m != nil:
			row = max(0, row-int(m[1][0]-'0'))
			written = written[len(m[0]):]
		case strings.HasPrefix(written, "\x1b[J"):
			lines = append(lines[:row], "")
			written = written[3:]
		case written[0] == '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
			written = written[1:]
		default:
			lines[row] += written[:1]
			written = written[1:]
		}
	}
	return lines
}

// TestWordOfFirstSignal: what the first Ctrl-C says stays on the screen while steps go on
// being drawn.
func TestWordOfFirstSignal(t *testing.T) {
	var out bytes.Buffer
	a := newApp(ioStreams{Out: &out, Err: &out}, func(string) string { return "" }, func(int) {})
	l := &live{out: &out, now: time.Now, width: func() int { return 120 }}
	a.live.Store(l)
	ev := kamino.Event{Pool: "p", Kind: kamino.StepStarted, Step: "drain", Time: time.Now(), Percent: -1}
	l.event(ev)
	a.say(syscall.SIGINT)
	for range 3 {
		l.redraw()
	}
	shown := strings.Join(screen(t, out.String()), "\n")
	if !strings.Contains(shown, "press Ctrl-C again to quit immediately") || strings.Count(shown, "drain") != 1 {
		t.Errorf("the screen shows:\n%s", shown)
	}
}

// TestMissingKubeconfig: a file that $KUBECONFIG names and that does not exist is named.
func TestMissingKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere")
	t.Setenv("KUBECONFIG", path)
	var out, errs bytes.Buffer
	a := newApp(ioStreams{Out: &out, Err: &errs}, func(k string) string {
		if k == "KUBERNETES_SERVICE_HOST" {
			return ""
		}
		return os.Getenv(k)
	}, func(int) {})
	if code := execute(t.Context(), a, []string{"status", "-s", "00000000-0000-0000-0000-000000000001", "-g", "rg"}); code != exitFailed || !strings.Contains(errs.String(), path) {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestVersionFormats: scripts read the version as JSON or YAML.
func TestVersionFormats(t *testing.T) {
	for format, want := range map[string]string{"json": `"version": "`, "yaml": "version: ", "table": "kamino "} {
		if out, errs, code := newFakeWorld().kamino(t, "version", "-o", format); code != exitFine || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s%s", format, code, out, errs)
		}
	}
}

// TestJSONLog: each line of the log is an object.
func TestJSONLog(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	_, errs, code := w.kamino(t, "status", "-n", "elsewhere", "--log-format", "json")
	var line struct{ Level, Msg string }
	if err := json.Unmarshal([]byte(errs), &line); err != nil || line.Level != "WARNING" || line.Msg == "" || code != exitFine {
		t.Errorf("exit code %d, %v: %s", code, err, errs)
	}
}
