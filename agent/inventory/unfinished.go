package inventory

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/internal/lazyregexp"
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

// Unfinished tells what an interrupted change of packages left. Of dpkg, as "dpkg --audit" does:
// packages that are neither installed nor gone, and a journal that was not merged (dpkg(1),
// "PACKAGE STATES"). Of rpm: packages of which two versions are installed, because a transaction
// ended between the new one and the removal of the old one.
func Unfinished(d *disk.Disk) (what []string, err error) {
	what, err = unfinishedDpkg(d)
	twice, rerr := twiceInstalled(d)
	return append(what, twice...), errors.Join(err, rerr)
}

func unfinishedDpkg(d *disk.Disk) (what []string, err error) {
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

// twiceInstalled names the packages of rpm's database that are installed in more than one version
// and are not made for that, as kernels are. A database that cannot be read names none: the
// inventory says so.
func twiceInstalled(d *disk.Disk) (what []string, err error) {
	for _, name := range rpmPaths {
		if !d.Exists(name) {
			continue
		}
		versions := map[string][]string{}
		err := rpmHeaders(d, name, func(h header) error {
			if beside(h) {
				return nil
			}
			if field := strings.Fields(h.pkg()); len(field) == 3 {
				key := field[0] + " " + field[2]
				versions[key] = append(versions[key], field[1])
			}
			return nil
		})
		if err != nil {
			continue
		}
		for key, all := range versions {
			slices.Sort(all)
			if len(slices.Compact(all)) > 1 {
				pkg, _, _ := strings.Cut(key, " ")
				what = append(what, fmt.Sprintf("%s is installed in the versions %s", pkg, strings.Join(slices.Compact(all), " and ")))
			}
		}
	}
	slices.Sort(what)
	return what, nil
}

// beside reports whether versions of a package may be installed beside each other: keys, kernels,
// and what says so itself (dnf.conf(5), installonlypkgs).
func beside(h header) bool {
	name, _, _ := strings.Cut(h.pkg(), " ")
	if name == "gpg-pubkey" || strings.HasPrefix(name, "kernel") {
		return true
	}
	provides, err := h.strings(rpmProvides)
	return err != nil || slices.ContainsFunc(provides, func(p string) bool { return strings.HasPrefix(p, "installonlypkg(") || p == "multiversion(kernel)" })
}

// unpacking is the end of the name of a file that rpm is writing, and renames when it is done
// (lib/fsm.c: ";%08x", the transaction's number).
var unpacking = lazyregexp.New(`;[0-9a-f]{8}$`)

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
