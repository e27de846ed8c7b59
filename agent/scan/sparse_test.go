package scan

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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

// TestSparseMember: a member of an archive that is mostly holes is read up to a bound, and takes
// nothing of what is behind it.
func TestSparseMember(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	const size = int64(1) << 40
	// A member of GNU's sparse format 1.0 in a pax archive: a map of one piece at the end, in a
	// block, and then the piece.
	piece := fmt.Sprintf("1\n%d\n4\n", size-4)
	body := piece + strings.Repeat("\x00", 512-len(piece)) + "data"
	err := w.WriteHeader(&tar.Header{Name: "GNUSparseFile.0/image", Mode: 0o600, Size: int64(len(body)), Format: tar.FormatPAX,
		PAXRecords: map[string]string{"KAMINO.x": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(w, body)
	err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "key.pem", Mode: 0o600, Size: int64(len(pemKey))}))
	_, err2 := io.WriteString(w, pemKey)
	if err = errors.Join(err, err2, w.Close()); err != nil {
		t.Fatal(err)
	}
	// The writer does not let GNU's own keys through.
	text := sparseRecords(b.String(), size)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := Files(t.Context(), disktest.New(t, map[string]string{"srv/a.tar.gz": gzipOf(t, text)}), Options{})
		if err != nil || len(r.Findings) != 1 || r.Findings[0].Kind != "private-key" || len(r.Skipped) == 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		t.Fatal("it reads the holes")
	}
}

// sparseRecords puts GNU's records of a sparse file in the place of those of the first member.
func sparseRecords(text string, size int64) string {
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=image", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(r) + 4 // of two digits, a space and a line's end
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	head := []byte(text[:512])
	copy(head[124:136], fmt.Sprintf("%011o\x00", len(records)))
	copy(head[148:156], "        ")
	sum := 0
	for _, c := range head {
		sum += int(c)
	}
	copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return string(head) + records + strings.Repeat("\x00", 512-len(records)) + text[1024:]
}
