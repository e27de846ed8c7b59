package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino"
)

// levelCritical is for events that need a person at once.
const levelCritical = slog.LevelError + 4

// The names of levels of the original script.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARNING", slog.LevelWarn},
	{"ERROR", slog.LevelError}, {"CRITICAL", levelCritical},
}

func parseLevel(name string) (slog.Level, error) {
	for _, l := range levels {
		if strings.EqualFold(l.name, name) {
			return l.level, nil
		}
	}
	return 0, kamino.WithHint(fmt.Errorf("invalid log level %q", name), "use --log-level DEBUG, INFO, WARNING, ERROR or CRITICAL")
}

func newLogger(w io.Writer, level slog.Level, g *globalOptions) *slog.Logger {
	asJSON := g.logFormat == "json"
	if g.logPrefix != "" {
		w = &prefixWriter{w: w, prefix: []byte(g.logPrefix + ": ")}
	}
	how := &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch {
			case len(groups) > 0:
			case a.Key == slog.TimeKey && !g.logTimestamps && !asJSON:
				return slog.Attr{}
			case a.Key == slog.LevelKey:
				for _, l := range levels {
					if a.Value.Any() == l.level {
						return slog.String(slog.LevelKey, l.name)
					}
				}
			}
			return a
		},
	}
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, how))
	}
	return slog.New(slog.NewTextHandler(w, how))
}

// prefixWriter writes a prefix before each record; a slog handler writes one record in each call.
type prefixWriter struct {
	w      io.Writer
	prefix []byte
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	_, err := p.w.Write(bytes.Join([][]byte{p.prefix, b}, nil))
	return len(b), err
}

// eventLog writes one line per event, for pipes and Jobs.
type eventLog struct {
	write func(slog.Level, string, ...slog.Attr)

	mu   sync.Mutex
	last map[string]saying // by pool
}

// saying is the last message about a pool, with its time.
type saying struct {
	what string
	at   time.Time
}

// stillWaiting is the interval at which a continuing wait is logged, because a silent log looks
// like that of a process that hangs.
const stillWaiting = 30 * time.Second

func newEventLog(ctx context.Context, log *slog.Logger) *eventLog {
	return &eventLog{
		write: func(l slog.Level, msg string, attrs ...slog.Attr) { log.LogAttrs(ctx, l, msg, attrs...) },
		last:  map[string]saying{},
	}
}

func (l *eventLog) event(ev kamino.Event) {
	attrs := []slog.Attr{slog.String("kind", string(ev.Kind))}
	if ev.Pool != "" {
		attrs = append(attrs, slog.String("pool", ev.Pool))
	}
	if ev.Run != "" {
		attrs = append(attrs, slog.String("run", ev.Run))
	}
	if ev.Step != "" {
		attrs = append(attrs, slog.String("step", ev.Step), slog.Duration("elapsed", ev.Elapsed.Round(time.Millisecond)))
	}
	if ev.Total > 0 {
		attrs = append(attrs, slog.String("of", fmt.Sprintf("%d/%d", ev.Number, ev.Total)))
	}
	if ev.Limit > 0 {
		attrs = append(attrs, slog.Duration("limit", ev.Limit))
	}
	if ev.Percent >= 0 {
		attrs = append(attrs, slog.Int("percent", ev.Percent))
	}
	l.write(l.level(ev), cmp.Or(told(ev), string(ev.Kind)), attrs...)
}

// told returns an event's message for people; that of a wait is only its reason.
func told(ev kamino.Event) string {
	if ev.Kind == kamino.EventWaiting {
		return "waiting for " + ev.Message
	}
	return ev.Message
}

// level is DEBUG for a message that was logged within the last half minute, and for progress of
// less than ten percent.
func (l *eventLog) level(ev kamino.Event) slog.Level {
	said := strings.Join([]string{string(ev.Kind), ev.Step, ev.Message, fmt.Sprint((ev.Percent + 10) / 10)}, "\x00")
	l.mu.Lock()
	last := l.last[ev.Pool]
	repeated := last.what == said && ev.Time.Sub(last.at) < stillWaiting
	if !repeated {
		l.last[ev.Pool] = saying{said, ev.Time}
	}
	l.mu.Unlock()
	switch ev.Kind {
	case kamino.EventWaiting:
		if repeated {
			return slog.LevelDebug
		}
	case kamino.EventSkipped:
		return slog.LevelDebug
	case kamino.EventRetry, kamino.EventWarning, kamino.EventGivingBack, kamino.EventRefused:
		return slog.LevelWarn
	case kamino.EventFailed:
		return slog.LevelError
	}
	return slog.LevelInfo
}
