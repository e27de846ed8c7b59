package seal

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/roots"
)

// Unmounted are patterns of the directories in which kubelet and the runtimes themselves mount:
// volumes and root directories of pods. What is mounted below is unmounted once they are stopped,
// and they mount what they need when they start. Whatever else is mounted below /var/lib, a data
// disk for docker's volumes say, is its operator's, and nobody would mount it again.
func Unmounted(d *disk.Disk) []string { return roots.Of(d).Expand(unmounted) }

var unmounted = []string{"/var/lib/kubelet/pods", "/var/lib/kubelet/plugins", "/var/lib/containerd/io.containerd.snapshotter.v1.*",
	"/var/lib/containerd/tmpmounts",
	"/var/lib/docker/containers", "/var/lib/docker/rootfs", "/var/lib/docker/overlay2", "/var/lib/docker/fuse-overlayfs",
	"/var/lib/docker/overlay",
	"/var/lib/docker/aufs", "/var/lib/docker/btrfs", "/var/lib/docker/devicemapper", "/var/lib/docker/vfs", "/var/lib/docker/zfs"}

// within calls work with the root as its own disk has it: without what is mounted there from
// elsewhere, and with what lies under it.
func within(d *disk.Disk, work func(own *disk.Disk) error) error {
	own, err := d.Own()
	if err != nil {
		return err
	}
	defer own.Close()
	return work(own)
}

// refusal says what is in the way and what to do about it.
func refusal(todo, format string, args ...any) error {
	return fmt.Errorf("seal refused: %s; nothing was changed (%s)", disk.Line(fmt.Sprintf(format, args...)), disk.Line(todo))
}

// unfit is an error for a disk that cannot be sealed as a whole, whatever the rules are: part of it
// would go unseen, or what is overwritten would stay readable.
func unfit(d *disk.Disk) error {
	all, err := d.FileSystems()
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.Name == "." && f.Type != "" && f.Type != "ext4" && f.Type != "xfs" {
			return refusal("use a donor whose root is ext4 or xfs",
				"the root file system is %s, on which neither subvolumes nor overwritten blocks can be checked", f.Type)
		}
		// An EFI partition is FAT; its files are overwritten in place like ext4's.
		if f.Name != "." && !slices.Contains([]string{"ext2", "ext3", "ext4", "xfs", "vfat"}, f.Type) {
			return refusal("use ext4, xfs or vfat there", "the file system at /%s is %s, and lies on the OS disk", f.Name, f.Type)
		}
	}
	if err := hidden(d); err != nil {
		return err
	}
	if err := covered(d, all); err != nil {
		return err
	}
	return misplaced(d)
}

