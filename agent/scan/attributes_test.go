package scan

import (
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// TestAttributes: what files and directories have besides their content is read as well.
func TestAttributes(t *testing.T) {
	d := disktest.New(t, map[string]string{"srv/app/data": "x\n", "srv/app/empty": "", "srv/other/data": "x\n"})
	for name, a := range map[string][2]string{"srv/app/data": {"user.note", pemKey}, "srv/app/empty": {"user.token", "q8Zr2LmT5vXw9BnC"}, "srv/app": {"user.password", "Pa55w0rd1234"}, "srv/other/data": {"user.comment", "harmless"}} {
		t.Run(name, func(t *testing.T) {
			if err := syscall.Setxattr(d.Host(name), a[0], []byte(a[1]), 0); err != nil {
				t.Fatal(err) // needs a file system with attributes of users: ext4, xfs, tmpfs since Linux 6.6
			}
		})
	}
	r, err := Files(t.Context(), d, Options{})
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Kind+" "+f.Path)
	}
	if want := "secret srv/app, private-key srv/app/data, secret srv/app/empty"; err != nil || strings.Join(got, ", ") != want {
		t.Errorf("%q, %v, want %s", got, err, want)
	}
}
