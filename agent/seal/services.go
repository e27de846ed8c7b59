package seal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
)

// What is stopped by name, in the order in which it is: the agent's own units first, because they
// would make a host key that all clones share, record the donor's boot, or take the seal for a new
// machine; then kubelet, which would start the others' work again. The runtimes go last, when their
// containers are gone.
var (
	ownUnits     = []string{"kamino-watch.service", "kamino-capture.service", "kamino-ssh-rsa.timer", "kamino-ssh-rsa.service"}
	kubeletUnits = []string{"kubelet.service", snapKubelet}
	runtimeUnits = []string{"cri-docker.socket", "cri-docker.service", "docker.socket", "docker.service", "podman.socket", "podman.service",
		"crio.service", "containerd.service"}
)

// Deadlines of single commands: one that hangs must not keep the donor away.
const (
	askMost  = time.Minute
	stopMost = 3 * time.Minute // systemd itself kills after 90 s, where a unit says nothing else
)

// stoppedPath is in memory: which units a seal has stopped, one a line, for when the seal is
// killed.
const stoppedPath = "run/kamino/stopped"

// Services stops everything on the donor that writes, and can start again what it stopped.
type Services struct {
	Host host.Host
	Disk *disk.Disk // where it notes what it stopped; nil: nowhere
	Log  *slog.Logger
	// Extra units are stopped though they have no process, in the order given.
	Extra []string
	// EndOthers ends the processes of all units but those that keep names; nil leaves them.
	EndOthers func(ctx context.Context, keep func(unit string) bool) ([]host.Process, error)
	stopped   []string
}

// Stop stops them. An error names what cannot be stopped or removed, and leaves what is stopped
// already in the list for Restart. Containers and sessions do not come back.
func (s *Services) Stop(ctx context.Context) error {
	if err := s.stop(ctx, slices.Concat(ownUnits, kubeletUnits)...); err != nil {
		return err
	}
	for _, kind := range []string{"timer,path,socket", "service"} { // what starts others goes before them
		units, err := s.running(ctx, kind)
		if err != nil {
			return err
		}
		s.stopAll(ctx, slices.DeleteFunc(units, func(u string) bool { return slices.Contains(runtimeUnits, u) }))
	}
	s.try(ctx, stopMost, "systemctl", "stop", "user.slice")
	if err := s.stop(ctx, s.Extra...); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	s.try(ctx, stopMost, "systemctl", "stop", "kubepods.slice")
	if err := s.stop(ctx, runtimeUnits...); err != nil {
		return err
	}
	if err := s.silence(ctx); err != nil {
		return err
	}
	// journald goes on in /run, so that what happens now is not written to the disk.
	s.try(ctx, askMost, "journalctl", "--relinquish-var")
	s.try(ctx, stopMost, "swapoff", "--all")
	return nil
}

// silence ends what has outlived its unit, and asks again until nothing runs that may not.
func (s *Services) silence(ctx context.Context) error {
	var units []string
	for range 3 { // what ended may have started something else, once more
		if s.EndOthers != nil {
			ended, err := s.EndOthers(ctx, kept)
			for _, p := range ended {
				s.Log.Info("ended", "process", p.String())
			}
			if err != nil {
				return fmt.Errorf("seal refused: %w; running processes write to the disk", err)
			}
		}
		var err error
		if units, err = s.running(ctx, "timer,path,socket,service"); err != nil || len(units) == 0 {
			return err
		}
		s.stopAll(ctx, units)
	}
	return fmt.Errorf("seal refused: %s cannot be stopped, and running services write to the disk: see why with `systemctl stop %s` on the donor",
		strings.Join(units, ", "), units[0])
}

// running are the units of those types that may not go on. A service that has started and left
// nothing running (RemainAfterExit) writes nothing; stopping it may undo what it set up, such as
// the network.
func (s *Services) running(ctx context.Context, types string) (units []string, err error) {
	out, err := s.run(ctx, askMost, "systemctl", "list-units", "--type="+types, "--state=active,activating,reloading,deactivating",
		"--plain", "--no-legend", "--no-pager", "--full")
	if err != nil {
		return nil, fmt.Errorf("list running units: %w", err)
	}
	for line := range strings.Lines(out) {
		field := strings.Fields(line) // UNIT LOAD ACTIVE SUB DESCRIPTION
		if len(field) >= 4 && field[3] != "exited" && !kept(field[0]) {
			units = append(units, field[0])
		}
	}
	return units, nil
}

// stopAll stops units in one transaction, in whose order systemd is the better judge. What refuses
// is found by silence.
func (s *Services) stopAll(ctx context.Context, units []string) {
	if len(units) == 0 {
		return
	}
	s.note(units...)
	s.try(ctx, stopMost, "systemctl", append([]string{"stop"}, units...)...)
}

func (s *Services) stop(ctx context.Context, units ...string) error {
	for _, u := range units {
		if _, err := s.run(ctx, askMost, "systemctl", "is-active", "--quiet", u); err != nil {
			if host.Code(err) < 0 {
				return fmt.Errorf("ask for %s: %w", u, err)
			}
			continue // not running, or not installed
		}
		s.note(u)
		if _, err := s.run(ctx, stopMost, "systemctl", "stop", u); err != nil {
			return fmt.Errorf("stop %s: %w", u, err)
		}
	}
	return nil
}

// note remembers units before they are stopped. Without the note in memory a killed seal's services
// stay down until the next boot, which the seal need not fail for.
func (s *Services) note(units ...string) {
	for _, u := range units {
		if !slices.Contains(s.stopped, u) {
			s.stopped = append(s.stopped, u)
		}
	}
	if s.Disk == nil {
		return
	}
	if err := s.Disk.WriteFile(stoppedPath, []byte(strings.Join(s.stopped, "\n")+"\n"), 0o600); err != nil {
		s.Log.Warn("the list of stopped services was not recorded", "error", err)
	}
}

func (s *Services) run(ctx context.Context, most time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return s.Host.Run(ctx, name, args...)
}

func (s *Services) try(ctx context.Context, most time.Duration, name string, args ...string) {
	_, err := s.run(ctx, most, name, args...)
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		s.Log.Warn("continued without", "command", name+" "+strings.Join(args, " "), "error", err)
	}
}

// Restart starts what Stop stopped: the donor goes on as before, without its containers, which
// kubelet starts, and its sessions.
func (s *Services) Restart(ctx context.Context) error {
	if len(s.stopped) == 0 {
		return nil
	}
	s.try(ctx, askMost, "journalctl", "--flush")
	named := slices.Concat(runtimeUnits, kubeletUnits, ownUnits)
	others := slices.DeleteFunc(slices.Clone(s.stopped), func(u string) bool { return slices.Contains(named, u) })
	if len(others) > 0 {
		// Nobody waits for them: one that hangs must not keep kubelet down.
		s.try(ctx, askMost, "systemctl", append([]string{"start", "--no-block"}, others...)...)
	}
	var err error
	for _, u := range named {
		if !slices.Contains(s.stopped, u) {
			continue
		}
		if _, serr := s.run(ctx, stopMost, "systemctl", "start", u); serr != nil {
			err = errors.Join(err, fmt.Errorf("start %s: %w", u, serr))
		}
	}
	s.stopped = nil
	return err
}

// Revive is Restart for when the process that stopped them is gone: it knows them by its note.
func (s *Services) Revive(ctx context.Context) error {
	s.stopped = strings.Fields(s.Disk.Text(stoppedPath))
	return s.Restart(ctx)
}
