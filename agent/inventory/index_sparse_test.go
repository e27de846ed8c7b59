package inventory

import (
	"errors"
	"os"
	"testing"
	"time"
)

// TestSparse: the digest of a file of terabytes that takes a few KiB on the disk costs what its data
// cost, and changes with them.
func TestSparse(t *testing.T) {
	d := tree(t, map[string]string{"srv/image": ""})
	write := func(at int64, text string) {
		f, err := os.OpenFile(d.Host("srv/image"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(text), at)
		if err = errors.Join(err, f.Truncate(2<<40), f.Close()); err != nil {
			t.Skipf("the file system holds no sparse file of 2 TiB: %v", err)
		}
	}
	digest := func() Digest {
		began := time.Now()
		r := looked(t, d, Options{})
		if len(r.Unknown) != 1 || r.Unknown[0].Digest == (Digest{}) || time.Since(began) > 20*time.Second {
			t.Fatalf("%+v, %v", r.Unknown, time.Since(began))
		}
		return r.Unknown[0].Digest
	}
	write(1<<40, "one")
	one := digest()
	write(1<<40, "two")
	two := digest()
	write(1<<41-4096, "two")
	if three := digest(); one == two || two == three {
		t.Errorf("%s, %s, %s", one, two, three)
	}
}
