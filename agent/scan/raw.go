package scan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// Raw scans every byte of a block device or image file: what was deleted, what a file's last block
// holds behind its end, the file system's own journal. With d, the mounted file system of that
// device, what is right to be there does not count: the keys that installed software brings, the
// genealogy, and what o.Allow allows by path.
func Raw(ctx context.Context, device string, d *disk.Disk, o Options) (Result, error) {
	known := &known{texts: map[[32]byte]bool{}}
	if d != nil {
		if err := known.learn(ctx, d, o); err != nil {
			return Result{}, err
		}
	}
	f, err := os.Open(device)
	if err != nil {
		return Result{}, fmt.Errorf("open device: %w", err)
	}
	defer f.Close()
	m, unlookable := newMatcher(o.Facts)
	m.block = 1024 // the smallest of ext4, and of XFS with checksums (mkfs.ext4(8), mkfs.xfs(8))
	r := Result{Files: 1, Skipped: unlookable}
	var found findings
	in := ofRaw()
	// The device is read in whole chunks once; a reader that stops on cancellation keeps stream
	// simple.
	r.Bytes, err = m.stream(cancelled{ctx, f}, make([]byte, 4*chunk), in, 0, func(h hit) {
		if !h.prose && !known.expects(h, f) {
			found.add(Finding{h.kind, device, h.offset, h.where + m.digest.of(h.text)})
		}
	})
	found.settle()
	r.Findings, r.More = found.list, found.more
	if err != nil {
		return r, fmt.Errorf("read %s: %w", device, err)
	}
	return r, nil
}

// ofRaw is for bytes in which texts in base64 are decoded and nothing is unpacked.
func ofRaw() *inside {
	return &inside{seen: &seen{}, left: decodedMost, told: map[string]bool{}, memory: &scratch{}}
}

type cancelled struct {
	ctx context.Context
	f   *os.File
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.f.Read(p)
}

// known is what a raw scan may meet.
type known struct {
	texts     map[[32]byte]bool
	genealogy [][]byte
}

// learn collects the matches in software and in allowed files, by digest, and the genealogy's text.
func (k *known) learn(ctx context.Context, d *disk.Disk, o Options) error {
	d, err := d.Own()
	if err != nil {
		return err
	}
	defer d.Close()
	m, _ := newMatcher(o.Facts)
	buf, in, found := make([]byte, chunk+overlap), ofRaw(), roots.Of(d)
	err = d.Walk(".", func(name string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Size() == 0 {
			return nil
		}
		f, err := d.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			return nil // it vanished; nothing is learned, so nothing is excused
		}
		defer f.Close()
		_, err = m.data(f, buf, in, func(h hit) {
			if Software(found, name) || o.Allow != nil && o.Allow(h.kind, name) {
				k.texts[sha256.Sum256(h.text)] = true
			}
		})
		return err
	})
	for _, name := range genealogy {
		data, rerr := d.ReadFile(name, disk.Small)
		if rerr == nil {
			k.genealogy = append(k.genealogy, data)
		} else if !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// expects excuses a match that installed software contains, and one that stands in the genealogy's
// own text, recognised by what is around it.
func (k *known) expects(h hit, f *os.File) bool {
	if k.texts[sha256.Sum256(h.text)] {
		return true
	}
	const around = 12
	window := make([]byte, len(h.text)+2*around)
	start := max(h.offset-around, 0)
	n, _ := f.ReadAt(window, start)
	window = window[:n]
	lead := int(h.offset - start)
	for _, text := range k.genealogy {
		for at := 0; ; {
			i := bytes.Index(text[at:], h.text)
			if i < 0 {
				break
			}
			at += i
			if agrees(text, at, window, lead, len(h.text)) {
				return true
			}
			at++
		}
	}
	return false
}

// agrees compares the bytes on both sides of a match as far as the text goes.
func agrees(text []byte, at int, window []byte, lead, size int) bool {
	before := min(lead, at)
	after := min(len(window)-lead-size, len(text)-at-size)
	return after >= 0 && bytes.Equal(text[at-before:at+size+after], window[lead-before:lead+size+after])
}
