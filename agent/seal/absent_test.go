package seal

import (
	"slices"
	"strings"
	"testing"
)

// TestAbsentDisks: what the disk's configuration refers to and a clone does not have refuses the
// seal, and the refusal names disk and file.
func TestAbsentDisks(t *testing.T) {
	const id = "0a1b2c3d-1111-4222-8333-444455556666"
	for name, c := range map[string]struct{ file, text, names string }{
		"a data disk":         {"etc/fstab", "UUID=1 / ext4 defaults 0 1\nUUID=" + id + " /data ext4 defaults 0 2\n", "UUID=" + id},
		"a label":             {"etc/fstab", "LABEL=data /data xfs noatime\n", "LABEL=data"},
		"without options":     {"etc/fstab", "/dev/nvme1n1 /data xfs\n", "/dev/nvme1n1"},
		"a partition":         {"etc/fstab", "PARTUUID=" + id + "\t/data\text4\tdefaults\n", "PARTUUID=" + id},
		"swap by UUID":        {"etc/fstab", "UUID=" + id + " none swap sw 0 0\n", "UUID=" + id},
		"crypttab":            {"etc/crypttab", "# x\ndata UUID=" + id + " none luks\n", "UUID=" + id},
		"a mount unit":        {"etc/systemd/system/data.mount", "[Mount]\nWhat=/dev/disk/by-uuid/" + id + "\nWhere=/data\n", id},
		"a swap unit":         {"etc/systemd/system/dev-sdb1.swap", "[Swap]\nWhat=/dev/sdb1\n", "/dev/sdb1"},
		"resume":              {"etc/initramfs-tools/conf.d/resume", "RESUME=UUID=" + id + "\n", "UUID=" + id},
		"the kernel's resume": {"etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet resume=UUID=" + id + "\"\n", "UUID=" + id},

		"nofail":            {"etc/fstab", "UUID=" + id + " /data ext4 defaults,nofail 0 2\n", ""},
		"noauto":            {"etc/fstab", "/dev/sr0 /media/cdrom0 udf,iso9660 user,noauto 0 0\n", ""},
		"automount":         {"etc/fstab", "UUID=" + id + " /data ext4 x-systemd.automount 0 2\n", ""},
		"the root":          {"etc/fstab", "UUID=" + id + " / ext4 defaults 0 1\nLABEL=UEFI /boot/efi vfat umask=0077 0 1\n", ""},
		"memory":            {"etc/fstab", "tmpfs /scratch tmpfs size=1g 0 0\n/srv/a /srv/b none bind 0 0\nnfs:/x /x nfs defaults 0 0\n", ""},
		"a comment":         {"etc/fstab", "# UUID=" + id + " /data ext4 defaults 0 2\n", ""},
		"the resource disk": {"etc/fstab", "/dev/disk/cloud/azure_resource-part1 /mnt auto defaults 0 2\n", ""},
		"crypttab, nofail":  {"etc/crypttab", "data UUID=" + id + " none luks,nofail\n", ""},
		"no resume":         {"etc/initramfs-tools/conf.d/resume", "RESUME=none\n# RESUME=UUID=" + id + "\n", ""},
		"nodeadm's own":     {"etc/systemd/system/mnt-k8s.mount", "[Mount]\nWhat=UUID=" + id + "\nWhere=/mnt/k8s-disks/0\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Seal(t.Context(), nodeWith(t, map[string]string{c.file: c.text}), planted(nil))
			switch {
			case c.names == "" && err != nil:
				t.Error(err)
			case c.names != "" && (err == nil || !strings.Contains(err.Error(), c.names) || !strings.Contains(err.Error(), absentDisks) || !strings.Contains(err.Error(), "/"+c.file)):
				t.Errorf("%v does not name %s of /%s", err, c.names, c.file)
			}
		})
	}
	allowed := planted(func(o *Options) {
		o.Config.Exceptions = append(o.Config.Exceptions, Exception{Rule: absentDisks, Paths: []string{"/etc/fstab"}, Why: "each machine of the pool has it"})
	})
	if _, err := Seal(t.Context(), nodeWith(t, map[string]string{"etc/fstab": "LABEL=data /data xfs defaults 0 2\n"}), allowed); err != nil {
		t.Errorf("an exception: %v", err)
	}
}

// TestNamesInRefusals: whoever chooses a name begins no line of his own in a refusal.
func TestNamesInRefusals(t *testing.T) {
	err := refusal("umount /a\nlevel=INFO msg=sealed", "rule %s removes /%s", "x", "b\x1b[31m\nlevel=INFO")
	if strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), `/b\x1b[31m\nlevel=INFO`) {
		t.Error(err)
	}
}

// FuzzAbsent: any text is read, and what is named stands in it.
func FuzzAbsent(f *testing.F) {
	for _, seed := range []string{"UUID=x /data ext4 defaults\n", "data /dev/sdb none luks\n", "[Mount]\nWhat=LABEL=x\nWhere=/y\n", "RESUME=UUID=x\n", "\x00 \xff = UUID= /"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"etc/fstab", "etc/crypttab", "etc/systemd/system/x.mount", "etc/default/grub"} {
			for _, r := range absentIn(name, text, []string{"/"}, func(string) bool { return false }) {
				if !strings.Contains(text, r) || !isDisk(r) {
					t.Errorf("%s: %q is not in %q", name, r, text)
				}
			}
			if all := absentIn(name, text, []string{"/"}, func(string) bool { return true }); name != "etc/crypttab" && len(all) > 0 {
				t.Errorf("%s: swap partitions of the disk: %q", name, slices.Compact(all))
			}
		}
	})
}