// covered is an error for files that lie under one of the disk's own file systems: they would
// travel, and no name leads to them on which a rule could be.
func covered(d *disk.Disk, all []disk.FileSystem) error {
	for _, f := range all[1:] {
		const most = 5
		var files []string
		err := d.Beneath(f.Name).Walk(f.Name, func(name string, info fs.FileInfo) error {
			if info.Mode().IsRegular() && info.Size() > 0 && len(files) <= most {
				files = append(files, "/"+name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(files) > most {
			files[most] = "…"
		}
		if len(files) > 0 {
			return refusal("mount --bind / /mnt, remove them below /mnt, umount /mnt",
				"files lie on the OS disk under what is mounted at /%s: %s", f.Name, strings.Join(files, ", "))
		}
	}
	return nil
}

// hidden is an error for parts of the disk that no mounted file system shows.
func hidden(d *disk.Disk) error {
	devices, err := d.Devices()
	if err != nil {
		return err
	}
	if len(devices.Disks) > 1 {
		return refusal("use a donor whose root is on one disk",
			"the root file system lies on the disks %s; a snapshot of one is not the whole", strings.Join(devices.Disks, " and "))
	}
	if len(devices.Encrypted) > 0 {
		return refusal("use a donor without dm-crypt", "the OS disk is encrypted (%s), and all clones would share its key",
			strings.Join(devices.Encrypted, ", "))
	}
	if len(devices.Partly) > 0 {
		return refusal("mount the whole file system below the root as well", "only a part of %s is mounted",
			strings.Join(devices.Partly, ", "))
	}
	if o := devices.Outside; o != nil {
		return refusal(fmt.Sprintf("inspect it, hexdump -C -s %d -n %d %s, and if nothing needs it: blkdiscard --force --zeroout --offset %d --length %d %s",
			o.Data.Start, o.Data.End-o.Data.Start, o.Device, o.Gap.Start, o.Gap.End-o.Gap.Start, o.Device),
			"%s has data outside of its partitions, at byte %d, which a snapshot has as well", o.Device, o.Data.Start)
	}
	for _, p := range devices.Partitions {
		switch p.Holds {
		case disk.HoldsSwap, disk.HoldsBoot, disk.HoldsNothing:
			continue
		case disk.HoldsCrypt:
			return refusal("use a donor without it, or wipe it with wipefs and blkdiscard",
				"%s on the OS disk is encrypted, so its content cannot be checked", p.Device)
		}
		return refusal(fmt.Sprintf("mount it where it belongs below the root, or wipe it: blkdiscard --zeroout %s", p.Device),
			"%s on the OS disk (%s, %d MiB) is not mounted, so its content cannot be checked", p.Device, p.Holds, p.Size>>20)
	}
	return nil
}

// misplaced is an error when what the agent installs or keeps would not be on the disk, but on
// something mounted over it.
func misplaced(d *disk.Disk) error {
	mounts, err := d.Mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Own || m.Shows != "" && m.Shows == m.Point {
			continue // its own place, or a directory bound over itself
		}
		for _, name := range []string{StateDir, BinaryPath, SettingsPath, unitDir} {
			if disk.Under(name, m.Point) {
				return refusal("use a donor that has it on its OS disk", "/%s would not be on the OS disk: %s is mounted at /%s", name,
					m.Type, m.Point)
			}
		}
	}
	return nil
}

// blocked is an error when something is mounted at or below what a rule matches, when a rule's
// paths lead into a second view of the disk's own files, or when a match is in use as a disk.
func blocked(d *disk.Disk, o Options, plan []Step, unmounted []string) error {
	mounts, err := d.Mounts()
	if err != nil {
		return err
	}
	mounts = slices.DeleteFunc(mounts, func(m disk.Mount) bool {
		return host.Below("/"+m.Point, unmounted)
	})
	loops, err := d.Loops()
	if err != nil {
		return err
	}
	for _, s := range plan {
		if s.Action == Check {
			continue
		}
		for _, match := range s.Paths {
			for _, m := range mounts {
				if m.Covers != "" && disk.Under(m.Covers, match) {
					return refusal(fmt.Sprintf("umount /%s, or write an exception for the rule in %s", m.Point, allowIn),
						"rule %s removes /%s, and %s (%s) is mounted at /%s", s.Rule, match, m.Source, m.Type, m.Point)
				}
				if m.ReadOnly && m.Shows == m.Point && disk.Under(match, m.Point) {
					return refusal(fmt.Sprintf("mount -o remount,bind,rw /%s", m.Point), "rule %s removes /%s, and /%s was made read-only",
						s.Rule, match, m.Point)
				}
			}
			if err := looped(d, loops, s.Rule, match); err != nil {
				return err
			}
		}
	}
	return doubled(d, o, mounts)
}

// looped is an error when a file at or below a match is in use as a disk.
func looped(d *disk.Disk, loops []disk.Loop, rule, match string) error {
	if len(loops) == 0 {
		return nil
	}
	return d.Walk(match, func(name string, info fs.FileInfo) error {
		if i := slices.IndexFunc(loops, func(l disk.Loop) bool { return l.Shows(info) }); i >= 0 {
			loop := loops[i].Device
			return refusal(fmt.Sprintf("umount %s and losetup --detach %s, or write an exception for the rule in %s", loop, loop, allowIn),
				"rule %s removes /%s, and /%s is in use as %s", rule, disk.Shown(match), disk.Shown(name), loop)
		}
		return nil
	})
}

// doubled is an error when a rule would match in a bind mount of another of the disk's own
// directories: it is the same file under a name that no rule has, and which of the two was meant
// nobody can tell.
func doubled(d *disk.Disk, o Options, mounts []disk.Mount) error {
	for _, r := range o.rules(d) {
		if r.Action == Check || r.When != "" && r.When != o.FirstBoot {
			continue
		}
		for _, m := range mounts {
			if m.Own || m.Shows == "" || m.Shows == m.Point ||
				!slices.ContainsFunc(r.Paths, func(p string) bool { return reaches(p, m.Point) }) {
				continue
			}
			matches, err := r.matchesOn(d.Whole(), estimate(o))
			if err != nil {
				return err
			}
			for _, match := range matches {
				if disk.Under(match.Path, m.Point) {
					return refusal(fmt.Sprintf("umount /%s, or write an exception for the rule in %s, and a rule for the other name",
						m.Point, allowIn),
						"rule %s matches /%s, which is below /%s of the same disk, bound to /%s", r.ID, match.Path, m.Shows, m.Point)
				}
			}
		}
	}
	return nil
}

func estimate(o Options) Options {
	o.Estimate = true
	return o
}

// reaches reports whether a rule's pattern can match below point.
func reaches(pattern, point string) bool {
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	dirs := strings.Split(point, "/")
	if len(parts) <= len(dirs) {
		return false
	}
	ok, err := path.Match(strings.Join(parts[:len(dirs)], "/"), point)
	return err == nil && ok
}

// swapping is an error while the kernel still swaps to the disk.
func swapping(d *disk.Disk) error {
	swaps, err := d.Swaps()
	if err != nil || len(swaps) == 0 {
		return err
	}
	return refusal("swapoff "+strings.Join(swaps, " "), "memory is swapped to %s on the OS disk", strings.Join(swaps, ", "))
}

// zeroSwaps overwrites the swap partitions of the disk behind their headers. It needs no way back:
// what was swapped out is worth nothing once swapping has ended.
func zeroSwaps(ctx context.Context, d *disk.Disk) error {
	devices, err := d.Devices()
	if err != nil {
		return err
	}
	for _, p := range devices.Partitions {
		if p.Holds != disk.HoldsSwap {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.ZeroSwap(p); err != nil {
			return fmt.Errorf("overwrite swap partition %s: %w", p.Device, err)
		}
	}
	return nil
}

// rules are those of rooted, with this disk's swap files and the disks that it names.
func (o Options) rules(d *disk.Disk) []Rule {
	all := o.rooted(d)
	for i := range all {
		switch all[i].ID {
		case "swap":
			all[i].Paths = append(slices.Clone(all[i].Paths), swapFiles(d, o.Swaps)...)
		case absentDisks:
			var named []string
			all[i].Paths, named = absent(d)
			all[i].Why = strings.Join(named, ", ") + ": " + all[i].Why
		}
	}
	return all
}

// rooted are the configured rules, with the directories in which this disk's kubelets and runtimes
// keep their state.
func (o Options) rooted(d *disk.Disk) []Rule {
	all, found := o.Config.rules(), roots.Of(d)
	for i := range all {
		for _, e := range o.Config.Exceptions {
			if e.Rule == all[i].ID {
				all[i].Keep = slices.Concat(all[i].Keep, found.Expand(e.Paths))
			}
		}
		if all[i].Group != configured {
			for _, list := range []*[]string{&all[i].Paths, &all[i].Keep, &all[i].Shared} {
				*list = found.Expand(*list)
			}
		}
	}
	return all
}

// swapFiles are those that were in use, and those of fstab(5), as patterns.
func swapFiles(d *disk.Disk, inUse []string) (paths []string) {
	for line := range strings.Lines(d.Text("etc/fstab")) {
		if field := strings.Fields(line); len(field) > 2 && field[2] == "swap" {
			inUse = append(slices.Clone(inUse), field[0])
		}
	}
	for _, name := range inUse {
		if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/dev/") {
			paths = append(paths, literal.Replace(path.Clean(name)))
		}
	}
	return paths
}

// literal makes a pattern of path.Match that matches one name only.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// tellLeft logs what rules will not touch, because it is not on the disk, and what will keep its
// blocks.
func tellLeft(d *disk.Disk, o Options) {
	mounts, err := d.Mounts()
	if err != nil {
		return // what depends on them has failed already
	}
	for _, m := range mounts {
		if m.Own || m.Shows != "" {
			continue
		}
		var rules []string
		for _, r := range o.rules(d) {
			if slices.ContainsFunc(r.Paths, func(p string) bool { return reaches(p, m.Point) }) {
				rules = append(rules, r.ID)
			}
		}
		if len(rules) > 0 {
			o.Log.Info("not on the OS disk, left as it is", "at", "/"+m.Point, "type", m.Type, "rules", strings.Join(rules, ","))
		}
	}
	all, err := d.Held()
	if err != nil {
		o.Log.Warn("deleted files in use were not listed", "error", err)
	}
	for _, h := range all {
		if h.Running() {
			o.Log.Warn("a deleted program or library is still running, its blocks stay as they are", "file", h.String())
		}
	}
}
