package scan

import (
	"bytes"
	"encoding/binary"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/lazyregexp"
)

// headSize is how much of a file's beginning byShape sees.
const headSize = 4 << 10

// byShape judges a file by what it is as a whole: private keys and key stores in binary form, and
// files that hold nothing but a key or an identity. head is the beginning of the file, all of it if
// size is less than headSize; rest reads the whole of a file that is not much larger.
func byShape(name string, total int64, head []byte, rest func(limit int) []byte) (kind, detail string) {
	size := int(min(total, 1<<30))
	switch {
	case derKey(head, size):
		return "private-key", "a private key in DER"
	case pkcs12(head, size):
		return "key-store", "PKCS #12"
	case javaStore(head, size, rest):
		return "key-store", "a Java key store that may hold private keys"
	case keyByName(name, head):
		return "private-key", "by its name and its content"
	case secretList(name, head):
		return "user-credential", "by its name, and it is not all comments"
	}
	if size > len(head) || under(name, quiet) || program(name, head) {
		return "", ""
	}
	text := bytes.TrimSpace(head)
	switch {
	case harmlessName.MatchString(path.Base(name)):
	case bareID.Match(text) && !monotonous(string(text)):
		return "machine-identity", "the file holds nothing but an id"
	case bareKey.Match(text) && randomLooking(string(text), 32):
		return "secret", "the file holds nothing but a key"
	case keyFile(name, total, head):
		return "secret", randomWhy
	default:
		if kind = bareKind(text); kind != "" {
			return kind, bareWhy
		}
	}
	return "", ""
}

const randomWhy = "the file holds random bytes only"

// keyFile reports whether a small file holds nothing but random bytes, as the file of a key does.
func keyFile(name string, size int64, head []byte) bool {
	return size <= int64(len(head)) && !program(name, head) && !harmlessName.MatchString(path.Base(name)) && randomBytes(head)
}

// quiet are places in which a lone id or key is none of the donor's: unpacked software keeps
// digests there.
var quiet = []string{"sys", "proc", "etc/machine-id", "var/lib/dbus/machine-id", "usr", "boot", "lib", "opt/cni", "etc/ssl/certs",
	"etc/selinux", "var/lib/selinux", "etc/alternatives", "var/lib/dpkg", "var/cache"}

var (
	bareID       = lazyregexp.New(`^\{?[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\}?$`)
	bareKey      = lazyregexp.New(`^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{48}|[0-9a-fA-F]{56,512}|[A-Za-z0-9+/]{40,700}={1,2})$`)
	harmlessName = lazyregexp.New(`(?i)(?:\.(?:sha\d*|md5|sum|digest|crc32|etag|sig|gpg|mo|png|jpg|gif|ico|gz|xz|zst|bz2|zip|deb|rpm|tzdata|pyc|so|bin\.sig)|checksums?|version|commit|head|revision)$|^hash$|md5sum|sha\d+sum`)
)

// The DER of OBJECT IDENTIFIERs of key algorithms: rsaEncryption, id-RSASSA-PSS, id-ecPublicKey,
// id-dsa, X25519 … Ed448 (RFC 8410), and pkcs5PBES2, pbeWithSHAAnd… of encrypted keys (RFC 8018,
// RFC 7292).
var keyAlgorithms = [][]byte{
	{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01}, {0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01},
	{0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01},
	{0x06, 0x03, 0x2b, 0x65},
}
var encryptions = [][]byte{{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05},
	{0x06, 0x0a, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01}}

// der is one element of DER: what it contains, as far as the data have it, its length, that of its
// header, and what follows.
type der struct {
	content        []byte
	length, header int
	after          []byte
}

func element(data []byte, tag byte) (e der, ok bool) {
	if len(data) < 2 || data[0] != tag {
		return e, false
	}
	e.length, e.header = int(data[1]), 2
	if n := e.length & 0x7f; e.length >= 0x80 {
		if n == 0 || n > 3 || len(data) < 2+n {
			return e, false
		}
		e.length = 0
		for _, b := range data[2 : 2+n] {
			e.length = e.length<<8 | int(b)
		}
		e.header += n
	}
	end := min(e.header+e.length, len(data))
	e.content, e.after = data[e.header:end], data[end:]
	return e, true
}

