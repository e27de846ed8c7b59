package seal

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/agent/host"
)

// fakeHost is a machine with units and runtimes: what runs, and what its programs answer. Every
// command is kept.
type fakeHost struct {
	units   map[string]string   // type and sub state of what is active, by unit: "service running"
	stubs   map[string]bool     // units that do not stop
	lists   map[string][]string // what a runtime's client lists, by its command
	sticky  bool                // containers cannot be removed
	asked   []string
	started []string
}

func (f *fakeHost) Live() bool                     { return false }
func (f *fakeHost) PowerOff(context.Context) error { return errors.New("not asked for") }

func (f *fakeHost) Run(_ context.Context, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	f.asked = append(f.asked, line)
	switch {
	case name == "systemctl":
		return f.systemctl(line, args)
	case f.lists == nil && (name == "ctr" || name == "crictl" || name == "docker" || name == "podman"):
		return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
	case strings.HasSuffix(line, "leases create"):
		return "lease-1\n", nil
	case strings.Contains(line, "rm") || strings.Contains(line, "delete"):
		n := 1 // crictl, docker and podman have one list each, ctr one for each kind in each namespace
		if name == "ctr" {
			n = 3
		}
		for command := range f.lists {
			if !f.sticky && slices.Equal(strings.Fields(command)[:n], strings.Fields(line)[:n]) {
				f.lists[command] = nil
			}
		}
		return "", nil
	}
	return strings.Join(f.lists[line], "\n"), nil
}

func (f *fakeHost) systemctl(line string, args []string) (string, error) {
	switch args[0] {
	case "is-active":
		if _, active := f.units[args[2]]; !active {
			return "", &host.Failed{Command: line, Code: 3}
		}
	case "stop":
		for _, u := range args[1:] {
			if !f.stubs[u] {
				delete(f.units, u)
			}
		}
	case "start":
		for _, u := range args[1:] {
			if !strings.HasPrefix(u, "--") {
				f.started = append(f.started, u)
			}
		}
	case "list-units":
		var out []string
		for u, state := range f.units {
			kind, sub, _ := strings.Cut(state, " ")
			if strings.Contains(args[1], kind) {
				out = append(out, u+" loaded active "+sub+" What it is for")
			}
		}
		slices.Sort(out)
		return strings.Join(out, "\n"), nil
	}
	return "", nil
}

func (f *fakeHost) index(line string) int { return slices.Index(f.asked, line) }

func services(f *fakeHost) *Services { return &Services{Host: f, Log: slog.New(slog.DiscardHandler)} }

func donorUnits() map[string]string {
	return map[string]string{"kubelet.service": "service running", "containerd.service": "service running", "kamino-watch.service": "service running",
		"kamino-capture.service": "service running", "cron.service": "service running", "ssh.service": "service running", "chrony.service": "service running",
		"azuremonitoragent.service": "service auto-restart", "user@0.service": "service running", "apt-daily.timer": "timer waiting", "snapd.socket": "socket listening",
		"acpid.path": "path waiting", "networking.service": "service exited", "apparmor.service": "service exited", "systemd-networkd.service": "service running",
		"systemd-journald.service": "service running", "systemd-journald-dev-log.socket": "socket running", "dbus.service": "service running", "dbus.socket": "socket running",
		"systemd-udevd-kernel.socket": "socket running", "kamino-seal-r1.service": "service running"}
}

