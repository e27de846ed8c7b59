package scan

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Bounds of what is unpacked of one file: bytes (of the zip files within archives as many again),
// and encodings within each other. What is behind them is told (Result.Skipped), not scanned.
const (
	decodedMost = 256 << 20
	deepest     = 4
	// A zip file in an archive is read into memory: its directory is at its end.
	zippedMost = 16 << 20
)

// inside scans what a file holds in encodings and archives.
type inside struct {
	reader   *reader // nil: of raw bytes, of which nothing is unpacked
	seen     *seen
	file     string // its name
	name     string // of the stream that is read now: the file's, or that of what is in it
	software bool   // what is packaged: prose counts nowhere in it
	left     int64  // bytes that may still be decoded
	// Bytes that may still be decoded of zip files in archives. They take none of what is left for
	// the archives, which would hide what is behind them; nested while one of them is looked at.
	zips   int64
	sparse int64 // the same of members of tar archives that have holes
	nested bool
	zipped bool // members of a zip file: mostly programs, so that prose counts in settings only
	told   map[string]bool
	memory *scratch
	locked bool // this file is being unpacked; others wait
}

// settings are the formats in which programs bring theirs.
var settings = []string{".properties", ".env", ".ini", ".conf", ".cfg", ".yml", ".yaml", ".toml", ".json"}

// packed reports whether a file's beginning is that of an encoding or archive.
func packed(head []byte) bool {
	return encoded(head) != nil || isTar(head) || isCPIO(head) || isZip(head)
}

// POSIX's ustar, which GNU's and pax archives are as well; cpio's "newc", of which initial file
// systems are made (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html); zip,
// also as jar.
func isTar(head []byte) bool { return len(head) > 262 && string(head[257:262]) == "ustar" }
func isCPIO(head []byte) bool {
	return bytes.HasPrefix(head, []byte("070701")) || bytes.HasPrefix(head, []byte("070702"))
}
func isZip(head []byte) bool { return bytes.HasPrefix(head, []byte("PK\x03\x04")) }

func (in *inside) scan(f *os.File, head []byte) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		in.tell(err.Error())
		return
	}
	if isZip(head) {
		in.zip(f)
		return
	}
	in.look(bufio.NewReaderSize(f, 64<<10), in.file, "", true, 0)
}

// alone waits until no other file is unpacked, and returns what ends that: a decoder may need as
// much memory as windowMost.
func (in *inside) alone() (end func()) {
	if in.locked {
		return func() {}
	}
	in.reader.unpacking.Lock()
	in.locked = true
	return func() {
		in.locked = false
		in.reader.unpacking.Unlock()
	}
}

// unpack scans what a text in base64 holds.
func (in *inside) unpack(data []byte, where string, depth int) {
	if in.reader == nil {
		return
	}
	defer in.alone()()
	in.look(bufio.NewReader(bytes.NewReader(data)), in.name, where, false, depth)
}

// tell records that something was not examined, once for each reason.
func (in *inside) tell(why string) {
	if !in.told[why] && len(in.told) < mostReasons {
		in.told[why] = true
		in.seen.skipped = append(in.seen.skipped, fmt.Sprintf("archive /%s: %s", disk.Shown(in.file), why))
	}
}

// look scans one stream, called name; where says for people where it is. scanned streams were
// scanned as they are, and only what they hold is left to look at.
func (in *inside) look(r *bufio.Reader, name, where string, scanned bool, depth int) {
	head, err := r.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) { // a reader forgets an error that it told
		in.tell(err.Error())
	}
	e := encoded(head)
	switch {
	case (e != nil || isTar(head) || isZip(head) || isCPIO(head)) && depth == deepest:
		in.tell(tooDeep)
	case e != nil:
		plain, release, err := e.open(r)
		if err != nil {
			in.tell(err.Error())
			return
		}
		defer release()
		in.look(bufio.NewReaderSize(&bounded{plain, in, &in.left}, 64<<10), name, where+"in its "+e.name+" text, ", false, depth+1)
	case isTar(head):
		in.tar(tar.NewReader(r), name, where, scanned, depth+1)
	case isCPIO(head):
		if err := in.cpio(r, name, where, depth+1); err != nil {
			in.tell(err.Error())
			return
		}
		in.look(r, name, where, scanned, depth)
	case isZip(head) && depth > 0:
		in.zipWithin(r, name, where, depth+1)
	case !scanned:
		in.stream(r, head, name, where, depth)
	}
}

func (in *inside) stream(r io.Reader, head []byte, name, where string, depth int) {
	buf := &in.reader.decoded[depth]
	if *buf == nil {
		*buf = make([]byte, chunk+overlap)
	}
	defer func(was string) { in.name = was }(in.name)
	in.name = name
	examples := in.software || program(name, head) || in.zipped && !slices.Contains(settings, path.Ext(name))
	all := hits{digest: in.reader.matcher.digest, quiet: examples}
	if kind := bareKind(head); kind != "" && len(head) < headSize && !under(in.file, quiet) {
		all.add(hit{kind: kind, text: bytes.TrimSpace(head), prose: true})
	}
	_, err := in.reader.matcher.stream(r, *buf, in, depth, all.add)
	in.seen.add(in.file, where, &all)
	if err != nil {
		in.tell(err.Error())
	}
}

