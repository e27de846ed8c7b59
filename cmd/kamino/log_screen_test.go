package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	l := &live{out: &out, clock: kamino.WallClock{}, width: func() int { return 120 }}
	a.live.Store(l)
	ev := kamino.Event{Pool: "p", Kind: kamino.EventStarted, Step: "drain", Time: time.Now(), Percent: -1}
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
		t.Run(format, func(t *testing.T) {
			if out, errs, code := newFakeWorld().kamino(t, "version", "-o", format); code != exitFine || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d: %s%s", format, code, out, errs)
			}
		})
	}
}

// TestJSONLog: each line on standard error is an object, errors of wrong command lines included.
func TestJSONLog(t *testing.T) {
	for _, tt := range []struct {
		args             []string
		level, msg, hint string
		code             int
	}{
		{args: []string{"auto-update"}, level: "WARNING", msg: "nothing was done for a pool that needs it", code: exitFine},
		{args: []string{"status", "--pool", "nosuch"}, level: "ERROR", msg: "nosuch", hint: "the pools are", code: exitFailed},
		{args: []string{"update", "--bad", "value"}, level: "ERROR", msg: "--bad", hint: "--help", code: exitFailed},
		{args: []string{"updat"}, level: "ERROR", msg: "updat", hint: "kamino update", code: exitFailed},
		{args: []string{"status", "--log-prefix", "x"}, level: "ERROR", msg: "log prefix", hint: "--log-format text", code: exitFailed},
		{args: []string{"boot", "show", "/nowhere"}, level: "ERROR", msg: "/nowhere", code: exitFailed},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			w := newFakeWorld()
			pinned := kamino.Ledger{Wrote: &kamino.WrittenModel{Image: "/other", Seen: true}}
			w.cluster.leases[stale(w).ID] = kamino.Lease{Revision: "1", Ledger: pinned}
			_, errs, code := w.kamino(t, append(tt.args, "--log-format", "json")...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			last := records(t, errs)
			if last.Level != tt.level || !strings.Contains(last.Msg, tt.msg) || !strings.Contains(strings.Join(last.Hints, " "), tt.hint) {
				t.Errorf("want %s, %q and hint %q: %s", tt.level, tt.msg, tt.hint, errs)
			}
		})
	}
}

// record is a line of a JSON log.
type record struct {
	Level, Msg  string
	Hints, Left []string
}

// records reads a JSON log and returns its last record.
func records(t *testing.T, log string) (last record) {
	t.Helper()
	for line := range strings.Lines(log) {
		last = record{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	return last
}

// TestSignalsInJSONLog: the words of both signals are records. A hangup is never the second one.
func TestSignalsInJSONLog(t *testing.T) {
	var out bytes.Buffer
	ended := make(chan int, 1)
	a := newApp(ioStreams{Err: &out, JSON: true}, func(string) string { return "" }, func(code int) { ended <- code })
	a.left.hold("/s/p", []string{"the donor off"})
	ctx, cancel := context.WithCancel(t.Context())
	signals := make(chan os.Signal)
	go a.obey(ctx, signals, cancel)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		if len(ended) > 0 {
			t.Fatalf("ended before %s", s)
		}
		signals <- s
		<-ctx.Done() // the first gives back
	}
	if code := <-ended; code != exitAbandoned {
		t.Errorf("exit code %d", code)
	}
	last := records(t, out.String())
	if diff := cmp.Diff(record{"ERROR", "aborted by a second signal", []string{"kamino restore"}, []string{"pool p: the donor off"}}, last); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// moments is a clock that shows one time after another, to SIGTERMs.
type moments struct {
	kamino.WallClock
	list []time.Duration
}

func (m *moments) Now() (now time.Time) {
	now, m.list = time.Unix(0, 0).Add(m.list[0]), m.list[1:]
	return now
}

// TestSignalsTogether: GNU timeout sends SIGTERM to its child and then to the process group, which
// is one order. A SIGTERM of later, or Ctrl-C typed twice, ends the process at once.
func TestSignalsTogether(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		sent []os.Signal
		at   []time.Duration
	}{
		"timeout":        {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM}, []time.Duration{0, ms, 2000 * ms}},
		"Ctrl-C twice":   {[]os.Signal{syscall.SIGINT, syscall.SIGINT}, nil},
		"one after both": {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}, []time.Duration{0, ms}},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan int, 1)
			a := newApp(ioStreams{Err: &bytes.Buffer{}, JSON: true}, func(string) string { return "" }, func(code int) { ended <- code })
			a.clock = &moments{list: c.at}
			ctx, cancel := context.WithCancel(t.Context())
			signals, over := make(chan os.Signal), make(chan struct{})
			go func() {
				a.obey(ctx, signals, cancel)
				close(over)
			}()
			for i, s := range c.sent {
				select {
				case signals <- s:
				case <-over:
					t.Fatalf("ended before signal %d", i+1)
				}
			}
			if code := <-ended; code != exitAbandoned {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestWarningsWrap: a warning is shown whole on any terminal, and one that tells no width has 80
// columns.
func TestWarningsWrap(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("far too long ", 20))
	for width, most := range map[int]int{0: 79, 40: 39, 120: 119} {
		for _, kind := range []kamino.EventKind{kamino.EventWarning, kamino.EventGivingBack} {
			var out bytes.Buffer
			l := &live{out: &out, clock: kamino.WallClock{}, width: func() int { return width }}
			l.event(kamino.Event{Kind: kind, Message: long, Percent: -1})
			widest, text := 0, strings.ReplaceAll(out.String(), "\x1b[J", "")
			for line := range strings.Lines(text) {
				widest = max(widest, len(strings.TrimSpace(line)))
			}
			if widest > most || widest < most-12 || !strings.HasSuffix(strings.Join(strings.Fields(text), " "), long) {
				t.Errorf("%s, width %d, at most %d:\n%s", kind, width, most, text)
			}
		}
	}
}
