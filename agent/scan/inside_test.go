package scan

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"

	"kamino.dev/kamino/agent/disk/disktest"
)

const pemKey = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIKiLpl1v5fakefakefakefakefakefakefake\n-----END EC PRIVATE KEY-----\n"

func zipOf(t *testing.T, name, text string) string { return zipsOf(t, name, text) }

// zipsOf is a zip file of members: a name, a text, and so on.
func zipsOf(t *testing.T, members ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for m := range slices.Chunk(members, 2) {
		w, err := z.Create(m[0])
		if err == nil {
			_, err = io.WriteString(w, m[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	closed(t, io.Discard, "", z)
	return b.String()
}

func tarOf(t *testing.T, name, text string) string { return tarsOf(t, name, text) }

// tarsOf is zipsOf for a tar archive.
func tarsOf(t *testing.T, members ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for m := range slices.Chunk(members, 2) {
		err := w.WriteHeader(&tar.Header{Name: m[0], Size: int64(len(m[1])), Mode: 0o600})
		if err == nil {
			_, err = io.WriteString(w, m[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	closed(t, io.Discard, "", w)
	return b.String()
}

func gzipOf(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	closed(t, w, text, w)
	return b.String()
}

func closed(t *testing.T, w io.Writer, text string, c io.Closer) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func utf32Of(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		b.Write([]byte{c, 0, 0, 0})
	}
	return b.String()
}

// TestPacked: what is packed, also more than once, is read as what it is; names of members say what
// counts in them.
func TestPacked(t *testing.T) {
	keys, settings := strings.Repeat(pemKey, 20), strings.Repeat("spring.datasource.password=Pa55w0rd1234\n", 20)
	zeros := string(make([]byte, decodedMost+1))
	for name, c := range map[string]struct {
		text, kind string
		told       bool
	}{
		"srv/backup.zip":      {zipOf(t, "id_ed25519", keys), "private-key", false},
		"srv/app.jar":         {zipOf(t, "application.properties", settings), "secret", false},
		"srv/lib.jar":         {zipOf(t, "docs/README.md", settings), "", false},
		"srv/twice.gz":        {gzipOf(t, gzipOf(t, keys)), "private-key", false},
		"srv/home.tar":        {tarOf(t, "key.gz", gzipOf(t, keys)), "private-key", false},
		"srv/home.tar.gz":     {gzipOf(t, tarOf(t, "inner.tar.gz", gzipOf(t, tarOf(t, "key", keys)))), "private-key", false},
		"srv/wide.txt":        {utf32Of(pemKey), "private-key", false},
		"srv/zip.tar":         {tarOf(t, "a.zip", zipOf(t, "key", keys)), "private-key", false},
		"srv/zip.tar.gz":      {gzipOf(t, tarOf(t, "a.zip", zipOf(t, "app.properties", settings))), "secret", false},
		"srv/zip.zip":         {zipOf(t, "a.zip", zipOf(t, "key", keys)), "private-key", false},
		"srv/large.tar":       {tarOf(t, "a.zip", "PK\x03\x04"+string(make([]byte, zippedMost))), "", true},
		"opt/app/tests/a.ini": {"password = S0mmerRegen1987\n", "secret", false},
		"srv/doc/app.yml":     {"password: S0mmerRegen1987\n", "secret", false},
		"opt/app/docs/use.md": {"password: S0mmerRegen1987\n", "", false},
		"usr/local/doc/a.ini": {"password = S0mmerRegen1987\n", "", false},
		"opt/x/vendor/a.ini":  {"password = S0mmerRegen1987\n", "", false},
		"srv/russian.doll.gz": {gzipOf(t, gzipOf(t, gzipOf(t, gzipOf(t, gzipOf(t, keys))))), "", true},
		// A zip file within an archive takes nothing of what is behind it.
		"srv/bomb.jar.gz": {gzipOf(t, tarsOf(t, "zeros.jar", zipOf(t, "zeros", zeros), "id_ed25519", keys)), "private-key", true},
		"srv/bomb.war":    {zipsOf(t, "zeros.jar", zipOf(t, "zeros", zeros), "id_ed25519", keys), "private-key", true},
		"srv/bomb.gz":     {gzipOf(t, zeros), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Files(t.Context(), disktest.New(t, map[string]string{name: c.text}), Options{})
			got := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == c.kind })
			if err != nil || got != (c.kind != "") || c.kind == "" && len(r.Findings) > 0 || c.told != (len(r.Skipped) > 0) {
				t.Errorf("%s: %v, %q, %v", name, r.Findings, r.Skipped, err)
			}
		})
	}
}

// TestManyHits: time grows with a file's hits, not with their square, which for as many as these
// would be an hour: the test would not end.
func TestManyHits(t *testing.T) {
	all := make([]match, 1_000_000)
	for i := range all {
		all[i] = match{kind: "secret", offset: int64(20 * i), size: 10, prose: i%2 == 0}
	}
	if got := len(relevant(all)); got != len(all) {
		t.Fatalf("%d of %d", got, len(all))
	}
}

// TestRelevant: prose is dropped where it overlaps something better, and only there.
func TestRelevant(t *testing.T) {
	at := func(offset, size int, prose bool) match {
		return match{offset: int64(offset), size: size, prose: prose}
	}
	all := []match{at(0, 100, false), at(10, 5, true), at(20, 5, false), at(60, 50, true), at(100, 5, true), at(120, 10, true), at(129, 5, false), at(140, 5, true)}
	var got []int64
	for _, h := range relevant(all) {
		got = append(got, h.offset)
	}
	if want := []int64{0, 20, 100, 129, 140}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestMemory: however many processors there are, one file is unpacked at a time.
func TestMemory(t *testing.T) {
	var b bytes.Buffer
	w, err := xz.WriterConfig{DictCap: windowMost}.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, w, strings.Repeat("line of a log\n", 1<<10), w)
	files := map[string]string{}
	for i := range 16 {
		files[fmt.Sprintf("srv/%d.xz", i)] = b.String()
	}
	d := disktest.New(t, files)
	b.Reset()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if r, err := Files(t.Context(), d, Options{}); err != nil || len(r.Skipped) > 0 {
		t.Fatal(r.Skipped, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys-before.Sys) >> 20; grown > 320 {
		t.Errorf("16 files with a dictionary of %d MiB take %d MiB", windowMost>>20, grown)
	}
}

func cpioOf(members ...string) string {
	pad := func(s string) string { return s + strings.Repeat("\x00", -len(s)&3) }
	all := ""
	for m := range slices.Chunk(append(members, "TRAILER!!!", ""), 2) {
		head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 1, 0o100600, 0, 0, 1, 0, len(m[1]), 0, 0, 0, 0, len(m[0])+1, 0)
		all += pad(head+m[0]+"\x00") + pad(m[1])
	}
	return all
}

// TestInitialFileSystem: an initial file system is judged by its members: texts in kernel modules
// are no secrets, however it and they are packed, and what lies beside them is found, once.
func TestInitialFileSystem(t *testing.T) {
	module := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 100) + "token: 0x%06x, r_key\x00password=Pa55w0rd1234\x00"
	var compressed bytes.Buffer
	w, err := xz.NewWriter(&compressed)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, w, module, w)
	clean := []string{"usr/lib/modules/6.1.0/kernel/mlx5_ib.ko", module, "usr/lib/modules/6.1.0/kernel/x.ko.xz", compressed.String(), "usr/bin/sh", module, "init", "#!/bin/sh\nexec run\n"}
	early := cpioOf("kernel/x86/microcode/GenuineIntel.bin", "microcode")
	early += strings.Repeat("\x00", -len(early)&511)
	for how, pack := range map[string]func(members ...string) string{
		"plain": cpioOf, "gzip": func(m ...string) string { return gzipOf(t, cpioOf(m...)) }, "gzip behind microcode": func(m ...string) string { return early + gzipOf(t, cpioOf(m...)) },
		"plain behind microcode": func(m ...string) string { return early + cpioOf(m...) },
	} {
		for what, c := range map[string]struct {
			members []string
			kinds   string
		}{
			"clean": {clean, ""}, "a key": {append(slices.Clone(clean), "etc/key.pem", pemKey), "private-key"},
			"a password": {append(slices.Clone(clean), "etc/app.conf", "password = Pa55w0rd1234\n"), "secret"},
		} {
			r, err := Files(t.Context(), disktest.New(t, map[string]string{"boot/initrd.img-6.1.0-18-amd64": pack(c.members...)}), Options{})
			var kinds []string
			for _, f := range r.Findings {
				kinds = append(kinds, f.Kind)
			}
			if err != nil || strings.Join(kinds, " ") != c.kinds || len(r.Skipped) > 0 {
				t.Errorf("%s, %s: %v, %q, %v", what, how, r.Findings, r.Skipped, err)
			}
		}
	}
}