// TestWritersAreStopped: whatever runs stops, but what the seal itself needs; what starts others
// goes before it, our own units before everything, and the runtime last.
func TestWritersAreStopped(t *testing.T) {
	f := &fakeHost{units: donorUnits()}
	s := services(f)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	for u := range f.units {
		left = append(left, u)
	}
	slices.Sort(left)
	want := "apparmor.service dbus.service dbus.socket kamino-seal-r1.service networking.service systemd-journald-dev-log.socket systemd-journald.service systemd-networkd.service systemd-udevd-kernel.socket"
	if got := strings.Join(left, " "); got != want {
		t.Errorf("goes on:\n%s\nwant:\n%s", got, want)
	}
	order := []string{"systemctl stop kamino-watch.service", "systemctl stop kamino-capture.service", "systemctl stop kubelet.service",
		"systemctl stop acpid.path apt-daily.timer snapd.socket", "systemctl stop azuremonitoragent.service chrony.service cron.service ssh.service user@0.service",
		"systemctl stop user.slice", "systemctl stop containerd.service", "journalctl --relinquish-var"}
	for i, line := range order {
		if f.index(line) < 0 || i > 0 && f.index(line) < f.index(order[i-1]) {
			t.Errorf("%q is not where it should be:\n%s", line, strings.Join(f.asked, "\n"))
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"kubelet.service", "containerd.service", "kamino-watch.service", "cron.service", "ssh.service", "apt-daily.timer", "snapd.socket", "chrony.service"} {
		if !slices.Contains(f.started, u) {
			t.Errorf("%s is not started again: %v", u, f.started)
		}
	}
	if slices.Index(f.started, "containerd.service") > slices.Index(f.started, "kubelet.service") {
		t.Errorf("kubelet is started before the runtime: %v", f.started)
	}
}

// TestWhatDoesNotStop refuses the seal by its name.
func TestWhatDoesNotStop(t *testing.T) {
	f := &fakeHost{units: donorUnits(), stubs: map[string]bool{"chrony.service": true}}
	if err := services(f).Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "chrony.service") {
		t.Errorf("not refused: %v", err)
	}
}

// TestContainersOfEveryRuntime: each runtime's containers are removed, and one that stays refuses
// the seal by its name.
func TestContainersOfEveryRuntime(t *testing.T) {
	for list, want := range map[string]string{
		"crictl --timeout=60s pods --quiet":                "crictl --timeout=60s rmp --all --force",
		"docker ps --all --quiet --no-trunc":               "docker rm --force --volumes 0a1b2c",
		"podman ps --all --external --quiet --no-trunc":    "podman rm --all --force --volumes",
		"ctr --namespace=k8s.io containers list --quiet":   "ctr --namespace=k8s.io containers delete 0a1b2c",
		"ctr --namespace=moby tasks list --quiet":          "ctr --namespace=moby tasks delete --force 0a1b2c",
		"ctr --namespace=buildkit containers list --quiet": "ctr --namespace=buildkit containers delete 0a1b2c",
	} {
		t.Run(list, func(t *testing.T) {
			lists := func() map[string][]string {
				return map[string][]string{"ctr namespaces list --quiet": {"k8s.io", "moby", "buildkit"}, list: {"0a1b2c"}}
			}
			f := &fakeHost{units: donorUnits(), lists: lists()}
			if err := services(f).Stop(t.Context()); err != nil || f.index(want) < 0 {
				t.Errorf("not removed with %q: %v\n%s", want, err, strings.Join(f.asked, "\n"))
			}
			stays := &fakeHost{units: donorUnits(), lists: lists(), sticky: true}
			if err := services(stays).Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "0a1b2c") {
				t.Errorf("a container that cannot be removed is not named: %v", err)
			}
		})
	}
}

// TestGarbageIsCollected: containerd keeps the writable layer of a removed container until it
// collects garbage.
func TestGarbageIsCollected(t *testing.T) {
	f := &fakeHost{units: donorUnits(), lists: map[string][]string{"ctr namespaces list --quiet": {"k8s.io", "moby"}}}
	if err := services(f).Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"k8s.io", "moby"} {
		if at := f.index("ctr --namespace=" + n + " leases delete --sync lease-1"); at < 0 || at > f.index("systemctl stop containerd.service") {
			t.Errorf("%s: no garbage is collected before containerd is stopped:\n%s", n, strings.Join(f.asked, "\n"))
		}
	}
}

// TestUnitsStopOnlyTheAgent: systemd asks the agent alone to stop, not the commands that it runs: one
// that ends by systemd's hand looks like one that failed.
func TestUnitsStopOnlyTheAgent(t *testing.T) {
	for _, unit := range Units {
		text, err := unitFiles.ReadFile("units/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "bin/kamino-agent") && !strings.Contains(string(text), "\nKillMode=mixed\n") {
			t.Errorf("%s has no KillMode=mixed", unit)
		}
	}
}
