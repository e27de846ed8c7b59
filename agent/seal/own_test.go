package seal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// marked is text that can be found in a raw image: more than any cache or slack would hold by
// chance.
func marked(what string) string {
	return strings.Repeat("MARK-"+what+"-"+strings.Repeat("z", 40)+"\n", 200)
}

func marks(t testing.TB, image, what string) int {
	t.Helper()
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("MARK-"+what+"-"))
}

// TestHeldAndLinked: a file of two names that both go is overwritten, and so is a deleted file that
// a process has open; no free block is touched for it. A file that keeps a name keeps its content.
func TestHeldAndLinked(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			needImages(t, kind)
			img, root := image(t, kind), filepath.Join(scratch(t), "root")
			off := mountImage(t, img, root, kind)
			donorTree(t, root)
			for name, what := range map[string]string{"tmp/one": "twice", "tmp/kept": "kept", "srv/held": "held"} {
				plantFile(t, root, name, marked(what))
			}
			link := func(from, to string) error { return os.Link(filepath.Join(root, from), filepath.Join(root, to)) }
			held, err := os.Open(filepath.Join(root, "srv/held"))
			if err = errors.Join(err, link("tmp/one", "var/two"), link("tmp/kept", "srv/kept"), os.Remove(filepath.Join(root, "srv/held"))); err != nil {
				t.Fatal(err)
			}
			run(t, "sync", "-f", root)
			d, err := disk.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			alone := running(t, root)
			o := foreignOptions()
			o.Config.Rules = append(o.Config.Rules, ExtraRule{ID: "two", Paths: []string{"/var/two"}, Action: Remove, Why: "test"})
			_, err = Seal(t.Context(), d, o)
			_, ferr := FreeSpace(t.Context(), d, FreeNone)
			if err = errors.Join(err, ferr, d.Close(), held.Close()); err != nil {
				t.Fatal(err)
			}
			alone()
			off()
			for what, want := range map[string]int{"twice": 0, "held": 0, "kept": 200} {
				t.Run(what, func(t *testing.T) {
					if n := marks(t, img, what); n != want {
						t.Errorf("%s: %d of 200 lines are in the image, want %d", what, n, want)
					}
				})
			}
		})
	}
}

// onParts is a disk of two partitions with a donor's tree on the first, ext4.
func onParts(t *testing.T, work func(d *disk.Disk, root, second string)) {
	t.Helper()
	needImages(t, "ext4")
	device, root := partitioned(t, 16, 16), filepath.Join(scratch(t), "root")
	format(t, "ext4", device+"p1")
	off := mount(t, device+"p1", root, "ext4", 0)
	defer off()
	donorTree(t, root)
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	work(d, root, device+"p2")
}

// TestUnmountedPartition: nobody seals a disk of which a part cannot be seen.
func TestUnmountedPartition(t *testing.T) {
	onParts(t, func(d *disk.Disk, root, second string) {
		before := digest(t, root)
		refused := func(what string) {
			t.Helper()
			for _, err := range []error{Permit(d, foreignOptions()), func() error { _, err := Seal(t.Context(), d, foreignOptions()); return err }()} {
				if err == nil || !strings.Contains(err.Error(), "seal refused: "+second) || !strings.Contains(err.Error(), what) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if digest(t, root) != before {
				t.Errorf("%s: refused, and something was changed", what)
			}
		}
		format(t, "ext4", second)
		refused("(ext4, 16 MiB) is not mounted")
		fill := func(text string) {
			t.Helper()
			run(t, "dd", "if=/dev/zero", "of="+second, "bs=1M", "count=16", "conv=fsync", "status=none")
			if f, err := os.OpenFile(second, os.O_WRONLY, 0); err != nil {
				t.Fatal(err)
			} else if _, err := f.WriteString(text); errors.Join(err, f.Sync(), f.Close()) != nil {
				t.Fatal(err)
			}
		}
		fill("LUKS\xba\xbe\x00\x02")
		refused("is encrypted")
		fill("left by somebody")
		refused("unknown data")
		fill("")
		if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
			t.Errorf("a partition of zeros: %v", err)
		}
	})
}

