// Package patch brings the packages of a node up to date, with the package manager that the node
// has. It decides nothing about the node's pods and never restarts the machine: it says whether
// that is needed.
package patch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/inventory"
)

// Managers of packages. Command is a program of the operator's on the node itself: a run can ask
// for it, and never brings one, since whoever may make pods of runs would be root then.
const (
	Unattended = "unattended-upgrades"
	Apt        = "apt"
	Dnf        = "dnf"
	Command    = "command"
)

// CommandPath is the operator's own program. It gets no arguments, patches, and exits with 0.
const CommandPath = "etc/kamino/patch"

// PolicyEnv holds a Policy as JSON.
const PolicyEnv = "KAMINO_PATCH_POLICY"

// Policy is what a run asks for.
type Policy struct {
	// Manager is one of the constants; "" takes unattended-upgrades where it is installed and no
	// scope is given, else the package manager.
	Manager string `json:"manager,omitempty"`
	// Scope is "all", "security", or "": what the manager is configured for, which is all but for
	// unattended-upgrades.
	Scope string `json:"scope,omitempty"`
	// Held is "upgrade" to upgrade packages on hold too, which then are on hold as before; "" keeps
	// them.
	Held string `json:"held,omitempty"`
	// Phased is "always" or "never": what becomes of Ubuntu's phased updates, so that all nodes of
	// a pool get the same; "" leaves it to apt, which decides by the machine's ID.
	Phased string `json:"phased,omitempty"`
	// Release is dnf's releasever, which Amazon Linux 2023 needs: it is locked to the release of
	// its image (https://docs.aws.amazon.com/linux/al2023/ug/deterministic-upgrades.html).
	Release string `json:"release,omitempty"`
	// Seconds is the time limit of the whole, an hour where it is 0; RoomMiB how much must be free
	// beforehand on the file systems of / and /var, 1024 where it is 0.
	Seconds int `json:"seconds,omitempty"`
	RoomMiB int `json:"roomMiB,omitempty"`
	// Task is "check" for what Check refuses and "look" for a look at a node that was patched,
	// which change nothing, and "reboot" to restart the machine, if it still is in the boot with
	// the ID Boot.
	Task string `json:"task,omitempty"`
	Boot string `json:"boot,omitempty"`
}

// The tasks besides patching.
const (
	TaskCheck  = "check"
	TaskLook   = "look"
	TaskReboot = "reboot"
)

var releaseName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,63}$`)

// ParsePolicy reads a policy; a field that it does not know is an error.
func ParsePolicy(text string) (p Policy, err error) {
	if text == "" {
		return p, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return p, fmt.Errorf("patch policy: %w", err)
	}
	for _, f := range []struct {
		name, value string
		words       []string
	}{
		{"manager", p.Manager, []string{"", Unattended, Apt, Dnf, Command}}, {"scope", p.Scope, []string{"", "all", "security"}},
		{"held", p.Held, []string{"", "upgrade"}}, {"phased", p.Phased, []string{"", "always", "never"}},
		{"task", p.Task, []string{"", TaskCheck, TaskLook, TaskReboot}},
	} {
		if !slices.Contains(f.words, f.value) {
			return p, fmt.Errorf("patch policy: invalid %s %q", f.name, f.value)
		}
	}
	if p.Release != "" && !releaseName.MatchString(p.Release) {
		return p, fmt.Errorf("patch policy: invalid release %q", p.Release)
	}
	if p.Seconds < 0 || p.RoomMiB < 0 {
		return p, errors.New("patch policy: a time or a size is negative")
	}
	return p, nil
}

// Limit is how long patching may take.
func (p Policy) Limit() time.Duration { return time.Duration(cmp.Or(p.Seconds, 3600)) * time.Second }

// Change is a package that is not as it was. A side that has several versions of it, as of kernels,
// has them joined by commas; "" is not installed.
type Change struct {
	Name string `json:"name"`
	Arch string `json:"architecture,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Report is what was done, or seen.
type Report struct {
	Run     string   `json:"run"`
	Nonce   string   `json:"nonce,omitempty"`
	Boot    string   `json:"boot"` // ID of the boot in which this was so
	Manager string   `json:"manager,omitempty"`
	Changed []Change `json:"changed,omitempty"`
	Kept    []string `json:"kept,omitempty"` // packages on hold
	// Reboot are the reasons to restart the machine; none where nothing needs it.
	Reboot []string `json:"reboot,omitempty"`
	// Running and Newest are kernels; Newest is "" where none lies in /boot.
	Running string `json:"runningKernel,omitempty"`
	Newest  string `json:"newestKernel,omitempty"`
	// FailedUnits are systemd's: before the patch, or of the look.
	FailedUnits []string `json:"failedUnits,omitempty"`
	Failure     string   `json:"failure,omitempty"` // why it did not work; "" where it did
	Last        string   `json:"last,omitempty"`    // the last lines of the manager
	Seconds     float64  `json:"seconds,omitempty"`
}

