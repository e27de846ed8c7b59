package scan

import (
	"bytes"
	"fmt"
	"slices"

	"kamino.dev/kamino/internal/lazyregexp"
)

// Bounds of texts in base64.
const (
	// base64Least is the shortest text that is decoded, in characters.
	base64Least = 16
	// Lines between these lengths may be lines of a longer text: programs break base64 at 64 and 76
	// characters (RFC 7468, RFC 2045).
	base64Short, base64Long = 32, 128
	// Something compressed, and an archive or a text in wide characters, have at least as many.
	packedLeast, archiveLeast = 24, 22
	// textLeast is how many printable characters in a row make decoded bytes a text.
	textLeast = 12
)

// noSextet marks a byte in sextets that is not a character of base64.
const noSextet = 0xff

// sextets are the values of the characters of base64, of RFC 4648 sections 4 and 5.
var sextets = func() (all [256]byte) {
	for c := range all {
		all[c] = noSextet
	}
	for _, last := range []string{"+/", "-_"} {
		for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + last) {
			all[c] = byte(i)
		}
	}
	return all
}()

// packedSigns are how gzip, zstd, xz, zip and bzip2 begin, in base64.
var packedSigns = func() (all [][]byte) {
	for _, sign := range []string{"H4sI", "KLUv", "/Td6", "UEsD", "Qlpo"} {
		values := make([]byte, len(sign))
		for i := range values {
			values[i] = sextets[sign[i]]
		}
		all = append(all, values)
	}
	return all
}()

// scratch is the memory for texts in base64, one pair of buffers for each depth.
type scratch [deepest + 1]struct{ values, plain []byte }

// unfold reports the matches in the texts in base64 that begin in data[from:until], also in those
// that are within each other or packed. data begins at base, and depth
// encodings are around it. A text that more data may continue is left to the next window if it
// begins in the second half; unfold returns where that window has to begin.
func (m *matcher) unfold(data []byte, from, until int, more bool, base int64, where string, depth int, in *inside, report func(hit)) int {
	mem := &in.memory[depth]
	for at := from; ; {
		start, ok := base64Run(data, at, until)
		if !ok {
			return max(at, until)
		}
		var end int
		mem.values, end = base64Text(data, start, mem.values[:0])
		if end == len(data) && more {
			if start >= len(data)/2 {
				return start
			}
			end = until // what stands at the end of this window is read again
		}
		if !m.unfoldOne(data, start, min(end, len(data)), base, where, depth, in, report) {
			return max(end, until)
		}
		at = end
	}
}

// unfoldOne reports what one text in base64 holds, whose values are in.memory's. It reports false
// if no more may be decoded.
func (m *matcher) unfoldOne(data []byte, start, end int, base int64, where string, depth int, in *inside, report func(hit)) bool {
	mem := &in.memory[depth]
	where += "in its base64 text, "
	found := func(h hit) {
		h.where, h.offset = where, base+int64(start)
		report(h)
	}
	// Nobody knows where in a longer word a text begins, so that it is read from each of four
	// characters on.
	packed := packedSince(mem.values)
	for phase := range 4 {
		values := mem.values[min(phase, len(mem.values)):]
		secret := phase == 0 && mayBeSecret(values)
		archive := phase == 0 && packed < 0 && len(values) >= archiveLeast
		line := encodesLine(values)
		if !secret && !archive && !line {
			continue // most words are no base64: they are not decoded
		}
		mem.plain = sextetBytes(values, mem.plain)
		plain := mem.plain
		if secret {
			if h, ok := decodedSecret(data, start, end, plain); ok {
				found(h)
			}
		}
		if archive && mayBePacked(plain) {
			packed = 0
		}
		if !line {
			continue
		}
		if depth == deepest {
			in.tell(tooDeep)
			return true
		}
		if depth > 0 { // the text itself is bounded by the file's size
			if in.left -= int64(len(plain)); in.left <= 0 {
				in.tell(tooMuch)
				return false
			}
		}
		m.search(plain, 0, len(plain), 0, found)
		m.unfold(plain, 0, len(plain), false, 0, where, depth+1, in, func(h hit) {
			h.offset = base + int64(start)
			report(h)
		})
	}
	// A path may have been before what is all of a text.
	if i := bytes.LastIndexByte(mem.values, sextets['/']) + 1; i > 0 && len(mem.values)-i >= base64Least && mayBeSecret(mem.values[i:]) {
		mem.plain = sextetBytes(mem.values[i:], mem.plain)
		if h, ok := decodedSecret(data, start, end, mem.plain); ok {
			found(h)
		}
	}
	if packed >= 0 {
		in.unpackText(packed, where, depth)
	}
	return true
}

