package scan

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzInside: archives within archives, damaged anywhere, end with findings or with a note of what
// was not examined. The same bytes stand in an attribute of the file where the file system has any.
func FuzzInside(f *testing.F) {
	const secret = "password = Pa55w0rd1234\n"
	d := disktest.New(f, map[string]string{"opt/x": "x"})
	f.Add(archived(f, secret))
	f.Add(zipped(f, archived(f, secret)))
	f.Add(squeezed(f, zipped(f, []byte(secret))))
	f.Add([]byte("070701" + secret))
	for _, data := range encodings(f, secret) {
		f.Add(archived(f, string(data)))
		f.Add([]byte("content: " + base64.StdEncoding.EncodeToString(data)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if err := os.WriteFile(d.Host("opt/x"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(d.Host("opt/x"), "user.x", data[:min(len(data), 1000)], 0); err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		_, err := Files(t.Context(), d, Options{})
		if err != nil && !errors.Is(err, os.ErrInvalid) {
			t.Log(err)
		}
	})
}

func archived(t testing.TB, text string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: "a/b.conf", Mode: 0o600, Size: int64(len(text))})
	_, err2 := w.Write([]byte(text))
	if err = errors.Join(err, err2, w.Flush()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t testing.TB, data []byte) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	one, err := w.Create("c.jar")
	if err != nil {
		t.Fatal(err)
	}
	_, err = one.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func squeezed(t testing.TB, data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