// TestOutsidePartitions: what lies before, between and behind the partitions travels as well.
// Tables and GRUB's own image are no matter.
func TestOutsidePartitions(t *testing.T) {
	onParts(t, func(d *disk.Disk, root, second string) {
		device := strings.TrimSuffix(second, "p2")
		write := func(at int64, text string) {
			t.Helper()
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt([]byte(text), at)
				err = errors.Join(err, f.Sync(), f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before := digest(t, root)
		write(512<<10, secret) // the first partition begins at 1 MiB
		if _, err := Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), device+" has data outside of its partitions, at byte 524288") {
			t.Errorf("sealed: %v", err)
		}
		if digest(t, root) != before {
			t.Error("refused, and something was changed")
		}
		write(512<<10, strings.Repeat("\x00", len(secret)))
		write(0x180, "GRUB \x00Geom")
		write(512, strings.Repeat("core.img", 4000))
		if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
			t.Errorf("with GRUB in front: %v", err)
		}
	})
}

// TestSwapPartition: what was swapped out is overwritten, and the partition can be used again.
// While it is in use the seal is refused.
func TestSwapPartition(t *testing.T) {
	onParts(t, func(d *disk.Disk, root, second string) {
		defer running(t, root)()
		if _, err := exec.LookPath("mkswap"); err != nil {
			t.Skip("mkswap is not installed")
		}
		head := run(t, "mkswap", second)
		f, err := os.OpenFile(second, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt([]byte(marked("swapped")), 1<<20)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("swapon", second).CombinedOutput(); err != nil {
			t.Logf("swapping is not permitted here, so refusing it is not tested: %s", out)
		} else {
			off := once(t, func() error { return exec.Command("swapoff", second).Run() })
			if _, err := Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "swapoff "+second) {
				t.Errorf("memory is swapped to the disk: %v", err)
			}
			off()
		}
		if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
			t.Fatal(err)
		}
		if n := marks(t, second, "swapped"); n != 0 {
			t.Errorf("%d lines of swapped memory are on the disk", n)
		}
		id := head[strings.LastIndex(head, "UUID=")+5:]
		if out := run(t, "blkid", "-p", "-o", "value", "-s", "UUID", second); out != id {
			t.Errorf("the swap partition is %q, was %q", out, id)
		}
	})
}

// swapHeader is what mkswap(8) writes, for pages of a size (include/linux/swap.h).
func swapHeader(page int, id []byte, label string) []byte {
	head := make([]byte, page)
	binary.LittleEndian.PutUint32(head[1024:], 1)   // version
	binary.LittleEndian.PutUint32(head[1028:], 255) // last page
	copy(head[1036:1052], id)
	copy(head[1052:1068], label)
	copy(head[page-10:], "SWAPSPACE2")
	return head
}

