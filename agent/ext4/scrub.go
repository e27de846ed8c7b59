// Package ext4 zeroes what an unmounted ext4 file system no longer uses: free blocks, blocks that are allocated but not
// written, the rest of each file's last block, deleted directory entries, deleted inodes, and the old transactions of the
// journal. Filling a mounted file system with a zero file reaches only the first of these.
//
// The layout is that of https://docs.kernel.org/filesystems/ext4/. Blocks that are zero already are not written, so a
// sparse image stays sparse.
package ext4

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Result counts what was not zero before.
type Result struct {
	FreeBlocks, JournalBlocks, Inodes int64
	SlackBytes, DirectoryBytes        int64
	Unmapped                          int64 // files in the old block map format, whose last block was left alone
}

var le = binary.LittleEndian

// Features that this package understands; with any other incompatible one it refuses (superblock.rst, "Feature flags").
const (
	incompatFileType  = 0x2
	incompatRecover   = 0x4
	incompatExtents   = 0x40
	incompat64bit     = 0x80
	incompatFlexGroup = 0x200
	incompatCsumSeed  = 0x2000
	incompatLargeDir  = 0x4000
	incompatKnown     = incompatFileType | incompatExtents | incompat64bit | incompatFlexGroup | incompatCsumSeed | incompatLargeDir
	roSparseSuper     = 0x1
	roMetadataCsum    = 0x400
	roBigalloc        = 0x200
)

type fs struct {
	f                                *os.File
	block, blocks, first             uint64
	perGroup, inodesPerGroup, inodes uint32
	inodeSize                        uint32
	journal                          uint32
	groups                           []group
	csum                             bool
	seed                             uint32
	sparse                           bool
	gdtBlocks                        uint64
	zero                             []byte
	result                           Result
}

type group struct {
	blockBitmap, inodeBitmap, inodeTable uint64
	flags                                uint16
}

// Scrub zeroes what is unused in the ext4 file system on device, which must not be mounted.
func Scrub(ctx context.Context, device string) (Result, error) {
	// O_EXCL on a block device fails while it is mounted (open(2)); on a file it is ignored without O_CREAT.
	f, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		return Result{}, fmt.Errorf("open device (is it mounted?): %w", err)
	}
	defer f.Close()
	v, err := open(f)
	if err != nil {
		return Result{}, fmt.Errorf("read file system on %s: %w", device, err)
	}
	err = errors.Join(v.scrub(ctx), f.Sync())
	if err != nil {
		return v.result, fmt.Errorf("scrub %s: %w", device, err)
	}
	return v.result, nil
}

func (v *fs) scrub(ctx context.Context) error {
	for g := range v.groups {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := v.freeBlocks(uint32(g)); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
		if err := v.groupInodes(uint32(g)); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
	}
	return nil
}

func open(f *os.File) (*fs, error) {
	sb := make([]byte, 1024)
	if _, err := f.ReadAt(sb, 1024); err != nil {
		return nil, err
	}
	if le.Uint16(sb[0x38:]) != 0xEF53 {
		return nil, errors.New("no ext4 superblock")
	}
	incompat, ro := le.Uint32(sb[0x60:]), le.Uint32(sb[0x64:])
	if incompat&incompatRecover != 0 {
		return nil, errors.New("its journal must be replayed first: run e2fsck -p on it")
	}
	if unknown := incompat &^ incompatKnown; unknown != 0 || ro&roBigalloc != 0 {
		return nil, fmt.Errorf("features not supported (incompat %#x)", unknown)
	}
	v := &fs{f: f, block: 1024 << le.Uint32(sb[0x18:]), first: uint64(le.Uint32(sb[0x14:])), perGroup: le.Uint32(sb[0x20:]),
		inodesPerGroup: le.Uint32(sb[0x28:]), inodes: le.Uint32(sb[0x0:]), inodeSize: uint32(le.Uint16(sb[0x58:])), journal: le.Uint32(sb[0xE0:]),
		csum: ro&roMetadataCsum != 0, sparse: ro&roSparseSuper != 0}
	v.blocks = uint64(le.Uint32(sb[0x4:]))
	descriptor := uint64(32)
	if incompat&incompat64bit != 0 {
		v.blocks |= uint64(le.Uint32(sb[0x150:])) << 32
		descriptor = uint64(le.Uint16(sb[0xFE:]))
	}
	if v.perGroup == 0 || v.inodesPerGroup == 0 || v.block > 64<<10 || descriptor < 32 || v.inodeSize < 128 || v.blocks <= v.first {
		return nil, errors.New("superblock makes no sense")
	}
	if v.seed = crc(^uint32(0), sb[0x68:0x78]); incompat&incompatCsumSeed != 0 {
		v.seed = le.Uint32(sb[0x270:])
	}
	v.zero = make([]byte, v.block)
	n := (v.blocks - v.first + uint64(v.perGroup) - 1) / uint64(v.perGroup)
	v.gdtBlocks = (n*descriptor+v.block-1)/v.block + uint64(le.Uint16(sb[0xCE:]))
	table := make([]byte, n*descriptor)
	if _, err := f.ReadAt(table, int64((v.first+1)*v.block)); err != nil {
		return nil, err
	}
	for i := range n {
		d := table[i*descriptor:]
		g := group{uint64(le.Uint32(d)), uint64(le.Uint32(d[4:])), uint64(le.Uint32(d[8:])), le.Uint16(d[0x12:])}
		if descriptor >= 64 {
			g.blockBitmap |= uint64(le.Uint32(d[0x20:])) << 32
			g.inodeBitmap |= uint64(le.Uint32(d[0x24:])) << 32
			g.inodeTable |= uint64(le.Uint32(d[0x28:])) << 32
		}
		v.groups = append(v.groups, g)
	}
	return v, nil
}

