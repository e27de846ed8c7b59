package sqlite

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script makes a database with SQLite itself, in which the last changes are in the write-ahead log
// only: the process ends without closing it. It prints the rows, then rolls one more change back.
const script = `
import hashlib, os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA page_size=%s" % sys.argv[2]); db.execute("PRAGMA synchronous=OFF")
if sys.argv[3] == "wal": db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE other (a TEXT)")
db.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY, blob BLOB NOT NULL, n INTEGER)")
def rows(start, stop):
    db.execute("BEGIN")
    for i in range(start, stop):
        size = 3 if i % 3 else i * 997
        db.execute("INSERT INTO Packages VALUES (?, ?, ?)", (i, hashlib.sha256(b"%d" % i).digest() * (size // 32 + 1), [0, 1, -1, 300, -70000, 1 << 40, -(1 << 60)][i % 7]))
    db.execute("COMMIT")
rows(0, 150)
if sys.argv[3] == "wal": db.execute("PRAGMA wal_checkpoint(TRUNCATE)"); db.execute("PRAGMA wal_autocheckpoint=0")
rows(150, 300)
db.execute("DELETE FROM Packages WHERE hnum % 10 = 4")
for blob, n in db.execute("SELECT blob, n FROM Packages ORDER BY hnum"):
    print(hashlib.sha256(blob).hexdigest(), n)
sys.stdout.flush()
db.execute("PRAGMA cache_size=1"); db.execute("BEGIN"); db.execute("UPDATE Packages SET n = 5")
os._exit(0)
`

// TestTable compares with what SQLite reads, over page sizes, overflow pages, deep trees and the
// log.
func TestTable(t *testing.T) {
	if err := exec.Command("python3", "-c", "import sqlite3").Run(); err != nil {
		t.Skip("python3 with sqlite3 is not installed")
	}
	for _, size := range []string{"512", "4096", "65536"} {
		for _, journal := range []string{"wal", "delete"} {
			name := filepath.Join(t.TempDir(), "db")
			want, err := exec.Command("python3", "-c", script, name, size, journal).Output()
			if err != nil {
				t.Fatal(err)
			}
			if journal == "delete" {
				// Without a log the change that was not committed may be in the file: it has a
				// journal beside it, and is refused.
				if _, err := os.Stat(name + "-journal"); err == nil {
					continue
				}
			}
			if got := dump(t, name); got != string(want) {
				t.Errorf("pages of %s, %s: got\n%s\nwant\n%s", size, journal, got[:min(len(got), 500)], want[:500])
			}
		}
	}
}

func dump(t *testing.T, name string) string {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(name + "-wal")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	db, err := Open(bytes.NewReader(file), int64(len(file)), bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = db.Table("Packages", func(row []Value) error {
		fmt.Fprintf(&out, "%x %d\n", sha256.Sum256(row[1].Bytes), row[2].Int)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// FuzzTable: any bytes are a database or an error, in bounded time and memory. That real databases
// are read is tested in agent/inventory, on rpm's own.
func FuzzTable(f *testing.F) {
	head := make([]byte, 1024)
	copy(head, "SQLite format 3\x00\x02\x00")
	head[100] = 13
	f.Add(head, []byte{})
	loop := bytes.Clone(head)
	loop[100], loop[111] = 5, 1 // an interior page whose child is itself
	f.Add(loop, []byte{0x37, 0x7f, 6, 0x82})
	wide := bytes.Clone(loop) // and has itself for every child
	wide[103], wide[104] = 0, 100
	for i := 112; i < 312; i += 2 {
		wide[i], wide[i+1] = 1, 0xf0
	}
	wide[0x1f3] = 1
	f.Add(wide, []byte{})
	f.Fuzz(func(t *testing.T, file, log []byte) {
		db, err := Open(bytes.NewReader(file), int64(len(file)), bytes.NewReader(log))
		if err != nil {
			return
		}
		_ = db.Table("Packages", func([]Value) error { return nil })
	})
}

func TestVarint(t *testing.T) {
	for _, c := range []struct {
		data []byte
		v    uint64
		n    int
	}{{[]byte{5}, 5, 1}, {[]byte{0x81, 0}, 128, 2}, {[]byte{0x81}, 0, 0}, {nil, 0, 0},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1<<64 - 1, 9}} {
		if v, n := varint(c.data); v != c.v || n != c.n {
			t.Errorf("%x: %d in %d, want %d in %d", c.data, v, n, c.v, c.n)
		}
	}
}
