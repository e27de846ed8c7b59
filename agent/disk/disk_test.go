package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree makes a root with links in it, beside a directory that nothing may reach.
func tree(t *testing.T) (d *Disk, outside string) {
	t.Helper()
	top := t.TempDir()
	root, outside := filepath.Join(top, "root"), filepath.Join(top, "outside")
	var err error
	for name, text := range map[string]string{"root/etc/hosts": "inside\n", "root/data/kubelet/pki/key": "key\n", "root/data/kubelet/config": "c\n", "outside/file": "outside\n"} {
		at := filepath.Join(top, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o640))
	}
	for name, target := range map[string]string{
		"root/up": "../../../../../../..", "root/abs": "/etc", "root/out": outside, "root/outfile": filepath.Join(outside, "file"), "root/loop": "loop",
		"root/dangling": "/nothing/here", "root/var": "data", "root/data/back": "../etc/hosts", "root/etc/deep": "../../../../../../../../etc/hosts",
	} {
		err = errors.Join(err, os.Symlink(target, filepath.Join(top, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if d, err = Open(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, outside
}

// TestLinks: names mean what they would mean to the disk's own system after booting from it.
func TestLinks(t *testing.T) {
	d, outside := tree(t)
	for name, want := range map[string]string{
		"etc/hosts": "inside", "/etc/hosts": "inside", "abs/hosts": "inside", "up/etc/hosts": "inside", "../../etc/hosts": "inside", "etc/deep": "inside",
		"data/back": "inside", "var/kubelet/pki/key": "key", "var/back": "inside", "outfile": "", "out/file": "", "loop": "", "loop/x": "", "dangling": "", "etc/hosts/x": "",
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.Text(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		})
	}
	if !d.Exists("dangling") || !d.Exists("outfile") || d.Exists("out/file") {
		t.Error("a link exists, what is behind it does not")
	}
	// The last component is never followed when it is changed.
	if err := errors.Join(d.WriteFile("outfile", []byte("mine"), 0o600), d.Remove("out"), d.WriteFile("up", []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(outside, "file"))
	if err != nil || string(text) != "outside\n" {
		t.Errorf("outside: %q, %v", text, err)
	}
	if d.Text("outfile") != "mine" || d.Text("etc/hosts") != "inside" {
		t.Error("the link was not replaced")
	}
	if _, err := d.OpenFile("loop", os.O_RDONLY, 0); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
}

func TestGlob(t *testing.T) {
	d, _ := tree(t)
	for pattern, want := range map[string]string{
		"/etc/*": "etc/deep etc/hosts", "/var/kubelet/*": "data/kubelet/config data/kubelet/pki", "/*/kubelet/pki/*": "data/kubelet/pki/key", "/out/*": "", "/loop/*": "",
		"/etc/hosts/*": "", "/nothing/*": "", "/dangling": "dangling", "/abs/h*": "etc/hosts",
	} {
		t.Run(pattern, func(t *testing.T) {
			got, err := d.Glob(pattern)
			if err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s: %q, %v, want %q", pattern, got, err, want)
			}
		})
	}
	if _, err := d.Glob("/etc/["); err == nil {
		t.Error("a malformed pattern")
	}
}

func TestWrite(t *testing.T) {
	d, _ := tree(t)
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	if err := d.WriteFile("new/dir/file", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if info, err := d.Lstat("new/dir/file"); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	if err := d.CopyIn("bin/program", strings.NewReader("program"), 0o755); err != nil || d.Text("bin/program") != "program" {
		t.Error(err)
	}
	if err := errors.Join(d.AppendLine("log", "one", 0o644), d.AppendLine("log", "two", 0o644)); err != nil || d.Text("log") != "one\ntwo" {
		t.Errorf("%q, %v", d.Text("log"), err)
	}
	if err := d.WriteFile("etc/hosts/x", nil, 0o644); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
	if err := d.Remove("never/was"); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
	if err := d.Symlink("/etc/hosts", "etc/link"); err != nil || d.Text("etc/link") != "inside" {
		t.Error(err)
	}
	if _, err := d.ReadFile("etc/hosts", 3); err == nil || !strings.Contains(err.Error(), "larger than 3 bytes") {
		t.Errorf("too large: %v", err)
	}
	if _, err := d.ReadFile("etc", 3); err == nil {
		t.Error("a directory was read")
	}
	if err := syscall.Mkfifo(d.Host("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadFile("pipe", 3); err == nil {
		t.Error("a pipe was read") // and did not block
	}
}

func TestWalkAndSize(t *testing.T) {
	d, _ := tree(t)
	var seen []string
	if err := d.Walk("data", func(name string, _ fs.FileInfo) error { seen = append(seen, name); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"data", "data/back", "data/kubelet", "data/kubelet/config", "data/kubelet/pki", "data/kubelet/pki/key"}; !slices.Equal(seen, want) {
		t.Errorf("%q", seen)
	}
	if n, err := d.Size("data"); n != 6 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := errors.Join(d.Overwrite(2, "data/kubelet")); err != nil || d.Text("data/kubelet/pki/key") != "\x00\x00y" {
		t.Errorf("%q, %v", d.Text("data/kubelet/pki/key"), err)
	}
	if err := d.Empty("data"); err != nil || d.Text("data/kubelet/pki/key") != "" || d.Text("etc/hosts") != "inside" {
		t.Errorf("%v, %q", err, d.Text("etc/hosts"))
	}
}

const mountinfo = `24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
25 24 0:22 / /proc rw,nosuid - proc proc rw
60 24 8:15 / /boot/efi rw,relatime shared:30 - vfat /dev/sda15 rw
61 24 8:17 / /mnt\040data ro,relatime - xfs /dev/sdb1 ro
broken line
`

func TestMounts(t *testing.T) {
	got := parseMounts(mountinfo)
	want := []mount{
		{id: 24, parent: 1, dev: 8<<8 | 1, root: "/", point: "/", kind: "ext4", source: "/dev/sda1"},
		{id: 25, parent: 24, dev: 22, root: "/", point: "/proc", kind: "proc", source: "proc"},
		{id: 60, parent: 24, dev: 8<<8 | 15, root: "/", point: "/boot/efi", kind: "vfat", source: "/dev/sda15"},
		{id: 61, parent: 24, dev: 8<<8 | 17, root: "/", point: "/mnt data", kind: "xfs", source: "/dev/sdb1", readOnly: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestPhysical: partitions and mapped devices lead to their disks.
func TestPhysical(t *testing.T) {
	sys := t.TempDir()
	var err error
	for _, f := range []string{"devices/sda/sda1/partition", "devices/sda/sda2/partition", "devices/sdb/size", "devices/dm-0/dm/name"} {
		at := filepath.Join(sys, f)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o644))
	}
	err = errors.Join(err, os.MkdirAll(filepath.Join(sys, "dev/block"), 0o755), os.MkdirAll(filepath.Join(sys, "devices/dm-0/slaves"), 0o755), os.Symlink("../../sda/sda2", filepath.Join(sys, "devices/dm-0/slaves/sda2")))
	for number, at := range map[string]string{"8:1": "devices/sda/sda1", "8:2": "devices/sda/sda2", "8:16": "devices/sdb", "253:0": "devices/dm-0"} {
		err = errors.Join(err, os.Symlink("../../"+at, filepath.Join(sys, "dev/block", number)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for dev, want := range map[uint64]string{8<<8 | 1: "sda", 8<<8 | 16: "sdb", 253 << 8: "sda", 9 << 8: ""} {
		if got := strings.Join(physical(sys, dev), " "); got != want {
			t.Errorf("device %x: %q, want %q", dev, got, want)
		}
	}
}

func TestUnder(t *testing.T) {
	for _, tt := range []struct {
		name, dir string
		want      bool
	}{{"a/b", "a", true}, {"a", "a", true}, {"ab", "a", false}, {"a", ".", true}, {"/a/b/", "a", true}, {"a", "a/b", false}} {
		t.Run(tt.name, func(t *testing.T) {
			if Under(tt.name, tt.dir) != tt.want {
				t.Errorf("%s under %s: %v", tt.name, tt.dir, !tt.want)
			}
		})
	}
}

// TestOpenWalked: what a walk named is opened as it is; what became a link meanwhile is followed
// inside the root, and nowhere else.
func TestOpenWalked(t *testing.T) {
	top := t.TempDir()
	root := filepath.Join(top, "root")
	for name, text := range map[string]string{"root/etc/a": "inside", "secret": "outside", "root/secret": "below the root"} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755), os.WriteFile(filepath.Join(top, name), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		})
	}
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, tt := range []struct{ link, want string }{{"", "inside"}, {"../../../secret", "below the root"}, {"/secret", "below the root"}, {"../etc/none", ""}} {
		t.Run(tt.link, func(t *testing.T) {
			if tt.link != "" {
				if err := errors.Join(os.RemoveAll(filepath.Join(root, "etc/a")), os.Symlink(tt.link, filepath.Join(root, "etc/a"))); err != nil {
					t.Fatal(err)
				}
			}
			f, err := d.OpenWalked("etc/a")
			if tt.want == "" {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("link to %s: %v", tt.link, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("link to %q: %v", tt.link, err)
			}
			data, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil || string(data) != tt.want {
				t.Errorf("link to %q: %q, %v", tt.link, data, err)
			}
		})
	}
}
