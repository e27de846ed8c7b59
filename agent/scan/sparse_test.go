package scan

import (
	"errors"
	"os"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
)

// TestSparse: a file of two terabytes that takes 8 KiB on the disk costs what its data costs, and
// what stands in that is found, where it is.
func TestSparse(t *testing.T) {
	d := disktest.New(t, map[string]string{"srv/image": ""})
	const at = int64(1) << 40
	f, err := os.OpenFile(d.Host("srv/image"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("\npassword = Pa55w0rd1234\n"), at)
	if err = errors.Join(err, f.Truncate(2<<40), f.Close()); err != nil {
		t.Skipf("the file system holds no sparse file of 2 TiB: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := Files(t.Context(), d, Options{})
		if err != nil || len(r.Findings) != 1 || r.Findings[0].Offset < at || r.Findings[0].Offset > at+30 {
			t.Errorf("%+v, %v", r, err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it reads the holes")
	}
}
