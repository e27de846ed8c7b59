package boot

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// decodeFast reads a capture document four times as fast as encoding/json does, for pools of a thousand of them: nearly all
// of a document is the lists of names in its units, and those repeat. It gives up, and says so, on whatever is not exactly
// what [Capture.Write] writes; then encoding/json decides. So it may be strict but never more lenient, nor read anything
// else than encoding/json would; a fuzz test compares the two.
func decodeFast(data []byte, c *Capture) bool {
	r := &fastReader{data: data, names: map[string]string{}}
	fields := []string{"schema", "takenAt", "sources", "host", "manager", "units", "spans", "marks", "cloudInit", "notes"}
	into := []any{&c.Schema, &c.TakenAt, &c.Sources, &c.Host, &c.Manager, nil, &c.Spans, &c.Marks, &c.CloudInit, &c.Notes}
	ok := r.object(fields, func(field int) bool {
		if into[field] == nil {
			return r.units(&c.Units)
		}
		raw, ok := r.raw()
		return ok && json.Unmarshal(raw, into[field]) == nil
	})
	r.space()
	return ok && r.at == len(data)
}

// fastReader walks over a document. Its methods return false when something is not as they know it.
type fastReader struct {
	data  []byte
	at    int
	names map[string]string // by literal, so that there is one copy of each
}

func (r *fastReader) space() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\n', '\r', '\t':
			r.at++
		default:
			return
		}
	}
}

// token takes one byte after white space.
func (r *fastReader) token(b byte) bool {
	r.space()
	if r.at < len(r.data) && r.data[r.at] == b {
		r.at++
		return true
	}
	return false
}

// object calls value for each of the known fields, by its index. Unknown fields are passed over; what encoding/json would take for
// a known one, and a field that comes twice, are left to it.
func (r *fastReader) object(fields []string, value func(field int) bool) bool {
	if !r.token('{') {
		return false
	}
	if r.token('}') {
		return true
	}
	seen := 0
	for {
		r.space()
		name, ok := r.text()
		if !ok || !r.token(':') {
			return false
		}
		field := slices.Index(fields, name)
		switch {
		case field >= 0 && seen&(1<<field) != 0:
			return false
		case field >= 0:
			seen |= 1 << field
			if !value(field) {
				return false
			}
		case slices.ContainsFunc(fields, func(f string) bool { return strings.EqualFold(f, name) }):
			return false
		default:
			if raw, ok := r.raw(); !ok || !json.Valid(raw) {
				return false
			}
		}
		if r.token('}') {
			return true
		}
		if !r.token(',') {
			return false
		}
	}
}

// list calls value for each element.
func (r *fastReader) list(value func() bool) bool {
	if !r.token('[') {
		return false
	}
	if r.token(']') {
		return true
	}
	for value() {
		if r.token(']') {
			return true
		}
		if !r.token(',') {
			return false
		}
	}
	return false
}

// raw is the next value, unread: to its end as far as brackets and strings tell.
func (r *fastReader) raw() ([]byte, bool) {
	r.space()
	start, depth := r.at, 0
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case '"':
			if !r.skipString() {
				return nil, false
			}
			if depth == 0 {
				return r.data[start:r.at], true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				r.at++
				return r.data[start:r.at], true
			}
			if depth < 0 {
				return r.data[start:r.at], r.at > start
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return r.data[start:r.at], r.at > start
			}
		}
		r.at++
	}
	return nil, false
}

// skipString goes over a string that starts here.
func (r *fastReader) skipString() bool {
	for r.at++; r.at < len(r.data); r.at++ {
		switch r.data[r.at] {
		case '\\':
			r.at++
		case '"':
			r.at++
			return true
		}
	}
	return false
}

// text reads a string that starts here. Those with escapes or without ASCII are encoding/json's, the first time.
func (r *fastReader) text() (string, bool) {
	if r.at >= len(r.data) || r.data[r.at] != '"' {
		return "", false
	}
	start, plain := r.at, true
	for r.at++; ; r.at++ {
		if r.at >= len(r.data) {
			return "", false
		}
		b := r.data[r.at]
		if b == '"' {
			break
		}
		if b == '\\' {
			r.at++
		}
		plain = plain && b >= ' ' && b < 0x80 && b != '\\'
	}
	r.at++
	literal := r.data[start:r.at]
	if s, ok := r.names[string(literal)]; ok {
		return s, true
	}
	s := string(literal[1 : len(literal)-1])
	if !plain && json.Unmarshal(literal, &s) != nil {
		return "", false
	}
	r.names[string(literal)] = s
	return s, true
}

// number reads a whole number of at most 18 digits, which no stamp exceeds.
func (r *fastReader) number() (int64, bool) {
	r.space()
	start, n := r.at, int64(0)
	for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
		n = n*10 + int64(r.data[r.at]-'0')
		r.at++
	}
	digits := r.at - start
	if digits == 0 || digits > 18 || digits > 1 && r.data[start] == '0' {
		return 0, false
	}
	return n, r.at < len(r.data) && bytes.IndexByte([]byte(",}] \n\r\t"), r.data[r.at]) >= 0
}

func (r *fastReader) micros(into *Micros) bool {
	n, ok := r.number()
	*into = Micros(n)
	return ok
}

func (r *fastReader) string(into *string) (ok bool) {
	r.space()
	*into, ok = r.text()
	return ok
}

func (r *fastReader) strings(into *[]string) bool {
	out := []string{}
	ok := r.list(func() bool {
		var s string
		if !r.string(&s) {
			return false
		}
		out = append(out, s)
		return true
	})
	*into = out
	return ok
}
