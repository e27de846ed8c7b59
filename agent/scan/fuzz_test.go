package scan

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// FuzzPatterns: whatever stands in a file, a match is a part of it, where it says.
func FuzzPatterns(f *testing.F) {
	for _, text := range append(secrets(), harmless...) {
		f.Add([]byte(text))
	}
	m, _ := newMatcher(Facts{Host: "donor-host-1", Addresses: []string{"10.0.0.7", "fd00::17"}, MACs: []string{"00:0d:3a:11:22:33"}})
	f.Fuzz(func(t *testing.T, data []byte) {
		m.search(data, 0, len(data), 0, func(h hit) {
			if end := int(h.offset) + len(h.text); len(h.text) == 0 || end > len(data) || !bytes.Equal(data[h.offset:end], h.text) {
				t.Errorf("%s of %d bytes at %d is not in %q", h.kind, len(h.text), h.offset, data)
			}
		})
	})
}

// FuzzShape: the parsers of binary formats take any bytes, and any size that a file of them may
// claim.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{"30820400020100300d06092a864886f70d010101050004", "3080020103308006092a864886f70d010701", "feedfeed0000000200000001000000020001610000000000000000",
		"30770201010420", "3056301006072a8648ce3d0201", "30848000000002"} {
		data, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 1024)
	}
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		rest := func(int) []byte { return data }
		_ = derKey(data, size) || pkcs12(data, size) || javaStore(data, size, rest) || keyByName("a.key", data) || randomBytes(data) || secretList("etc/chrony.keys", data)
		if onlyCertificates(data) && len(data) < 32 {
			t.Errorf("%x is no key store", data)
		}
	})
}

// FuzzDecode: no encoded file breaks or blocks the scan, and none gives more than the bound.
func FuzzDecode(f *testing.F) {
	for _, data := range encodings(f, "password = Pa55w0rd1234\n") {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e := encoded(data)
		if e == nil {
			return
		}
		plain, release, err := e.open(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return
		}
		defer release()
		const most = 1 << 20
		if n, _ := io.Copy(io.Discard, io.LimitReader(plain, most)); n > most {
			t.Errorf("%s: %d bytes", e.name, n)
		}
	})
}

// encodings are a text in every encoding that is decoded.
func encodings(t testing.TB, text string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	write := func(name string, open func(io.Writer) (io.WriteCloser, error)) {
		var b bytes.Buffer
		w, err := open(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		out[name] = b.Bytes()
	}
	write("gzip", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
	write("xz", func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) })
	write("zstd", func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) })
	for name, order := range map[string][2]int{"UTF-16LE": {0, 1}, "UTF-16BE": {1, 0}} {
		wide := make([]byte, 2*len(text))
		for i := range len(text) {
			wide[2*i+order[0]] = text[i]
		}
		out[name] = wide
		mark := []byte{0xff, 0xfe}
		if order[0] == 1 {
			mark = []byte{0xfe, 0xff}
		}
		out[name+" with a mark"] = append(mark, wide...)
	}
	return out
}
