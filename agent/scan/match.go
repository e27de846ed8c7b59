package scan

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// needle is a literal that starts a match; check decides about what stands there and returns the
// whole match.
type needle struct {
	kind  string
	text  []byte
	check func(data []byte, at int) []byte
	prose bool
}

// matcher finds many literals in one pass: the four bytes at each position are looked up in a bit
// table, which lets almost all of a disk pass at about a nanosecond per byte.
type matcher struct {
	bits    [1 << 13]uint64
	needles map[uint32][]needle
	digest  digest
	// block, of a device, is where files may begin: what comes before is another file's. 0: none.
	block int64
}

func newMatcher(facts Facts) (*matcher, []string) {
	m := &matcher{needles: map[uint32][]needle{}, digest: newDigest()}
	for _, p := range slices.Concat(patterns, issued, remembering) {
		for _, a := range p.anchors {
			m.add(needle{p.kind, []byte(a), p.check, p.prose})
		}
	}
	own, skipped := factNeedles(facts)
	for _, n := range own {
		m.add(n)
	}
	return m, skipped
}

func (m *matcher) add(n needle) {
	key := binary.LittleEndian.Uint32(n.text)
	h := hash(key)
	m.bits[h>>6] |= 1 << (h & 63)
	m.needles[key] = append(m.needles[key], n)
}

func hash(key uint32) uint32 { return key * 2654435761 >> 13 }

// search reports the matches that start in data[from:until], with their offsets in data, which
// begins at base.
func (m *matcher) search(data []byte, from, until int, base int64, report func(hit)) {
	until = min(until, len(data)-3)
	for i := from; i < until; i++ {
		key := binary.LittleEndian.Uint32(data[i:])
		h := hash(key)
		if m.bits[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		for _, n := range m.needles[key] {
			if !bytes.HasPrefix(data[i:], n.text) {
				continue
			}
			text := n.text
			if n.check != nil {
				text = n.check(data, i)
				if text == nil && m.block != 0 && (base+int64(i))%m.block == 0 {
					text = n.check(data[i:], 0)
				}
				if text == nil {
					continue
				}
			}
			report(hit{kind: n.kind, offset: int64(i), text: text, prose: n.prose})
		}
	}
}

// newNameMatcher finds the donor's facts only: names of files are no place for anything else.
func newNameMatcher(facts Facts) *matcher {
	m := &matcher{needles: map[uint32][]needle{}, digest: newDigest()}
	own, _ := factNeedles(facts)
	for _, n := range own {
		m.add(n)
	}
	return m
}
