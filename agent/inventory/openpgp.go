package inventory

import (
	"bytes"
	"encoding/base64"
)

// publicKeys: OpenPGP (RFC 9580) in binary, or armored with text around it, of public keys, what
// belongs to them, and nothing else.
func publicKeys(_ *look, _ string, data []byte) bool {
	begin, end := []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----"), []byte("-----END PGP PUBLIC KEY BLOCK-----")
	if !bytes.Contains(data, begin) {
		return packets(data)
	}
	if bytes.Contains(data, []byte("PRIVATE KEY")) {
		return false
	}
	for {
		_, rest, more := bytes.Cut(data, begin)
		if !more {
			return true
		}
		body, rest, closed := bytes.Cut(rest, end)
		if !closed || !armored(body) {
			return false
		}
		data = rest
	}
}

// armored decodes RFC 9580, section 6.2: headers to an empty line, base64, and a checksum in a line
// that begins with "=".
func armored(body []byte) bool {
	body = bytes.ReplaceAll(body, []byte("\r"), nil)
	if _, text, headers := bytes.Cut(body, []byte("\n\n")); headers {
		body = text
	}
	var text []byte
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("=")) {
			text = append(text, line...)
		}
	}
	binary, err := base64.StdEncoding.DecodeString(string(text))
	return err == nil && packets(binary)
}

// packets reads the headers of RFC 9580, section 4.2, and wants public keys and subkeys, user IDs
// and attributes, signatures, trust, marker and padding, to the last byte, a key first.
func packets(data []byte) bool {
	const signature, publicKey, marker, trust, userID, publicSubkey, userAttribute, padding = 2, 6, 10, 12, 13, 14, 17, 21
	for first := true; len(data) > 0; first = false {
		tag, length, header := packet(data)
		switch tag {
		case publicKey:
		case signature, marker, trust, userID, publicSubkey, userAttribute, padding:
			if first {
				return false
			}
		default:
			return false
		}
		if header == 0 || length < 0 || length > len(data)-header {
			return false
		}
		data = data[header+length:]
	}
	return true
}

// packet is a packet's type, the length of its body, and that of its header; 0 where there is none,
// or one of a form that keys do not have (partial and indeterminate lengths).
func packet(data []byte) (tag, length, header int) {
	if len(data) < 2 || data[0]&0x80 == 0 {
		return 0, 0, 0
	}
	bytesOf := func(from, n int) int {
		if len(data) < from+n {
			return -1
		}
		value := 0
		for _, b := range data[from : from+n] {
			value = value<<8 | int(b)
		}
		return value
	}
	if data[0]&0x40 == 0 { // the former format
		const indeterminate = 3
		kind := data[0] & 3
		if kind == indeterminate {
			return 0, 0, 0
		}
		size := 1 << kind
		return int(data[0]>>2) & 0xf, bytesOf(1, size), 1 + size
	}
	tag = int(data[0] & 0x3f)
	switch one := int(data[1]); {
	case one < 192:
		return tag, one, 2
	case one < 224:
		return tag, bytesOf(1, 2) - 192<<8 + 192, 3
	case one == 255:
		return tag, bytesOf(2, 4), 6
	}
	return 0, 0, 0
}
