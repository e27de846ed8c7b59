package seal

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// software is what no link may lead a rule to: programs, configuration, and what boots them. Rules
// name places there, but by their own paths.
var software = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "boot", "efi", "opt/kamino",
	StateDir, "dev", "proc", "sys"}

// usualLinks are directories in which distributions and administrators put links for whole
// subtrees, as /var/run, /home or /var/lib/docker. Only root writes there; /var/log, on the other
// hand, pods are given.
var usualLinks = []string{".", "var", "var/lib", "etc", "opt"}

// astray is an error for a match to which a link leads that is not where the rule's path points: it
// would take away what nobody meant. The link may be a distribution's, or stay in its own
// directory, or lead to where the rule looks anyway.
func (r Rule) astray(d *disk.Disk, pattern string, f disk.Found) error {
	if f.Name == f.As || r.Action == Check || r.points(f.Name) {
		return nil
	}
	literal := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	if len(r.Below) > 0 {
		literal = nil // all of its directories are
	}
	at := "."
	for i, part := range strings.Split(path.Dir(f.As), "/") {
		link := path.Join(at, part)
		info, err := d.Lstat(link)
		if err != nil {
			return fmt.Errorf("match rule %s: %w", r.ID, err)
		}
		to, err := d.Follow(link)
		if err != nil {
			return fmt.Errorf("match rule %s: %w", r.ID, err)
		}
		wild := i < len(literal) && strings.ContainsAny(literal[i], `*?[\`)
		if info.Mode()&fs.ModeSymlink != 0 && !usual(at, to, wild) {
			return refusal(fmt.Sprintf("remove the link, or write an exception for the rule with the path /%s in %s", link, allowIn),
				"rule %s would remove /%s, to which the link /%s leads", r.ID, f.Name, link)
		}
		at = to
	}
	return nil
}

// usual reports whether a link in the directory at may lead to the directory to; wild says that its
// name was a pattern's.
func usual(at, to string, wild bool) bool {
	if slices.ContainsFunc(software, func(s string) bool { return disk.Under(at, s) }) && disk.Under(to, at) {
		return true
	}
	above := slices.ContainsFunc(software, func(s string) bool { return disk.Under(to, s) || disk.Under(s, to) })
	return !above && (disk.Under(to, at) || !wild && slices.Contains(usualLinks, at))
}

// points reports whether the rule's own paths, without links, lead to name.
func (r Rule) points(name string) bool {
	return slices.ContainsFunc(r.Paths, func(p string) bool {
		ok, err := path.Match(strings.TrimPrefix(p, "/"), name)
		return err == nil && ok && len(r.Below) == 0
	})
}

// narrowed are the patterns for what an exception takes out of the rule: the parts of its paths, or
// of all, that are the rule's as well. None means that the exception is about something else.
func (r Rule) narrowed(e Exception) (patterns []string) {
	all := r.Paths
	if len(r.Below) > 0 {
		all = r.Below
	}
	if len(e.Paths) == 0 {
		return all
	}
	for _, p := range e.Paths {
		want := strings.Split(p, "/")
		for _, pattern := range all {
			have := strings.Split(pattern, "/")
			n := min(len(want), len(have))
			fits := true
			for i := range n {
				ok, err := path.Match(have[i], want[i])
				fits = fits && (err == nil && ok || have[i] == want[i])
			}
			if fits {
				patterns = append(patterns, strings.Join(append(slices.Clone(want), have[n:]...), "/"))
			}
		}
		// Its paths are those of the swap files that are in use, whatever they are called.
		if r.ID == "swap" && cmp.Or(e.Kind, swapKind) == swapKind && !strings.ContainsAny(p, `*?[\`) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}

// swapKind is the scan's kind for a file made for swapping.
const swapKind = "swap"

// ownFiles are what the agent works with on the disk that it seals, and on every clone. Only the
// table has rules for what is in them.
func ownFiles() []string {
	own := []string{StateDir, BinaryPath, SettingsPath, "etc/cloud/cloud-init.disabled", "etc/systemd/network/99-kamino.network",
		"etc/netplan/99-kamino.yaml"}
	for _, unit := range Units {
		text, _ := unitFiles.ReadFile("units/" + unit) // embedded
		own = append(own, unitDir+"/"+unit)
		if link, ok := wants(unit, string(text)); ok {
			own = append(own, link)
		}
	}
	for _, unit := range []string{"kubelet.service", snapKubelet, "walinuxagent.service", "waagent.service"} {
		own = append(own, unitDir+"/"+unit+".d/00-kamino.conf")
	}
	return own
}

// ownFile reports whether name is one of them, in one, or above one.
func ownFile(name string) bool {
	return slices.ContainsFunc(ownFiles(), func(own string) bool { return disk.Under(name, own) || disk.Under(own, name) })
}

func (r Rule) ownFileError(name string) error {
	return refusal(fmt.Sprintf("add keep: [/%s] to the rule", name), "rule %s may remove /%s, which the agent itself needs", r.ID, name)
}

// sparesOwn is an error where one of the rule's paths can match an own file, or what is above or
// below it, whether or not it is there now: the journal is written while rules are applied.
func (r Rule) sparesOwn() error {
	for _, pattern := range r.Paths {
		parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
		for _, own := range ownFiles() {
			dirs := strings.Split(own, "/")
			n := min(len(parts), len(dirs))
			name := strings.Join(dirs[:n], "/")
			ok, err := path.Match(strings.Join(parts[:n], "/"), name)
			if err == nil && ok && !slices.ContainsFunc(r.Keep, func(keep string) bool { return covers(keep, name) }) {
				return r.ownFileError(name)
			}
		}
	}
	return nil
}
