package disk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lvm is a node of several volumes, as RHEL's images for Azure are: a fixture only, for no kernel
// of ours has device mapper.
const lvm = `24 1 253:0 / / rw shared:1 - xfs /dev/mapper/rootvg-rootlv rw
25 24 253:1 / /var rw shared:2 - xfs /dev/mapper/rootvg-varlv rw
26 24 8:15 / /boot/efi rw shared:3 - vfat /dev/sda15 rw
27 24 0:40 / /tmp rw - tmpfs tmpfs rw
28 27 0:41 / /tmp/work/share rw - nfs4 server:/x rw
29 25 253:1 /lib/kubelet /var/lib/kubelet rw - xfs /dev/mapper/rootvg-varlv rw
30 24 253:1 /data /srv/data rw - xfs /dev/mapper/rootvg-varlv rw
31 24 253:2 / /mnt rw - ext4 /dev/mapper/datavg-lv rw
32 24 8:16 / /home rw - ext4 /dev/sdb rw
33 32 0:42 / /home rw - nfs4 server:/home rw
34 1 0:43 / /elsewhere rw - tmpfs tmpfs rw
35 25 0:44 / /var/old/share rw - nfs4 server:/old rw
36 25 8:33 / /var/old rw - ext4 /dev/sdc1 rw
`

// fakeSys is sysfs of that node: rootvg on sda3, datavg on sdb and sda2, a volume of rootvg that is
// not mounted.
func fakeSys(t *testing.T, uuid string) string {
	t.Helper()
	sys := t.TempDir()
	var err error
	for name, text := range map[string]string{"sda/dev": "8:0", "sda/size": "1", "sda/sda1/partition": "1", "sda/sda1/dev": "8:1", "sda/sda2/partition": "2", "sda/sda2/dev": "8:2",
		"sda/sda3/partition": "3", "sda/sda3/dev": "8:3", "sda/sda15/partition": "15", "sda/sda15/dev": "8:15", "sdb/dev": "8:16",
		"dm-0/dev": "253:0", "dm-0/dm/uuid": uuid, "dm-1/dev": "253:1", "dm-2/dev": "253:2", "dm-3/dev": "253:3", "dm-3/size": "2048"} {
		at := filepath.Join(sys, "devices", name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text+"\n"), 0o644))
	}
	link := func(from, to string) {
		at := filepath.Join(sys, from)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(filepath.Join(sys, "devices", to), at))
	}
	for number, at := range map[string]string{"253:0": "dm-0", "253:1": "dm-1", "253:2": "dm-2", "253:3": "dm-3", "8:15": "sda/sda15", "8:16": "sdb", "8:1": "sda/sda1"} {
		link("dev/block/"+number, at)
	}
	for _, s := range []string{"dm-0 sda/sda3", "dm-1 sda/sda3", "dm-3 sda/sda3", "dm-2 sda/sda2", "dm-2 sdb"} {
		volume, on, _ := strings.Cut(s, " ")
		link("devices/"+volume+"/slaves/"+filepath.Base(on), on)
		link("devices/"+on+"/holders/"+volume, volume)
	}
	link("class/block/sda", "sda")
	if err != nil {
		t.Fatal(err)
	}
	return sys
}

// TestLayout: volumes of the root's disk are the disk's own wherever they show whole; what is
// partly elsewhere, what is bound and what is hidden is not.
func TestLayout(t *testing.T) {
	sys := fakeSys(t, "LVM-x")
	l, ok := arrange(parseMounts(lvm), "/", 24, func(own, dev uint64) bool { return within(sys, own, dev) })
	if !ok {
		t.Fatal("the root is on no mount")
	}
	var own []string
	for _, f := range l.fileSystems() {
		own = append(own, f.Name+" "+f.Type)
	}
	if want := []string{". xfs", "boot/efi vfat", "var xfs"}; !slices.Equal(own, want) {
		t.Errorf("own: %q", own)
	}
	var mounts []string
	for _, m := range l.mounts() {
		if !m.Own {
			mounts = append(mounts, m.Point+" covers "+m.Covers+" shows "+m.Shows)
		}
	}
	want := []string{"home covers home shows ", "home covers  shows ", "mnt covers mnt shows ", "srv/data covers srv/data shows var/data", "tmp covers tmp shows ",
		"tmp/work/share covers  shows ", "var/lib/kubelet covers var/lib/kubelet shows var/lib/kubelet", "var/old covers var/old shows ", "var/old/share covers var/old/share shows "}
	if !slices.Equal(mounts, want) {
		t.Errorf("mounts:\n%s", strings.Join(mounts, "\n"))
	}
	if _, ok := arrange(parseMounts(lvm), "/", 99, nil); ok {
		t.Error("a mount that is not there")
	}
}

// TestDevices: volumes and partitions that are not mounted are looked at; encryption anywhere under
// the root is seen.
func TestDevices(t *testing.T) {
	for _, tt := range []struct{ uuid, encrypted string }{{"LVM-x", ""}, {"CRYPT-LUKS2-x", "/dev/dm-0"}} {
		t.Run(tt.uuid, func(t *testing.T) {
			sys, dev := fakeSys(t, tt.uuid), t.TempDir()
			swap := make([]byte, 8192)
			copy(swap[4086:], "SWAPSPACE2")
			boot := append(make([]byte, 512), "GRUB's core image"...)
			gpt := make([]byte, 4096)
			copy(gpt[512:], "EFI PART")
			gpt[512+72], gpt[512+80], gpt[512+84] = 2, 128, 128
			copy(gpt[1024:], "Hah!IdontNeedEFI")
			err := errors.Join(os.WriteFile(dev+"/dm-3", swap, 0o600), os.WriteFile(dev+"/sda1", append(boot, make([]byte, 8192)...), 0o600), os.WriteFile(dev+"/sda", gpt, 0o600),
				os.WriteFile(dev+"/dm-2", append(make([]byte, 1080), append([]byte("\x53\xef"), make([]byte, 8192)...)...), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			l, _ := arrange(parseMounts(lvm), "/", 24, func(own, dev uint64) bool { return within(sys, own, dev) })
			got, err := l.devices(sys, dev)
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, p := range got.Partitions {
				parts = append(parts, filepath.Base(p.Device)+" "+p.Holds)
			}
			slices.Sort(parts)
			if want := []string{"dm-2 ext4", "dm-3 swap", "sda1 boot loader"}; !slices.Equal(parts, want) {
				t.Errorf("not mounted: %q", parts)
			}
			if strings.Join(got.Encrypted, " ") != tt.encrypted || strings.Join(got.Disks, " ") != "sda" {
				t.Errorf("%s: encrypted %q, disks %q", tt.uuid, got.Encrypted, got.Disks)
			}
		})
	}
}
