package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
)

// outputFlag is -o.
type outputFlag struct{ format string }

func (o *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table, wide (nothing is left out or cut), json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *outputFlag) check() error {
	switch o.format {
	case "table", "wide", "json", "yaml":
		return nil
	}
	return kamino.WithHint(fmt.Errorf("output format %q is unknown", o.format), "use -o table, wide, json or yaml")
}

func (o *outputFlag) wide() bool { return o.format == "wide" }

// print writes v as JSON or YAML, or lets table write it for people: on a terminal, but for wide,
// with rows that do not wrap.
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
	var text, laidOut bytes.Buffer
	table(&text)
	tabs := tabwriter.NewWriter(&laidOut, 6, 4, 3, ' ', 0)
	_, _ = tabs.Write(text.Bytes()) // a buffer takes everything
	if err := tabs.Flush(); err != nil {
		return fmt.Errorf("lay out table: %w", err)
	}
	lines := strings.SplitAfter(laidOut.String(), "\n")
	for i, written := range strings.SplitAfter(text.String(), "\n") {
		if columns > 0 && strings.Count(written, "\t") > 1 { // a row; other lines are sentences
			lines[i] = cut(strings.TrimSuffix(lines[i], "\n"), columns) + "\n"
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}

// columns is the width of a terminal, 0 for anything else.
func (a *app) columns(w io.Writer) int {
	if !a.terminal(w) {
		return 0
	}
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 80
}

// encode writes v where the format is JSON or YAML.
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

// checkDetailed refuses --detailed-exitcode where nobody could tell "there was something to
// do" from "it was done".
func checkDetailed(detailed, dryRun bool) error {
	if detailed && !dryRun {
		return kamino.WithHint(errors.New("--detailed-exitcode tells what would be done, and needs --dry-run"), "use --dry-run --detailed-exitcode")
	}
	return nil
}