// whole is the SEQUENCE that fills a file, give or take a final line break.
func whole(head []byte, size int) (e der, ok bool) {
	e, ok = element(head, derSequence)
	total := e.header + e.length
	return e, ok && len(e.content) > 0 && total <= size && total >= size-2
}

const derSequence, derInteger, derOctets = 0x30, 0x02, 0x04

// derKey recognises PKCS #8 (RFC 5958), its encrypted form, PKCS #1 (RFC 8017) and SEC 1 (RFC 5915)
// keys that fill the file.
func derKey(head []byte, size int) bool {
	file, ok := whole(head, size)
	if !ok {
		return false
	}
	if algorithm, ok := element(file.content, derSequence); ok {
		return anyPrefix(algorithm.content, encryptions) && bytes.HasPrefix(algorithm.after, []byte{derOctets})
	}
	version, ok := element(file.content, derInteger)
	if !ok || version.length != 1 || len(version.content) == 0 || version.content[0] > 1 {
		return false
	}
	if algorithm, ok := element(version.after, derSequence); ok {
		return anyPrefix(algorithm.content, keyAlgorithms) && bytes.HasPrefix(algorithm.after, []byte{derOctets})
	}
	if modulus, ok := element(version.after, derInteger); ok {
		return version.content[0] == 0 && modulus.length >= 63 // 512 bits and more
	}
	key, ok := element(version.after, derOctets)
	return ok && version.content[0] == 1 && key.length >= 20 && key.length <= 66 &&
		(len(key.after) == 0 || key.after[0] == 0xa0 || key.after[0] == 0xa1)
}

func anyPrefix(data []byte, prefixes [][]byte) bool {
	return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(data, p) })
}

// pkcs12 recognises a PFX of RFC 7292: version 3 and a ContentInfo of PKCS #7, in DER or with
// indefinite lengths.
func pkcs12(head []byte, size int) bool {
	pkcs7 := []byte{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07}
	if bytes.HasPrefix(head, []byte{0x30, 0x80, 0x02, 0x01, 0x03, 0x30, 0x80}) {
		return bytes.HasPrefix(head[7:], pkcs7)
	}
	file, ok := whole(head, size)
	if !ok {
		return false
	}
	version, ok := element(file.content, derInteger)
	if !ok || !bytes.Equal(version.content, []byte{3}) {
		return false
	}
	content, ok := element(version.after, derSequence)
	return ok && bytes.HasPrefix(content.content, pkcs7)
}

// A Java key store begins with its magic (sun.security.provider.JavaKeyStore,
// com.sun.crypto.provider.JceKeyStore). One that holds trusted certificates only, as
// ca-certificates-java makes it, is public.
func javaStore(head []byte, size int, rest func(limit int) []byte) bool {
	if !bytes.HasPrefix(head, []byte{0xfe, 0xed, 0xfe, 0xed}) && !bytes.HasPrefix(head, []byte{0xce, 0xce, 0xce, 0xce}) {
		return false
	}
	const most = 4 << 20
	return size > most || !onlyCertificates(rest(most))
}

func onlyCertificates(data []byte) bool {
	if len(data) < 12 {
		return false
	}
	version, count := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	data = data[12:]
	skip := func(n int) bool {
		if n < 0 || len(data) < n {
			return false
		}
		data = data[n:]
		return true
	}
	text := func() bool { return len(data) >= 2 && skip(2+int(binary.BigEndian.Uint16(data))) }
	for range count {
		const trusted = 2
		if len(data) < 4 || binary.BigEndian.Uint32(data) != trusted || !skip(4) || !text() || !skip(8) {
			return false
		}
		if version == 2 && !text() || len(data) < 4 || !skip(4+int(binary.BigEndian.Uint32(data))) {
			return false
		}
	}
	return len(data) == 20 // the digest
}

// keyByName: what is called a key and is binary. A key in PEM is found by its text; a public
// OpenPGP key (RFC 9580: packet tag 6) is what package sources are verified with.
func keyByName(name string, head []byte) bool {
	base := path.Base(name)
	if ext := path.Ext(base); ext != ".key" && ext != ".keyfile" && ext != ".psk" && ext != ".priv" && ext != ".kek" && ext != ".dek" ||
		under(name, []string{"usr"}) {
		return false
	}
	openPGP := len(head) > 0 && (head[0] == 0x98 || head[0] == 0x99 || head[0] == 0xc6)
	text := bytes.HasPrefix(bytes.TrimSpace(head), []byte("-----BEGIN ")) || bytes.HasPrefix(head, []byte("#")) ||
		bytes.HasPrefix(head, []byte("ssh-")) || bytes.HasPrefix(head, []byte("untrusted comment: minisign public"))
	return len(head) >= 16 && !openPGP && !text && !strings.HasSuffix(base, ".pub.key")
}

