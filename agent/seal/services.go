package seal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"

	"kamino.dev/kamino/agent/host"
)

// Everything that writes what the rules take away, in the order in which it is stopped: kubelet first, because it would
// start the others' work again; the runtime after its containers are gone; then those who log.
var (
	beforeRuntime = []string{"kubelet.service"}
	runtimeUnits  = []string{"containerd.service", "docker.socket", "docker.service", "crio.service"}
	otherUnits    = []string{"walinuxagent.service", "waagent.service", "apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service",
		// Ours, on a donor that booted minutes ago: it would make a host key that all clones share.
		"kamino-ssh-rsa.timer", "kamino-ssh-rsa.service",
		"syslog.socket", "rsyslog.service", "auditd.service"}
)

// Services stops the donor's services and can start again those that it stopped.
type Services struct {
	Host    host.Host
	Log     *slog.Logger
	Extra   []string
	stopped []string
}

// Stop stops them. An error leaves the ones already stopped in the list for Restart.
func (s *Services) Stop(ctx context.Context) error {
	if err := s.stop(ctx, beforeRuntime...); err != nil {
		return err
	}
	s.clear(ctx)
	s.try(ctx, "systemctl", "stop", "kubepods.slice")
	if err := s.stop(ctx, runtimeUnits...); err != nil {
		return err
	}
	// containerd's unit has KillMode=process: its shims outlive it and would keep files open.
	s.try(ctx, "systemctl", "kill", "--signal=SIGKILL", "containerd.service")
	if err := s.stop(ctx, append(append([]string{}, otherUnits...), s.Extra...)...); err != nil {
		return err
	}
	// journald goes on in /run, so that what happens now is not written to the disk.
	s.try(ctx, "journalctl", "--relinquish-var")
	s.try(ctx, "swapoff", "--all")
	return nil
}

// clear removes the containers. Through the runtime's interface it lets the CNI give the pods' addresses back; where
// crictl is not installed (Debian has none), containerd's own client leaves no records and no writable layers either, and
// the CNI's state falls to its rule.
func (s *Services) clear(ctx context.Context) {
	const kubelets = "--namespace=k8s.io"
	_, err := s.Host.Run(ctx, "crictl", "--timeout=60s", "rmp", "--all", "--force")
	if err == nil {
		return
	}
	if !errors.Is(err, exec.ErrNotFound) {
		s.Log.Warn("pods were not removed through the runtime's interface", "error", err)
	}
	for _, kind := range []struct {
		name  string
		force []string
	}{{"tasks", []string{"--force"}}, {"containers", nil}} {
		listed, err := s.Host.Run(ctx, "ctr", kubelets, kind.name, "list", "--quiet")
		if err != nil {
			if !errors.Is(err, exec.ErrNotFound) {
				s.Log.Warn("containers were not listed", "error", err)
			}
			return // another runtime, or none that runs: the scan finds what is left
		}
		if ids := strings.Fields(listed); len(ids) > 0 {
			s.try(ctx, "ctr", append(append([]string{kubelets, kind.name, "delete"}, kind.force...), ids...)...)
		}
	}
}

func (s *Services) stop(ctx context.Context, units ...string) error {
	for _, u := range units {
		if _, err := s.Host.Run(ctx, "systemctl", "is-active", "--quiet", u); err != nil {
			if host.Code(err) < 0 {
				return fmt.Errorf("ask for %s: %w", u, err)
			}
			continue // not running, or not installed
		}
		if _, err := s.Host.Run(ctx, "systemctl", "stop", u); err != nil {
			// auditd refuses to be stopped by hand on some distributions (RefuseManualStop); it loses its log, nothing else.
			if u != "auditd.service" {
				return fmt.Errorf("stop %s: %w", u, err)
			}
			continue
		}
		s.stopped = append(s.stopped, u)
	}
	return nil
}

func (s *Services) try(ctx context.Context, name string, args ...string) {
	_, err := s.Host.Run(ctx, name, args...)
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		s.Log.Warn("went on without", "command", name+" "+strings.Join(args, " "), "error", err)
	}
}

// Restart starts, in reverse order, what Stop stopped: the donor goes on as before.
func (s *Services) Restart(ctx context.Context) error {
	if len(s.stopped) == 0 {
		return nil
	}
	s.try(ctx, "journalctl", "--flush")
	var err error
	for i := len(s.stopped) - 1; i >= 0; i-- {
		if _, serr := s.Host.Run(ctx, "systemctl", "start", s.stopped[i]); serr != nil {
			err = errors.Join(err, fmt.Errorf("start %s: %w", s.stopped[i], serr))
		}
	}
	s.stopped = nil
	return err
}
