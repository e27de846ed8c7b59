package scan

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"

	"kamino.dev/kamino/agent/disk"
)

// digest tells findings of one scan apart without telling what was found: short passwords could be guessed from a plain
// digest by whoever reads a log, so it is keyed, with a key that nobody keeps.
type digest struct{ key []byte }

func newDigest() digest {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return digest{key}
}

func (d digest) of(text []byte) string {
	mac := hmac.New(sha256.New, d.key)
	_, _ = mac.Write(text) // never fails (hash.Hash)
	return fmt.Sprintf("%d bytes, digest %s", len(text), hex.EncodeToString(mac.Sum(nil)[:4]))
}

// reader reads one file after the other.
type reader struct {
	matcher *matcher
	also    []string // Options.Also
	buf     []byte
	decoded []byte // the second buffer, made when the first encoded file comes
}

// seen is what one file gave.
type seen struct {
	bytes    int64
	findings []Finding
	skipped  []string
}

func (r *reader) file(d *disk.Disk, j job) (s seen, err error) {
	f, err := d.OpenWalked(j.name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	if swap, err := isSwap(f, r.buf); err != nil {
		return s, err
	} else if swap {
		s.findings = append(s.findings, Finding{Kind: "swap", Path: j.name})
	}
	head := &headReader{r: f}
	var hits []hit
	s.bytes, err = r.matcher.stream(head, r.buf, func(h hit) { hits = append(hits, h) })
	if err != nil {
		return s, err
	}
	quiet := packaged(j.name) && !under(j.name, r.also) || program(j.name, head.bytes())
	s.add(r.matcher, j.name, "", relevant(hits, quiet))
	if kind, why := byShape(j.name, j.info, head.bytes(), func(limit int) []byte {
		data, _ := io.ReadAll(io.NewSectionReader(f, 0, int64(limit))) // what cannot be read is taken for a key store
		return data
	}); kind != "" {
		s.findings = append(s.findings, Finding{Kind: kind, Path: j.name, Detail: why})
	}
	if e := encoded(head.bytes()); e != nil {
		r.decode(f, e, j.name, quiet, &s)
	}
	return s, nil
}

func (s *seen) add(m *matcher, name, where string, hits []hit) {
	for _, h := range hits {
		s.findings = append(s.findings, Finding{h.kind, name, h.offset, where + m.digest.of(h.text)})
	}
}

// relevant drops the prose where it counts for nothing, and where the same bytes are something better known.
func relevant(hits []hit, quiet bool) (out []hit) {
	for _, h := range hits {
		better := slices.ContainsFunc(hits, func(o hit) bool {
			return !o.prose && o.offset < h.offset+int64(len(h.text)) && h.offset < o.offset+int64(len(o.text))
		})
		if !h.prose || !quiet && !better {
			out = append(out, h)
		}
	}
	return out
}

// decode scans what an encoded file contains. A file that cannot be decoded to its end is scanned as far as it goes: what
// nobody can decode nobody can read.
func (r *reader) decode(f *os.File, e *encoding, name string, quiet bool, s *seen) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return
	}
	plain, release, err := e.open(bufio.NewReaderSize(f, 64<<10))
	if err != nil {
		return
	}
	defer release()
	if r.decoded == nil {
		r.decoded = make([]byte, chunk+overlap)
	}
	var hits []hit
	n, _ := r.matcher.stream(io.LimitReader(plain, decodedMost), r.decoded, func(h hit) { hits = append(hits, h) })
	s.add(r.matcher, name, "in its "+e.name+" text, ", relevant(hits, quiet))
	if n == decodedMost {
		s.skipped = append(s.skipped, fmt.Sprintf("what is behind the first %d MiB of the %s text of /%s", decodedMost>>20, e.name, name))
	}
}

// headReader remembers the beginning of what is read through it.
type headReader struct {
	r    io.Reader
	head [headSize]byte
	n    int
}

func (h *headReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 && h.n < headSize {
		h.n += copy(h.head[h.n:], p[:n])
	}
	return n, err
}

func (h *headReader) bytes() []byte { return h.head[:h.n] }
