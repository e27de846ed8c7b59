package scan

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// digest tells findings of one scan apart without telling what was found: short passwords could be
// guessed from a plain digest by whoever reads a log, so it is keyed, with a key that nobody keeps.
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
	matcher   *matcher
	roots     roots.Roots
	also      []string // Options.Also
	vouched   func(name string) bool
	unpacking *sync.Mutex
	buf       []byte
	decoded   [deepest + 1][]byte // further buffers, one for each depth, made when the first encoded file comes
	memory    *scratch
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
	software := Software(r.roots, j.name) && !under(j.name, r.also)
	in := &inside{reader: r, seen: &s, file: j.name, name: j.name, software: software, left: decodedMost, zips: decodedMost, sparse: decodedMost, told: map[string]bool{}, memory: r.memory}
	if err := r.attributes(f, in); err != nil || !j.info.Mode().IsRegular() || j.info.Size() == 0 {
		return s, err
	}
	if swap, err := isSwap(f, r.buf); err != nil {
		return s, err
	} else if swap {
		s.findings = append(s.findings, Finding{Kind: "swap", Path: j.name})
	}
	head := &headReader{r: io.NewSectionReader(f, 0, headSize)}
	if _, err := io.Copy(io.Discard, head); err != nil {
		return s, err
	}
	var hits []hit
	s.bytes, err = r.matcher.data(f, r.buf, in, func(h hit) { hits = append(hits, h) })
	if err != nil {
		return s, err
	}
	// What an initial file system holds is judged by its members: programs for the most part.
	members := isCPIO(head.bytes())
	if !members {
		s.add(r.matcher, j.name, "", relevant(hits, software || program(j.name, head.bytes())))
	}
	if kind, why := byShape(j.name, j.info, head.bytes(), func(limit int) []byte {
		data, _ := io.ReadAll(io.NewSectionReader(f, 0, int64(limit))) // what cannot be read is taken for a key store
		return data
	}); kind == "private-key" || kind == "key-store" || kind != "" && !software && !(why == bareWhy && r.vouched(j.name)) { // software is full of lone digests
		s.findings = append(s.findings, Finding{Kind: kind, Path: j.name, Detail: why})
	}
	if packed(head.bytes()) {
		defer in.alone()()
		in.scan(f, head.bytes())
		if members && len(in.told) > 0 { // not all of it was read
			s.add(r.matcher, j.name, "", relevant(hits, true))
		}
	}
	return s, nil
}

func (s *seen) add(m *matcher, name, where string, hits []hit) {
	for _, h := range hits {
		s.findings = append(s.findings, Finding{h.kind, name, h.offset, where + h.where + m.digest.of(h.text)})
	}
}

// relevant drops the prose where it counts for nothing, and where the same bytes are something
// better known.
func relevant(hits []hit, quiet bool) (out []hit) {
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.offset, b.offset) })
	var better []hit
	var reach []int64 // how far the ones up to each reach
	for _, h := range hits {
		if h.prose {
			continue
		}
		end := h.offset + int64(len(h.text))
		if n := len(reach); n > 0 {
			end = max(end, reach[n-1])
		}
		better, reach = append(better, h), append(reach, end)
	}
	for _, h := range hits {
		n := sort.Search(len(better), func(i int) bool { return better[i].offset >= h.offset+int64(len(h.text)) })
		if covered := n > 0 && reach[n-1] > h.offset; !h.prose || !quiet && !covered {
			out = append(out, h)
		}
	}
	return out
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
