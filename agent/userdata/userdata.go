package platform

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Media types of the parts of EC2's user data that configure a node: ours, and that of EKS's
// nodeadm. cloud-init skips types that it does not know
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
const (
	NodeConfigType = "application/node.kamino.dev"
	nodeadmType    = "application/node.eks.aws"
	// canaryType is of the part that a canary's user data has besides its pool's, where that is for
	// this agent.
	canaryType = "application/canary.kamino.dev"
)

// guessed are types whose parts cloud-init judges by their content (TYPE_NEEDED and DECOMP_TYPES of
// its user_data.py).
var guessed = []string{"text/plain", "text/x-not-multipart", "application/octet-stream", "application/gzip", "application/gzip-compressed",
	"application/gzipped", "application/x-compress", "application/x-compressed", "application/x-gunzip", "application/x-gzip", "application/x-gzip-compressed"}

// UserData are the parts of EC2's user data.
type UserData []userPart

type userPart struct {
	kind string // media type; empty: the content decides
	data []byte
	err  error // why data is not what the part's author wrote
}

// ReadUserData takes user data apart: a MIME message, or one document. The whole may be in base64
// or gzip; so may parts of ours and of nodeadm's (amazon-eks-ami 81fec2e,
// nodeadm/internal/configprovider). A part that belongs to another program is never an error.
func ReadUserData(raw []byte) (UserData, error) {
	raw, err := unpacked(raw)
	if err != nil {
		return nil, fmt.Errorf("decode user data: %w", err)
	}
	if raw = trimmed(raw); len(raw) == 0 {
		return nil, nil
	}
	lines := slices.Collect(splitLines(raw))
	head, _ := readHeaders(lines)
	if kind := head.kind(); head["mime-version"] == "" && !strings.HasPrefix(kind, "multipart/") {
		return UserData{{data: raw}}, nil
	}
	return readMIME(lines, 0), nil
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
var headerLine = regexp.MustCompile(`^(From |[!-9;-~]*:|[\t ])`)

// documentField is a field of a NodeConfig, which such a line looks like as well.
var documentField = regexp.MustCompile(`^(apiVersion|kind|generation|cluster|join|kubelet|containerd):`)

// readHeaders reads the headers, and returns the lines of the body. In a part of ours whose blank
// line is missing, the document's own first field begins the body.
func readHeaders(lines [][]byte) (headers, [][]byte) {
	all, last := headers{}, ""
	for i, line := range lines {
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case text == "":
			return all, lines[i+1:]
		case !headerLine.MatchString(text), all.kind() == NodeConfigType && documentField.MatchString(text):
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
func readMIME(lines [][]byte, depth int) UserData {
	head, body := readHeaders(lines)
	kind := head.kind()
	if depth < deepest && strings.HasPrefix(kind, "message/") {
		return readMIME(body, depth+1)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return UserData{leaf(head, body)}
	}
	boundary := "--" + head.boundary()
	var all UserData
	begun, from := false, 0
	part := func(to int) {
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
		part(i)
		begun, from = true, i+1
	}
	if !begun {
		return UserData{{kind: kind, data: joined(body), err: errors.New("it has no line with the boundary that its Content-Type names")}}
	}
	part(len(body))
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
func leaf(head headers, body [][]byte) userPart {
	p := userPart{kind: head.kind(), data: joined(body)}
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
	if p.err == nil && (p.kind == "" || p.kind == NodeConfigType || p.kind == nodeadmType || strings.EqualFold(head["content-transfer-encoding"], "base64")) {
		p.data, p.err = unpacked(p.data)
	}
	return p
}

// packed is base64 without its line breaks.
func packed(data []byte) string { return strings.Join(strings.Fields(string(data)), "") }

// unpacked undoes base64 and gzip where they are.
func unpacked(data []byte) ([]byte, error) {
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
	plain, err := io.ReadAll(io.LimitReader(r, metadataMost+1))
	if err == nil && len(plain) > metadataMost {
		err = fmt.Errorf("more than %d bytes when unpacked", metadataMost)
	}
	return plain, err
}

// ours begins a NodeConfig of ours that is not YAML any more, by a mistake in it.
var ours = regexp.MustCompile(`(?m)^["']?apiVersion["']?:[ \t]*["']?kamino\.dev/`)

// theirs begin what cloud-init takes for its own
// (https://cloudinit.readthedocs.io/en/latest/explanation/format.html).
var theirs = regexp.MustCompile(`^(#!|#cloud-|#include|#part-handler|#upstart-job|## template:)`)

// isOurs reports whether a document is a NodeConfig of ours, in YAML or JSON. One of cloud-init's
// may write such a file.
func isOurs(data []byte) bool {
	if theirs.Match(trimmed(data)) {
		return false
	}
	var document struct {
		APIVersion string `yaml:"apiVersion"`
	}
	if yaml.Unmarshal(data, &document) == nil {
		return strings.HasPrefix(document.APIVersion, "kamino.dev/")
	}
	return ours.Match(data)
}

// NodeConfig is the part of type NodeConfigType, or a part without a type of its own, or the whole,
// where that is a NodeConfig of ours; nil when there is none. Two are an error: nobody knows which
// was meant.
func (u UserData) NodeConfig() (found []byte, err error) {
	var damaged error
	for i, p := range u {
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

// canaryNonce is a comment in the part, for nodeadm or for this agent, that a canary's user data
// has besides its pool's; aws/userdata.go writes it.
var canaryNonce = regexp.MustCompile(`(?m)^# kamino-canary-nonce: ([0-9a-f]{16,128})$`)

// Nonce is the order that made this machine a canary; empty for others.
func (u UserData) Nonce() string {
	for _, p := range u {
		if found := canaryNonce.FindSubmatch(p.data); found != nil && (p.kind == nodeadmType || p.kind == canaryType) {
			return string(found[1])
		}
	}
	return ""
}