// Refused is a reason not to begin. Nothing was changed.
type Refused struct{ Why, Do string }

func (r *Refused) Error() string { return r.Why + ": " + r.Do }

// Exec runs a program on the node; what it prints goes to out. An error of one that ran and failed
// is an *exec.ExitError.
type Exec func(ctx context.Context, out io.Writer, name string, args ...string) error

// Node is the node to work on.
type Node struct {
	Disk *disk.Disk
	Exec Exec
	Wait func(context.Context, time.Duration) error // between two looks at a lock
}

// manager is a way to patch. check refuses what it cannot do.
type manager interface {
	check(Node, Policy) error
	run(ctx context.Context, n Node, p Policy, out io.Writer) error
}

func (n Node) choose(p Policy) (string, manager, error) {
	name := p.Manager
	if name == "" {
		switch here := n.Disk.Exists; {
		case p.Scope != "all" && here("usr/bin/unattended-upgrade"):
			name = Unattended
		case here("usr/bin/apt-get"):
			name = Apt
		case here("usr/bin/dnf"), here("usr/bin/dnf5"):
			name = Dnf
		default:
			return "", nil, &Refused{"the node has neither apt nor dnf", "put a program that patches it at /" + CommandPath +
				" and choose the manager command"}
		}
	}
	return name, map[string]manager{Unattended: unattended{}, Apt: apt{}, Dnf: dnf{}, Command: command{}}[name], nil
}

// Check refuses what could not be patched, before anything is changed. Where packages are being
// changed it waits until whoever does that lets go of its lock.
func (n Node) Check(ctx context.Context, p Policy) error {
	_, m, err := n.choose(p)
	if err != nil {
		return err
	}
	if err := m.check(n, p); err != nil {
		return err
	}
	unfinished, err := inventory.Unfinished(n.Disk)
	// dpkg's journal also has what is under way; Patch waits for any lock later.
	if err == nil && (len(unfinished) > 0 || p.Task == TaskCheck) {
		if err := n.awaitLocks(ctx); err != nil {
			return err
		}
		unfinished, err = inventory.Unfinished(n.Disk)
	}
	if err != nil {
		return err
	}
	if len(unfinished) > 0 {
		return &Refused{"an earlier change of packages was interrupted: " + unfinished.What(), "on the node: " + unfinished.Todo()}
	}
	return n.room(p)
}

// room refuses a disk on which an upgrade would end half-way.
func (n Node) room(p Policy) error {
	want := uint64(cmp.Or(p.RoomMiB, 1024))
	for _, dir := range []string{"", "var"} {
		var fs unix.Statfs_t
		if dir != "" && !n.Disk.Exists(dir) || unix.Statfs(n.Disk.Host(dir), &fs) != nil {
			continue
		}
		if free := fs.Bavail * uint64(fs.Bsize) >> 20; free < want {
			return &Refused{fmt.Sprintf("/%s has %d MiB free, less than %d", dir, free, want),
				"make room on the node, or ask for less with --room"}
		}
	}
	return nil
}

