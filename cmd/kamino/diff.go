package main

import (
	"fmt"
	"io"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/view"
)

// printDiff prints the changes of a model, and what a person has to save before.
func printDiff(w io.Writer, diff []kamino.FieldChange) {
	if len(diff) == 0 {
		fmt.Fprintln(w, "Model:\tunchanged")
		return
	}
	fmt.Fprintln(w, "\nMODEL\tFROM\tTO")
	for _, d := range diff {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Field, view.Shown(d.From), view.Shown(d.To))
	}
	if lost := engine.Unreturned(diff); lost != "" {
		fmt.Fprintf(w, "\nSave from your template: %s; Azure does not return them, and kamino rollback --to original asks for them\n", lost)
	}
}
