package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
)

// outputFlag is the option -o.
type outputFlag struct {
	format string
	more   []string // formats of this command alone
}

func (o *outputFlag) add(cmd *cobra.Command, more ...string) {
	o.more = more
	usage := "table, wide (nothing omitted or truncated), json or yaml"
	if len(more) > 0 {
		last := len(more) - 1
		usage = "table, wide (nothing omitted or truncated), " + strings.Join(append([]string{"json", "yaml"}, more[:last]...), ", ") +
			" or " + more[last]
	}
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", usage)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
}

func (o *outputFlag) formats() []string {
	return append([]string{"table", "wide", "json", "yaml"}, o.more...)
}

func (o *outputFlag) check() error {
	formats := o.formats()
	if slices.Contains(formats, o.format) {
		return nil
	}
	last := len(formats) - 1
	return kamino.WithHint(fmt.Errorf("invalid output format %q", o.format), "use -o %s or %s", strings.Join(formats[:last], ", "),
		formats[last])
}

func (o *outputFlag) wide() bool { return o.format == "wide" }

// print writes v as JSON or YAML, or calls table to write it for people. On a terminal rows are
// wrapped to fit, except with -o wide.
func (o *outputFlag) print(a *app, v any, table func(io.Writer)) error {
	columns := 0
	if !o.wide() {
		columns = a.columns(a.Out)
	}
	return o.write(a.Out, columns, v, table)
}

func (o *outputFlag) write(w io.Writer, columns int, v any, table func(io.Writer)) error {
	if done, err := encode(w, o.format, v); done {
		return err
	}
	var text bytes.Buffer
	table(&text)
	laidOut, err := layOut(text.String(), columns)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, laidOut)
	return err
}

// columns returns the width of a terminal; 0 for any other writer.
func (a *app) columns(w io.Writer) int {
	if !a.terminal(w) {
		return 0
	}
	if f := fileOf(w); f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// encode writes v if the format is JSON or YAML.
func encode(w io.Writer, format string, v any) (done bool, err error) {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return true, enc.Encode(v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return true, fmt.Errorf("write yaml: %w", err)
		}
		_, err = w.Write(text)
		return true, err
	}
	return false, nil
}

// unreadPools is the error of a command whose table shows why each pool could not be read. Only its
// hints are printed.
type unreadPools struct {
	error
	unread, of int
}

func (e *unreadPools) Error() string {
	return fmt.Sprintf("%d of %d pools could not be read", e.unread, e.of)
}
func (e *unreadPools) Unwrap() error { return e.error }

// unread replaces an error that the table already shows, for people. Programs get the error,
// because they may read only the last line.
func (o *outputFlag) unread(err error, unread, of int) error {
	if err == nil || unread == 0 || o.format == "json" || o.format == "yaml" {
		return err
	}
	return &unreadPools{err, unread, of}
}

func countOf[T any](list []T, is func(T) bool) (n int) {
	for _, one := range list {
		if is(one) {
			n++
		}
	}
	return n
}