func (in *inside) tar(t *tar.Reader, name, where string, scanned bool, depth int) {
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			in.tell(err.Error())
			return
		}
		if (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeGNUSparse) && h.Size > 0 {
			content := io.Reader(t)
			if sparse(h) && !scanned { // in a hole there may be terabytes
				content = &bounded{t, in, &in.sparse}
			}
			in.look(bufio.NewReaderSize(content, 64<<10), path.Join(name, h.Name), where+"in "+short(h.Name)+", ", scanned, depth)
		}
	}
}

// sparse reports whether a member's content has holes, which take no place in the archive.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (in *inside) zip(f *os.File) {
	info, err := f.Stat()
	if err != nil {
		in.tell(err.Error())
		return
	}
	in.members(f, info.Size(), in.file, "", 1)
}

// zipWithin is a zip file in an archive or an encoding. Those within it share its bytes: had each
// its own, a small file could be unpacked for days.
func (in *inside) zipWithin(r io.Reader, name, where string, depth int) {
	data, err := io.ReadAll(io.LimitReader(r, zippedMost+1))
	switch {
	case err != nil:
		in.tell(err.Error())
	case len(data) > zippedMost:
		in.tell(fmt.Sprintf("a zip file of more than %d MiB in an archive", zippedMost>>20))
	default:
		if !in.nested {
			in.nested, in.left, in.zips = true, in.zips, in.left
			defer func() { in.nested, in.left, in.zips = false, in.zips, in.left }()
		}
		in.members(bytes.NewReader(data), int64(len(data)), name, where, depth)
	}
}

func (in *inside) members(r io.ReaderAt, size int64, name, where string, depth int) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		in.tell(err.Error())
		return
	}
	defer func(was bool) { in.zipped = was }(in.zipped)
	in.zipped = true
	for _, member := range z.File {
		r, err := member.Open()
		if err != nil { // encrypted, or by a method of which nobody here knows
			in.tell(err.Error())
			continue
		}
		in.look(bufio.NewReaderSize(&bounded{r, in, &in.left}, 64<<10), path.Join(name, member.Name), where+"in "+short(member.Name)+
			", ", false, depth)
		_ = r.Close() // was read, and nothing is written
	}
}

func short(name string) string {
	const most = 80
	return strconv.Quote(name[:min(len(name), most)])
}

// bounded ends a stream when a file's bytes are used up.
type bounded struct {
	r    io.Reader
	in   *inside
	left *int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if *b.left <= 0 {
		b.in.tell(tooMuch)
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), *b.left)])
	*b.left -= int64(n)
	return n, err
}

// member judges a file of an initial file system by its name and by what it is as a whole, as a file
// of the disk: the keys that open the root's disk and the host keys for opening it from afar are no
// texts.
func (in *inside) member(name string, size int64, head []byte, where string) {
	kind, why := called(path.Base(name)), "by its name"
	if kind == "" {
		// A key store that is larger than its head is taken for one.
		kind, why = byShape(name, size, head, func(int) []byte { return head })
	}
	// dracut may copy ids that a package made, on every machine.
	if kind != "" && kind != "machine-identity" {
		in.seen.found(Finding{Kind: kind, Path: in.file, Detail: where + "in " + short(name) + ", " + why})
	}
}

// cpio visits the members of an archive of the form "newc", to its end and the zeros behind it.
// What is read on is behind the archive.
func (in *inside) cpio(r *bufio.Reader, name, where string, depth int) error {
	cut := errors.New("a cpio archive that is cut short")
	const headerSize, modeAt, sizeAt, nameAt = 110, 14, 54, 94
	for {
		header := make([]byte, headerSize)
		if _, err := io.ReadFull(r, header); err != nil || !isCPIO(header) {
			return cut
		}
		size, err := strconv.ParseUint(string(header[sizeAt:sizeAt+8]), 16, 32)
		if err != nil {
			return fmt.Errorf("cpio: %w", err)
		}
		length, err := strconv.ParseUint(string(header[nameAt:nameAt+8]), 16, 32)
		const longest = 4096
		if err != nil || length > longest {
			return errors.New("cpio: a name's length is wrong")
		}
		text := make([]byte, length+-(headerSize+length)&3)
		if _, err := io.ReadFull(r, text); err != nil {
			return cut
		}
		member, _, _ := strings.Cut(string(text), "\x00")
		content := io.LimitedReader{R: r, N: int64(size)}
		if member != "TRAILER!!!" && size > 0 {
			member = strings.TrimPrefix(path.Clean("/"+member), "/")
			data := bufio.NewReaderSize(&content, headSize)
			head, _ := data.Peek(headSize) // what cannot be read is cut short, which is told below
			const regular = 0o100000
			if mode, err := strconv.ParseUint(string(header[modeAt:modeAt+8]), 16, 32); err == nil && mode&0o170000 == regular &&
				!in.software {
				in.member(member, int64(size), head, where)
			}
			in.look(data, path.Join(name, member), where+"in "+short(member)+", ", false, depth)
		}
		if _, err := io.CopyN(io.Discard, r, content.N+int64(-size&3)); err != nil {
			return cut
		}
		if member == "TRAILER!!!" {
			break
		}
	}
	for {
		c, err := r.ReadByte()
		if err != nil {
			return nil // nothing is behind it
		}
		if c != 0 {
			return r.UnreadByte()
		}
	}
}
