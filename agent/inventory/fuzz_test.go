package inventory

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzDpkg: the files of dpkg's database, of its diversions and of ucf's, whatever is in them: a
// path that they list owns nothing outside the root.
func FuzzDpkg(f *testing.F) {
	f.Add("/.\n/usr\n/usr/bin/x\n", "d41d8cd98f00b204e9800998ecf8427e  usr/bin/x\n", "Package: p\nConffiles:\n /etc/x d41d8cd98f00b204e9800998ecf8427e\n", "/bin/a\n/bin/a.real\np\n", "d41d8cd98f00b204e9800998ecf8427e  /etc/y\n")
	f.Add("../../x\n\n", "zz  x\nd41d  \n  \n", "Conffiles:\n \n  /x\nPackage:", "a\nb\n", "x\n")
	d := disktest.New(f, nil)
	f.Fuzz(func(t *testing.T, list, sums, status, diversions, hashes string) {
		put(t, d.Dir(), "var/lib/dpkg/info/p:amd64.list", list)
		put(t, d.Dir(), "var/lib/dpkg/info/p:amd64.md5sums", sums)
		put(t, d.Dir(), dpkgStatus, status)
		put(t, d.Dir(), "var/lib/dpkg/diversions", diversions)
		put(t, d.Dir(), "var/lib/ucf/hashfile", hashes)
		o := readOwners(d)
		if most := strings.Count(list+sums+status+hashes, "\n") + 4; len(o.files) > most || len(o.sums) > len(o.files) {
			t.Errorf("%d files of %d lines", len(o.files), most)
		}
		_, _ = Held(d)
		_, _ = Unfinished(d)
		_, _, _ = Packages(d)
	})
}

// FuzzIndex: a saved look that was damaged is refused, or is one that can be saved again.
func FuzzIndex(f *testing.F) {
	x := Index{Agent: "a", Files: map[string]Indexed{"etc/x": {Digest: Digest{1}, Class: Owned}}, Whys: []string{"why"}, known: []mark{{class: Owned}}, unknown: []doubt{{digest: Digest{2}}}}
	x.finish()
	var b bytes.Buffer
	if err := x.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("{\"count\":-1}\n"))
	f.Add([]byte("{\"count\":999999999999}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ReadIndex(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := x.Write(&b); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadIndex(b.Bytes()); err != nil {
			t.Errorf("%q: read, and not when it was written again: %v", data, err)
		}
	})
}

// FuzzChecks: each check of the table of generated files takes any content.
func FuzzChecks(f *testing.F) {
	l := newLook(disktest.New(f, map[string]string{"usr/lib/x.py": "x"}), Options{})
	for _, seed := range []string{"", "# only\n", "root:x:0:0\n", "Name: p/password\nValue: x\n", "auth required pam_unix.so\n", "UUID=x / ext4 defaults 0 1\n", "deb https://u:p@x y z\n", "\u2028\n", "nameserver 1\n", "LANG=C\n", "\u0085 \u00a0\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range rows {
			if r.check == nil {
				continue
			}
			for _, p := range r.paths {
				_ = r.check(l, strings.ReplaceAll(p, "*", "x"), data)
			}
		}
	})
}

// FuzzRPMDatabase: a database of rpm with any bytes in it, its log, and a header in a row that is
// intact. FuzzHeader has the headers alone.
func FuzzRPMDatabase(f *testing.F) {
	d := disktest.New(f, map[string]string{rpmPaths[0]: ""})
	const page = 512
	table := func(row []byte) []byte {
		const sql = "CREATE TABLE Packages(hnum,blob)"
		file := make([]byte, 2*page)
		copy(file, "SQLite format 3\x00\x02\x00")
		cell := append([]byte{0, 1, 6, 23, 29, 29, 1, 13 + 2*byte(len(sql))}, "tablePackagesPackages\x02"+sql...)
		cell[0] = byte(len(cell) - 2)
		leaf := func(at []byte, from int, cell []byte) {
			at[0], at[4] = 13, 1
			copy(at[page-from-len(cell):], cell)
			where := page - len(cell)
			at[8], at[9] = byte(where>>8), byte(where)
		}
		leaf(file[100:page], 100, cell)
		body := append([]byte{4, 1, byte((12+2*len(row))>>7 | 0x80), byte((12 + 2*len(row)) & 0x7f), 1}, row...)
		leaf(file[page:], 0, append([]byte{byte(len(body)>>7 | 0x80), byte(len(body) & 0x7f), 1}, body...))
		return file
	}
	f.Add(table([]byte{0, 0, 0, 0, 0, 0, 0, 0}), []byte{})
	f.Add(table(append([]byte{0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 4, 0x5d, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1}, "a\x00"...)), []byte{0x37, 0x7f, 6, 0x82})
	f.Fuzz(func(t *testing.T, file, row []byte) {
		if len(row) > 300 || len(file) > 1<<16 {
			return
		}
		for _, data := range [][]byte{file, table(row)} {
			if err := os.WriteFile(d.Host(rpmPaths[0]), data, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = rpmHeaders(d, rpmPaths[0], func(h header) error {
				return h.files(func(string, kind, bool, string) {})
			})
			_ = twiceInstalled(d)
			_, _, _ = Packages(d)
		}
	})
}
