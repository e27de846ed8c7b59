// Package strict decodes the agent's YAML documents: an unknown or repeated field, a second
// document and trailing text are errors that name the line, in words for operators rather than for
// Go programmers.
package strict

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/internal/lazyregexp"
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
	unknown  = lazyregexp.New(`field (\S+) not found in type .*`)
	named    = lazyregexp.New(`^unknown field [A-Za-z][A-Za-z0-9]{0,31}$`)
	mismatch = lazyregexp.New("(?s)cannot unmarshal (?:!!(\\w+)|!\\S*) (?:`.*` )?into \\S+")
	anchor   = lazyregexp.New(`unknown anchor '.*' referenced`)
	repeated = lazyregexp.New(`mapping key ".*[^A-Za-z].*" already`)
)

// plain rewrites what the yaml package says. It tells no values, and no names that are none of a
// field: the document may be another file than its author believes, reached by a link, with secrets
// in it.
func plain(err error) error {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	var lines []string
	for line := range strings.Lines(text) {
		line = mismatch.ReplaceAllString(strings.TrimSpace(line), "${1} value is of the wrong kind here")
		at, what, found := strings.Cut(unknown.ReplaceAllString(line, "unknown field $1"), ": ")
		if found && strings.HasPrefix(what, "unknown field ") && !named.MatchString(what) {
			what = "unknown field"
		}
		if found {
			line = at + ": " + what
		}
		line = anchor.ReplaceAllString(line, "unknown anchor referenced")
		lines = append(lines, repeated.ReplaceAllString(line, "mapping key already"))
	}
	return errors.New(strings.Join(lines, "; "))
}
