package seal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/sweep"
)

const liveRun = "KAMINO_TEST_LIVE_SEAL"

// TestMain lets the test program play the agent on a running node: in a mount namespace of its own,
// with the disk as "/".
func TestMain(m *testing.M) {
	if os.Getenv(liveRun) == "" {
		os.Exit(m.Run())
	}
	if err := json.NewEncoder(os.Stdout).Encode(liveSeal()); err != nil {
		panic(err)
	}
}

func liveSeal() string {
	d, err := disk.Open("/")
	if err != nil {
		return err.Error()
	}
	defer d.Close()
	if _, err := Seal(context.Background(), d, foreignOptions()); err != nil {
		return err.Error()
	}
	return ""
}

// foreignOptions have a rule for each kind of match, besides the table's.
func foreignOptions() Options {
	return planted(func(o *Options) {
		o.Log = slog.New(slog.DiscardHandler)
		o.Config.Rules = []ExtraRule{
			{ID: "our-file", Paths: []string{"/srv/app/secret.txt"}, Action: Remove, Why: "test"},
			{ID: "our-directory", Paths: []string{"/srv/app/cache"}, Action: Remove, Why: "test"},
			{ID: "our-glob", Paths: []string{"/srv/pool/*/data-[0-9]"}, Action: Remove, Why: "test"},
		}
	})
}

// donorTree is the OS disk of the matrix; all of ours lies below /srv.
func donorTree(t testing.TB, dir string) {
	t.Helper()
	for name, text := range map[string]string{"etc/hostname": donorHost + "\n", "etc/machine-id": donorMachine + "\n", "usr/bin/kubelet": "program\n", "tmp/left": "x\n",
		"srv/app/secret.txt": "own\n", "srv/app/cache/deep/file": "own\n", "srv/app/cache/share/under": "own\n", "srv/pool/a/data-1/x/share/under": "own\n",
		"srv/pool/a/data-1/own": "own\n", "data/app/secret.txt": "bound\n", "data/app/cache/deep/db": "bound\n", "data/app/a/data-1/db": "bound\n", "data/app/db": "bound\n",
		"var/lib/images/x": "x\n", "proc/x": "", "sys/x": "", "dev/x": "", "run/x": ""} {
		plantFile(t, dir, name, text)
	}
}

// theirs is the content of everything foreign: wherever it is mounted, the rules match something in
// it.
func theirs(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"secret.txt", "cache/deep/db.dat", "a/data-1/db.dat", "data-1/db.dat", "deep/db.dat", "share/db.dat", "db.dat"} {
		plantFile(t, dir, name, "customer data "+name+"\n")
	}
}

// mountPosition is where a foreign mount lies, seen from what a rule matches. At and below a match
// the seal is refused; above one it is done.
type mountPosition struct{ match, position, at string }

var positions = []mountPosition{
	{"file", "at", "srv/app/secret.txt"}, {"file", "above", "srv/app"},
	{"directory", "at", "srv/app/cache"}, {"directory", "below", "srv/app/cache/share"}, {"directory", "above", "srv/app"},
	{"glob", "at", "srv/pool/a/data-1"}, {"glob", "below", "srv/pool/a/data-1/x/share"}, {"glob", "above", "srv/pool"},
}

// foreigners mount their kind at a place below root and say where their files can be read.
var foreigners = map[string]func(t testing.TB, w *foreignWorld, at string) (files string){
	"share": func(t testing.TB, w *foreignWorld, at string) string {
		name := filepath.Join(scratch(t), "share.img")
		copyImage(t, w.theirs, name)
		device, detach := attach(t, name)
		w.undo(detach)
		return w.mount(t, device, at, "ext4", 0)
	},
	"bind mount of another disk": func(t testing.TB, w *foreignWorld, at string) string {
		name, other := filepath.Join(scratch(t), "other.img"), filepath.Join(scratch(t), "other")
		copyImage(t, w.theirs, name)
		w.undo(mountImage(t, name, other, "ext4"))
		return w.mount(t, other, at, "", syscall.MS_BIND)
	},
	"bind mount of the same disk": func(t testing.TB, w *foreignWorld, at string) string {
		return w.mount(t, filepath.Join(w.root, "data/app"), at, "", syscall.MS_BIND)
	},
	"tmpfs": func(t testing.TB, w *foreignWorld, at string) string {
		memory := filepath.Join(scratch(t), "memory")
		w.undo(mount(t, "tmpfs", memory, "tmpfs", 0))
		theirs(t, memory)
		return w.mount(t, memory, at, "", syscall.MS_BIND)
	},
	"second partition of another disk": func(t testing.TB, w *foreignWorld, at string) string {
		run(t, "dd", "if="+w.theirs, "of="+w.partition, "bs=1M", "status=none", "conv=fsync")
		return w.mount(t, w.partition, at, "ext4", 0)
	},
	"loop device on the same disk": func(t testing.TB, w *foreignWorld, at string) string {
		name := filepath.Join(w.root, "var/lib/images/data.img")
		copyImage(t, w.theirs, name)
		device, detach := attach(t, name)
		w.undo(detach)
		return w.mount(t, device, at, "ext4", 0)
	},
}

type foreignWorld struct {
	root, theirs, partition string
	undos                   []func()
}

func (w *foreignWorld) undo(f func()) { w.undos = append(w.undos, f) }

