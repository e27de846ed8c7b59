package runtimes

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/disk/disktest"
)

// opened is a database on a disk, held open and so locked, as by a runtime that runs.
func opened(t testing.TB, d *disk.Disk, name string, fill func(*bolt.Tx) error) *bolt.DB {
	t.Helper()
	at := d.Host(name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(at, 0o600, &bolt.Options{NoSync: true})
	if err = errors.Join(err, db.Update(fill)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// flat is all that is in a bucket, by the path of names.
func flat(b *bucket, prefix string, into map[string]string) error {
	return b.each(func(key, value []byte, nested *bucket) error {
		if nested != nil {
			return flat(nested, prefix+string(key)+"/", into)
		}
		into[prefix+string(key)] = string(value)
		return nil
	})
}

func contents(root *bucket) (map[string]string, error) {
	all := map[string]string{}
	return all, flat(root, "", all)
}

// plenty has pages of branches, values that take several pages, buckets within their parent's page
// and buckets of their own, and pages that were freed.
func plenty(want map[string]string) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		for i := range 40 {
			b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket-%d", i))
			for j := range 1 + i*i {
				key, value := fmt.Sprintf("key-%d", j), strings.Repeat(fmt.Sprint(j), 1+j%7)
				if j == 5 {
					value = strings.Repeat("long", 5000)
				}
				if err != nil {
					return err
				}
				if err = b.Put([]byte(key), []byte(value)); j%11 == 0 && err == nil {
					inner, berr := b.CreateBucketIfNotExists(fmt.Appendf(nil, "inner-%d", j))
					err = errors.Join(berr, inner.Put([]byte("k"), []byte(value)))
					want[fmt.Sprintf("bucket-%d/inner-%d/k", i, j)] = value
				}
				want[fmt.Sprintf("bucket-%d/%s", i, key)] = value
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// TestReader: what is read is what the library wrote, while the library has the database open.
func TestReader(t *testing.T) {
	d, want := disktest.New(t, nil), map[string]string{}
	db := opened(t, d, "a.db", plenty(want))
	err := db.Update(func(tx *bolt.Tx) error {
		for name := range want {
			if strings.HasPrefix(name, "bucket-7/") {
				delete(want, name)
			}
		}
		return tx.DeleteBucket([]byte("bucket-7"))
	})
	got, rerr := view(d, "a.db", contents)
	if err = errors.Join(err, rerr); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d of %d keys, %v", len(got), len(want), err)
	}
	none, err := view(d, "none.db", contents)
	if err != nil || len(none) > 0 {
		t.Errorf("a database that does not exist: %v, %v", none, err)
	}
}

// TestReaderBesideWriter: a state is one transaction's, however much is written meanwhile.
func TestReaderBesideWriter(t *testing.T) {
	d := disktest.New(t, nil)
	count := func(n int) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) (err error) {
			for i := range 300 {
				b, berr := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "%d", i%3))
				err = errors.Join(err, berr, b.Put(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "%200d", n)))
			}
			return err
		}
	}
	db := opened(t, d, "a.db", count(0))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for n := 1; err == nil; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
				err = db.Update(count(n))
			}
		}
		done <- err
	}()
	good := 0
	for range 200 {
		got, err := view(d, "a.db", contents)
		if err != nil {
			if !strings.Contains(err.Error(), "written to all the time") {
				t.Error(err)
			}
			continue
		}
		good++
		for name, value := range got {
			if value != got["0/key-0"] {
				t.Fatalf("%s is of another transaction: %s and %s", name, value, got["0/key-0"])
			}
		}
	}
	close(stop)
	if err := <-done; err != nil || good == 0 {
		t.Errorf("%d of 200 states read, %v", good, err)
	}
}

// FuzzBolt: a damaged database is an error or what is left of it, never an end of the program, nor
// a reading without one.
func FuzzBolt(f *testing.F) {
	d := disktest.New(f, nil)
	small := func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("v1"))
		for i := range 200 {
			err = errors.Join(err, b.Put(fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte("v"), 90)))
		}
		in, berr := b.CreateBucketIfNotExists([]byte("in"))
		return errors.Join(err, berr, in.Put([]byte("k"), []byte("v")))
	}
	if err := opened(f, d, "seed.db", small).Close(); err != nil {
		f.Fatal(err)
	}
	seed, err := d.ReadFile("seed.db", 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, 0, byte(0))
	f.Add(seed, 3*4096+16+8, byte(3)) // an element's page
	f.Add([]byte("no database"), 0, byte(0))
	f.Fuzz(func(t *testing.T, data []byte, at int, to byte) {
		if len(data) > 1<<20 {
			return
		}
		data = bytes.Clone(data)
		if at >= 0 && at < len(data) {
			data[at] = to
		}
		meta, err := metaPages(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		db, err := openBolt(bytes.NewReader(data), int64(len(data)), meta)
		if err != nil {
			return
		}
		n := 0
		_ = (&bucket{db: db, page: db.root}).each(func(_, _ []byte, nested *bucket) error {
			n++
			return nested.each(func(_, _ []byte, _ *bucket) error { n++; return nil })
		})
		if n > len(data) {
			t.Errorf("%d elements in %d bytes", n, len(data))
		}
	})
}

// TestZeroedPage: a page that was lost, as a file system may do it, is not an empty one.
func TestZeroedPage(t *testing.T) {
	d, want := disktest.New(t, nil), map[string]string{}
	db := opened(t, d, "a.db", func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("containers"))
		for i := range 200 {
			c, cerr := b.CreateBucketIfNotExists(fmt.Appendf(nil, "%d", i))
			if err = errors.Join(err, cerr); err == nil {
				err = c.Put([]byte("image"), []byte(strings.Repeat("i", 200)))
			}
			want[fmt.Sprintf("containers/%d/image", i)] = strings.Repeat("i", 200)
		}
		return err
	})
	page := db.Info().PageSize
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := d.ReadFile("a.db", 1<<20)
	if err != nil || len(whole) < 10*page {
		t.Fatalf("%d bytes, %v", len(whole), err)
	}
	for at := 2 * page; at < len(whole); at += page { // behind the meta pages, of which one is spare
		torn := bytes.Clone(whole)
		clear(torn[at : at+page])
		if err := d.WriteFile("torn.db", torn, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := view(d, "torn.db", contents); err == nil && !maps.Equal(got, want) {
			t.Errorf("without page %d: %d of %d keys and no error", at/page, len(got), len(want))
		}
	}
}

// TestPageSizes: the newest transaction is read, whatever the size of a page on the machine where
// the database was made.
func TestPageSizes(t *testing.T) {
	for size := 1 << 10; size <= 64<<10; size *= 2 {
		d := disktest.New(t, nil)
		db, err := bolt.Open(d.Host("a.db"), 0o600, &bolt.Options{PageSize: size, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			want := map[string]string{"b/k": fmt.Sprint(i)}
			err := db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("b"))
				return errors.Join(err, b.Put([]byte("k"), []byte(fmt.Sprint(i))))
			})
			got, rerr := view(d, "a.db", contents)
			if err = errors.Join(err, rerr); err != nil || !maps.Equal(got, want) {
				t.Errorf("pages of %d bytes: %v, want %v, %v", size, got, want, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
