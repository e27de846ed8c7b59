package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/pflag"
)

// ioStreams are the streams that a command reads and writes.
type ioStreams struct {
	In       io.Reader
	Out, Err io.Writer
	JSON     bool // each line of Err is a JSON object (--log-format json)
}

// wanted is an output whose reader may leave without an error, as in "kamino status | head".
type wanted struct{ io.Writer }

func (w wanted) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
}

// fileOf returns the file of a stream; nil if there is none.
func fileOf(stream any) *os.File {
	if w, ok := stream.(wanted); ok {
		stream = w.Writer
	}
	f, _ := stream.(*os.File)
	return f
}

// jsonAsked reads --log-format from a command line that may have other errors.
func jsonAsked(args []string) bool {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags, f.Usage = true, func() {}
	format := f.String("log-format", "", "")
	_ = f.Parse(args) // the command reports other errors
	return *format == "json"
}

// tell writes a line for people, or a record.
func (s ioStreams) tell(level slog.Level, text string, attrs ...slog.Attr) {
	if !s.JSON {
		fmt.Fprintln(s.Err, text)
		return
	}
	newLogger(s.Err, level, &globalOptions{logFormat: "json"}).LogAttrs(context.Background(), level, text, attrs...)
}

// complain writes an error, what is left and what to do: a line each for people, or one record.
func (s ioStreams) complain(text string, left, hints []string) {
	var attrs []slog.Attr
	lines := "Error: " + text
	for _, part := range []struct {
		word, key string
		list      []string
	}{{"Left", "left", left}, {"Hint", "hints", hints}} {
		for _, line := range part.list {
			lines += "\n" + part.word + ": " + line
		}
		if len(part.list) > 0 {
			attrs = append(attrs, slog.Any(part.key, part.list))
		}
	}
	if !s.JSON {
		text = lines
	}
	s.tell(slog.LevelError, text, attrs...)
}
