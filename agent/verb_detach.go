package agent

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/seal"
)

// detached installs the agent on the host and starts it there: the pod dies with kubelet's and
// containerd's, the host's unit does not.
func (v *sealVerb) detached(ctx context.Context, d *disk.Disk) error {
	if err := v.detachable(); err != nil {
		return err
	}
	// What is wrong is said here, where the pod's log shows it.
	if err := v.beside(ctx, d); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := seal.InstallBinary(d, self); err != nil {
		return err
	}
	// Should the seal be killed, nobody else would bring the donor back before its next boot, or
	// switch it off.
	after := "/" + seal.BinaryPath + " unseal --after-seal"
	if v.powerOff {
		after += " --poweroff"
	}
	args := []string{"--unit=kamino-seal-" + v.run, "--description=Kamino: seal for run " + v.run, "--collect", "--no-block",
		"--property=KillMode=process",
		"--property=ExecStopPost=" + after}
	policy, err := v.policyProperty()
	if err != nil {
		return err
	}
	options, err := v.carried(d)
	if err != nil {
		return err
	}
	args = slices.Concat(args, policy, []string{"/" + seal.BinaryPath, "seal", "--root=/"}, options)
	err = v.inHost(ctx, v.out, v.err, "/usr/bin/systemd-run", args...)
	if err != nil {
		return err
	}
	fmt.Fprintf(v.out, "sealing continues as unit kamino-seal-%s of the host; `journalctl -u kamino-seal-%s` shows it\n", v.run, v.run)
	return nil
}

// beside finds out, while the node works, what would end its seal: at low priority, as this process
// ends with the pod.
func (v *sealVerb) beside(ctx context.Context, d *disk.Disk) error {
	o, err := v.options(ctx, d)
	if err != nil {
		return err
	}
	if err := seal.Permit(d, o); err != nil {
		return err
	}
	v.yield()
	return v.surveyed(ctx, d, &o)
}

func (v *sealVerb) yield() {
	if err := Yield(); err != nil {
		v.log.Warn("continuing at the usual priority", "error", err)
	}
}

// detachable refuses what --detach cannot do. It must never do something else instead, and least of
// all seal.
func (v *sealVerb) detachable() error {
	for _, other := range [][2]string{
		{"dry-run", "a dry run changes nothing: omit --detach"},
		{"no-install", "the program continues from the host's disk"},
		{"o", "the result is in the journal of the host: `journalctl -u kamino-seal-" + v.run + "`"},
	} {
		if given(v.given, other[0]) {
			return fmt.Errorf("seal: --detach and --%s exclude each other: %s", other[0], other[1])
		}
	}
	return nil
}

func given(f *flag.FlagSet, name string) (is bool) {
	f.Visit(func(g *flag.Flag) { is = is || g.Name == name })
	return is
}

// carried are the options with which the host's unit goes on: all that were given, but for those
// that say where this process is, and what came in its environment. A configuration that only this
// process can read goes to the host's memory; the run's policy goes in the environment.
func (v *sealVerb) carried(d *disk.Disk) (options []string, err error) {
	stays := []string{"root", "host-root", "detach", "config", "policy"}
	environment := map[string]string{"nonce": nonceEnv, "imds": "KAMINO_IMDS", "wireserver": "KAMINO_WIRESERVER"}
	v.given.VisitAll(func(f *flag.Flag) {
		if slices.Contains(stays, f.Name) || !given(v.given, f.Name) && os.Getenv(environment[f.Name]) == "" {
			return
		}
		// The service manager expands variables in a command line (systemd.service(5), "Command
		// lines").
		options = append(options, "--"+f.Name+"="+strings.ReplaceAll(f.Value.String(), "$", "$$"))
	})
	if v.config == "" {
		return options, nil
	}
	data, err := os.ReadFile(v.config)
	if err != nil {
		return nil, fmt.Errorf("read SealConfig: %w", err)
	}
	name := "run/kamino/seal-" + v.run + ".yaml"
	return append(options, "--config=/"+name), d.WriteFile(name, data, 0o600)
}
