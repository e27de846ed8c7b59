package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/inventory"
)

// quiet is the environment of all that installs packages: nobody answers questions, a changed
// configuration file stays as it is, and needrestart restarts nothing, since Ubuntu 24.04's would
// without asking (https://discourse.ubuntu.com/t/44671).
var quiet = []string{"DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1", "UCF_FORCE_CONFFOLD=1", "LC_ALL=C.UTF-8"}

// keepFiles answers dpkg's question about configuration files: what the maintainer says, else the
// present one (dpkg(1), --force-confdef and --force-confold).
var keepFiles = []string{"-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"}

func (n Node) quietly(ctx context.Context, out io.Writer, words ...string) error {
	return n.Exec(ctx, out, "env", slices.Concat(quiet, words)...)
}

// update reads what apt's sources have. Without the option it succeeds although some failed: it is
// what --error-on=any sets (apt-get(8)), which older ones do not know.
func (n Node) update(ctx context.Context, out io.Writer) error {
	if err := n.quietly(ctx, out, "apt-get", "-y", "-o", "APT::Update::Error-Mode=any", "-o", "DPkg::Lock::Timeout=600",
		"update"); err != nil {
		return fmt.Errorf("apt-get update: %w", err)
	}
	return nil
}

// apt upgrades all that its sources have.
type apt struct{}

func (apt) check(n Node, p Policy) error {
	switch {
	case !n.Disk.Exists("usr/bin/apt-get"):
		return &Refused{"the node has no apt-get", "choose another manager"}
	case p.Scope == "security":
		return &Refused{"apt-get has no option to select security updates only",
			"install unattended-upgrades on the nodes, or take all updates"}
	}
	return nil
}

// neededPackages are beginnings of names of packages without which a node does not come back or is
// none any more: an upgrade that would remove one is not begun.
var neededPackages = []string{"kubelet", "containerd", "docker-", "docker.", "cri-o", "runc", "cloud-init", "walinuxagent", "systemd",
	"linux-image-", "openssh-server"}

func (apt) run(ctx context.Context, n Node, p Policy, out io.Writer) (err error) {
	if err := n.update(ctx, out); err != nil {
		return err
	}
	words := slices.Concat([]string{"apt-get", "-y", "-o", "DPkg::Lock::Timeout=600"}, keepFiles)
	switch p.Phased { // https://wiki.ubuntu.com/PhasedUpdates, apt_preferences(5)
	case "always":
		words = append(words, "-o", "APT::Get::Always-Include-Phased-Updates=true")
	case "never":
		words = append(words, "-o", "APT::Get::Never-Include-Phased-Updates=true")
	}
	upgrades := [][]string{{"dist-upgrade"}}
	held, err := inventory.Held(n.Disk)
	if err != nil {
		return err
	}
	if p.Held == "upgrade" && len(held) > 0 {
		upgrades = append(upgrades, append([]string{"--allow-change-held-packages", "--only-upgrade", "install"}, held...))
		// However that ends: apt takes what it upgrades off hold, and the next patch would upgrade
		// it unasked.
		if err := n.Disk.WriteFile(holdsPath, []byte(strings.Join(held, "\n")+"\n"), 0o644); err != nil {
			return err
		}
		defer func() {
			if again := n.HoldAgain(context.WithoutCancel(ctx), out); err == nil {
				err = again
			}
		}()
	}
	for _, u := range upgrades {
		var plan bytes.Buffer
		if err := n.quietly(ctx, &plan, slices.Concat(words, []string{"--simulate"}, u)...); err != nil {
			_, _ = out.Write(plan.Bytes())
			return fmt.Errorf("apt-get --simulate: %w", err)
		}
		if lost := removals(plan.String()); len(lost) > 0 {
			return fmt.Errorf("the upgrade would remove %s: nothing was upgraded", some(lost))
		}
		if err := n.quietly(ctx, out, slices.Concat(words, u)...); err != nil {
			return fmt.Errorf("apt-get: %w", err)
		}
	}
	return nil
}

