package disk

import (
	"errors"
	"io/fs"
	"os"
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

// Line is a message of one line in which names may stand as they are: what is not printable is
// escaped as in Go.
func Line(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			out.WriteRune(r)
		} else {
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// ShownError is an error of the operating system's with the names in it as Shown has them.
func ShownError(err error) error {
	var one *fs.PathError
	if errors.As(err, &one) {
		one.Path = Shown(one.Path)
	}
	var two *os.LinkError
	if errors.As(err, &two) {
		two.Old, two.New = Shown(two.Old), Shown(two.New)
	}
	return err
}
