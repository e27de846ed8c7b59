package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"

	"kamino.dev/kamino"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f := fileOf(stream)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// asks reports whether a person can answer a question.
func (a *app) asks() bool { return a.terminal(a.In) && a.terminal(a.Err) }

// answeredNo is the error after a person answered no.
func answeredNo(what string) error {
	return &kamino.RefusedError{Subject: what, Refusals: []kamino.Refusal{{Code: "answer", Field: "answer", Value: "no",
		Why: "nothing was changed", Do: "answer y, or use --yes to skip the question"}}}
}

// confirm asks a question; any answer but y or yes is no.
func (a *app) confirm(question string) (bool, error) {
	fmt.Fprintf(a.Err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
