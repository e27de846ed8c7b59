package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"kamino.dev/kamino/view"
)

// gap is the space between two columns.
const gap = 3

// layOut aligns cells that tabs separate. Lines with at least two tabs are rows of a table. If a
// row would be wider than the terminal, cells of several words are wrapped. 0 columns: no limit.
func layOut(text string, columns int) (string, error) {
	var laidOut bytes.Buffer
	if columns > 0 {
		text = wrapTables(text, columns)
	}
	tabs := tabwriter.NewWriter(&laidOut, 6, 4, gap, ' ', 0)
	_, _ = tabs.Write([]byte(text)) // a buffer accepts everything
	if err := tabs.Flush(); err != nil {
		return "", fmt.Errorf("lay out table: %w", err)
	}
	lines := strings.SplitAfter(laidOut.String(), "\n")
	for i, written := range strings.SplitAfter(text, "\n") {
		if columns > 0 && isRow(written) {
			lines[i] = view.Cut(strings.TrimSuffix(lines[i], "\n"), columns) + "\n"
		}
	}
	return strings.Join(lines, ""), nil
}

func isRow(line string) bool { return strings.Count(line, "\t") > 1 }

// wrapTables wraps the cells of each table that is too wide.
func wrapTables(text string, columns int) string {
	var out strings.Builder
	var table [][]string
	flush := func() {
		for _, row := range wrapTable(table, columns) {
			out.WriteString(strings.Join(row, "\t") + "\n")
		}
		table = nil
	}
	for line := range strings.Lines(text) {
		if isRow(line) {
			table = append(table, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
			continue
		}
		flush()
		out.WriteString(line)
	}
	flush()
	return out.String()
}

// wrapTable makes the widest columns of several words narrower until all fit.
func wrapTable(rows [][]string, columns int) [][]string {
	const least = 16
	var widths []int
	var words []bool
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths, words = append(widths, 0), append(words, false)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
			words[i] = words[i] || strings.Contains(cell, " ")
		}
	}
	for total(widths) > columns {
		widest := -1
		for i, w := range widths {
			if words[i] && w > least && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	var out [][]string
	for _, row := range rows {
		out = append(out, wrapRow(row, widths, words)...)
	}
	return out
}

func total(widths []int) int {
	sum := gap * (len(widths) - 1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

func wrapRow(row []string, widths []int, words []bool) [][]string {
	cells, lines := make([][]string, len(row)), 1
	for i, cell := range row {
		cells[i] = []string{cell}
		if words[i] {
			cells[i] = wrap(cell, widths[i])
		}
		lines = max(lines, len(cells[i]))
	}
	out := make([][]string, lines)
	for n := range out {
		out[n] = make([]string, len(row))
		for i := range row {
			if n < len(cells[i]) {
				out[n][i] = cells[i][n]
			}
		}
	}
	return out
}

// wrap breaks a text between words, and a word only if it is longer than a line.
func wrap(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		for runes := []rune(word); ; runes = runes[width:] {
			last := &lines[len(lines)-1]
			switch length := len([]rune(*last)); {
			case length == 0:
			case length+1+len(runes) <= width:
				*last += " "
			default:
				lines = append(lines, "")
				last = &lines[len(lines)-1]
			}
			*last += string(runes[:min(len(runes), width)])
			if len(runes) <= width {
				break
			}
		}
	}
	return slices.Clip(lines)
}