// unpackText looks into what in.memory has from one of its values on, if it is packed or an archive.
func (in *inside) unpackText(from int, where string, depth int) {
	mem := &in.memory[depth]
	mem.plain = sextetBytes(mem.values[from:], mem.plain)
	switch {
	case !packed(mem.plain):
	case depth == deepest:
		in.tell(tooDeep)
	default:
		in.unpack(mem.plain, where, depth+1)
	}
}

// packedSince is where in a text something packed begins; -1: nowhere.
func packedSince(values []byte) int {
	if len(values) >= packedLeast {
		for _, sign := range packedSigns {
			if i := bytes.Index(values, sign); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// mayBePacked reports whether bytes may be an archive without compression or a text in wide
// characters: both have zeros, but for the header of cpio.
func mayBePacked(plain []byte) bool {
	return isCPIO(plain) || bytes.IndexByte(plain[:min(len(plain), 512)], 0) >= 0
}

var (
	tooDeep = fmt.Sprintf("more than %d encodings and archives within each other", deepest)
	tooMuch = fmt.Sprintf("behind its first %d MiB", decodedMost>>20)
)

// base64Run is where the first stretch of base64Least characters is that begins in
// data[from:until]. Most of the data is not looked at.
func base64Run(data []byte, from, until int) (start int, ok bool) {
	first := from
	for from < until {
		i := from + base64Least - 1
		if i >= len(data) {
			return 0, false
		}
		for i >= from && sextets[data[i]] != noSextet {
			i--
		}
		if i >= from {
			from = i + 1
			continue
		}
		// JSON may have escaped a slash in what is before.
		for from-2 >= first && data[from] == '/' && data[from-1] == '\\' && sextets[data[from-2]] != noSextet {
			for from -= 2; from > first && sextets[data[from-1]] != noSextet; from-- {
			}
		}
		return from, true
	}
	return 0, false
}

// base64Text appends the values of the text that begins at start, over line breaks and what JSON
// escapes, and returns where it ends.
func base64Text(data []byte, start int, values []byte) ([]byte, int) {
	line := 0
	for at := start; at < len(data); {
		for ; at < len(data); at++ {
			v := sextets[data[at]]
			if v == noSextet {
				break
			}
			values = append(values, v)
			line++
		}
		if at == len(data) {
			break
		}
		if data[at] == '\\' {
			if v, n := escaped(data[at:]); n > 0 {
				if v != noSextet {
					values = append(values, v)
				}
				line, at = line+1, at+n
				continue
			}
		}
		n := lineBreak(data[at:])
		if n == 0 || line < base64Short || line > base64Long || !wholeLine(data[at+n:]) {
			return values, at
		}
		line, at = 0, at+n
	}
	return values, len(data)
}

// escaped is a character of base64 that JSON escapes: its value, and the length of the escape. A
// slash follows its escape, so that it has no value here.
func escaped(data []byte) (value byte, n int) {
	slashes := 0
	for slashes < len(data) && slashes < 4 && data[slashes] == '\\' {
		slashes++
	}
	rest := data[slashes:]
	switch {
	case bytes.HasPrefix(rest, []byte("/")):
		return noSextet, slashes
	case len(rest) >= 5 && bytes.EqualFold(rest[:5], []byte("u002b")):
		return sextets['+'], slashes + 5
	case len(rest) >= 5 && bytes.EqualFold(rest[:5], []byte("u002f")):
		return sextets['/'], slashes + 5
	}
	return 0, 0
}

// lineBreak is the length of a line's end and the next one's indentation, also where a string of
// JSON or a shell's line escapes it.
func lineBreak(data []byte) (n int) {
	ended := false
	for n < len(data) && n < 80 {
		switch c := data[n]; {
		case c == '\n':
			ended = true
			n++
		case c == '\\' && n+1 < len(data) && (data[n+1] == 'n' || data[n+1] == 'r'):
			ended = true
			n += 2
		case c == '\r' || c == '\\' || ended && (c == ' ' || c == '\t'):
			n++
		default:
			if !ended {
				return 0
			}
			return n
		}
	}
	return 0
}

// wholeLine reports whether base64 alone is on the line at data.
func wholeLine(data []byte) bool {
	n := 0
	for n < len(data) && n <= base64Long && sextets[data[n]] != noSextet {
		n++
	}
	if end := string(data[:n]); end == "EOF" || end == "EOT" || end == "END" { // of what a shell reads
		return false
	}
	return n > 0 && (n == len(data) || bytes.IndexByte([]byte("\r\n\\\"'=<"), data[n]) >= 0)
}

// sextetBytes are the bytes of which values are the sextets, in the memory of plain if there is room.
func sextetBytes(values, plain []byte) []byte {
	plain = slices.Grow(plain[:0], len(values)*3/4)[:len(values)*3/4]
	at := 0
	for ; len(values) >= 4; values, at = values[4:], at+3 {
		out := plain[at : at+3 : at+3]
		out[0], out[1], out[2] = values[0]<<2|values[1]>>4, values[1]<<4|values[2]>>2, values[2]<<6|values[3]
	}
	if len(values) >= 2 {
		plain[at] = values[0]<<2 | values[1]>>4
	}
	if len(values) == 3 {
		plain[at+1] = values[1]<<4 | values[2]>>2
	}
	return plain
}

// sextetByte is byte i of sextetBytes(values).
func sextetByte(values []byte, i int) byte {
	at := i / 3 * 4
	switch i % 3 {
	case 0:
		return values[at]<<2 | values[at+1]>>4
	case 1:
		return values[at+1]<<4 | values[at+2]>>2
	}
	return values[at+2]<<6 | values[at+3]
}

// encodesLine reports whether sextetBytes(values) contains a text.
func encodesLine(values []byte) bool {
	n := len(values) * 3 / 4
	for from := 0; from+textLeast <= n; {
		i := from + textLeast - 1
		for i >= from && printable(sextetByte(values, i)) {
			i--
		}
		if i < from {
			return true
		}
		from = i + 1
	}
	return false
}

// mayBeSecret reports whether sextetBytes(values) begins as a binary key does, or is a text.
func mayBeSecret(values []byte) bool {
	n := len(values) * 3 / 4
	if n > 0 && (sextetByte(values, 0) == derSequence || sextetByte(values, 0) == 'o') {
		return true
	}
	for i := range n {
		if !printable(sextetByte(values, i)) {
			return false
		}
	}
	return true
}

func printable(c byte) bool { return c >= ' ' && c <= '~' || c == '\n' || c == '\r' || c == '\t' }

var decodeCommand = lazyregexp.New(`base64 (?:-i )?(?:-d|-D|--d)|-base64|b64decode|base64_decode|FromBase64String|Base64\.decode`)

// decodedSecret is a secret by what data[start:end] is as a whole, decoded: a binary key, a token,
// or what a command line decodes.
func decodedSecret(data []byte, start, end int, plain []byte) (h hit, ok bool) {
	switch {
	case derKey(plain, len(plain)), bytes.HasPrefix(plain, []byte("openssh-key-v1\x00")):
		h.kind = "private-key"
	case pkcs12(plain, len(plain)):
		h.kind = "key-store"
	case slices.ContainsFunc(plain, func(c byte) bool { return !printable(c) }): // the rule: it was no base64
	case commandDecodes(data, start, end, string(bytes.TrimSpace(plain))):
		h.kind = "secret"
	default:
		h.kind = bareKind(plain)
	}
	if h.kind == "" {
		return h, false
	}
	h.prose = true
	h.text = plain
	return h, true
}

// commandDecodes reports whether the line of data[start:end] decodes it, and it is a password.
func commandDecodes(data []byte, start, end int, value string) bool {
	const around = 128
	if len(value) > 64 || !strong(value) || isPlaceholder(value) || namesSecret(value) || isReference(value, true) {
		return false
	}
	before, after := data[max(start-around, 0):start], data[end:min(end+around, len(data))]
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	after, _, _ = bytes.Cut(after, []byte("\n"))
	return !commented(data, start) && (decodeCommand.Match(before) || decodeCommand.Match(after))
}