// Group flags: the bitmaps of a group that was never used are not written.
const (
	inodeUninit = 1
	blockUninit = 2
)

func (v *fs) read(block uint64) ([]byte, error) {
	data := make([]byte, v.block)
	_, err := v.f.ReadAt(data, int64(block*v.block))
	return data, err
}

// clear zeroes a block unless it is zero.
func (v *fs) clear(block uint64, counter *int64) error {
	if block == 0 || block >= v.blocks {
		return fmt.Errorf("block %d is outside of the file system", block)
	}
	data, err := v.read(block)
	if err != nil || bytes.Equal(data, v.zero) {
		return err
	}
	*counter++
	_, err = v.f.WriteAt(v.zero, int64(block*v.block))
	return err
}

func (v *fs) freeBlocks(g uint32) error {
	start := v.first + uint64(g)*uint64(v.perGroup)
	bitmap, err := v.read(v.groups[g].blockBitmap)
	if err != nil {
		return err
	}
	if v.groups[g].flags&blockUninit != 0 {
		bitmap = v.metadataBitmap(g, start)
	}
	for i := uint64(0); i < uint64(v.perGroup) && start+i < v.blocks; i++ {
		if bitmap[i/8]&(1<<(i%8)) != 0 {
			continue
		}
		if err := v.clear(start+i, &v.result.FreeBlocks); err != nil {
			return err
		}
	}
	return nil
}

// metadataBitmap is what is used in a group that holds no file: copies of the superblock, and tables of other groups.
func (v *fs) metadataBitmap(g uint32, start uint64) []byte {
	bitmap := make([]byte, (v.perGroup+7)/8)
	mark := func(block, n uint64) {
		for b := max(block, start); b < block+n && b < start+uint64(v.perGroup); b++ {
			bitmap[(b-start)/8] |= 1 << ((b - start) % 8)
		}
	}
	if !v.sparse || g <= 1 || power(g, 3) || power(g, 5) || power(g, 7) {
		mark(start, 1+v.gdtBlocks)
	}
	for _, other := range v.groups {
		mark(other.blockBitmap, 1)
		mark(other.inodeBitmap, 1)
		mark(other.inodeTable, (uint64(v.inodesPerGroup)*uint64(v.inodeSize)+v.block-1)/v.block)
	}
	return bitmap
}

func power(n, base uint32) bool {
	for n > 1 && n%base == 0 {
		n /= base
	}
	return n == 1
}

func (v *fs) groupInodes(g uint32) error {
	if v.groups[g].flags&inodeUninit != 0 {
		return nil
	}
	bitmap, err := v.read(v.groups[g].inodeBitmap)
	if err != nil {
		return err
	}
	table := make([]byte, v.inodesPerGroup*v.inodeSize)
	base := int64(v.groups[g].inodeTable * v.block)
	if _, err := v.f.ReadAt(table, base); err != nil {
		return err
	}
	blank := make([]byte, v.inodeSize)
	for i := range v.inodesPerGroup {
		inode := table[i*v.inodeSize : (i+1)*v.inodeSize]
		number := g*v.inodesPerGroup + i + 1
		if bitmap[i/8]&(1<<(i%8)) != 0 {
			if err := v.used(number, inode); err != nil {
				return fmt.Errorf("inode %d: %w", number, err)
			}
			continue
		}
		if bytes.Equal(inode, blank) {
			continue
		}
		v.result.Inodes++
		if _, err := v.f.WriteAt(blank, base+int64(i*v.inodeSize)); err != nil {
			return err
		}
	}
	return nil
}
