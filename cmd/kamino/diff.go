package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

// printDiff writes what changes in a model, and what a person has to put aside before.
func printDiff(w io.Writer, diff []kamino.FieldChange) {
	if len(diff) == 0 {
		fmt.Fprintln(w, "Model:\tunchanged")
		return
	}
	fmt.Fprintln(w, "\nMODEL\tFROM\tTO")
	for _, d := range diff {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Field, shown(d.From), shown(d.To))
	}
	if lost := unreadable(diff); lost != "" {
		fmt.Fprintf(w, "\nSave from your template: %s; Azure does not return them, and kamino rollback --to original asks for them\n", lost)
	}
}

// unreadable names what a pool loses when it first leaves its original model, and what no version
// can give back; "" where it has left that already, or loses nothing.
func unreadable(diff []kamino.FieldChange) string {
	var lost []string
	for _, d := range diff {
		switch name := d.Field[strings.LastIndexByte(d.Field, '.')+1:]; {
		case name == "imageReference" && strings.Contains(d.From, "/images/kamino-"):
			return ""
		case name == "customData" && d.To == "#cloud-config":
			lost = append([]string{"custom data"}, lost...)
		case name == "extensions":
			stay := strings.Split(d.To, ", ")
			for _, extension := range strings.Split(d.From, ", ") {
				if extension != "" && !slices.Contains(stay, extension) {
					lost = append(lost, "protected settings of "+extension)
				}
			}
		}
	}
	return strings.Join(lost, ", ")
}