func (w *foreignWorld) end() {
	for _, f := range slices.Backward(w.undos) {
		f()
	}
	w.undos = nil
}

// mount puts source at a place of the disk; over a file, which no file system can cover, one of its
// files.
func (w *foreignWorld) mount(t testing.TB, source, at, kind string, flags uintptr) (files string) {
	t.Helper()
	place := filepath.Join(w.root, at)
	if info, err := os.Stat(place); err != nil || info.IsDir() {
		w.undo(mount(t, source, place, kind, flags))
		return place
	}
	if flags&syscall.MS_BIND == 0 {
		files = filepath.Join(scratch(t), "aside")
		w.undo(mount(t, source, files, kind, flags))
	} else {
		files = source
	}
	w.undo(mount(t, filepath.Join(files, "secret.txt"), place, "", syscall.MS_BIND))
	return files
}

// seal seals the disk as an attached one, or as that of a running node.
func (w *foreignWorld) seal(t testing.TB, mode string) error {
	t.Helper()
	if mode == "attached" {
		d, err := disk.Open(w.root)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		_, err = Seal(t.Context(), d, foreignOptions())
		return err
	}
	for _, kind := range []string{"proc", "sysfs", "devtmpfs"} {
		w.undo(mount(t, kind, filepath.Join(w.root, map[string]string{"proc": "proc", "sysfs": "sys", "devtmpfs": "dev"}[kind]), kind, 0))
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir, cmd.Env, cmd.Stderr = "/", append(os.Environ(), liveRun+"=1"), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Chroot: w.root}
	if !testing.Verbose() {
		cmd.Stderr = nil
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("seal on a running node: %v: %s (this test starts itself in a tree without a linker: build it with CGO_ENABLED=0, as make does)", err, out)
	}
	var failure string
	if err := json.Unmarshal(out, &failure); err != nil {
		t.Fatal(err)
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

// TestForeign: wherever something foreign is mounted, a seal leaves every byte of it, and refuses,
// before it changes anything, where it lies at or below what a rule takes away. What lies under it
// on the own disk is sealed.
func TestForeign(t *testing.T) {
	needImages(t, "ext4", "xfs")
	other := image(t, "ext4")
	dir := filepath.Join(scratch(t), "theirs")
	off := mountImage(t, other, dir, "ext4")
	theirs(t, dir)
	off()
	second := partitioned(t, 2, 16) + "p2"
	var cases []foreignCase
	for _, kind := range []string{"ext4", "xfs"} {
		pristine := image(t, kind)
		off := mountImage(t, pristine, dir, kind)
		donorTree(t, dir)
		off()
		for _, name := range slices.Sorted(maps.Keys(foreigners)) {
			for _, mode := range []string{"attached", "live"} {
				for _, p := range positions {
					cases = append(cases, foreignCase{pristine, kind, name, mode, p})
				}
			}
		}
	}
	for i := range sweep.Cases(t, len(cases), 15*time.Second, func(i int) string { return cases[i].foreigner + cases[i].mode + cases[i].position.position }) {
		c := cases[i]
		t.Run(fmt.Sprintf("%s/%s/%s/%s %s", c.kind, c.foreigner, c.mode, c.position.position, c.position.match), func(t *testing.T) {
			w := &foreignWorld{theirs: other, partition: second}
			w.check(t, c.pristine, c.kind, c.mode, c.position.position, c.position.at, foreigners[c.foreigner])
		})
	}
}

// foreignCase is a place at which something foreign is mounted while a disk is sealed.
type foreignCase struct {
	pristine, kind  string // the image of the disk, and its file system
	foreigner, mode string
	position        mountPosition
}

func (w *foreignWorld) check(t *testing.T, pristine, kind, mode, position, at string, place func(testing.TB, *foreignWorld, string) string) {
	defer w.end()
	img := filepath.Join(scratch(t), "disk.img")
	copyImage(t, pristine, img)
	w.root = filepath.Join(scratch(t), "root")
	w.undo(mountImage(t, img, w.root, kind))
	files := place(t, w, at)
	before, all := digest(t, files), digest(t, filepath.Join(w.root, "srv"))
	err := w.seal(t, mode)
	if after := digest(t, files); after != before {
		t.Errorf("what is foreign was %s and is %s", before, after)
	}
	own := strings.HasPrefix(files, w.root+"/data") || strings.Contains(t.Name(), "same_disk") && strings.Contains(t.Name(), "bind")
	if position != "above" || own {
		if err == nil || !strings.Contains(err.Error(), "seal refused") || !strings.Contains(err.Error(), "/"+at) || !strings.Contains(err.Error(), "umount") {
			t.Fatalf("not refused by the name of the mount: %v", err)
		}
		if after := digest(t, filepath.Join(w.root, "srv")); after != all {
			t.Error("refused, and something was changed")
		}
		return
	}
	if err != nil {
		t.Fatalf("what is above a match is in nobody's way: %v", err)
	}
	w.end()
	alone := filepath.Join(scratch(t), "alone")
	w.undo(mountImage(t, img, alone, kind))
	for _, gone := range []string{"srv/app/secret.txt", "srv/app/cache", "srv/pool/a/data-1", "etc/hostname", "tmp/left"} {
		if _, err := os.Lstat(filepath.Join(alone, gone)); err == nil {
			t.Errorf("/%s travels, under what was mounted", gone)
		}
	}
}
