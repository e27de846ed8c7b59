package inventory

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/sqlite"
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

// Half is a change of packages that is under way or was interrupted, and the commands that finish it
// once nothing changes packages any more.
type Half struct{ What, Todo string }

// Halves are such changes; a patch cannot begin on them, and each clone would have them.
type Halves []Half

// What joins the first few.
func (h Halves) What() string {
	const most = 5
	var all []string
	for _, one := range h[:min(len(h), most)] {
		all = append(all, one.What)
	}
	if n := len(h) - most; n > 0 {
		all = append(all, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(all, ", ")
}

// Todo joins the commands, each once.
func (h Halves) Todo() string {
	var all []string
	for _, one := range h {
		if !slices.Contains(all, one.Todo) {
			all = append(all, one.Todo)
		}
	}
	return strings.Join(all, "; ")
}

const (
	finishDpkg  = "dpkg --configure -a && apt-get -f install"
	finishDnf   = "dnf history info last, then dnf reinstall what it lists, and rpm -Va"
	finishTwice = "dnf remove --duplicates, and rpm -Va"
	finishRPM   = "rpm --initdb, which rolls it back, and rpm -Va"
)

// Unfinished lists changes of packages that are not whole. Of dpkg, as "dpkg --audit" does:
// packages that are neither installed nor gone, and a journal that was not merged (dpkg(1),
// "PACKAGE STATES"). Of rpm: packages of which two versions are installed, because a transaction
// ended between the new one and the removal of the old one, and a journal of its database. Of dnf:
// a last transaction without an end. What such a change leaves among the files is Result.Torn.
func Unfinished(d *disk.Disk) (Halves, error) {
	all, err := unfinishedDpkg(d)
	return slices.Concat(all, twiceInstalled(d), endless(d)), err
}

func unfinishedDpkg(d *disk.Disk) (all Halves, err error) {
	add := func(what string) { all = append(all, Half{what, finishDpkg}) }
	err = dpkgStates(d, func(name, _, flag, state string) {
		switch {
		case flag == "reinstreq":
			add(name + " must be installed again")
		case state != "installed" && state != "config-files" && state != "not-installed":
			add(name + " is " + state)
		}
	})
	if err != nil || !d.Exists(path.Dir(dpkgStatus)+"/updates") {
		return all, err
	}
	entries, err := d.ReadDir(path.Dir(dpkgStatus) + "/updates")
	if len(entries) > 0 {
		add("dpkg was interrupted: its journal is not empty")
	}
	return all, err
}

// twiceInstalled names the packages of rpm's database that are installed in more than one version
// and are not made for that, as kernels are. A database that cannot be read names none: the
// inventory says so.
func twiceInstalled(d *disk.Disk) (all Halves) {
	several := installOnly(d)
	for _, name := range rpmPaths {
		if !d.Exists(name) {
			continue
		}
		versions := map[string][]string{}
		err := rpmHeaders(d, name, func(h header) error {
			if h.beside(several) {
				return nil
			}
			if field := strings.Fields(h.pkg()); len(field) == 3 {
				key := field[0] + " " + field[2]
				versions[key] = append(versions[key], field[1])
			}
			return nil
		})
		if errors.Is(err, errJournal) {
			all = append(all, Half{fmt.Sprintf("rpm's database /%s: %v", name, err), finishRPM})
		}
		if err != nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(versions)) {
			list := versions[key]
			slices.Sort(list)
			if list = slices.Compact(list); len(list) > 1 {
				pkg, _, _ := strings.Cut(key, " ")
				all = append(all, Half{fmt.Sprintf("%s is installed in the versions %s", pkg, strings.Join(list, " and ")), finishTwice})
			}
		}
	}
	return all
}

// endless tells of a last transaction of dnf 4 or dnf 5 without an end: it runs, or was interrupted.
// Of an earlier one the later ones tell.
func endless(d *disk.Disk) (all Halves) {
	for _, name := range dnfHistories {
		if info, err := d.Lstat(name); err != nil || info.Size() == 0 {
			continue
		}
		ended := true
		err := readTable(d, name, "trans", func(row []sqlite.Value) error {
			if len(row) < 3 {
				return errors.New("a transaction without an end's column")
			}
			ended = row[2].Int != 0 // dt_end: NULL or 0 until the end
			return nil
		})
		switch {
		case err != nil:
			all = append(all, Half{fmt.Sprintf("read /%s: %v", name, err), "dnf history"})
		case !ended:
			all = append(all, Half{"dnf's last transaction has no end", finishDnf})
		}
	}
	return all
}

// dnfHistories are where dnf 4 and dnf 5 record transactions, both in a table trans of which the
// third column is dt_end (libdnf, transaction/sql/create.sql; dnf5, libdnf5/transaction/db/db.cpp).
var dnfHistories = []string{"var/lib/dnf/history.sqlite", "usr/lib/sysimage/libdnf5/transaction_history.sqlite"}

// beside reports whether versions of a package may be installed beside each other: keys, kernels,
// what says so itself, and what provides one of several.
func (h header) beside(several []string) bool {
	name, _, _ := strings.Cut(h.pkg(), " ")
	if name == "gpg-pubkey" || strings.HasPrefix(name, "kernel") {
		return true
	}
	provides, err := h.strings(rpmProvides) // its own name as well
	return err != nil || slices.ContainsFunc(provides, func(p string) bool {
		return strings.HasPrefix(p, "installonlypkg(") || p == "multiversion(kernel)" || slices.Contains(several, p)
	})
}

// installOnly is what dnf's configuration adds to what is never upgraded (dnf.conf(5),
// installonlypkgs): words, perhaps with commas, in more than one line.
func installOnly(d *disk.Disk) (several []string) {
	inside := false
	for line := range strings.Lines(d.Text("etc/dnf/dnf.conf")) {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			value = line
		default:
			inside = ok && strings.TrimSpace(key) == "installonlypkgs"
		}
		if inside {
			several = append(several, strings.FieldsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })...)
		}
	}
	return several
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
