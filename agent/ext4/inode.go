package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
)

// Inode flags and types (inodes.rst).
const (
	flagIndex      = 0x1000
	flagExtents    = 0x80000
	flagInlineData = 0x10000000
	typeMask       = 0xF000
	typeDirectory  = 0x4000
	typeRegular    = 0x8000
	typeLink       = 0xA000
	firstUserInode = 11
)

type extent struct {
	logical, physical, length uint64
	unwritten                 bool
}

// used cleans what belongs to a living file.
func (v *fs) used(number uint32, inode []byte) error {
	mode, flags := le.Uint16(inode), le.Uint32(inode[0x20:])
	size := uint64(le.Uint32(inode[4:]))
	kind := mode & typeMask
	if kind == typeRegular || kind == typeDirectory {
		size |= uint64(le.Uint32(inode[0x6C:])) << 32
	}
	if number == v.journal {
		return v.scrubJournal(inode)
	}
	if number < firstUserInode && number != 2 || flags&flagInlineData != 0 || size == 0 && kind != typeRegular {
		return nil
	}
	if flags&flagExtents == 0 {
		// Short links are in the inode itself; everything else here is a file of an ext3 that was converted.
		if kind == typeRegular && size > 0 {
			v.result.Unmapped++
		}
		return nil
	}
	extents, err := v.extents(inode[0x28:0x64], 0)
	if err != nil {
		return err
	}
	if kind == typeDirectory {
		for _, e := range extents {
			for i := range e.length {
				if err := v.directoryBlock(number, inode, e.physical+i, flags&flagIndex != 0 && e.logical+i == 0); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if kind != typeRegular && kind != typeLink {
		return nil
	}
	return v.tail(extents, size)
}

// tail zeroes behind the file's end, and what was allocated and never written.
func (v *fs) tail(extents []extent, size uint64) error {
	for _, e := range extents {
		for i := range e.length {
			at := (e.logical + i) * v.block
			if e.unwritten || at >= size {
				if err := v.clear(e.physical+i, &v.result.FreeBlocks); err != nil {
					return err
				}
				continue
			}
			if at+v.block <= size {
				continue
			}
			data, err := v.read(e.physical + i)
			if err != nil {
				return err
			}
			rest := data[size-at:]
			if bytes.Equal(rest, v.zero[:len(rest)]) {
				continue
			}
			v.result.SlackBytes += int64(len(rest))
			if _, err := v.f.WriteAt(v.zero[:len(rest)], int64((e.physical+i)*v.block+size-at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// extents walks an extent tree (dynamic.rst, "Extent Tree").
func (v *fs) extents(node []byte, level int) ([]extent, error) {
	if le.Uint16(node) != 0xF30A || level > 5 {
		return nil, errors.New("broken extent tree")
	}
	entries, depth := int(le.Uint16(node[2:])), le.Uint16(node[6:])
	if 12+12*entries > len(node) {
		return nil, errors.New("broken extent tree")
	}
	var out []extent
	for i := range entries {
		e := node[12+12*i:]
		if depth == 0 {
			x := extent{logical: uint64(le.Uint32(e)), length: uint64(le.Uint16(e[4:])), physical: uint64(le.Uint16(e[6:]))<<32 | uint64(le.Uint32(e[8:]))}
			if x.length > 32768 {
				x.length, x.unwritten = x.length-32768, true
			}
			if x.physical+x.length > v.blocks {
				return nil, fmt.Errorf("extent beyond the end of the file system at block %d", x.physical)
			}
			out = append(out, x)
			continue
		}
		child, err := v.read(uint64(le.Uint16(e[8:]))<<32 | uint64(le.Uint32(e[4:])))
		if err != nil {
			return nil, err
		}
		below, err := v.extents(child, level+1)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

// scrubJournal zeroes all but the journal's superblock. A journal that holds transactions was refused before (Scrub);
// s_start says the same and is checked again.
func (v *fs) scrubJournal(inode []byte) error {
	if le.Uint32(inode[0x20:])&flagExtents == 0 {
		return errors.New("journal is not mapped by extents")
	}
	extents, err := v.extents(inode[0x28:0x64], 0)
	if err != nil {
		return err
	}
	for _, e := range extents {
		for i := range e.length {
			if e.logical+i != 0 {
				if err := v.clear(e.physical+i, &v.result.JournalBlocks); err != nil {
					return err
				}
				continue
			}
			super, err := v.read(e.physical)
			if err != nil {
				return err
			}
			// JBD2 is big-endian: magic 0xC03B3998, s_start at 0x1C (journal.rst).
			if !bytes.Equal(super[:4], []byte{0xC0, 0x3B, 0x39, 0x98}) || !bytes.Equal(super[0x1C:0x20], []byte{0, 0, 0, 0}) {
				return errors.New("journal is not empty: run e2fsck -p first")
			}
		}
	}
	return nil
}

// directoryBlock zeroes the names that deleted entries left behind living ones (directory.rst, "Linear Directories").
func (v *fs) directoryBlock(number uint32, inode []byte, block uint64, indexRoot bool) error {
	data, err := v.read(block)
	if err != nil || indexRoot {
		return err
	}
	end := len(data)
	if v.csum {
		end -= 12
	}
	if le.Uint32(data) == 0 && int(le.Uint16(data[4:])) == len(data) {
		return nil // inner node of a hash tree, which looks like one empty entry
	}
	cleaned := int64(0)
	for at := 0; at < end; {
		length := int(le.Uint16(data[at+4:]))
		if length < 8 || at+length > len(data) {
			return fmt.Errorf("directory block %d is broken at byte %d", block, at)
		}
		keep := 8
		if le.Uint32(data[at:]) != 0 {
			keep += int(data[at+6])
		}
		for i := at + keep; i < at+length && i < end; i++ {
			if data[i] != 0 {
				data[i] = 0
				cleaned++
			}
		}
		at += length
	}
	if cleaned == 0 {
		return nil
	}
	v.result.DirectoryBytes += cleaned
	if v.csum {
		le.PutUint32(data[len(data)-4:], v.directoryChecksum(number, inode, data[:end]))
	}
	_, err = v.f.WriteAt(data, int64(block*v.block))
	return err
}

// directoryChecksum is crc32c over the file system's seed, the inode's number and generation, and the entries
// (checksums.rst).
func (v *fs) directoryChecksum(number uint32, inode, entries []byte) uint32 {
	var id [4]byte
	le.PutUint32(id[:], number)
	sum := crc(v.seed, id[:])
	sum = crc(sum, inode[0x64:0x68])
	return crc(sum, entries)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc continues a crc32c as the kernel does: without inverting before and after.
func crc(sum uint32, data []byte) uint32 { return ^crc32.Update(^sum, castagnoli, data) }
