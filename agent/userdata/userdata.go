// Package userdata reads user data: the whole of EC2's as cloud-init does, and the NodeConfig that configures a
// node. The agent and the provider that makes a canary's user data read by the same functions.
package userdata

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/internal/lazyregexp"
)

// Media types of the parts of EC2's user data that configure a node: ours, and that of EKS's
// nodeadm. cloud-init skips types that it does not know
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
const (
	NodeConfigType = "application/node.kamino.dev"
	NodeadmType    = "application/node.eks.aws"
	// CanaryType is of the part that a canary's user data has besides its pool's, where that is for
	// this agent.
	CanaryType = "application/canary.kamino.dev"
)

// NonceComment begins the line with the order that made a machine a canary, in a part of type
// CanaryType or NodeadmType.
const NonceComment = "# kamino-canary-nonce: "

// unpackedMost bounds what is unpacked; EC2's limit is 16 KB, packed.
const unpackedMost = 1 << 20

// guessed are types whose parts cloud-init judges by their content (TYPE_NEEDED and DECOMP_TYPES of
// its user_data.py).
var guessed = []string{"text/plain", "text/x-not-multipart", "application/octet-stream", "application/gzip", "application/gzip-compressed",
	"application/gzipped", "application/x-compress", "application/x-compressed", "application/x-gunzip", "application/x-gzip",
	"application/x-gzip-compressed"}

// Data is EC2's user data.
type Data struct {
	text  []byte // unpacked, from its first line on
	mime  bool   // text is a MIME message, not one document
	parts []part
}

type part struct {
	kind string // media type; empty: the content decides
	data []byte
	err  error // why data is not what the part's author wrote
}

// Read takes user data apart: a MIME message, or one document. The whole may be in base64 or gzip; so
// may parts of ours and of nodeadm's (amazon-eks-ami 81fec2e, nodeadm/internal/configprovider). A part
// that belongs to another program is never an error.
func Read(raw []byte) (Data, error) {
	raw, err := Unpacked(raw)
	if err != nil {
		return Data{}, fmt.Errorf("decode user data: %w", err)
	}
	if raw = trimmed(raw); len(raw) == 0 {
		return Data{}, nil
	}
	lines := slices.Collect(splitLines(raw))
	head, _ := readHeaders(lines)
	if kind := head.kind(); head["mime-version"] == "" && !strings.HasPrefix(kind, "multipart/") {
		document := part{data: raw}
		if displaced.Match(raw) && !theirs.Match(raw) && apiVersion(raw) == "" {
			document.kind, document.err = "message", errors.New("its headers are indented, or do not begin in the first line")
		}
		return Data{raw, false, []part{document}}, nil
	}
	return Data{raw, true, readMIME(lines, 0)}, nil
}

// displaced finds headers of a message whose first line is another: neither cloud-init nor the agent
// take that for one.
var displaced = lazyregexp.New(`(?mi)^[ \t]*content-type:[ \t]*(multipart/|application/node\.kamino\.dev)`)

// With is the user data with one part more. A message becomes a part of another, as it is.
func (d Data) With(kind, body string) []byte {
	text := string(d.text)
	if !d.mime {
		text = "Content-Type: " + NodeConfigType + "\n\n" + text
	}
	boundary := fmt.Sprintf("kamino-%x", sha256.Sum256(d.text)) // the same each time: EC2's client token demands that
	return fmt.Appendf(nil, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"%[1]s\"\n\n--%[1]s\n%[2]s\n--%[1]s\nContent-Type: %[3]s\n\n%[4]s\n--%[1]s--\n",
		boundary, text, kind, body)
}

// trimmed drops a byte order mark and blank lines before the first line.
func trimmed(raw []byte) []byte {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	for {
		line, rest, found := bytes.Cut(raw, []byte("\n"))
		if len(bytes.TrimSpace(line)) > 0 {
			return raw
		}
		if !found {
			return nil
		}
		raw = rest
	}
}

// headers are those of a message or part, by names in lower case; of a repeated one the first.
type headers map[string]string

