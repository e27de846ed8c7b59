package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
)

// outputFlag is -o.
type outputFlag struct{ format string }

func (o *outputFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *outputFlag) check() error {
	switch o.format {
	case "table", "json", "yaml":
		return nil
	}
	return kamino.WithHint(fmt.Errorf("output format %q is unknown", o.format), "use -o table, json or yaml")
}

// print writes v as JSON or YAML, or lets table write it for people.
func (o *outputFlag) print(w io.Writer, v any, table func(io.Writer)) error {
	switch o.format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("write yaml: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	tabs := tabwriter.NewWriter(w, 6, 4, 3, ' ', 0)
	table(tabs)
	return tabs.Flush()
}

// checkDetailed refuses --detailed-exitcode where nobody could tell "there was something to
// do" from "it was done".
func checkDetailed(detailed, dryRun bool) error {
	if detailed && !dryRun {
		return kamino.WithHint(errors.New("--detailed-exitcode tells what would be done, and needs --dry-run"), "use --dry-run --detailed-exitcode")
	}
	return nil
}