// Patch patches the node. A Report that says Failure comes without an error: what was changed until
// then is in it. Asked again it finds nothing left to do.
func (n Node) Patch(ctx context.Context, p Policy) (r Report, err error) {
	if err := n.HoldAgain(ctx, io.Discard); err != nil {
		return r, err
	}
	limited, cancel := context.WithTimeout(ctx, p.Limit())
	defer cancel()
	if err := n.Check(limited, p); err != nil {
		return r, err
	}
	before, _, err := inventory.Packages(n.Disk)
	if err != nil {
		return r, err
	}
	if r.Kept, err = inventory.Held(n.Disk); err != nil {
		return r, err
	}
	var m manager
	if r.Manager, m, err = n.choose(p); err != nil {
		return r, err
	}
	if r.FailedUnits, err = n.failedUnits(ctx); err != nil {
		return r, err
	}
	began, last := time.Now(), &tail{most: 4 << 10}
	if failed := n.attempt(limited, m, p, last); failed != nil {
		if r.Failure = failed.Error(); limited.Err() != nil {
			r.Failure = fmt.Sprintf("not done within %s: %s", p.Limit(), r.Failure)
		}
	}
	r.Seconds, r.Last = time.Since(began).Seconds(), last.String()
	after, _, err := inventory.Packages(n.Disk)
	if err != nil {
		return r, err
	}
	r.Changed = changes(before, after)
	for _, c := range r.Changed {
		if p.Held == "" && slices.Contains(r.Kept, c.Name) && r.Failure == "" {
			r.Failure = fmt.Sprintf("package %s is on hold and was changed from %s to %s", c.Name, cmp.Or(c.From, "none"),
				cmp.Or(c.To, "none"))
		}
	}
	if unfinished, err := inventory.Unfinished(n.Disk); err == nil && len(unfinished) > 0 {
		r.Failure = strings.Trim(r.Failure+"; packages are left half-way: "+unfinished.What(), "; ")
	}
	return r, n.see(ctx, &r)
}

// attempt runs the manager once nobody holds its locks. One that lost a lock to somebody in between
// is run again: unattended-upgrade waits for none.
func (n Node) attempt(ctx context.Context, m manager, p Policy, last *tail) error {
	for {
		if err := n.awaitLocks(ctx); err != nil {
			return err
		}
		mark := last.written
		err := m.run(ctx, n, p, last)
		if err == nil || ctx.Err() != nil || !saysLocked(last.since(mark)) {
			return err
		}
		if err := n.Wait(ctx, lockPause); err != nil {
			return fmt.Errorf("wait for the package manager's lock: %w", err)
		}
	}
}

// Look says how the node stands, and changes nothing.
func (n Node) Look(ctx context.Context) (r Report, err error) {
	if err := n.see(ctx, &r); err != nil {
		return r, err
	}
	r.FailedUnits, err = n.failedUnits(ctx)
	return r, err
}

// failedUnits are systemd's (systemctl(1), --failed).
func (n Node) failedUnits(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := n.Exec(ctx, &out, "systemctl", host.ListFailed...); err != nil {
		return nil, fmt.Errorf("list failed units: %w", err)
	}
	return host.FailedUnits(out.String()), nil
}

// see fills in boot, kernels and why a reboot is needed.
func (n Node) see(ctx context.Context, r *Report) error {
	d := n.Disk
	_, facts, err := inventory.Packages(d)
	if err != nil {
		return err
	}
	r.Boot, r.Newest = BootID(d), facts.Kernel
	r.Running = d.Text("proc/sys/kernel/osrelease")
	// Debian's and Ubuntu's mark; /var/run is a link to /run.
	if d.Exists("run/reboot-required") {
		why := "/run/reboot-required"
		if packages := strings.Fields(d.Text("run/reboot-required.pkgs")); len(packages) > 0 {
			slices.Sort(packages)
			why += " names " + some(slices.Compact(packages))
		}
		r.Reboot = append(r.Reboot, why)
	}
	// A kernel that comes from outside is not among those in /boot.
	if r.Newest != "" && r.Running != r.Newest && d.Exists("boot/vmlinuz-"+r.Running) {
		r.Reboot = append(r.Reboot, fmt.Sprintf("kernel %s is installed and %s runs", r.Newest, r.Running))
	}
	if why := n.needsRestarting(ctx); why != "" {
		r.Reboot = append(r.Reboot, why)
	}
	return nil
}

// BootID is the machine's, as the kubelet tells it
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeStatus, bootID).
func BootID(d *disk.Disk) string { return d.Text("proc/sys/kernel/random/boot_id") }

// changes compares two lists of inventory.Packages.
func changes(before, after []string) (out []Change) {
	type key struct{ name, arch string }
	versions := map[key][2][]string{}
	for side, list := range [][]string{before, after} {
		for _, line := range list {
			name, rest, _ := strings.Cut(line, " ")
			version, arch, _ := strings.Cut(rest, " ")
			both := versions[key{name, arch}]
			both[side] = append(both[side], version)
			versions[key{name, arch}] = both
		}
	}
	for k, v := range versions {
		if !slices.Equal(v[0], v[1]) {
			out = append(out, Change{k.name, k.arch, strings.Join(v[0], ","), strings.Join(v[1], ",")})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Arch, b.Arch)) })
	return out
}

func some(list []string) string {
	const most = 10
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// code is the exit code of a program that ran and failed, or -1.
func code(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
