package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Span is a part of a disk, in bytes.
type Span struct{ Start, End int64 }

// Outside is the first data that was found outside of a disk's partitions.
type Outside struct {
	Device string
	Data   Span // the sector in which it is
	Gap    Span // where nothing but zeros should be
}

// wholeGap is how much of a gap is read; of a larger one the ends are, and samples of what is
// between.
const wholeGap = 256 << 20

// outside looks for data before, between and behind the partitions of a disk: what a deleted
// partition held, or what somebody wrote there, is in a snapshot as well. Partition tables and a
// boot loader in front of the first partition are none.
func outside(sys, dev, disk string) (*Outside, error) {
	gaps, err := partitionGaps(sys, disk)
	if err != nil || len(gaps) == 0 {
		return nil, err
	}
	f, err := os.Open(path.Join(dev, disk))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sector := number(sys + "/class/block/" + disk + "/queue/logical_block_size")
	for _, gap := range withoutTables(f, max(sector, 512), gaps) {
		at, err := firstData(f, gap)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if at >= 0 {
			return &Outside{f.Name(), Span{at, at + 512}, gap}, nil
		}
	}
	return nil, nil
}

// partitionGaps is what of a disk no partition has, by sysfs, which counts in 512 bytes. A disk
// without partitions has none.
func partitionGaps(sys, disk string) (gaps []Span, err error) {
	at, err := filepath.EvalSymlinks(sys + "/class/block/" + disk)
	if err != nil {
		return nil, fmt.Errorf("find partitions: %w", err)
	}
	var parts []Span
	for _, name := range names(at) {
		p := path.Join(at, name)
		if _, err := os.Stat(p + "/partition"); err == nil {
			start := number(p+"/start") << 9
			parts = append(parts, Span{start, start + number(p+"/size")<<9})
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	slices.SortFunc(parts, func(a, b Span) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	end := int64(0)
	for _, p := range append(parts, Span{number(at+"/size") << 9, 0}) {
		if p.Start > end {
			gaps = append(gaps, Span{end, p.Start})
		}
		end = max(end, p.End)
	}
	return gaps, nil
}

func number(file string) int64 {
	text, _ := os.ReadFile(file) // zero where there is none
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// withoutTables omits the master boot record, GPT's header and entries at both ends (UEFI
// specification, "GPT Header": the first and last usable LBA at 40 and 48), and GRUB's core image
// behind a boot record that is GRUB's
// (https://www.gnu.org/software/grub/manual/grub/html_node/BIOS-installation.html).
func withoutTables(r io.ReaderAt, sector int64, gaps []Span) (out []Span) {
	head := make([]byte, 512)
	_, _ = r.ReadAt(head, 0) // zeros where it cannot be read
	first, last := sector, int64(1)<<62
	gpt := make([]byte, 56)
	if _, err := r.ReadAt(gpt, sector); err == nil && string(gpt[:8]) == "EFI PART" {
		first, last = int64(binary.LittleEndian.Uint64(gpt[40:]))*sector, (int64(binary.LittleEndian.Uint64(gpt[48:]))+1)*sector
	} else if bytes.Contains(head[:446], []byte("GRUB")) {
		const block = 4096
		buf := make([]byte, block)
		for _, err := r.ReadAt(buf, first); err == nil && !blank(buf) && first < 1<<20; _, err = r.ReadAt(buf, first) {
			first += block
		}
	}
	for _, g := range gaps {
		g.Start, g.End = max(g.Start, first), min(g.End, last)
		if g.Start < g.End {
			out = append(out, g)
		}
	}
	return out
}

// firstData is the first sector of a span that has something but zeros and tables of extended
// partitions, -1 where none has.
func firstData(r io.ReaderAt, s Span) (int64, error) {
	look := []Span{s}
	if s.End-s.Start > wholeGap {
		const end, sample = 64 << 20, 1 << 20
		look = []Span{{s.Start, s.Start + end}, {s.End - end, s.End}}
		for at := s.Start + end; at < s.End-end; at += max(sample, (s.End-s.Start)/128) {
			look = append(look, Span{at, at + sample})
		}
	}
	buf := make([]byte, 1<<20)
	for _, l := range look {
		for at := l.Start; at < l.End; at += int64(len(buf)) {
			n, err := r.ReadAt(buf[:min(int64(len(buf)), l.End-at)], at)
			if err != nil && !errors.Is(err, io.EOF) {
				return -1, err
			}
			if blank(buf[:n]) {
				continue
			}
			for s := 0; s < n; s += 512 {
				if part := buf[s:min(s+512, n)]; !blank(part) && !extended(part) {
					return at + int64(s), nil
				}
			}
		}
	}
	return -1, nil
}

func blank(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// extended reports whether a sector holds nothing but the table by which one logical partition
// leads to the next: at 446, with the signature at its end.
func extended(sector []byte) bool {
	return len(sector) == 512 && sector[510] == 0x55 && sector[511] == 0xaa && blank(sector[:446])
}
