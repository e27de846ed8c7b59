package nodes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/internal/worlds"
)

// What a patch finds on a simulated disk and leaves there, besides the list of packages.
const (
	// UpgradesFile is what the package sources have: lines as those of the list of packages. A word
	// more tells what comes of a package: one of the constants below.
	UpgradesFile = "/etc/apt/upgrades"
	// HeldFile names the packages on hold.
	HeldFile    = "/var/lib/dpkg/held"
	journalFile = "/var/lib/dpkg/updates/0001" // there while packages are changed
	rebootFile  = "/run/reboot-required.pkgs"
	hangsFile   = "/boot/hangs"
)

// What comes of upgrading a package.
const (
	NeedsReboot = "reboot"   // it asks for one
	HangsOnce   = "hangs"    // it asks for one, from which the machine comes back by a power cycle only
	HangsAlways = "bricks"   // the same without a way back
	Breaks      = "breaks"   // dpkg fails
	FailsUnit   = "unit"     // its service has failed from then on
	brokenUnits = "/run/bad" // those
)

// Boot is one boot of a machine.
type Boot struct{ ID, Kernel string }

// CheckUpgrade refuses a disk whose last change of packages was interrupted.
func CheckUpgrade(files map[string]string) error {
	if _, unfinished := files[journalFile]; unfinished {
		return &patch.Refused{Why: "an earlier change of packages was interrupted",
			Do: "on the node: dpkg --configure -a && apt-get -f install"}
	}
	return nil
}

// BeginUpgrade is the package manager that begins to change a disk, unless CheckUpgrade refuses it.
func BeginUpgrade(files map[string]string, run string) error {
	if err := CheckUpgrade(files); err != nil {
		return err
	}
	files[journalFile] = run
	return nil
}

// Upgrading says whether a change of packages has begun and not ended.
func Upgrading(files map[string]string) bool { return files[journalFile] != "" }

// ConfigureAll is a person who finishes by hand what was interrupted.
func ConfigureAll(files map[string]string) { delete(files, journalFile) }

// Repair is a person who mends what an upgrade broke.
func Repair(files map[string]string) {
	for _, name := range []string{hangsFile, brokenUnits} {
		delete(files, name)
	}
}

// FillPackages gives a fresh disk its packages.
func FillPackages(files map[string]string) {
	if files[packagesFile] == "" {
		files[packagesFile] = "bash 5.2 amd64\nkubelet 1.36.3 amd64\nlibc6 2.36-9 amd64\nopenssl 3.0.15 amd64\ntzdata 2025a all\n"
	}
}

// Packages are those of a disk.
func Packages(files map[string]string) string { return files[packagesFile] }

// Booted takes off a disk what lasts for one boot.
func Booted(files map[string]string) {
	delete(files, rebootFile)
	delete(files, brokenUnits)
}

// Stuck says whether the next boot from a disk does not come up; for whichever hangs once, the
// power cycle after it does.
func Stuck(files map[string]string) bool {
	how := files[hangsFile]
	if how == HangsOnce {
		delete(files, hangsFile)
	}
	return how != ""
}

// Upgrade is what the package manager does to the disk.
func (b Boot) Upgrade(files map[string]string, p patch.Policy) patch.Report {
	held, last, failure := strings.Fields(files[HeldFile]), "", ""
	lines := strings.Split(strings.TrimSpace(files[packagesFile]), "\n")
	var changed []patch.Change
	for line := range strings.Lines(files[UpgradesFile]) {
		word := append(strings.Fields(line), "")
		name, version, arch, comes := word[0], word[1], word[2], word[3]
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+" ") })
		if at < 0 || lines[at] == name+" "+version+" "+arch || p.Held == "" && slices.Contains(held, name) {
			continue
		}
		if comes == Breaks {
			failure, last = "apt-get: exit status 100", "dpkg: error processing package "+name+" (--configure)"
			break
		}
		changed = append(changed, patch.Change{Name: name, Arch: arch, From: strings.Fields(lines[at])[1], To: version})
		lines[at] = name + " " + version + " " + arch
		leave(files, name, comes)
	}
	files[packagesFile] = strings.Join(lines, "\n") + "\n"
	delete(files, journalFile)
	r := b.see(files)
	r.Manager, r.Changed, r.Kept, r.Failure, r.Last = cmp.Or(p.Manager, patch.Unattended), changed, held, failure, last
	return r
}

// leave writes what an upgraded package leaves.
func leave(files map[string]string, name, what string) {
	switch what {
	case NeedsReboot, HangsOnce, HangsAlways:
		files[rebootFile] += name + "\n"
	case FailsUnit:
		files[brokenUnits] += name + ".service\n"
	}
	if what == HangsOnce || what == HangsAlways {
		files[hangsFile] = what
	}
}

// Look is how the machine stands, with its units.
func (b Boot) Look(files map[string]string) patch.Report {
	r := b.see(files)
	r.FailedUnits = strings.Fields(files[brokenUnits])
	return r
}

func (b Boot) see(files map[string]string) patch.Report {
	r := patch.Report{Boot: b.ID, Running: b.Kernel, Newest: b.Kernel}
	if names := strings.Fields(files[rebootFile]); len(names) > 0 {
		r.Reboot = []string{"/run/reboot-required names " + strings.Join(names, ", ")}
	}
	return r
}

// PatchAnswer is a report as agent/verb_patch.go writes it on the node.
func PatchAnswer(run, nonce string, r patch.Report) (string, error) {
	r.Run, r.Nonce = run, nonce
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode report: %w", err)
	}
	return worlds.Pack(run, nonce, "report", text), nil
}
