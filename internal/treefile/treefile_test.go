package treefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTree: what is written is read again, and unpacked, whatever the files hold.
func TestTree(t *testing.T) {
	tree := Tree{Comment: "about: a tree\n\n", Files: []File{
		{Name: "etc/empty"},
		{Name: "etc/hostname", Content: "node\n"},
		{Name: "etc/localtime", Target: "../usr/share/zoneinfo/UTC"},
		{Name: "etc/machine-id", Content: "no newline"},
		{Name: "var/archive.txtar", Content: "-- etc/hostname --\n"},
		{Name: "var/bytes", Content: "\x80\x00\r\n"},
		{Name: "var/newline", Content: "\n"},
	}}
	path := filepath.Join(t.TempDir(), "tree.txtar")
	if err := tree.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tree, got); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	root := t.TempDir()
	if err := got.Below("etc").Unpack(filepath.Join(root, "of etc")); err != nil {
		t.Fatal(err)
	}
	if err := got.Below("var").Unpack(root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"of etc/hostname": "node\n", "of etc/machine-id": "no newline", "of etc/empty": "", "bytes": "\x80\x00\r\n"} {
		if data, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(data) != want {
			t.Errorf("%s has %q, %v", name, data, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(root, "of etc/localtime")); err != nil || target != "../usr/share/zoneinfo/UTC" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
}

// TestReplace: a file replaces a link of the tree below it, and is not written through it.
func TestReplace(t *testing.T) {
	root := t.TempDir()
	for _, tree := range []Tree{{Files: []File{{Name: "a", Content: "a\n"}, {Name: "b", Target: "a"}}}, {Files: []File{{Name: "b", Content: "b\n"}}}} {
		if err := tree.Unpack(root); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root, "a")); err != nil || string(data) != "a\n" {
		t.Errorf("a has %q, %v", data, err)
	}
}

// TestDamaged: what is no gzip, and what is missing, is an error.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree.txtar")
	if _, err := Read(path); err == nil {
		t.Error("a missing file is read")
	}
	if err := os.WriteFile(path, []byte("-- a (gzip) --\nnonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if tree, err := Read(path); err == nil {
		t.Errorf("read as %v", tree)
	}
}