// headerLine is what Python's email package, with which cloud-init reads user data, takes for a
// header: the first other line begins the body, whether or not it is blank (CPython's
// email/feedparser.py).
var headerLine = lazyregexp.New(`^(From |[!-9;-~]*:|[\t ])`)

// partHeader is a header that a part has (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
var partHeader = lazyregexp.New(`(?i)^([\t ]|From |content-|mime-|x-|merge-type:|launch-index:)`)

// readHeaders reads the headers, and returns the lines of the body. In a part of ours whose blank
// line is missing, whatever a part has no header for begins the document: a field of it must not be
// lost.
func readHeaders(lines [][]byte) (headers, [][]byte) {
	all, last := headers{}, ""
	for i, line := range lines {
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case text == "":
			return all, lines[i+1:]
		case !headerLine.MatchString(text), all.kind() == NodeConfigType && !partHeader.MatchString(text):
			return all, lines[i:]
		case text[0] == ' ' || text[0] == '\t':
			if last != "" {
				all[last] += " " + strings.TrimSpace(text)
			}
			continue
		}
		name, value, _ := strings.Cut(text, ":")
		name = strings.ToLower(name)
		if last = ""; all[name] == "" {
			all[name], last = strings.TrimSpace(value), name
		}
	}
	return all, nil
}

// kind is the media type; text/plain where there is none that could be one.
func (h headers) kind() string {
	kind, _, _ := strings.Cut(h["content-type"], ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); strings.Count(kind, "/") != 1 {
		return "text/plain"
	}
	return kind
}

// boundary is that of a multipart, quoted or not; characters that RFC 2045 wants quoted are taken
// without quotes, too, as Python does.
func (h headers) boundary() string {
	var field strings.Builder
	quoted, escaped := false, false
	fields := []string{}
	for _, c := range h["content-type"] {
		switch {
		case escaped:
			escaped = false
		case c == '\\' && quoted:
			escaped = true
			continue
		case c == '"':
			quoted = !quoted
			continue
		case c == ';' && !quoted:
			fields = append(fields, field.String())
			field.Reset()
			continue
		}
		field.WriteRune(c)
	}
	for _, f := range append(fields, field.String()) {
		if name, value, _ := strings.Cut(f, "="); strings.EqualFold(strings.TrimSpace(name), "boundary") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// deepest is how far multiparts may be nested.
const deepest = 8

// readMIME reads a message or part as Python does: a multipart may end without its last boundary,
// and may be a part itself.
func readMIME(lines [][]byte, depth int) []part {
	head, body := readHeaders(lines)
	kind := head.kind()
	if depth < deepest && strings.HasPrefix(kind, "message/") {
		return readMIME(body, depth+1)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return []part{leaf(head, body)}
	}
	boundary := "--" + head.boundary()
	var all []part
	begun, from := false, 0
	take := func(to int) {
		if begun && to > from {
			all = append(all, readMIME(body[from:to], depth+1)...)
		}
	}
	for i, line := range body {
		rest, is := strings.CutPrefix(string(line), boundary)
		rest = strings.TrimRight(rest, " \t\r\n")
		if !is || boundary == "--" || depth >= deepest || rest != "" && rest != "--" {
			continue
		}
		if rest == "--" && !(begun && from == i) { // directly behind another boundary it is one more
			body = body[:i]
			break
		}
		take(i)
		begun, from = true, i+1
	}
	if !begun {
		return []part{{kind: kind, data: joined(body), err: errors.New("it has no line with the boundary that its Content-Type names")}}
	}
	take(len(body))
	return all
}

// joined are the lines without the last line break, which belongs to the boundary after it.
func joined(lines [][]byte) []byte {
	data := bytes.TrimSuffix(bytes.Join(lines, nil), []byte("\n"))
	return bytes.TrimSuffix(data, []byte("\r"))
}

// splitLines are the lines with their ends: \n, \r\n or \r.
func splitLines(data []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			end := bytes.IndexAny(data, "\r\n")
			switch {
			case end < 0:
				end = len(data)
			case data[end] == '\r' && end+1 < len(data) && data[end+1] == '\n':
				end += 2
			default:
				end++
			}
			if !yield(data[:end:end]) {
				return
			}
			data = data[end:]
		}
	}
}

