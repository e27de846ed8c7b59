package agent

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainWriter writes text without what a terminal obeys: names of files stand in errors of the
// system, too. What it replaces, it writes as JSON's escapes, so that JSON stays what it says.
type plainWriter struct{ to io.Writer }

func (p plainWriter) Write(text []byte) (int, error) {
	var out strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out.WriteRune(r)
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.Write(text[i : i+n])
		}
		i += n
	}
	if _, err := io.WriteString(p.to, out.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