// TestSwapOfThisDisk: a swap partition that travels with the disk may be named in its configuration,
// in each way in which fstab(5) names it. One of another disk may not: a clone would wait for it.
func TestSwapOfThisDisk(t *testing.T) {
	id := []byte{0x0a, 0x1b, 0x2c, 0x3d, 0x11, 0x11, 0x42, 0x22, 0x83, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x66}
	const text, other = "0a1b2c3d-1111-4222-8333-444455556666", "0a1b2c3d-1111-4222-8333-444455556667"
	for _, page := range []int{4 << 10, 64 << 10} {
		onParts(t, func(d *disk.Disk, root, second string) {
			write := func(head []byte) {
				t.Helper()
				f, err := os.OpenFile(second, os.O_WRONLY, 0)
				if err == nil {
					_, err = f.WriteAt(head, 0)
					err = errors.Join(err, f.Sync(), f.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			write(swapHeader(page, id, "memory"))
			own, err := d.Own()
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			for source, want := range map[string]bool{"UUID=" + text: true, `UUID="` + text + `"`: true, "LABEL=memory": true, second: true,
				"UUID=" + other: false, "LABEL=memor": false, "LABEL=": false, "UUID=": false, strings.TrimSuffix(second, "2") + "1": false, "/dev/none": false, "": false, "none": false} {
				if d.HasSwap(source) != want || own.HasSwap(source) != want {
					t.Errorf("pages of %d bytes: %q is on this disk: %v", page, source, !want)
				}
			}
			plantFile(t, root, "etc/fstab", "UUID="+other+" none swap sw 0 0\n")
			if _, err := Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), absentDisks) || !strings.Contains(err.Error(), other) {
				t.Errorf("swap on another disk: %v", err)
			}
			plantFile(t, root, "etc/fstab", "UUID="+text+" none swap sw 0 0\nLABEL=memory none swap sw 0 0\n"+second+" swap swap defaults\n")
			plantFile(t, root, "etc/initramfs-tools/conf.d/resume", "RESUME=UUID="+text+"\n")
			plantFile(t, root, "etc/default/grub", `GRUB_CMDLINE_LINUX="resume=`+second+`"`+"\n")
			if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
				t.Errorf("swap on this disk: %v", err)
			}
			if !d.HasSwap("UUID=" + text) {
				t.Error("the seal took the header")
			}
			// Without a label, nothing is the label.
			write(swapHeader(page, id, ""))
			if d.HasSwap("LABEL=") {
				t.Error("an empty label")
			}
		})
	}
}

// TestSwapFile: one that fstab or the kernel knows goes by the rule, whatever its name is; another
// is found by the scan.
func TestSwapFile(t *testing.T) {
	for _, known := range []string{"fstab", "kernel", "nobody"} {
		d := plant(t)
		page := make([]byte, 64<<10)
		copy(page[4086:], "SWAPSPACE2")
		plantFile(t, d.Dir(), "srv/memory[1]", string(page))
		o := planted(nil)
		switch known {
		case "fstab":
			plantFile(t, d.Dir(), "etc/fstab", "/srv/memory[1] none swap sw 0 0\n")
		case "kernel":
			o.Swaps = []string{"/srv/memory[1]"}
		}
		_, err := Seal(t.Context(), d, o)
		var found *Found
		if known == "nobody" {
			if !errors.As(err, &found) || !strings.Contains(err.Error(), "swap: srv/memory[1]") {
				t.Errorf("a swap file that nobody knows: %v", err)
			}
		} else if err != nil || d.Exists("srv/memory[1]") {
			t.Errorf("known to %s: %v, or it is still there", known, err)
		}
	}
}

// TestBtrfs: on file systems that are not known to be overwritten in place nothing is sealed.
func TestBtrfs(t *testing.T) {
	needImages(t, "btrfs", "ext4")
	img, root := image(t, "btrfs"), filepath.Join(scratch(t), "root")
	mountImage(t, img, root, "btrfs")
	run(t, "btrfs", "-q", "subvolume", "create", filepath.Join(root, "var"))
	donorTree(t, root)
	plantFile(t, root, "var/app/key.pem", secret)
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := digest(t, root)
	if _, err := Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "the root file system is btrfs") {
		t.Errorf("sealed: %v", err)
	}
	if digest(t, root) != before {
		t.Error("refused, and something was changed")
	}
}

// TestUnderMemory: what lies under a tmpfs is scanned, and what a rule of ours would not do to
// memory is done to the disk.
func TestUnderMemory(t *testing.T) {
	needImages(t, "ext4")
	img, root := image(t, "ext4"), filepath.Join(scratch(t), "root")
	mountImage(t, img, root, "ext4")
	donorTree(t, root)
	plantFile(t, root, "mnt/key.pem", secret)
	plantFile(t, root, "tmp/join.sh", "kubeadm join --token abcdef.0123456789abcdef\n")
	for _, at := range []string{"mnt", "tmp"} {
		mount(t, "tmpfs", filepath.Join(root, at), "tmpfs", 0)
	}
	plantFile(t, root, "tmp/theirs", "in memory\n")
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var found *Found
	if _, err := Seal(t.Context(), d, foreignOptions()); !errors.As(err, &found) || !strings.Contains(err.Error(), "mnt/key.pem") || strings.Contains(err.Error(), "join.sh") {
		t.Errorf("a key under a mount: %v", err)
	}
	own, err := d.Own()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if err := own.Remove("mnt/key.pem"); err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(t.Context(), d, foreignOptions()); err != nil {
		t.Error(err)
	}
	if own.Exists("tmp/join.sh") || !d.Exists("tmp/theirs") {
		t.Error("the disk's file is there, or the memory's is gone")
	}
}

