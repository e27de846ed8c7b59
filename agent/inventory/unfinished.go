package inventory

import (
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Held are the packages that an administrator has put on hold in dpkg's status, sorted.
func Held(d *disk.Disk) (names []string, err error) {
	err = dpkgStates(d, func(name, want, _, _ string) {
		if want == "hold" {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return names, err
}

// Unfinished tells what an interrupted change of packages left, as "dpkg --audit" does: packages
// that are neither installed nor gone, and a journal that was not merged (dpkg(1), "PACKAGE
// STATES"). None where there is no dpkg: rpm's database is a transaction's.
func Unfinished(d *disk.Disk) (what []string, err error) {
	err = dpkgStates(d, func(name, _, flag, state string) {
		switch {
		case flag == "reinstreq":
			what = append(what, name+" must be installed again")
		case state != "installed" && state != "config-files" && state != "not-installed":
			what = append(what, name+" is "+state)
		}
	})
	if err != nil || !d.Exists(path.Dir(dpkgStatus)+"/updates") {
		return what, err
	}
	entries, err := d.ReadDir(path.Dir(dpkgStatus) + "/updates")
	if len(entries) > 0 {
		what = append(what, "dpkg was interrupted: its journal is not empty")
	}
	return what, err
}

// dpkgStates visits the packages of dpkg's status with the three words of each.
func dpkgStates(d *disk.Disk, visit func(name, want, flag, state string)) error {
	if !d.Exists(dpkgStatus) {
		return nil
	}
	name := ""
	return lines(d, dpkgStatus, func(line string) {
		if value, ok := strings.CutPrefix(line, "Package: "); ok {
			name = value
		} else if value, ok := strings.CutPrefix(line, "Status: "); ok {
			if word := strings.Fields(value); len(word) == 3 {
				visit(name, word[0], word[1], word[2])
			}
		}
	})
}