// Files that packages ship with nothing but comments, and that hold a credential a line.
var secretLists = []string{"chap-secrets", "ipsec.secrets", "*.secrets", "passwd.client", "sasl_passwd", "chrony.keys", "ntp.keys",
	"davfs2/secrets", "client.keys", "authkey", "munge.key"}

func secretList(name string, head []byte) bool {
	two := path.Join(path.Base(path.Dir(name)), path.Base(name))
	if !slices.ContainsFunc(secretLists, func(p string) bool {
		plain, _ := path.Match(p, path.Base(name))
		return plain || p == two
	}) {
		return false
	}
	for line := range bytes.Lines(head) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != ';' && !bytes.HasPrefix(line, []byte("include ")) {
			return true
		}
	}
	return false
}

// randomBytes tells bytes without structure, as in a key file, from those of a program's format.
func randomBytes(head []byte) bool {
	if len(head) < 32 || utf8.Valid(head) || anyPrefix(head, knownFormats) {
		return false
	}
	var seen [256]bool
	different, n := 0, min(len(head), 512)
	for _, c := range head[:n] {
		if !seen[c] {
			seen[c] = true
			different++
		}
	}
	// So many of 256 values do n random bytes take, on average and give or take the standard deviation
	// (the occupancy problem); structured data take fewer.
	missing := math.Pow(255.0/256, float64(n))
	mean, deviation := 256*(1-missing), math.Sqrt(256*missing*(1-missing*(1+float64(n)/256)))
	return float64(different) > mean-3.5*deviation
}

// What compresses or encrypts by a format of its own begins with that format's sign: gzip, xz,
// zstd, bzip2, zip, PNG, JPEG, OpenPGP packets, ELF, SQLite, wOFF.
var knownFormats = [][]byte{{0x1f, 0x8b}, {0xfd, '7', 'z', 'X', 'Z'}, {0x28, 0xb5, 0x2f, 0xfd}, []byte("BZh"), []byte("PK\x03\x04"),
	[]byte("\x89PNG"), {0xff, 0xd8, 0xff},
	[]byte("RIFF"), []byte("PACK"), {0x78, 0x01}, {0x78, 0x9c}, {0x78, 0xda}, {0x98}, {0x99}, {0xc6}, {0x7f, 'E', 'L', 'F'},
	[]byte("SQLite"), []byte("wOF"), {0x30, 0x82}, {0x04, 0x22, 0x4d, 0x18}}

// libraries are directories of software that is unpacked rather than packaged, and of its
// documentation. In the latter a file in a format of settings counts outside of /usr: a directory
// of that name may be anybody's.
var (
	libraries = []string{"/site-packages/", "/dist-packages/", "/node_modules/", "/gems/", "/vendor/", "/testdata/",
		"/share/man/", "/locale/"}
	documents = []string{"/examples/", "/tests/", "/doc/", "/docs/"}
)

func passes(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.Contains(name, dir) })
}

// program tells formats and places in which texts are examples rather than configuration.
func program(name string, head []byte) bool {
	if path.Base(name) == ".env" {
		return false // of whoever deployed it, also beside libraries
	}
	deployed := slices.Contains(settings, path.Ext(name)) && !disk.Under(name, "usr")
	if passes(name, libraries) || passes(name, documents) && !deployed {
		return true
	}
	for _, sign := range []string{"\x7fELF", "MZ", "!<arch>\n", "\xca\xfe\xba\xbe", "\x00asm", "PK\x03\x04", "%PDF-"} {
		if bytes.HasPrefix(head, []byte(sign)) {
			return true
		}
	}
	switch path.Ext(name) {
	case ".md", ".rst", ".adoc", ".html", ".htm", ".css", ".pyc", ".map", ".po", ".mo", ".d.ts":
		return true
	}
	return false
}
