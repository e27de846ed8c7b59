// Package strict decodes the agent's YAML documents: an unknown or repeated field, a second document and trailing text are
// errors that name the line, in words for operators rather than for Go programmers.
package strict

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrEmpty means that there is no document.
var ErrEmpty = errors.New("the document is empty")

// Decode decodes the one document in data.
func Decode(data []byte, into any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(into); errors.Is(err, io.EOF) {
		return ErrEmpty
	} else if err != nil {
		return plain(err)
	}
	if err := dec.Decode(new(any)); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return plain(err)
	}
	return errors.New("more than one document")
}

var (
	unknown  = regexp.MustCompile(`field (\S+) not found in type .*`)
	mismatch = regexp.MustCompile("cannot unmarshal (?:!!)?(\\S+) (`[^`]*` )?into \\S+")
)

// plain rewrites what the yaml package says.
func plain(err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	var lines []string
	for line := range strings.Lines(text) {
		line = unknown.ReplaceAllString(strings.TrimSpace(line), "unknown field $1")
		lines = append(lines, mismatch.ReplaceAllString(line, "$1 ${2}is of the wrong kind here"))
	}
	return errors.New(strings.Join(lines, "; "))
}
