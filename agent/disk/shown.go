package disk

import (
	"strconv"
	"strings"
	"unicode"
)

// Shown is a file's name as it may stand in a finding or a log: in Go's quotes where a character of
// it is not printable. Whoever may make a file chooses its name, and a line end in it would begin a
// line of his own.
func Shown(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.QuoteToASCII(name)
	}
	return name
}
