package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// show prints the report of a demo, as JSON or as text with what did not hold at
// its end. It returns what ended the demo, or an error if anything did not hold.
func show[R any](cmd *cobra.Command, output string, report R, failures []string, err error, text func(io.Writer, R)) error {
	out := cmd.OutOrStdout()
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(report))
	} else {
		text(out, report)
		printFailures(out, failures)
	}
	if err == nil && len(failures) > 0 {
		err = fmt.Errorf("%d things did not hold", len(failures))
	}
	return err
}

func printFailures(out io.Writer, failures []string) {
	if len(failures) == 0 {
		fmt.Fprintln(out, "\nEverything held.")
		return
	}
	fmt.Fprintln(out, "\nDid not hold:")
	for _, f := range failures {
		fmt.Fprintf(out, "  %s\n", f)
	}
}