// TestAgentElsewhere: where the agent would not be on the OS disk, no clone would have it.
func TestAgentElsewhere(t *testing.T) {
	needImages(t, "ext4")
	img, data, root := image(t, "ext4"), image(t, "ext4"), filepath.Join(scratch(t), "root")
	mountImage(t, img, root, "ext4")
	donorTree(t, root)
	mountImage(t, data, filepath.Join(root, "var"), "ext4")
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Seal(t.Context(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "/var/lib/kamino would not be on the OS disk: ext4 is mounted at /var") {
		t.Errorf("sealed: %v", err)
	}
}

// TestLoopUnderAMatch: a file that is in use as a disk is not overwritten under it.
func TestLoopUnderAMatch(t *testing.T) {
	needImages(t, "ext4")
	img, data, root := image(t, "ext4"), image(t, "ext4"), filepath.Join(scratch(t), "root")
	mountImage(t, img, root, "ext4")
	donorTree(t, root)
	copyImage(t, data, filepath.Join(root, "tmp/left"))
	at := filepath.Join(scratch(t), "data")
	mountImage(t, filepath.Join(root, "tmp/left"), at, "ext4")
	plantFile(t, at, "db", "customer data\n")
	defer running(t, root)()
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := digest(t, at)
	if _, err := Seal(context.Background(), d, foreignOptions()); err == nil || !strings.Contains(err.Error(), "/tmp/left is in use as /dev/loop") {
		t.Errorf("sealed: %v", err)
	}
	if digest(t, at) != before {
		t.Error("the disk in the file was changed")
	}
}

// running makes a root that of the system that runs here: with this kernel's /proc, as a pod sees its
// host's.
func running(t *testing.T, root string) (off func()) {
	t.Helper()
	at := filepath.Join(root, "proc")
	if err := errors.Join(os.MkdirAll(at, 0o755), syscall.Mount("/proc", at, "", syscall.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	return once(t, func() error { return syscall.Unmount(at, syscall.MNT_DETACH) })
}

// TestAnothersKernel: of a disk that is only attached here, the kernel that runs here is not asked:
// neither for deleted files that are open, nor for loop devices, nor for swap.
func TestAnothersKernel(t *testing.T) {
	onParts(t, func(d *disk.Disk, root, second string) {
		plantFile(t, root, "srv/held", "text\n")
		plantFile(t, root, "tmp/left.img", strings.Repeat("\x00", 1<<20))
		held, err := os.Open(filepath.Join(root, "srv/held"))
		if err = errors.Join(err, os.Remove(filepath.Join(root, "srv/held"))); err != nil {
			t.Fatal(err)
		}
		defer held.Close()
		_, detach := attach(t, filepath.Join(root, "tmp/left.img"))
		defer detach()
		swaps := 0
		if exec.Command("mkswap", second).Run() == nil && exec.Command("swapon", second).Run() == nil {
			defer once(t, func() error { return exec.Command("swapoff", second).Run() })()
			swaps = 1
		}
		asked := func(what string, want [3]int) {
			t.Helper()
			files, err1 := d.Held()
			loops, err2 := d.Loops()
			swapped, err3 := d.Swaps()
			if got := [3]int{min(len(files), 1), min(len(loops), 1), len(swapped)}; got != want || errors.Join(err1, err2, err3) != nil {
				t.Errorf("%s: %v deleted, loops and swaps, want %v: %v", what, got, want, errors.Join(err1, err2, err3))
			}
		}
		asked("attached", [3]int{})
		off := running(t, root)
		asked("running", [3]int{1, 1, swaps})
		off()
	})
}