// leaf decodes a part. What it is decides whether an error matters.
func leaf(head headers, body [][]byte) part {
	p := part{kind: head.kind(), data: joined(body)}
	if slices.Contains(guessed, p.kind) {
		p.kind = ""
	}
	switch coding := strings.ToLower(head["content-transfer-encoding"]); coding {
	case "quoted-printable":
		p.data, p.err = io.ReadAll(quotedprintable.NewReader(bytes.NewReader(p.data)))
	case "base64":
		if _, p.err = base64.StdEncoding.DecodeString(packed(p.data)); p.err != nil {
			return p
		}
	}
	if p.err == nil && (p.kind == "" || p.kind == NodeConfigType || p.kind == NodeadmType ||
		strings.EqualFold(head["content-transfer-encoding"], "base64")) {
		p.data, p.err = Unpacked(p.data)
	}
	return p
}

// packed is base64 without its line breaks.
func packed(data []byte) string { return strings.Join(strings.Fields(string(data)), "") }

// Unpacked undoes base64 and gzip where they are.
func Unpacked(data []byte) ([]byte, error) {
	if plain, err := base64.StdEncoding.DecodeString(packed(data)); err == nil {
		data = plain
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, unpackedMost+1))
	if err == nil && len(plain) > unpackedMost {
		err = fmt.Errorf("more than %d bytes when unpacked", unpackedMost)
	}
	return plain, err
}

// ours begins a NodeConfig of ours that is not YAML any more, by a mistake in it.
var ours = lazyregexp.New(`(?m)^["']?apiVersion["']?:[ \t]*["']?kamino\.dev/`)

// theirs begin what cloud-init takes for its own
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
var theirs = lazyregexp.New(`^(#!|#cloud-|#include|#part-handler|#upstart-job|## template:)`)

// isOurs reports whether a document is a NodeConfig of ours, in YAML or JSON. One of cloud-init's
// may write such a file.
func isOurs(data []byte) bool {
	if theirs.Match(trimmed(data)) {
		return false
	}
	if version := apiVersion(data); version != "" {
		return strings.HasPrefix(version, "kamino.dev/")
	}
	return ours.Match(data)
}

// apiVersion is that of a document; empty where it is not YAML or has none.
func apiVersion(data []byte) string {
	var document struct {
		APIVersion string `yaml:"apiVersion"`
	}
	_ = yaml.Unmarshal(data, &document) // what is not YAML has none
	return document.APIVersion
}

// NodeConfig is the part of type NodeConfigType, or a part without a type of its own, or the whole,
// where that is a NodeConfig of ours; nil when there is none. Two are an error: nobody knows which
// was meant.
func (d Data) NodeConfig() (found []byte, err error) {
	var damaged error
	for i, p := range d.parts {
		typed := p.kind == NodeConfigType
		switch {
		case typed && p.err != nil:
			return nil, fmt.Errorf("decode user data: MIME part %d, of type %s: %w", i+1, p.kind, p.err)
		case p.err != nil && bytes.Contains(p.data, []byte("kamino.dev/")):
			damaged = fmt.Errorf("decode user data: MIME %s: %w", p.kind, p.err)
			continue
		case !typed && (p.kind != "" || p.err != nil || !isOurs(p.data)):
			continue
		case found != nil:
			return nil, fmt.Errorf("decode user data: MIME: two parts are of type %s", NodeConfigType)
		}
		found = p.data
	}
	if found == nil {
		return nil, damaged
	}
	return found, nil
}

var canaryNonce = lazyregexp.New(`(?m)^` + NonceComment + `([0-9a-f]{16,128})$`)

// Nonce is the order that made this machine a canary; empty for others.
func (d Data) Nonce() string {
	for _, p := range d.parts {
		if found := canaryNonce.FindSubmatch(p.data); found != nil && (p.kind == NodeadmType || p.kind == CanaryType) {
			return string(found[1])
		}
	}
	return ""
}
