package scan

import (
	"bytes"
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
	deep      bool // Options.Deep
	unpacking *sync.Mutex
	buf       []byte
	decoded   [deepest + 1][]byte // further buffers, one for each depth, made when the first encoded file comes
	memory    *scratch
}

// seen is what one file gave: of each kind as many findings as hits keeps.
type seen struct {
	bytes    int64
	findings []Finding
	count    map[string]int // of findings, by kind
	more     map[string]int // findings that are not in the list, by kind
	skipped  []string
}

func (s *seen) found(f Finding) {
	if s.count == nil {
		s.count = map[string]int{}
	}
	if s.count[f.Kind]++; s.count[f.Kind] > mostHits+1 {
		s.leave(map[string]int{f.Kind: 1})
		return
	}
	s.findings = append(s.findings, f)
}

// leave counts findings that are not kept.
func (s *seen) leave(more map[string]int) {
	if s.more == nil {
		s.more = map[string]int{}
	}
	for kind, n := range more {
		s.more[kind] += n
	}
}

func (r *reader) file(d *disk.Disk, j job) (s seen, err error) {
	f, err := d.OpenWalked(j.name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	software := Software(r.roots, j.name) && !under(j.name, r.also)
	in := &inside{reader: r, seen: &s, file: j.name, name: j.name, software: software, left: decodedMost, zips: decodedMost,
		sparse: decodedMost, told: map[string]bool{}, memory: r.memory}
	if err := r.attributes(f, in); err != nil || !j.info.Mode().IsRegular() || j.info.Size() == 0 {
		return s, err
	}
	if swap, err := isSwap(f, r.buf); err != nil {
		return s, err
	} else if swap {
		s.found(Finding{Kind: "swap", Path: j.name})
	}
	head := &headReader{r: io.NewSectionReader(f, 0, headSize)}
	if _, err := io.Copy(io.Discard, head); err != nil {
		return s, err
	}
	// What an initial file system holds is judged by its members: programs for the most part.
	members := isCPIO(head.bytes())
	// Of installed software only --deep reads what is vouched for, with its examples of passwords.
	examples := software && (r.deep || bytes.IndexByte(head.bytes(), 0) >= 0)
	all := hits{digest: r.matcher.digest, quiet: members || examples || program(j.name, head.bytes())}
	if s.bytes, err = r.matcher.data(f, r.buf, in, all.add); err != nil {
		return s, err
	}
	if !members {
		s.add(j.name, "", &all)
	}
	if kind, why := byShape(j.name, j.info.Size(), head.bytes(), func(limit int) []byte {
		data, _ := io.ReadAll(io.NewSectionReader(f, 0, int64(limit))) // what cannot be read is taken for a key store
		return data
	}); kind == "private-key" || kind == "key-store" ||
		kind != "" && !software && !(why == bareWhy && r.vouched(j.name)) { // software is full of lone digests
		s.found(Finding{Kind: kind, Path: j.name, Detail: why})
	} else if !r.deep && keyFile(j.name, j.info.Size(), head.bytes()) && !r.vouched(j.name) {
		s.found(Finding{Kind: "secret", Path: j.name, Detail: randomWhy}) // a place vouches for software, not for a key
	}
	if packed(head.bytes()) {
		defer in.alone()()
		in.scan(f, head.bytes())
		if members && len(in.told) > 0 { // not all of it was read
			s.add(j.name, "", &all)
		}
	}
	return s, nil
}

// add adds the matches in one stream of a file; where says in what.
func (s *seen) add(name, where string, c *hits) {
	for _, h := range relevant(c.list) {
		s.found(Finding{h.kind, name, h.offset, where + h.about})
	}
	s.leave(c.more)
}

// relevant drops the prose where the same bytes are something better known.
func relevant(all []match) (out []match) {
	slices.SortStableFunc(all, func(a, b match) int { return cmp.Compare(a.offset, b.offset) })
	var better []match
	var reach []int64 // how far the ones up to each reach
	for _, h := range all {
		if h.prose {
			continue
		}
		end := h.offset + int64(h.size)
		if n := len(reach); n > 0 {
			end = max(end, reach[n-1])
		}
		better, reach = append(better, h), append(reach, end)
	}
	for _, h := range all {
		n := sort.Search(len(better), func(i int) bool { return better[i].offset >= h.offset+int64(h.size) })
		if covered := n > 0 && reach[n-1] > h.offset; !h.prose || !covered {
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
