package seal

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/lazyregexp"
)

// absentDisks is the rule whose matches are found here.
const absentDisks = "absent-disks"

// absentPlaces are where the configuration names disks for which a boot waits.
var absentPlaces = []string{"/etc/fstab", "/etc/crypttab", "/etc/systemd/system/*.mount", "/etc/systemd/system/*.swap",
	"/etc/initramfs-tools/conf.d/*", "/etc/default/grub", "/etc/default/grub.d/*.cfg", "/etc/kernel/cmdline"}

// absent are the files that name disks which do not travel with this one, and for which a clone
// waits as it boots, with what they name.
func absent(d *disk.Disk) (files, named []string) {
	points := []string{"/", "/boot", "/boot/efi", "/efi"} // of the disk wherever they are; an unmounted one is refused
	all, err := d.FileSystems()
	if err != nil {
		return nil, nil // what depends on it has failed already
	}
	for _, f := range all {
		points = append(points, path.Join("/", f.Name))
	}
	for _, place := range absentPlaces {
		found, err := d.Glob(place)
		if err != nil {
			continue
		}
		for _, name := range found {
			if refs := absentIn(name, d.Text(name), points, d.HasSwap); len(refs) > 0 {
				files = append(files, "/"+literal.Replace(name))
				for _, r := range refs {
					named = append(named, fmt.Sprintf("%s in /%s", shown(r), shown(name)))
				}
			}
		}
	}
	return files, named
}

// absentIn are the disks that one file names and that are neither mounted at one of points nor
// partitions for swapping. A line with nofail waits for nothing (systemd.mount(5)), nor does one
// with noauto.
func absentIn(name, text string, points []string, hasSwap func(string) bool) (refs []string) {
	away := func(source, point string) bool {
		return isDisk(source) && !slices.Contains(points, path.Clean(point)) && !hasSwap(source)
	}
	switch ext := path.Ext(name); {
	case name == "etc/fstab":
		for line := range strings.Lines(string(dropDonorMounts([]byte(text), Facts{}))) {
			field := strings.Fields(line)
			if len(field) > 3 && !strings.HasPrefix(field[0], "#") && !optional(field[3]) && away(field[0], field[1]) {
				refs = append(refs, field[0])
			}
			if len(field) == 3 && !strings.HasPrefix(field[0], "#") && away(field[0], field[1]) {
				refs = append(refs, field[0])
			}
		}
	case name == "etc/crypttab": // a disk that is encrypted is refused
		for line := range strings.Lines(text) {
			field := strings.Fields(line)
			if len(field) > 1 && !strings.HasPrefix(field[0], "#") && (len(field) < 4 || !optional(field[3])) && isDisk(field[1]) {
				refs = append(refs, field[1])
			}
		}
	case ext == ".mount" || ext == ".swap":
		source, point := setting(text, "What"), setting(text, "Where")
		if away(source, point) && !mountsInstanceStore([]byte(text)) { // those are removed
			refs = append(refs, source)
		}
	default:
		for _, m := range resume.FindAllStringSubmatch(text, -1) {
			if away(m[1], "none") {
				refs = append(refs, m[1])
			}
		}
	}
	return refs
}

// resume is where a system looks for the memory that it hibernated with: initramfs.conf(5), and the
// kernel's parameter.
var resume = lazyregexp.New(`(?m)^[^#\n]*\b(?:RESUME|resume)=["']?([^\s"']+)`)

// isDisk reports whether a source of fstab(5) is a disk that only this machine may have. What a
// cloud's names stand for each machine of a size has.
func isDisk(source string) bool {
	if strings.HasPrefix(source, "/dev/disk/azure/") || strings.HasPrefix(source, "/dev/disk/cloud/") {
		return false
	}
	for _, p := range []string{"UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=", "/dev/"} {
		if rest, ok := strings.CutPrefix(source, p); ok && rest != "" {
			return true
		}
	}
	return false
}

// optional reports whether the options of a line let a boot go on without its disk.
func optional(options string) bool {
	return slices.ContainsFunc(strings.Split(options, ","),
		func(o string) bool { return o == "nofail" || o == "noauto" || o == "x-systemd.automount" })
}

// setting is the last value of a key in a unit.
func setting(text, key string) (value string) {
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(name) == key {
			value = strings.TrimSpace(v)
		}
	}
	return value
}