// holdsPath lists the packages that are to be on hold once their upgrade has ended, for as long as
// holdsLast: after that somebody has seen to a node whose patch ended badly, and decides what is on
// hold.
const (
	holdsPath = "var/lib/kamino/patch-holds"
	holdsLast = 24 * time.Hour
)

// HoldAgain puts packages on hold again that an upgrade, which may have been killed, took off. What
// was removed since then is skipped: apt-mark refuses all where it does not know one.
func (n Node) HoldAgain(ctx context.Context, out io.Writer) error {
	info, err := n.Disk.Lstat(holdsPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	data, err := n.Disk.ReadFile(holdsPath, disk.Small)
	if err != nil {
		return err
	}
	installed, _, err := inventory.Packages(n.Disk)
	if err != nil {
		return err
	}
	held := slices.DeleteFunc(strings.Fields(string(data)), func(name string) bool {
		return !slices.ContainsFunc(installed, func(line string) bool { return strings.HasPrefix(line, name+" ") })
	})
	if len(held) > 0 && time.Since(info.ModTime()) < holdsLast {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := n.quietly(ctx, out, slices.Concat([]string{"apt-mark", "hold"}, held)...); err != nil {
			return fmt.Errorf("put packages on hold again: %w", err)
		}
	}
	return n.Disk.Remove(holdsPath)
}

// removals are the needed packages that a simulated run of apt-get would remove: its lines begin
// with "Remv" (apt-get(8), --simulate).
func removals(plan string) (lost []string) {
	for line := range strings.Lines(plan) {
		word := strings.Fields(line)
		if len(word) > 1 && word[0] == "Remv" && slices.ContainsFunc(neededPackages,
			func(b string) bool { return strings.HasPrefix(word[1], b) }) {
			lost = append(lost, word[1])
		}
	}
	return lost
}

// unattended runs the program that Debian and Ubuntu upgrade by at night, with the origins that the
// node allows it.
type unattended struct{}

func (unattended) check(n Node, p Policy) error {
	switch {
	case !n.Disk.Exists("usr/bin/unattended-upgrade"):
		return &Refused{"the node has no unattended-upgrade", "choose the manager apt"}
	case p.Scope == "all":
		return &Refused{"unattended-upgrade installs what its configuration allows, not all updates", "choose the manager apt"}
	case p.Held != "" || p.Phased != "":
		return &Refused{"unattended-upgrade leaves packages on hold and phased updates as they are", "choose the manager apt"}
	}
	return nil
}

func (unattended) run(ctx context.Context, n Node, _ Policy, out io.Writer) error {
	var reboots bytes.Buffer
	if err := n.Exec(ctx, &reboots, "apt-config", "shell", "AUTO", "Unattended-Upgrade::Automatic-Reboot/b"); err != nil {
		return fmt.Errorf("apt-config: %w", err)
	}
	if strings.Contains(reboots.String(), "true") {
		return errors.New("the option Unattended-Upgrade::Automatic-Reboot is on: the machine would restart before it was examined; turn it off, or choose the manager apt")
	}
	if err := n.update(ctx, out); err != nil {
		return err
	}
	// What its timers start meanwhile would take its lock, for which it does not wait.
	timers := []string{"apt-daily.timer", "apt-daily-upgrade.timer"}
	if err := n.Exec(ctx, out, "systemctl", append([]string{"stop"}, timers...)...); err == nil {
		defer func() {
			_ = n.Exec(context.WithoutCancel(ctx), out, "systemctl", append([]string{"start"}, timers...)...)
		}()
	}
	// It has no options for apt's; lists in APT_CONFIG are added to (apt.conf(5)).
	const name = "run/kamino/patch-apt.conf"
	if err := n.Disk.WriteFile(name, []byte("Dpkg::Options { \"--force-confdef\"; \"--force-confold\"; };\n"), 0o644); err != nil {
		return err
	}
	if err := n.quietly(ctx, out, "APT_CONFIG=/"+name, "unattended-upgrade", "-v"); err != nil {
		return fmt.Errorf("unattended-upgrade: %w", err)
	}
	return nil
}

// dnf is the manager of Fedora, Red Hat Enterprise Linux and Amazon Linux 2023.
type dnf struct{}

func (dnf) check(n Node, p Policy) error {
	switch {
	case !n.Disk.Exists("usr/bin/dnf") && !n.Disk.Exists("usr/bin/dnf5"):
		return &Refused{"the node has no dnf", "choose another manager"}
	case p.Release == "" && amazon2023(n.Disk.Text("etc/os-release")):
		return &Refused{"Amazon Linux 2023 is locked to the release of its image, and the run names none",
			"add --releasever, for instance 2023.6.20250107; dnf check-release-update lists them"}
	case p.Phased != "":
		return &Refused{"dnf has no phased updates", "omit --phased"}
	}
	return nil
}

func amazon2023(release string) bool {
	has := func(line string) bool {
		return slices.ContainsFunc(strings.Split(release, "\n"), func(l string) bool { return strings.ReplaceAll(l, `"`, "") == line })
	}
	return has("ID=amzn") && has("VERSION_ID=2023")
}

func (dnf) run(ctx context.Context, n Node, p Policy, out io.Writer) error {
	words := []string{"dnf", "-y", "--refresh"}
	if p.Release != "" {
		words = append(words, "--releasever="+p.Release)
	}
	if p.Held == "upgrade" {
		words = append(words, "--disableexcludes=all")
	}
	words = append(words, "upgrade")
	if p.Scope == "security" {
		words = append(words, "--security")
	}
	if err := n.quietly(ctx, out, words...); err != nil {
		return fmt.Errorf("dnf upgrade: %w", err)
	}
	return nil
}

// needsRestarting asks dnf whether a reboot is needed: the program of yum-utils, which few nodes
// have, or dnf's own command, without a look at the repositories. Its exit code 1 is that of plain
// errors, too: only the text tells
// (https://dnf-plugins-core.readthedocs.io/en/latest/needs_restarting.html; dnf5 is unverified).
func (n Node) needsRestarting(ctx context.Context) string {
	words := []string{"LC_ALL=C", "dnf", "-C", "needs-restarting", "-r"}
	switch here := n.Disk.Exists; {
	case here("usr/bin/needs-restarting"):
		words = []string{"LC_ALL=C", "needs-restarting", "-r"}
	case !here("usr/bin/dnf"):
		return ""
	}
	var out bytes.Buffer
	err := n.Exec(ctx, &out, "env", words...)
	if err != nil && code(err) == 1 && strings.Contains(out.String(), "Reboot is required") {
		return "needs-restarting: reboot is required"
	}
	return ""
}

// command is the operator's own program, CommandPath.
type command struct{}

func (command) check(n Node, p Policy) error {
	info, err := n.Disk.Lstat(CommandPath)
	switch {
	case err != nil || !info.Mode().IsRegular() || info.Mode()&0o100 == 0:
		return &Refused{"the node has no program at /" + CommandPath, "put one there, or choose another manager"}
	case info.Mode()&0o022 != 0:
		return &Refused{"/" + CommandPath + " can be changed by others than its owner", "chmod 0755 /" + CommandPath}
	case p.Scope != "" || p.Held != "" || p.Phased != "" || p.Release != "":
		return &Refused{"/" + CommandPath + " decides itself what it takes", "omit the options that say which packages"}
	}
	return nil
}

func (command) run(ctx context.Context, n Node, _ Policy, out io.Writer) error {
	if err := n.quietly(ctx, out, "/"+CommandPath); err != nil {
		return fmt.Errorf("/%s: %w", CommandPath, err)
	}
	return nil
}
