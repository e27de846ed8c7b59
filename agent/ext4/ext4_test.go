package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// image makes an ext4 file system with e2fsprogs alone, no mount: so many bytes, with options of mke2fs.
func image(t *testing.T, size int64, options ...string) string {
	t.Helper()
	for _, tool := range []string{"mke2fs", "debugfs", "e2fsck"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s of e2fsprogs is not installed", tool)
		}
	}
	name := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mke2fs", append(append([]string{"-q", "-t", "ext4"}, options...), name)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

func debugfs(t *testing.T, image string, commands ...string) {
	t.Helper()
	cmd := exec.Command("debugfs", "-w", "-f", "-", image)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestScrub: content and names of deleted files go, living ones stay, and the file system is clean, for the layouts that
// installers make.
func TestScrub(t *testing.T) {
	for name, options := range map[string][]string{
		"Debian":              nil,
		"blocks of 1 KiB":     {"-b", "1024"},
		"without 64bit":       {"-O", "^64bit"},
		"without checksums":   {"-O", "^metadata_csum"},
		"without flex_bg":     {"-O", "^flex_bg"},
		"without a journal":   {"-O", "^has_journal"},
		"of Ubuntu 24.04":     {"-O", "metadata_csum_seed,orphan_file"},
		"inodes of 128 bytes": {"-I", "128"},
	} {
		t.Run(name, func(t *testing.T) {
			at := image(t, 16<<20, options...)
			living, dead := filepath.Join(t.TempDir(), "living"), filepath.Join(t.TempDir(), "dead")
			if err := errors.Join(os.WriteFile(living, bytes.Repeat([]byte("alive and well "), 9000), 0o600),
				os.WriteFile(dead, bytes.Repeat([]byte("secret-content "), 9000), 0o600)); err != nil {
				t.Fatal(err)
			}
			var commands []string
			for i := range 30 {
				commands = append(commands, fmt.Sprintf("write %s secret-name-%d", dead, i), fmt.Sprintf("write %s living-%d", living, i), fmt.Sprintf("symlink link-%d /living-%d", i, i))
			}
			for i := range 30 {
				commands = append(commands, fmt.Sprintf("rm secret-name-%d", i))
			}
			debugfs(t, at, commands...)
			before, err := os.ReadFile(at)
			if err != nil || !bytes.Contains(before, []byte("secret-content")) || !bytes.Contains(before, []byte("secret-name")) {
				t.Fatalf("nothing to find: %v", err)
			}
			r, err := Scrub(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			after, err := os.ReadFile(at)
			if err != nil || bytes.Contains(after, []byte("secret-content")) || bytes.Contains(after, []byte("secret-name")) {
				t.Errorf("still there (%v): content %v, name %v", err, bytes.Contains(after, []byte("secret-content")), bytes.Contains(after, []byte("secret-name")))
			}
			if r.FreeBlocks == 0 || r.DirectoryBytes == 0 || r.Inodes == 0 {
				t.Errorf("%+v", r)
			}
			if out, err := exec.Command("e2fsck", "-fn", at).CombinedOutput(); err != nil {
				t.Errorf("e2fsck: %v\n%s", err, out)
			}
			back := filepath.Join(t.TempDir(), "back")
			debugfs(t, at, "dump living-29 "+back)
			want, err1 := os.ReadFile(living)
			got, err2 := os.ReadFile(back)
			if err := errors.Join(err1, err2); err != nil || !bytes.Equal(got, want) {
				t.Errorf("a living file has changed, %v", err)
			}
			again, err := Scrub(t.Context(), at)
			if err != nil || again.FreeBlocks+again.Inodes+again.SlackBytes+again.DirectoryBytes+again.JournalBlocks != 0 {
				t.Errorf("scrubbed again: %+v, %v", again, err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	damage := func(at string, offset int64, b ...byte) {
		f, err := os.OpenFile(at, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(b, offset)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for want, prepare := range map[string]func() string{
		"no ext4 superblock": func() string { at := image(t, 8<<20); damage(at, 1024+0x38, 0, 0); return at },
		"e2fsck -p":          func() string { at := image(t, 8<<20); damage(at, 1024+0x60, 0xC6, 0x02, 0, 0); return at },
		"not supported":      func() string { return image(t, 8<<20, "-O", "inline_data") },
		"bigalloc":           func() string { return image(t, 8<<20, "-O", "bigalloc") },
		"makes no sense":     func() string { at := image(t, 8<<20); damage(at, 1024+0x20, 0, 0, 0, 0); return at },
		"open device":        func() string { return filepath.Join(t.TempDir(), "gone") },
	} {
		at := prepare()
		if want == "bigalloc" {
			want = "not supported"
		}
		before, _ := os.ReadFile(at)
		_, err := Scrub(t.Context(), at)
		after, _ := os.ReadFile(at)
		if err == nil || !strings.Contains(err.Error(), want) || !bytes.Equal(before, after) {
			t.Errorf("%v, want %q; changed: %v", err, want, !bytes.Equal(before, after))
		}
	}
}
